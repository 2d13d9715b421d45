//! `Global`: what every command takes that works on masters, from the command line or from the
//! environment.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use redlock_quorum::environment::{self, Environment, Master, Named, Source, Variable};
use redlock_quorum::{BuildError, Quarantine};

use crate::duration;
use crate::exit::Failure;

/// Options of every command, before or after its name. Help never shows values from the
/// environment, because some are secret.
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
    #[arg(long, value_name = "FILE", global = true, allow_hyphen_values = true)]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Show this certificate chain, a PEM file, to the masters [env: REDLOCK_TLS_CERT]
    #[arg(long, value_name = "FILE", global = true, allow_hyphen_values = true)]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its private key, a PEM file [env: REDLOCK_TLS_KEY]
    #[arg(long, value_name = "FILE", global = true, allow_hyphen_values = true)]
    pub(crate) tls_key: Option<PathBuf>,
    /// Print each master's answer and latency
    #[arg(short, long, global = true, help_heading = None::<&str>)]
    pub(crate) verbose: bool,
    /// Print nothing if another client holds the lock. A `run` that exits with 0 or with the code
    /// of -E prints nothing itself
    #[arg(short, long, global = true, help_heading = None::<&str>)]
    pub(crate) quiet: bool,
    /// The masters, of whatever names them.
    #[arg(skip)]
    pub(crate) named: Named,
    /// The user of the masters whose URLs have no credentials. No option gives it.
    #[arg(skip)]
    pub(crate) username: Option<OsString>,
    /// The file with its password.
    #[arg(skip)]
    pub(crate) password_file: Option<PathBuf>,
    /// The variables whose values no option gave, and what gave each.
    #[arg(skip)]
    sources: Vec<(&'static str, Source)>,
}

fn quarantine(text: String) -> Result<Quarantine, BuildError> {
    environment::QUARANTINE.read(text.into())
}

impl Global {
    /// Creates the settings of a command that starts its own masters. No file of this host is read.
    ///
    /// # Errors
    /// As [`fill`](Self::fill).
    pub(crate) fn fill_prefix(&mut self) -> Result<(), Failure> {
        self.fill_prefix_from(&Environment::of_process())
    }

    fn fill_prefix_from(&mut self, environment: &Environment<'_>) -> Result<(), Failure> {
        let mut fill = Fill { environment, sources: &mut self.sources };
        fill.with(&environment::PREFIX, &mut self.prefix)?;
        fill.with(&environment::MAX_TTL, &mut self.max_ttl)
    }

    /// Reads settings without an option from the environment, and then from the configuration file.
    /// An empty variable is the same as an unset one, so that units and manifests can switch it
    /// off.
    ///
    /// # Errors
    /// Returns a usage error, with the name of the variable or the line of the file, if a value is
    /// invalid.
    pub(crate) fn fill(&mut self) -> Result<(), Failure> {
        let environment = &Environment::of_process().with_file()?;
        self.fill_prefix_from(environment)?;
        let mut fill = Fill { environment, sources: &mut self.sources };
        fill.with(&environment::NODE_TIMEOUT, &mut self.node_timeout)?;
        fill.with(&environment::QUARANTINE, &mut self.quarantine)?;
        let mut plain = self.plain.then_some(true);
        fill.with(&environment::PLAIN, &mut plain)?;
        self.plain = plain.unwrap_or(false);
        let mut queue = self.no_queue.then_some(false);
        fill.with(&environment::QUEUE, &mut queue)?;
        self.no_queue = queue == Some(false);
        fill.with(&environment::LABEL, &mut self.label)?;
        fill.with(&environment::TLS_CA, &mut self.tls_ca)?;
        fill.with(&environment::TLS_CERT, &mut self.tls_cert)?;
        fill.with(&environment::TLS_KEY, &mut self.tls_key)?;
        fill.with(&environment::USERNAME, &mut self.username)?;
        fill.with(&environment::PASSWORD_FILE, &mut self.password_file)?;
        self.named = self.masters(environment)?;
        Ok(())
    }

    /// The masters: of the command line, else of the environment, else of the file.
    fn masters(&self, environment: &Environment<'_>) -> Result<Named, BuildError> {
        if self.nodes.is_empty() {
            return environment.masters();
        }
        let given = self.nodes.iter();
        let masters = given.map(|url| Master { url: url.clone(), origin: "--node".into() });
        let masters = masters.collect();
        Ok(Named { masters, name: environment::NODES, source: Source::Option, file: None })
    }

    /// Returns the values of all variables as texts, except for the variables with masters.
    pub(crate) fn values(&self) -> [(&'static str, Option<OsString>); 12] {
        let path = |path: &Option<PathBuf>| path.clone().map(OsString::from);
        let duration =
            |time: Option<Duration>| time.map(|time| format!("{}ms", time.as_millis()).into());
        let is_given = |name| self.sources.iter().any(|(known, _)| *known == name);
        let flag = |name, is_set: bool, set: &str, unset: &str| {
            let text = if is_set { set } else { unset };
            (name, (is_set || is_given(name)).then(|| text.into()))
        };
        [
            (environment::USERNAME.name(), self.username.clone()),
            (environment::PASSWORD_FILE.name(), path(&self.password_file)),
            (environment::TLS_CA.name(), path(&self.tls_ca)),
            (environment::TLS_CERT.name(), path(&self.tls_cert)),
            (environment::TLS_KEY.name(), path(&self.tls_key)),
            (environment::PREFIX.name(), self.prefix.clone()),
            (environment::MAX_TTL.name(), duration(self.max_ttl)),
            (environment::NODE_TIMEOUT.name(), duration(self.node_timeout)),
            (environment::QUARANTINE.name(), self.quarantine.map(|given| word(given).into())),
            flag(environment::PLAIN.name(), self.plain, "1", "0"),
            flag(environment::QUEUE.name(), self.no_queue, "off", "on"),
            (environment::LABEL.name(), self.label.clone()),
        ]
    }

    /// Returns the source of a variable's value.
    pub(crate) fn source<T>(&self, variable: &Variable<T>) -> &Source {
        self.source_of(variable.name())
    }

    /// The same, by its name.
    pub(crate) fn source_of(&self, name: &str) -> &Source {
        let given = self.sources.iter().find(|(known, _)| *known == name);
        given.map_or(&Source::Option, |(_, source)| source)
    }

    /// Returns the origin of a value: its option, its variable, or its line of the file.
    pub(crate) fn origin<T>(&self, variable: &Variable<T>) -> String {
        self.source(variable).origin(variable.name())
    }

    /// On, unless it was given as off.
    pub(crate) fn quarantine(&self) -> Quarantine {
        self.quarantine.unwrap_or_default()
    }
}

fn word(quarantine: Quarantine) -> &'static str {
    match quarantine {
        Quarantine::On => "on",
        Quarantine::Off => "off",
    }
}

/// Returns the value of a variable that is set and not empty.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    Environment::of_process().get(name)
}

/// Takes what the command line leaves open, and notes what gave it.
struct Fill<'a> {
    environment: &'a Environment<'a>,
    sources: &'a mut Vec<(&'static str, Source)>,
}

impl Fill<'_> {
    fn with<T>(&mut self, variable: &Variable<T>, slot: &mut Option<T>) -> Result<(), Failure> {
        if slot.is_some() {
            return Ok(());
        }
        if let Some((value, source)) = self.environment.value(variable)? {
            *slot = Some(value);
            self.sources.push((variable.name(), source));
        }
        Ok(())
    }
}
