//! `Global`: what every command takes that works on masters, from the command line or from the
//! environment.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use redlock_quorum::environment::{self, Environment, Variable};
use redlock_quorum::{BuildError, Quarantine};

use crate::duration;
use crate::exit::Failure;

/// What every command takes, before or after its name. Values from the environment are never
/// shown: some are secret.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Masters")]
pub(crate) struct Global {
    /// A master; repeat it for each: redis://[user:password@]host[:port][/db], rediss://, unix://
    ///
    /// Instead, REDLOCK_NODES lists them separated by commas, or REDLOCK_NODES_FILE names a file
    /// with one on each line. Prefer these for URLs with a password: other users of a machine can
    /// read command lines.
    #[arg(id = "node", long, value_name = "URL", global = true)]
    pub(crate) nodes: Vec<String>,
    /// Time limit for each master's answer [default: 50ms, or a tenth of the TTL] [env:
    /// REDLOCK_NODE_TIMEOUT]
    #[arg(
        long,
        value_name = "D",
        global = true,
        allow_negative_numbers = true,
        value_parser = duration::parse
    )]
    pub(crate) node_timeout: Option<Duration>,
    /// Prefix of every key on the masters [default: none] [env: REDLOCK_PREFIX]
    #[arg(long, value_name = "TEXT", global = true)]
    pub(crate) prefix: Option<OsString>,
    /// Largest TTL while the masters have no record; change it later with `redlock init --max-ttl`
    /// [default: 60s] [env: REDLOCK_MAX_TTL]
    #[arg(
        long,
        value_name = "D",
        global = true,
        allow_negative_numbers = true,
        value_parser = duration::parse
    )]
    pub(crate) max_ttl: Option<Duration>,
    /// Keep a master that may have lost data from voting for 1.1 × max-ttl; same for all clients
    /// [default: on] [env: REDLOCK_QUARANTINE]
    #[arg(
        long,
        value_name = "on|off",
        global = true,
        value_parser = PossibleValuesParser::new(["on", "off"]).try_map(quarantine)
    )]
    pub(crate) quarantine: Option<Quarantine>,
    /// Plain Redlock without fencing tokens (required before Redis 6.2). Before Redis 6.0, or
    /// without CLIENT TRACKING, also use --quarantine off [env: REDLOCK_PLAIN]
    #[arg(long, global = true)]
    pub(crate) plain: bool,
    /// Don't queue: the first client to try when the lock is free gets it. Use it when sharing
    /// locks with clients that cannot queue [env: REDLOCK_QUEUE=off]
    #[arg(long, global = true)]
    pub(crate) no_queue: bool,
    /// Label shown by `redlock status`: 1 to 64 of A-Z a-z 0-9 . _ @ : - [default: user@host:pid]
    /// [env: REDLOCK_LABEL]
    #[arg(long, value_name = "TEXT", global = true)]
    pub(crate) label: Option<OsString>,
    /// Trust the certificates in this PEM file, for rediss:// [default: the system's]
    /// [env: REDLOCK_TLS_CA]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Show this certificate chain, a PEM file, to the masters [env: REDLOCK_TLS_CERT]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its private key, a PEM file [env: REDLOCK_TLS_KEY]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) tls_key: Option<PathBuf>,
    /// Print each master's answer and latency to stderr
    #[arg(short, long, global = true, help_heading = None::<&str>)]
    pub(crate) verbose: bool,
    /// No line on stderr if another client holds the lock; `run`: nothing on stderr at all if it
    /// exits with 0 or with the code of -E
    #[arg(short, long, global = true, help_heading = None::<&str>)]
    pub(crate) quiet: bool,
    /// The variables that values were taken from.
    #[arg(skip)]
    variables: Vec<&'static str>,
}

fn quarantine(text: String) -> Result<Quarantine, BuildError> {
    environment::QUARANTINE.read(text.into())
}

impl Global {
    /// What a command takes from the environment that starts masters of its own.
    ///
    /// # Errors
    /// As [`fill`](Self::fill).
    pub(crate) fn fill_namespace(&mut self) -> Result<(), Failure> {
        let variables = &mut self.variables;
        fill(variables, &environment::PREFIX, &mut self.prefix)?;
        fill(variables, &environment::MAX_TTL, &mut self.max_ttl)
    }

    /// Takes from the environment what the command line leaves open. An empty variable counts as
    /// unset: that is how units and manifests switch one off.
    ///
    /// # Errors
    /// Wrong usage, with the name of the variable, when a value cannot be read.
    pub(crate) fn fill(&mut self) -> Result<(), Failure> {
        self.fill_namespace()?;
        let variables = &mut self.variables;
        fill(variables, &environment::NODE_TIMEOUT, &mut self.node_timeout)?;
        fill(variables, &environment::QUARANTINE, &mut self.quarantine)?;
        let mut plain = self.plain.then_some(true);
        fill(variables, &environment::PLAIN, &mut plain)?;
        self.plain = plain.unwrap_or(false);
        let mut queue = self.no_queue.then_some(false);
        fill(variables, &environment::QUEUE, &mut queue)?;
        self.no_queue = queue == Some(false);
        fill(variables, &environment::LABEL, &mut self.label)?;
        fill(variables, &environment::TLS_CA, &mut self.tls_ca)?;
        fill(variables, &environment::TLS_CERT, &mut self.tls_cert)?;
        fill(variables, &environment::TLS_KEY, &mut self.tls_key)
    }

    /// What a value was given by: the variable, or the option of the same meaning.
    pub(crate) fn origin<T>(&self, variable: &Variable<T>) -> String {
        match self.is_from_environment(variable) {
            true => variable.name().into(),
            false => variable.option(),
        }
    }

    /// Whether a value was taken from the environment.
    pub(crate) fn is_from_environment<T>(&self, variable: &Variable<T>) -> bool {
        self.variables.contains(&variable.name())
    }

    /// On, unless it was given as off.
    pub(crate) fn quarantine(&self) -> Quarantine {
        self.quarantine.unwrap_or_default()
    }
}

/// The value of a variable that is set, and not to nothing.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    Environment::of_process().get(name)
}

fn fill<T>(
    variables: &mut Vec<&'static str>,
    variable: &Variable<T>,
    slot: &mut Option<T>,
) -> Result<(), Failure> {
    if slot.is_some() {
        return Ok(());
    }
    *slot = Environment::of_process().value(variable)?;
    if slot.is_some() {
        variables.push(variable.name());
    }
    Ok(())
}
