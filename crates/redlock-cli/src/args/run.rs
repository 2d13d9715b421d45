//! The arguments of `redlock run`.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use redlock_quorum::{InvalidRequest, OnceRequest, Redlock, Resource, Semaphore};

use super::Patience;
use crate::duration::{self, Wait};
use crate::fire::{self, Fire};
use crate::number;

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// Name of the lock; several are locked together, all or nothing
    #[arg(required_unless_present = "command", value_name = "KEY")]
    pub(crate) keys: Vec<OsString>,
    /// Lease time; `run` extends it automatically [default: 30s]
    #[arg(long, value_name = "D", allow_negative_numbers = true, value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,
    /// How long to wait for the lock, or `forever`
    #[arg(
        long,
        value_name = "D",
        default_value = "10s",
        allow_negative_numbers = true,
        value_parser = duration::parse_wait
    )]
    pub(crate) wait: Wait,
    /// Hold the lock for at most this long; the command is then stopped within one TTL
    #[arg(long, value_name = "D", allow_negative_numbers = true, value_parser = duration::parse)]
    pub(crate) max_hold: Option<Duration>,
    /// Time between SIGTERM and SIGKILL when the lock is about to be lost; at most a third of the
    /// TTL
    #[arg(
        long,
        value_name = "D",
        default_value = "5s",
        allow_negative_numbers = true,
        value_parser = duration::parse
    )]
    pub(crate) kill_after: Duration,
    /// On success, keep the lock until it expires (at least 2/3 of the TTL) so that other hosts
    /// skip the work; on failure, release it
    #[arg(long)]
    pub(crate) keep: bool,
    /// Skip if a completed run started less than this ago, on any host; use less than the schedule
    /// interval
    #[arg(
        long,
        value_name = "D",
        group = "once",
        conflicts_with = "keep",
        allow_negative_numbers = true,
        value_parser = period
    )]
    pub(crate) once_in: Option<Duration>,
    /// Skip if this scheduled run, or a later one, was completed: its planned time
    /// (2026-11-23T03:00Z), or a growing number from 1
    #[arg(
        long,
        value_name = "TIME",
        group = "once",
        conflicts_with = "keep",
        allow_negative_numbers = true,
        value_parser = fire::parse
    )]
    pub(crate) fire: Option<Fire>,
    /// Accept a --fire time more than one day ahead of the masters' clocks; until then, earlier
    /// runs are skipped
    #[arg(long, requires = "fire", conflicts_with = "once_in")]
    pub(crate) far_fire: bool,
    /// Record the run as completed even if the command fails
    #[arg(long, requires = "once")]
    pub(crate) mark_failures: bool,
    /// Pass the masters and connection options to the command, so that it can extend the lock or
    /// take others
    #[arg(long)]
    pub(crate) pass_nodes: bool,
    /// Hold the lock until every process in the command's process group has exited
    #[arg(long)]
    pub(crate) wait_group: bool,
    /// Reuse the lock if an enclosing `redlock run` holds it; otherwise acquire it
    #[arg(long, conflicts_with = "once")]
    pub(crate) reentrant: bool,
    /// Take one of N permits instead of the lock, so that at most N commands run at a time: 1 to 64
    #[arg(
        long,
        value_name = "N",
        conflicts_with_all = ["once", "reentrant"],
        allow_negative_numbers = true,
        value_parser = number::within::<u32>(1..=Semaphore::PERMITS_MAX)
    )]
    pub(crate) permits: Option<u32>,
    #[command(flatten)]
    pub(crate) patience: Patience,
    /// Run this text with `sh -c` instead of a COMMAND
    #[arg(short = 'c', value_name = "SHELL TEXT", conflicts_with = "command")]
    pub(crate) shell_text: Option<OsString>,
    /// The command and its arguments
    #[arg(last = true, required_unless_present = "shell_text", value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Parses the period of `--once-in`.
fn period(text: &str) -> Result<Duration, String> {
    let period = duration::parse(text)?;
    let fits = period >= Duration::from_millis(1) && period <= OnceRequest::PERIOD_MAX;
    fits.then_some(period).ok_or_else(|| InvalidRequest::Period.to_string())
}

impl Run {
    /// Reads `-- KEY... -- COMMAND`, the form for a KEY that begins with `-`: if there is no KEY
    /// before the first `--`, the words between the two are the KEYs.
    ///
    /// # Errors
    /// Fails if there is no KEY or no COMMAND.
    pub(crate) fn with_keys_between_dashes(mut self) -> Result<Self, String> {
        if !self.keys.is_empty() {
            return Ok(self);
        }
        let missing = "KEY is missing: redlock run KEY -- COMMAND, or redlock run -- KEY -- COMMAND \
                       if KEY begins with -";
        let at = self.command.iter().position(|word| word == "--").filter(|at| *at > 0);
        let at = at.ok_or(missing)?;
        let command = self.command.split_off(at + 1);
        self.command.truncate(at);
        self.keys = std::mem::replace(&mut self.command, command);
        if self.command.is_empty() {
            return Err("the command is missing: redlock run -- KEY -- COMMAND".into());
        }
        Ok(self)
    }

    /// Returns `true` for a job that must run once.
    pub(crate) fn is_once(&self) -> bool {
        self.once_in.is_some() || self.fire.is_some()
    }

    /// Returns the request for a job that must run once.
    pub(crate) fn once(&self, redlock: &Redlock, key: &Resource) -> Option<OnceRequest> {
        let once = || redlock.once(key);
        match (self.once_in, self.fire) {
            (Some(period), _) => Some(once().within(period)),
            (None, Some(fire)) => Some(once().fire(fire.number)),
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::{Cli, Command};
    use super::*;

    #[test]
    fn once_is_by_a_period_or_by_a_fire_and_keeps_no_lock() {
        let run = |line: &[&str]| {
            let line = ["redlock", "run", "k"].iter().chain(line).chain(&["--", "ls"]);
            Cli::try_parse_from(line).map(|cli| match cli.command {
                Command::Run(run) => {
                    (run.once_in, run.fire.map(|fire| fire.number), run.mark_failures)
                }
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
            &["--once-in", "12h", "--permits", "3"],
            &["--reentrant", "--permits", "3"],
            &["--permits", "0"],
            &["--permits", "65"],
            &["--permits", "-1"],
            &["--mark-failures"],
            &["--once-in", "0"],
            &["--once-in", "3651d"],
            &["--fire", "0"],
            &["--far-fire"],
            &["--once-in", "12h", "--far-fire"],
        ] {
            assert!(run(refused).is_err(), "{refused:?}");
        }
    }
}
