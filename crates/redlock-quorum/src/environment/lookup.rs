//! `Environment`: the source of variables.

use std::ffi::OsString;

use crate::environment::variables::{TOKEN, Variable};
use crate::settings::BuildError;

/// The source of variables: the environment of this process, or, in tests, a list.
#[derive(Clone, Copy)]
#[allow(missing_debug_implementations, reason = "its values are secrets")]
pub struct Environment<'a> {
    pub(crate) lookup: &'a dyn Fn(&str) -> Option<OsString>,
}

impl Environment<'static> {
    /// The environment of this process.
    pub fn of_process() -> Self {
        Self { lookup: &|name| std::env::var_os(name) }
    }
}

impl Environment<'_> {
    /// The value of a variable that is set, and not to nothing: an empty one is how units and
    /// manifests switch one off.
    pub fn get(&self, name: &str) -> Option<OsString> {
        (self.lookup)(name).filter(|value| !value.is_empty())
    }

    /// The value of a variable, read.
    ///
    /// # Errors
    /// [`BuildError::Variable`] when it cannot be read.
    pub fn value<T>(&self, variable: &Variable<T>) -> Result<Option<T>, BuildError> {
        self.get(variable.name()).map(|value| variable.read(value)).transpose()
    }

    /// Whether this process is below `redlock run`, which removes the masters.
    pub fn is_below_run(&self) -> bool {
        self.get(TOKEN).is_some()
    }
}
