//! `from_env`: a builder with the settings of the environment.

use std::os::unix::ffi::OsStringExt;

use super::RedlockBuilder;
use crate::environment::{
    Environment, LABEL, MAX_TTL, NODE_TIMEOUT, PLAIN, PREFIX, QUARANTINE, QUEUE, Variable,
};
use crate::settings::BuildError;

impl Environment<'_> {
    fn builder(&self) -> Result<RedlockBuilder, BuildError> {
        let masters = self.masters()?.masters;
        if masters.is_empty() {
            return Err(BuildError::NoneNamed { below_run: self.is_below_run() });
        }
        let builder = RedlockBuilder::new().named(masters).pem(&self.pem_files()?.read()?);
        let builder = builder.password_file(self.password_file()?.as_ref());
        let builder = self.fill(builder, &PREFIX, |it, prefix| it.prefix(prefix.into_vec()))?;
        let builder = self.fill(builder, &MAX_TTL, RedlockBuilder::max_ttl)?;
        let builder = self.fill(builder, &NODE_TIMEOUT, RedlockBuilder::node_timeout)?;
        let builder = self.fill(builder, &QUARANTINE, RedlockBuilder::quarantine)?;
        let builder = self.fill(builder, &PLAIN, |it, plain| it.fencing(!plain))?;
        let builder = self.fill(builder, &QUEUE, RedlockBuilder::queue)?;
        self.fill(builder, &LABEL, |it, label| it.label(label.to_string_lossy()))
    }

    fn fill<T>(
        &self,
        builder: RedlockBuilder,
        variable: &Variable<T>,
        set: impl FnOnce(RedlockBuilder, T) -> RedlockBuilder,
    ) -> Result<RedlockBuilder, BuildError> {
        match self.value(variable)? {
            Some((value, source)) => {
                Ok(set(builder, value).given_by(variable, source.origin(variable.name())))
            }
            None => Ok(builder),
        }
    }
}

impl RedlockBuilder {
    /// Creates a builder with the settings of the environment and of the configuration file of this
    /// host. It reads the variables of the `redlock` command:
    ///
    /// | variable | |
    /// |---|---|
    /// | `REDLOCK_NODES` | the masters, separated by commas; or |
    /// | `REDLOCK_NODES_FILE` | a file with one URL per line, in which `#` starts a comment line |
    /// | `REDLOCK_USERNAME`, `REDLOCK_PASSWORD_FILE` | the user, and a file with its password that is read for each connection, for masters whose URLs have no [credentials](Self::credentials) |
    /// | `REDLOCK_PREFIX` | [`prefix`](Self::prefix) |
    /// | `REDLOCK_MAX_TTL` | [`max_ttl`](Self::max_ttl), as `500ms`, `10s`, `1h` |
    /// | `REDLOCK_QUARANTINE` | [`quarantine`](Self::quarantine), `on` or `off` |
    /// | `REDLOCK_PLAIN` | `1` for [`fencing(false)`](Self::fencing) |
    /// | `REDLOCK_QUEUE` | `off` for [`queue(false)`](Self::queue) |
    /// | `REDLOCK_NODE_TIMEOUT` | [`node_timeout`](Self::node_timeout) |
    /// | `REDLOCK_LABEL` | [`label`](Self::label); without it `user@host:pid` |
    /// | `REDLOCK_TLS_CA`, `REDLOCK_TLS_CERT`, `REDLOCK_TLS_KEY` | PEM files, for [`tls`](Self::tls) |
    ///
    /// An empty variable is treated as unset. For unset variables, `/etc/redlock/config` is read,
    /// or the file that `REDLOCK_CONFIG` names. It has the same variables, one `NAME=VALUE` on each
    /// line. The masters are one setting: if either variable of the environment names masters,
    /// the masters of the file are ignored.
    ///
    /// This file and the file in `REDLOCK_NODES_FILE` may be pipes. The call blocks until they end,
    /// for at most 10 s each. All other files are read for each connection, so they must be
    /// regular.
    ///
    /// With the same file a service and its cron jobs agree on all settings that they must share. A
    /// setting that is made on the builder afterwards replaces the variable.
    ///
    /// # Errors
    /// Returns [`BuildError`] with the name of the variable or the line of the file if no masters
    /// are named, a file cannot be read or a value cannot be used; for a value that is out of
    /// range, [`build`](Self::build) returns the error.
    pub fn from_env() -> Result<Self, BuildError> {
        Environment::of_process().with_file()?.builder()
    }
}

#[cfg(test)]
mod tests;
