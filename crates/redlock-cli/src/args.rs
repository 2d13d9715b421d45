//! What may stand on the command line, and nothing else.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use redlock_quorum::{FencingToken, InvalidRequest, OnceRequest, Redlock, Resource};

use crate::duration::{self, Wait};
use crate::fire;
use crate::global::Global;
use crate::help;

#[derive(Debug, Parser)]
#[command(
    name = "redlock",
    version,
    about = "Run commands under a lock that a majority of independent Redis masters must grant",
    after_help = help::SHORT,
    after_long_help = help::LONG,
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command while the lock is held; stop it when the lock is lost
    #[command(after_help = help::RUN)]
    Run(Run),
    /// Take the lock and leave it to expire: prints TOKEN FENCING_TOKEN VALIDITY_MS
    #[command(after_help = help::ACQUIRE)]
    Acquire(Acquire),
    /// Extend a lock by its token: prints TOKEN FENCING_TOKEN VALIDITY_MS
    #[command(after_help = help::EXTEND)]
    Extend(Extend),
    /// Release a lock by its token, or a stuck one by force
    #[command(after_help = help::RELEASE)]
    Release(Release),
    /// Say who holds a lock, by what each master says; without a key: list what is held
    #[command(after_help = help::STATUS)]
    Status(Status),
    /// Admit brand-new masters at once: states that none of them has forgotten a lock
    #[command(after_help = help::INIT)]
    Init(Init),
    /// Say what is wrong with the masters, why that matters and what cures it
    #[command(after_help = help::DOCTOR)]
    Doctor(Doctor),
    /// Start throw-away masters to play with, until Ctrl-C
    #[command(after_help = help::DEV)]
    Dev(Dev),
    /// Print the man page or shell completions
    Generate(Generate),
}

