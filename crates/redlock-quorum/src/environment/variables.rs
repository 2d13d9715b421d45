//! The variables: their names, and how the value of each is read.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use redlock_core::printable;

use crate::environment::duration;
use crate::environment::source::option_of;
use crate::settings::{BuildError, Quarantine};

/// The configuration file.
pub const CONFIG: &str = "REDLOCK_CONFIG";
/// The masters, separated by commas.
pub const NODES: &str = "REDLOCK_NODES";
/// A file with one master per line.
pub const NODES_FILE: &str = "REDLOCK_NODES_FILE";
/// The token of the lock, which `redlock run` passes to its command.
pub const TOKEN: &str = "REDLOCK_TOKEN";

/// The prefix of every key.
pub const PREFIX: Variable<OsString> = Variable { name: "REDLOCK_PREFIX", read: Ok };
/// The largest TTL.
pub const MAX_TTL: Variable<Duration> = Variable { name: "REDLOCK_MAX_TTL", read: duration_of };
/// The time limit for each master's answer.
pub const NODE_TIMEOUT: Variable<Duration> =
    Variable { name: "REDLOCK_NODE_TIMEOUT", read: duration_of };
/// Quarantine for masters that may have lost their keys: on or off.
pub const QUARANTINE: Variable<Quarantine> =
    Variable { name: "REDLOCK_QUARANTINE", read: quarantine_of };
/// Locks without fencing tokens: 1 or 0.
pub const PLAIN: Variable<bool> = Variable { name: "REDLOCK_PLAIN", read: flag_of };
/// One queue for the processes that wait for a lock: on or off.
pub const QUEUE: Variable<bool> = Variable { name: "REDLOCK_QUEUE", read: switch_of };
/// The display name of the holder.
pub const LABEL: Variable<OsString> = Variable { name: "REDLOCK_LABEL", read: Ok };
/// The user at masters whose URLs have no credentials.
pub const USERNAME: Variable<OsString> = Variable { name: "REDLOCK_USERNAME", read: Ok };
/// The file with its password.
pub const PASSWORD_FILE: Variable<PathBuf> =
    Variable { name: "REDLOCK_PASSWORD_FILE", read: path_of };
/// The file with the trusted certificates.
pub const TLS_CA: Variable<PathBuf> = Variable { name: "REDLOCK_TLS_CA", read: path_of };
/// The file with the certificate of this client.
pub const TLS_CERT: Variable<PathBuf> = Variable { name: "REDLOCK_TLS_CERT", read: path_of };
/// The file with its private key.
pub const TLS_KEY: Variable<PathBuf> = Variable { name: "REDLOCK_TLS_KEY", read: path_of };

/// Properties of a variable that the library, `redlock doctor` and `redlock run` need.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The name of the variable.
    pub name: &'static str,
    /// `true` if the variable leads to the masters, so that `redlock run` removes it from the
    /// environment of its command.
    pub is_access: bool,
}

/// All variables that are settings.
pub const SETTINGS: [Setting; 15] = {
    const fn open(name: &'static str) -> Setting {
        Setting { name, is_access: false }
    }
    const fn access(name: &'static str) -> Setting {
        Setting { name, is_access: true }
    }
    [
        access(CONFIG),
        access(NODES),
        access(NODES_FILE),
        access(USERNAME.name),
        access(PASSWORD_FILE.name),
        access(TLS_CA.name),
        access(TLS_CERT.name),
        access(TLS_KEY.name),
        open(PREFIX.name),
        open(MAX_TTL.name),
        open(NODE_TIMEOUT.name),
        open(QUARANTINE.name),
        open(PLAIN.name),
        open(QUEUE.name),
        open(LABEL.name),
    ]
};

/// One variable.
#[derive(Debug)]
pub struct Variable<T> {
    name: &'static str,
    read: fn(OsString) -> Result<T, String>,
}

impl<T> Variable<T> {
    /// Returns the name of the variable.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the command's option with the same meaning.
    pub fn option(&self) -> String {
        option_of(self.name)
    }

    /// Parses the text of the variable.
    ///
    /// # Errors
    /// Returns [`BuildError::Variable`] if the text is invalid.
    pub fn read(&self, text: OsString) -> Result<T, BuildError> {
        self.read_from(text, || self.name.into())
    }

    /// Parses a text of a different origin like a value of this variable.
    pub(crate) fn read_from(
        &self,
        text: OsString,
        origin: impl FnOnce() -> String,
    ) -> Result<T, BuildError> {
        (self.read)(text).map_err(|why| BuildError::Variable { name: origin(), why })
    }
}

fn duration_of(text: OsString) -> Result<Duration, String> {
    duration::parse(&text.to_string_lossy())
}

fn quarantine_of(text: OsString) -> Result<Quarantine, String> {
    match text.to_string_lossy().as_ref() {
        "on" => Ok(Quarantine::On),
        "off" => Ok(Quarantine::Off),
        text => Err(unexpected(text, "on or off")),
    }
}

fn switch_of(text: OsString) -> Result<bool, String> {
    match text.to_string_lossy().as_ref() {
        "on" => Ok(true),
        "off" => Ok(false),
        text => Err(unexpected(text, "on or off")),
    }
}

/// Returns `true` if a variable is set to yes. Other words are rejected rather than guessed.
fn flag_of(text: OsString) -> Result<bool, String> {
    match text.to_string_lossy().to_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        text => Err(unexpected(text, "1 or 0")),
    }
}

fn unexpected(text: &str, expected: &str) -> String {
    format!("invalid value \"{}\": expected {expected}", printable::setting(text))
}

fn path_of(text: OsString) -> Result<PathBuf, String> {
    Ok(text.into())
}
