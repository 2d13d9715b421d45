//! `Environment`: the source of variables.

use std::ffi::OsString;

use crate::environment::file::File;
use crate::environment::source::Source;
use crate::environment::variables::{CONFIG, TOKEN, Variable};
use crate::settings::BuildError;

/// Sources of variables: the environment of this process (a list in tests), and optionally the
/// configuration file.
#[derive(Clone)]
#[allow(missing_debug_implementations, reason = "its values are secrets")]
pub struct Environment<'a> {
    lookup: &'a dyn Fn(&str) -> Option<OsString>,
    file: File,
}

impl Environment<'static> {
    /// Reads only the environment of this process.
    pub fn of_process() -> Self {
        Self::of(&|name| std::env::var_os(name))
    }
}

impl<'a> Environment<'a> {
    /// Reads only these variables.
    pub(crate) fn of(lookup: &'a dyn Fn(&str) -> Option<OsString>) -> Self {
        Self { lookup, file: File::default() }
    }

    /// Reads these variables, and the configuration file for unset ones.
    ///
    /// # Errors
    /// Returns [`BuildError::Variable`] with the file and the line, if it is malformed or
    /// unreadable.
    pub fn with_file(self) -> Result<Self, BuildError> {
        Ok(Self { file: File::of(self.get(CONFIG))?, ..self })
    }

    /// Returns the value of a variable. An empty variable is unset, because units and manifests
    /// disable variables that way. The file is not read.
    pub fn get(&self, name: &str) -> Option<OsString> {
        (self.lookup)(name).filter(|value| !value.is_empty())
    }

    /// Returns the text of a setting, and its source.
    pub(crate) fn given(&self, name: &str) -> Option<(OsString, Source)> {
        let variable = self.get(name).map(|value| (value, Source::Environment));
        variable.or_else(|| self.of_file(name))
    }

    /// Returns the text of a setting in the file.
    pub(crate) fn of_file(&self, name: &str) -> Option<(OsString, Source)> {
        self.file.get(name).map(|(value, place)| (value, Source::File(place)))
    }

    /// Returns the parsed value of a setting, and its origin.
    ///
    /// # Errors
    /// Returns [`BuildError::Variable`] if it cannot be parsed.
    pub fn value<T>(&self, variable: &Variable<T>) -> Result<Option<(T, Source)>, BuildError> {
        let Some((text, source)) = self.given(variable.name()) else { return Ok(None) };
        let value = variable.read_from(text, || source.origin(variable.name()))?;
        Ok(Some((value, source)))
    }

    /// Returns `true` if this process runs under `redlock run`, which removes the masters from its
    /// environment.
    pub fn is_below_run(&self) -> bool {
        self.get(TOKEN).is_some()
    }
}