/// How long to wait for the lock, and what to say when it is not acquired.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Do not wait: the same as --wait 0
    #[arg(short = 'n', long = "no-wait", conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// The exit code when another holds the lock; with 0, no line on stderr says so
    #[arg(
        short = 'E',
        long = "held-exit-code",
        value_name = "N",
        default_value_t = crate::exit::HELD
    )]
    pub(crate) held_code: u8,
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// What the lock is for; several are locked together, all or none
    #[arg(required = true, value_name = "KEY")]
    pub(crate) keys: Vec<OsString>,
    /// How long the lock lasts without extension [default: 30s]
    #[arg(long, value_name = "D", allow_negative_numbers = true, value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,
    /// How long to wait for the lock; `forever` is a duration, too
    #[arg(
        long,
        value_name = "D",
        default_value = "10s",
        allow_negative_numbers = true,
        value_parser = duration::parse_wait
    )]
    pub(crate) wait: Wait,
    /// Stop extending the lock after this long: the command is stopped within one TTL
    #[arg(long, value_name = "D", allow_negative_numbers = true, value_parser = duration::parse)]
    pub(crate) max_hold: Option<Duration>,
    /// When the lock is about to be lost: the time between SIGTERM and SIGKILL, a third of the
    /// TTL at most
    #[arg(
        long,
        value_name = "D",
        default_value = "5s",
        allow_negative_numbers = true,
        value_parser = duration::parse
    )]
    pub(crate) kill_after: Duration,
    /// Leave the lock to expire when the command succeeds, so that no other host does the work
    /// again for two thirds of the TTL at least; release it when the command fails
    #[arg(long)]
    pub(crate) keep: bool,
    /// Do nothing where a run that was completed began less than this ago, on any host; choose it
    /// shorter than the time between two runs
    #[arg(
        long,
        value_name = "D",
        group = "once",
        conflicts_with = "keep",
        allow_negative_numbers = true,
        value_parser = period
    )]
    pub(crate) once_in: Option<Duration>,
    /// Do nothing where this fire, or a later one, was completed: the time for which the run is
    /// planned (2026-11-23T03:00Z), or a number from 1 that grows
    #[arg(
        long,
        value_name = "TIME",
        group = "once",
        conflicts_with = "keep",
        allow_negative_numbers = true,
        value_parser = fire::parse
    )]
    pub(crate) fire: Option<u64>,
    /// Mark a run as completed though its command has failed
    #[arg(long, requires = "once")]
    pub(crate) mark_failures: bool,
    /// Let the command know the masters, so that it can extend the lock or take others
    #[arg(long)]
    pub(crate) pass_nodes: bool,
    /// Keep the lock until all that the command has started has ended, too, unless it has left the
    /// process group of the command
    #[arg(long)]
    pub(crate) wait_group: bool,
    /// Where a `redlock run` around this command has the lock, run the command under that one
    /// instead of refusing to wait for it; everywhere else, take the lock
    #[arg(long, conflicts_with = "once")]
    pub(crate) reentrant: bool,
    #[command(flatten)]
    pub(crate) patience: Patience,
    /// Let a shell run this text, `sh -c`, in place of a COMMAND
    #[arg(short = 'c', value_name = "SHELL TEXT", conflicts_with = "command")]
    pub(crate) shell_text: Option<OsString>,
    /// The command and its arguments
    #[arg(last = true, required_unless_present = "shell_text", value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Acquire {
    /// What the lock is for
    pub(crate) key: OsString,
    /// How long the lock lasts [default: 30s]
    #[arg(long, value_name = "D", allow_negative_numbers = true, value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,
    /// How long to wait for the lock; `forever` is a duration, too
    #[arg(
        long,
        value_name = "D",
        default_value = "0s",
        allow_negative_numbers = true,
        value_parser = duration::parse_wait
    )]
    pub(crate) wait: Wait,
    #[command(flatten)]
    pub(crate) patience: Patience,
    /// Print an object: key, token, fencing_token, ttl_ms, validity_ms
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Extend {
    /// What the lock is for
    pub(crate) key: OsString,
    /// The token that `acquire` printed
    pub(crate) token: String,
    /// How long the lock lasts from now [default: 30s]
    #[arg(long, value_name = "D", allow_negative_numbers = true, value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,
    /// Print an object: key, token, fencing_token, ttl_ms, validity_ms
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Release {
    /// What the lock is for
    pub(crate) key: OsString,
    /// The token that `acquire` printed
    #[arg(required_unless_present = "force", conflicts_with = "force")]
    pub(crate) token: Option<String>,
    /// Delete a stuck lock, no matter who holds it: a holder that still works loses it
    #[arg(long)]
    pub(crate) force: bool,
    /// Delete the mark of what was completed under this name (`run --once-in`, `--fire`), and not
    /// its lock: it is done again when it is asked for
    #[arg(long, requires = "force", conflicts_with = "token")]
    pub(crate) mark: bool,
    /// Do not ask before deleting by force; needed where there is no terminal
    #[arg(long, conflicts_with = "token")]
    pub(crate) yes: bool,
    /// Print an object: key, released; with --force: key, deleted
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Status {
    /// What the lock is for; without it, all locks that are held under the prefix are listed
    pub(crate) key: Option<OsString>,
    /// Print an object: key, state, token, ttl_ms, since_ms, done, nodes; without a key: locks, done,
    /// truncated
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Init {
    /// Do not ask; needed where there is no terminal
    #[arg(long)]
    pub(crate) yes: bool,
    /// Admit masters although this namespace was in use, and set --max-ttl where it is given; does
    /// not ask
    #[arg(long)]
    pub(crate) again: bool,
    /// No fencing token that is handed out later may be smaller than this one; for masters that
    /// this call admits
    #[arg(long, value_name = "FENCING_TOKEN", allow_negative_numbers = true, value_parser = floor)]
    pub(crate) floor: Option<FencingToken>,
    /// --floor may be more than a minute ahead of the masters' clocks: give it again, larger than
    /// every token seen, whenever all masters come back empty
    #[arg(long, requires = "floor")]
    pub(crate) far_floor: bool,
    /// Print an object: nodes, floor
    #[arg(long)]
    pub(crate) json: bool,
}

/// A number that may be a fencing token.
fn floor(text: &str) -> Result<FencingToken, String> {
    let token = text.parse().ok().and_then(FencingToken::new);
    token.ok_or_else(|| "write a fencing token: a whole number below 2^53".into())
}

#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// Print an object: nodes, findings
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Dev {
    /// How many masters, 1 to 15
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=15))]
    pub(crate) nodes: u16,
    /// The port of the first one; the others follow
    #[arg(long, value_name = "PORT", default_value_t = 7001)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=65_521))]
    pub(crate) port: u16,
}

#[derive(Args, Debug)]
pub(crate) struct Generate {
    #[command(subcommand)]
    pub(crate) what: Generated,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Generated {
    /// A man page, in roff: of the whole, or of one command
    Man {
        /// The command
        command: Option<String>,
    },
    /// A script that completes the words of the command line
    Completions {
        /// For which shell
        shell: Shell,
    },
}

/// How long a run counts.
fn period(text: &str) -> Result<Duration, String> {
    let period = duration::parse(text)?;
    let fits = period >= Duration::from_millis(1) && period <= OnceRequest::PERIOD_MAX;
    fits.then_some(period).ok_or_else(|| InvalidRequest::Period.to_string())
}

impl Run {
    /// Whether something is to be done once.
    pub(crate) fn is_once(&self) -> bool {
        self.once_in.is_some() || self.fire.is_some()
    }

    /// What is to be done once, if it is.
    pub(crate) fn once(&self, redlock: &Redlock, key: &Resource) -> Option<OnceRequest> {
        let once = || redlock.once(key);
        match (self.once_in, self.fire) {
            (Some(period), _) => Some(once().within(period)),
            (None, Some(fire)) => Some(once().fire(fire)),
            (None, None) => None,
        }
    }

