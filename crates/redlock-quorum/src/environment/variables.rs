//! The variables: their names, and how the value of each is read.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::environment::duration;
use crate::settings::{BuildError, Quarantine};

/// The masters, separated by commas.
pub const NODES: &str = "REDLOCK_NODES";
/// A file with one master on each line.
pub const NODES_FILE: &str = "REDLOCK_NODES_FILE";
/// `redlock run` sets it for its command: the value of the lock's key.
pub const TOKEN: &str = "REDLOCK_TOKEN";

/// The prefix of every key.
pub const PREFIX: Variable<OsString> = Variable { name: "REDLOCK_PREFIX", read: Ok };
/// The largest TTL.
pub const MAX_TTL: Variable<Duration> = Variable { name: "REDLOCK_MAX_TTL", read: duration_of };
/// How long each master has for its answer.
pub const NODE_TIMEOUT: Variable<Duration> =
    Variable { name: "REDLOCK_NODE_TIMEOUT", read: duration_of };
/// Whether a master that may have lost its keys is kept from voting.
pub const QUARANTINE: Variable<Quarantine> =
    Variable { name: "REDLOCK_QUARANTINE", read: quarantine_of };
/// Whether locks go without fencing tokens.
pub const PLAIN: Variable<bool> = Variable { name: "REDLOCK_PLAIN", read: flag_of };
/// Whether processes that wait for a lock stand in one queue.
pub const QUEUE: Variable<bool> = Variable { name: "REDLOCK_QUEUE", read: switch_of };
/// Who holds a lock, for people.
pub const LABEL: Variable<OsString> = Variable { name: "REDLOCK_LABEL", read: Ok };
/// The file with the certificates that are trusted.
pub const TLS_CA: Variable<PathBuf> = Variable { name: "REDLOCK_TLS_CA", read: path_of };
/// The file with our certificate.
pub const TLS_CERT: Variable<PathBuf> = Variable { name: "REDLOCK_TLS_CERT", read: path_of };
/// The file with its private key.
pub const TLS_KEY: Variable<PathBuf> = Variable { name: "REDLOCK_TLS_KEY", read: path_of };

/// One variable.
#[derive(Debug)]
pub struct Variable<T> {
    name: &'static str,
    read: fn(OsString) -> Result<T, String>,
}

impl<T> Variable<T> {
    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The option of the command that means the same.
    pub fn option(&self) -> String {
        let words = self.name.trim_start_matches("REDLOCK_");
        format!("--{}", words.to_lowercase().replace('_', "-"))
    }

    /// Parses the text of the variable.
    ///
    /// # Errors
    /// [`BuildError::Variable`] when it means nothing.
    pub fn read(&self, text: OsString) -> Result<T, BuildError> {
        let refused = |why| BuildError::Variable { name: self.name.into(), why };
        (self.read)(text).map_err(refused)
    }
}

fn duration_of(text: OsString) -> Result<Duration, String> {
    duration::parse(&text.to_string_lossy())
}

fn quarantine_of(text: OsString) -> Result<Quarantine, String> {
    match text.to_string_lossy().as_ref() {
        "on" => Ok(Quarantine::On),
        "off" => Ok(Quarantine::Off),
        text => Err(format!("invalid value {text:?}: expected on or off")),
    }
}

fn switch_of(text: OsString) -> Result<bool, String> {
    match text.to_string_lossy().as_ref() {
        "on" => Ok(true),
        "off" => Ok(false),
        text => Err(format!("invalid value {text:?}: expected on or off")),
    }
}

/// Whether a variable is set to yes. The meaning of another word is not guessed.
fn flag_of(text: OsString) -> Result<bool, String> {
    match text.to_string_lossy().to_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        text => Err(format!("invalid value {text:?}: expected 1 or 0")),
    }
}

fn path_of(text: OsString) -> Result<PathBuf, String> {
    Ok(text.into())
}
