//! `Global`: what every command takes that works on masters, from the command line or from the
//! environment.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use clap::{Args, ValueEnum};

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
    /// How long each master has for its answer [default: 50ms, or a tenth of the TTL]
    /// [env: REDLOCK_NODE_TIMEOUT]
    #[arg(
        long,
        value_name = "D",
        global = true,
        allow_negative_numbers = true,
        value_parser = duration::parse
    )]
    pub(crate) node_timeout: Option<Duration>,
    /// What every key on the masters begins with [default: nothing] [env: REDLOCK_PREFIX]
    #[arg(long, value_name = "TEXT", global = true)]
    pub(crate) prefix: Option<OsString>,
    /// The largest TTL, where no master has a record of it yet; `redlock init --again --max-ttl`
    /// sets another one [default: 60s] [env: REDLOCK_MAX_TTL]
    #[arg(
        long,
        value_name = "D",
        global = true,
        allow_negative_numbers = true,
        value_parser = duration::parse
    )]
    pub(crate) max_ttl: Option<Duration>,
    /// Whether a master that may have forgotten its locks is kept from voting for 1.1 times the
    /// largest TTL; the same for all clients [default: on] [env: REDLOCK_QUARANTINE]
    #[arg(long, value_name = "on|off", global = true)]
    pub(crate) quarantine: Option<Switch>,
    /// No fencing tokens: the published algorithm and no command more. Needed for masters before
    /// Redis 6.2 [env: REDLOCK_PLAIN]
    #[arg(long, global = true)]
    pub(crate) plain: bool,
    /// A name in the lock, for people who ask who holds it: 1 to 64 of A-Z a-z 0-9 . _ @ : -
    /// [default: user@host:pid]
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
    /// Say on stderr what each master answered, and how long it took
    #[arg(short, long, global = true, help_heading = None::<&str>)]
    pub(crate) verbose: bool,
    /// No line on stderr when another holds the lock
    #[arg(short, long, global = true, help_heading = None::<&str>)]
    pub(crate) quiet: bool,
    /// The variables that values were taken from.
    #[arg(skip)]
    variables: Vec<&'static str>,
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

impl Switch {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

impl Global {
    /// What a command takes from the environment that starts masters of its own.
    ///
    /// # Errors
    /// As [`fill`](Self::fill).
    pub(crate) fn fill_namespace(&mut self) -> Result<(), Failure> {
        let variables = &mut self.variables;
        fill(variables, "REDLOCK_PREFIX", &mut self.prefix, Ok)?;
        fill(variables, "REDLOCK_MAX_TTL", &mut self.max_ttl, duration_of)
    }

    /// Takes from the environment what the command line leaves open. An empty variable counts as
    /// unset: that is how units and manifests switch one off.
    ///
    /// # Errors
    /// Wrong usage, with the name of the variable, when a value cannot be read.
    pub(crate) fn fill(&mut self) -> Result<(), Failure> {
        self.fill_namespace()?;
        let variables = &mut self.variables;
        fill(variables, "REDLOCK_NODE_TIMEOUT", &mut self.node_timeout, duration_of)?;
        fill(variables, "REDLOCK_QUARANTINE", &mut self.quarantine, switch_of)?;
        let mut plain = self.plain.then_some(true);
        fill(variables, "REDLOCK_PLAIN", &mut plain, flag_of)?;
        self.plain = plain.unwrap_or(false);
        fill(variables, "REDLOCK_LABEL", &mut self.label, Ok)?;
        fill(variables, "REDLOCK_TLS_CA", &mut self.tls_ca, path_of)?;
        fill(variables, "REDLOCK_TLS_CERT", &mut self.tls_cert, path_of)?;
        fill(variables, "REDLOCK_TLS_KEY", &mut self.tls_key, path_of)
    }

    /// What a value was given by: the option, or its variable.
    pub(crate) fn origin(&self, option: &'static str) -> String {
        self.variable_of(option).unwrap_or_else(|| option.into())
    }

    /// The variable that a value was given by; none when it was not.
    pub(crate) fn variable_of(&self, option: &'static str) -> Option<String> {
        let variable = format!("REDLOCK_{}", option[2..].replace('-', "_").to_uppercase());
        self.variables.contains(&variable.as_str()).then_some(variable)
    }
}

/// The value of a variable that is set, and not to nothing.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

fn fill<T>(
    variables: &mut Vec<&'static str>,
    name: &'static str,
    slot: &mut Option<T>,
    read: fn(OsString) -> Result<T, String>,
) -> Result<(), Failure> {
    let Some(value) = variable(name).filter(|_| slot.is_none()) else { return Ok(()) };
    *slot = Some(read(value).map_err(|why| Failure::usage(anyhow!("{name}: {why}")))?);
    variables.push(name);
    Ok(())
}

fn duration_of(value: OsString) -> Result<Duration, String> {
    duration::parse(&value.to_string_lossy())
}

fn switch_of(value: OsString) -> Result<Switch, String> {
    let text = value.to_string_lossy();
    Switch::from_str(&text, false).map_err(|_| format!("{text:?} is neither on nor off"))
}

/// Whether a variable says yes. What a person may have meant by another word is not guessed.
fn flag_of(value: OsString) -> Result<bool, String> {
    match value.to_string_lossy().to_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        text => Err(format!("{text:?} is neither 1 nor 0")),
    }
}

fn path_of(value: OsString) -> Result<PathBuf, String> {
    Ok(value.into())
}