    /// The command and its arguments.
    pub(crate) fn words(&self) -> Vec<OsString> {
        match &self.shell_text {
            Some(text) => vec!["sh".into(), "-c".into(), text.clone()],
            None => self.command.clone(),
        }
    }
}

impl Patience {
    /// How long to wait, where `-n` wins over the default.
    pub(crate) fn over(&self, wait: Wait) -> Wait {
        if self.no_wait { Wait::For(Duration::ZERO) } else { wait }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_help_names_the_defaults_that_are_in_use() {
        use redlock_quorum::RedlockBuilder;

        let help = |name: &str| {
            let mut command = Cli::command();
            command.build();
            command.find_subcommand_mut(name).unwrap().render_long_help().to_string()
        };
        let said = |default: Duration| format!("[default: {default:?}]");
        for name in ["run", "acquire", "extend"] {
            let text = help(name);
            assert!(text.contains(&said(crate::session::DEFAULT_TTL)), "{text}");
            assert!(text.contains(&said(RedlockBuilder::MAX_TTL)), "{text}");
        }
        let node_timeout = RedlockBuilder::node_timeout_of(Duration::from_secs(10));
        let said = format!("[default: {node_timeout:?}, or a tenth of the TTL]");
        assert!(help("run").contains(&said), "{said}");
        let connect = RedlockBuilder::CONNECT_TIMEOUT;
        assert!(help::LONG.contains(&format!("it was not connected within {connect:?}, or")));
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_options_stand_before_or_after_the_command() {
        for line in [
            ["redlock", "--prefix", "p:", "--node", "redis://a", "status", "k"],
            ["redlock", "status", "--prefix", "p:", "--node", "redis://a", "k"],
            ["redlock", "status", "k", "--prefix", "p:", "--node", "redis://a"],
        ] {
            let cli = Cli::try_parse_from(line).unwrap();
            assert_eq!(cli.global.nodes, ["redis://a"]);
            assert_eq!(cli.global.prefix.unwrap(), "p:");
        }
    }

    #[test]
    fn once_is_by_a_period_or_by_a_fire_and_keeps_no_lock() {
        let run = |line: &[&str]| {
            let line = ["redlock", "run", "k"].iter().chain(line).chain(&["--", "ls"]);
            Cli::try_parse_from(line).map(|cli| match cli.command {
                Command::Run(run) => (run.once_in, run.fire, run.mark_failures),
                other => panic!("{other:?}"),
            })
        };
        let period = Some(Duration::from_secs(43_200));
        assert_eq!(run(&["--once-in", "12h"]).unwrap(), (period, None, false));
        let fire = ["--fire", "1970-01-01T00:01Z", "--mark-failures"];
        assert_eq!(run(&fire).unwrap(), (None, Some(60), true));
        for refused in [
            &["--once-in", "12h", "--fire", "7"][..],
            &["--once-in", "12h", "--keep"],
            &["--fire", "7", "--keep"],
            &["--once-in", "12h", "--reentrant"],
            &["--fire", "7", "--reentrant"],
            &["--mark-failures"],
            &["--once-in", "0"],
            &["--once-in", "3651d"],
            &["--fire", "0"],
        ] {
            assert!(run(refused).is_err(), "{refused:?}");
        }
    }

    #[test]
    fn a_release_is_by_token_or_by_force() {
        assert!(Cli::try_parse_from(["redlock", "release", "k", "t"]).is_ok());
        assert!(Cli::try_parse_from(["redlock", "release", "--force", "k", "--yes"]).is_ok());
        assert!(Cli::try_parse_from(["redlock", "release", "--force", "--mark", "k"]).is_ok());
        assert!(Cli::try_parse_from(["redlock", "release", "--mark", "k", "t"]).is_err());
        assert!(Cli::try_parse_from(["redlock", "release", "k"]).is_err());
        assert!(Cli::try_parse_from(["redlock", "release", "k", "t", "--force"]).is_err());
        assert!(Cli::try_parse_from(["redlock", "release", "k", "t", "--yes"]).is_err());
    }

    #[test]
    fn a_text_for_the_shell_stands_in_place_of_the_command() {
        let run = |line: &[&str]| {
            let line = ["redlock", "run", "k"].iter().chain(line);
            Some(match Cli::try_parse_from(line).ok()?.command {
                Command::Run(run) => run.words(),
                other => panic!("{other:?}"),
            })
        };
        assert_eq!(run(&["-n", "-c", "a | b", "-q"]).unwrap(), ["sh", "-c", "a | b"]);
        assert_eq!(run(&["-c", "a", "--", "b"]), None);
        assert_eq!(run(&["-c"]), None);
        assert_eq!(run(&[]), None);
    }

    #[test]
    fn what_follows_two_dashes_belongs_to_the_command() {
        let line = ["redlock", "run", "k", "-n", "-E", "9", "--", "ls", "-n", "--", "--ttl"];
        let Command::Run(run) = Cli::try_parse_from(line).unwrap().command else { panic!() };
        assert_eq!(run.words(), ["ls", "-n", "--", "--ttl"]);
        assert_eq!(run.patience.over(run.wait), Wait::For(Duration::ZERO));
        assert_eq!(run.patience.held_code, 9);
    }
}
