//! `Environment`: the source of variables.

use std::ffi::OsString;

use crate::environment::file::File;
use crate::environment::source::Source;
use crate::environment::variables::{CONFIG, TOKEN, Variable};
use crate::settings::BuildError;

/// The source of variables: the environment of this process, or, in tests, a list; and the
/// configuration file, if it was asked for.
#[derive(Clone)]
#[allow(missing_debug_implementations, reason = "its values are secrets")]
pub struct Environment<'a> {
    lookup: &'a dyn Fn(&str) -> Option<OsString>,
    file: File,
}

impl Environment<'static> {
    /// The environment of this process alone.
    pub fn of_process() -> Self {
        Self::of(&|name| std::env::var_os(name))
    }
}

impl<'a> Environment<'a> {
    /// These variables alone.
    pub(crate) fn of(lookup: &'a dyn Fn(&str) -> Option<OsString>) -> Self {
        Self { lookup, file: File::default() }
    }

    /// The same, and the configuration file for what they leave open.
    ///
    /// # Errors
    /// [`BuildError::Variable`] with the file and the line, when it is of no use.
    pub fn with_file(self) -> Result<Self, BuildError> {
        Ok(Self { file: File::of(self.get(CONFIG))?, ..self })
    }

    /// The value of a variable that is set, and not to nothing: an empty one is how units and
    /// manifests switch one off. The file is not looked at.
    pub fn get(&self, name: &str) -> Option<OsString> {
        (self.lookup)(name).filter(|value| !value.is_empty())
    }

    /// The text of a setting, and what gave it.
    pub(crate) fn given(&self, name: &str) -> Option<(OsString, Source)> {
        let variable = self.get(name).map(|value| (value, Source::Environment));
        variable.or_else(|| self.of_file(name))
    }

    /// The text of a setting in the file.
    pub(crate) fn of_file(&self, name: &str) -> Option<(OsString, Source)> {
        self.file.get(name).map(|(value, place)| (value, Source::File(place)))
    }

    /// The value of a setting, read, and what gave it.
    ///
    /// # Errors
    /// [`BuildError::Variable`] when it cannot be read.
    pub fn value<T>(&self, variable: &Variable<T>) -> Result<Option<(T, Source)>, BuildError> {
        let Some((text, source)) = self.given(variable.name()) else { return Ok(None) };
        let value = variable.read_from(text, || source.origin(variable.name()))?;
        Ok(Some((value, source)))
    }

    /// Whether this process is below `redlock run`, which removes the masters.
    pub fn is_below_run(&self) -> bool {
        self.get(TOKEN).is_some()
    }
}
