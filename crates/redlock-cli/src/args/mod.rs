//! The command line.

mod lock;
mod masters;
mod run;

use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::duration::Wait;
use crate::global::Global;
use crate::help;
use crate::number;
pub(crate) use lock::{Acquire, Extend, Release, Status};
pub(crate) use masters::{Acl, Dev, Doctor, Init};
pub(crate) use run::Run;

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
    #[command(after_help = help::RUN, override_usage = help::RUN_USAGE)]
    Run(Run),
    /// Acquire a lock without running a command; prints TOKEN FENCING_TOKEN VALIDITY_MS
    #[command(after_help = help::ACQUIRE)]
    Acquire(Acquire),
    /// Extend a lock by its token; prints TOKEN FENCING_TOKEN VALIDITY_MS
    #[command(after_help = help::EXTEND)]
    Extend(Extend),
    /// Release a lock by its token, or a stuck one by force
    #[command(after_help = help::RELEASE, override_usage = help::RELEASE_USAGE)]
    Release(Release),
    /// Show who holds a lock, or list all held locks
    #[command(after_help = help::STATUS)]
    Status(Status),
    /// Let new masters vote immediately (you confirm that no lock was lost)
    #[command(after_help = help::INIT)]
    Init(Init),
    /// Check the masters; explain each problem, its impact and the fix
    #[command(after_help = help::DOCTOR)]
    Doctor(Doctor),
    /// Print the ACL of a user with the necessary rights; --check tests the present user
    #[command(after_help = help::ACL)]
    Acl(Acl),
    /// Start disposable local masters until Ctrl-C
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
    /// Exit code when another client holds the lock; 0 also silences the message
    #[arg(
        short = 'E',
        long = "held-exit-code",
        value_name = "N",
        default_value_t = crate::exit::HELD,
        value_parser = number::within::<u8>(0..=255)
    )]
    pub(crate) held_code: u8,
}

#[derive(Args, Debug)]
pub(crate) struct Generate {
    #[command(subcommand)]
    pub(crate) what: Generated,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Generated {
    /// Print a man page in roff: of redlock, or of one subcommand
    Man {
        /// The subcommand
        command: Option<String>,
    },
    /// Print a script that completes command lines
    Completions {
        /// The shell
        shell: Shell,
    },
}

impl Patience {
    /// Returns how long to wait: not at all with `-n`, and otherwise the default.
    pub(crate) fn over(&self, wait: Wait) -> Wait {
        if self.no_wait { Wait::For(Duration::ZERO) } else { wait }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn help_shows_the_actual_defaults() {
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
        }
        let whole = Cli::command().render_long_help().to_string();
        assert!(whole.contains(&said(RedlockBuilder::MAX_TTL)), "{whole}");
        let node_timeout = RedlockBuilder::node_timeout_of(Duration::from_secs(10));
        let said = format!("[default: {node_timeout:?}, or a tenth of the TTL]");
        assert!(whole.contains(&said), "{said}");
        let connect = RedlockBuilder::CONNECT_TIMEOUT;
        assert!(help::LONG.contains(&format!("not connected within {connect:?}, or")));
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_options_may_precede_or_follow_the_command() {
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
    fn shell_text_replaces_the_command() {
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
    fn words_after_two_dashes_belong_to_the_command() {
        let line = ["redlock", "run", "k", "-n", "-E", "9", "--", "ls", "-n", "--", "--ttl"];
        let Command::Run(run) = Cli::try_parse_from(line).unwrap().command else { panic!() };
        assert_eq!(run.words(), ["ls", "-n", "--", "--ttl"]);
        assert_eq!(run.patience.over(run.wait), Wait::For(Duration::ZERO));
        assert_eq!(run.patience.held_code, 9);
    }
}
