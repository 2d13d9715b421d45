//! The exit codes, and `Failure`: why the command ends with one of them.

use std::fmt::Display;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use anyhow::anyhow;
use redlock_quorum::{
    BuildError, InvalidRequest, InvalidResource, InvalidToken, InvalidTtl, Resource,
};
use rustix::process::Signal;

use crate::duration::spelled;
use crate::signals;
use crate::stderr;

/// `extend`, `release`: the lock was not ours. `status`: a majority is free.
pub(crate) const NOT_OURS: u8 = 1;
/// `doctor`: something is wrong with the masters.
pub(crate) const FINDINGS: u8 = 1;
/// `acl --check`: a right is missing.
pub(crate) const MISSING: u8 = 1;
/// Wrong usage or bad input (`EX_USAGE` of sysexits.h).
pub(crate) const USAGE: u8 = 64;
/// Too few masters answered or vote (`EX_UNAVAILABLE`).
pub(crate) const UNAVAILABLE: u8 = 69;
/// The result cannot be printed (`EX_IOERR`).
pub(crate) const CANNOT_PRINT: u8 = 74;
/// Held by another until the wait ran out (`EX_TEMPFAIL`).
pub(crate) const HELD: u8 = 75;
/// The lock was lost while the command ran.
pub(crate) const LOST: u8 = 79;
/// The command is there and cannot be run, as shells say it.
pub(crate) const CANNOT_RUN: u8 = 126;
/// The command was not found, as in shells.
pub(crate) const NOT_FOUND: u8 = 127;

/// Returns the code that shells report for a process that was killed by a signal.
pub(crate) fn signalled(signal: i32) -> u8 {
    // The numbers of signals end at 64.
    u8::try_from(signal).unwrap_or(u8::MAX).saturating_add(128)
}

/// The exit code for a command that ended so, as shells have it.
pub(crate) fn code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        // The kernel keeps eight bits of it.
        (Some(code), _) => u8::try_from(code).unwrap_or(u8::MAX),
        (None, signal) => signalled(signal.unwrap_or_default()),
    }
}

/// An exit code other than the command's, and its line on stderr.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) cause: anyhow::Error,
    /// Another client holds the lock, and the user does not want a line about that.
    pub(crate) is_quiet: bool,
}

impl Failure {
    pub(crate) fn new(code: u8, cause: impl Into<anyhow::Error>) -> Self {
        Self { code, cause: cause.into(), is_quiet: false }
    }

    pub(crate) fn usage(cause: impl Into<anyhow::Error>) -> Self {
        Self::new(USAGE, cause)
    }

    /// A signal came while there was nothing yet to pass it on to.
    pub(crate) fn cancelled(signal: Signal, key: &impl Display, answers: &impl Display) -> Self {
        let name = signals::name(signal);
        let cause = anyhow!("interrupted by {name} before acquiring {key}: {answers}");
        Self::new(signalled(signal.as_raw()), cause)
    }

    /// The same, with another code if another client holds the lock. Success needs no line.
    pub(crate) fn held_as(self, code: u8, is_quiet: bool) -> Self {
        if self.code != HELD {
            return self;
        }
        Self { code, is_quiet: is_quiet || code == 0, ..self }
    }

    /// The same, with a word more.
    pub(crate) fn with_hint(self, hint: &str) -> Self {
        let cause = anyhow!("{:#}; {hint}", self.cause);
        Self { cause, ..self }
    }

    /// Prints the cause, unless the failure is quiet, and returns the exit code.
    pub(crate) fn report(&self) -> u8 {
        if !self.is_quiet {
            stderr::complain(&self.line());
        }
        self.code
    }

    /// The cause on one line, whatever it is made of.
    fn line(&self) -> String {
        let cause = format!("{:#}", self.cause);
        let words: Vec<_> = cause.split_whitespace().collect();
        format!("redlock: {}", words.join(" "))
    }
}

/// The operating system lets us not even listen to signals.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(UNAVAILABLE, error)
    }
}

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Self {
        match error {
            BuildError::Given { by, error } => {
                let Self { code, cause, is_quiet } = Self::from(*error);
                Self { code, cause: cause.context(by), is_quiet }
            }
            BuildError::Default(why) => why.into(),
            error => Self::usage(error),
        }
    }
}

impl From<InvalidRequest> for Failure {
    fn from(error: InvalidRequest) -> Self {
        match error {
            InvalidRequest::Ttl(InvalidTtl::TooLong { ttl, max }) => Self::usage(anyhow!(
                "--ttl {} exceeds max_ttl ({}); use a shorter --ttl (`run` extends the lock as needed), \
                 or raise the limit with `redlock init --max-ttl D` (with --max-ttl while the masters \
                 have no record)",
                spelled(ttl),
                spelled(max)
            )),
            InvalidRequest::Ttl(InvalidTtl::TooShort { ttl }) => {
                Self::usage(anyhow!("--ttl must be at least 10ms (got {})", spelled(ttl)))
            }
            InvalidRequest::MaxHold { max_hold } => Self::usage(anyhow!(
                "--max-hold must be at least 1ms (got {}); omit it for no limit",
                spelled(max_hold)
            )),
            InvalidRequest::Resource(InvalidResource::Empty) => {
                Self::usage(anyhow!("KEY is empty; it must have 1 to {} bytes", Resource::LEN_MAX))
            }
            InvalidRequest::Resources { count, max } => {
                Self::usage(anyhow!("{count} KEYs cannot be locked together; pass 1 to {max}"))
            }
            error => Self::usage(error),
        }
    }
}

impl From<InvalidToken> for Failure {
    fn from(error: InvalidToken) -> Self {
        Self::usage(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multi_line_cause_is_joined_into_one_line() {
        let failure = Failure::usage(anyhow!("a port is taken:\n  see the\tlog"));
        assert_eq!(failure.line(), "redlock: a port is taken: see the log");
    }

    #[test]
    fn a_signal_is_reported_as_shells_do() {
        assert_eq!(signalled(15), 143);
        assert_eq!(signalled(1_000), 255);
    }
}
