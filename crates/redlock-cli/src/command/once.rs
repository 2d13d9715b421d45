//! `redlock run --once-in` and `--fire`: what is made of a lock whose work is to be done once.

use std::ops::Deref;
use std::time::{Duration, SystemTime};

use anyhow::anyhow;
use redlock_quorum::{Begun, Guard, GuardSet, MarkError, OnceGuard, ReleaseError, RunError};

use crate::answers;
use crate::args::Run;
use crate::duration::spelled;
use crate::exit::{Failure, LOST, UNAVAILABLE};
use crate::moment;
use crate::output;
use crate::session::Session;
use crate::signals::Signals;

/// A lock, and what becomes of it when its command has ended.
pub(super) enum Lock {
    /// They are released, or left to expire.
    Plain(GuardSet),
    /// The work is marked as done before.
    Once(OnceGuard),
}

impl Lock {
    /// As it is where nothing is marked.
    pub(super) async fn release(self) -> Result<(), ReleaseError> {
        match self {
            Self::Plain(locks) => locks.release().await,
            Self::Once(guard) => guard.release().await,
        }
    }
}

impl Deref for Lock {
    type Target = [Guard];

    fn deref(&self) -> &[Guard] {
        match self {
            Self::Plain(locks) => locks.iter().as_slice(),
            Self::Once(guard) => std::slice::from_ref(guard),
        }
    }
}

/// Whether the command is to run under the lock that is held: `None` if its work was done before,
/// which is said.
pub(super) async fn begin(
    session: &Session,
    args: &Run,
    locks: GuardSet,
    signals: &mut Signals,
) -> Result<Option<Lock>, Failure> {
    let Some(request) = args.once(&session.redlock, &session.key) else {
        return Ok(Some(Lock::Plain(locks)));
    };
    // What is done once has one key, which `args` sees to.
    let Some(guard) = locks.into_iter().next() else { return Ok(None) };
    // Dropping it releases the lock.
    let begun = tokio::select! {
        biased;
        signal = signals.next() => return Err(session.stopped_by(signal, signals).await),
        begun = request.under(guard) => begun,
    };
    match begun {
        Ok(Begun::Run(guard)) => Ok(Some(Lock::Once(guard))),
        Ok(Begun::Done { at, by }) => {
            if !session.is_quiet {
                let done = done(&session.key.to_string(), at, by.as_deref(), SystemTime::now());
                output::complain(&format!("redlock: {done}"));
            }
            Ok(None)
        }
        Err(RunError::Acquire(error)) => Err(session.unread(error)),
        Err(RunError::Lost { lost, .. }) => {
            let answers = session.answers().await;
            let cause = anyhow!(
                "the lock on {} is lost: {}, the command was not begun: {answers}",
                session.key,
                lost.reason
            );
            Err(Failure::new(UNAVAILABLE, cause))
        }
        Err(error) => Err(Failure::new(UNAVAILABLE, error)),
    }
}

/// The command has ended, and its work is done.
pub(super) async fn complete(session: &Session, guard: OnceGuard) -> Result<(), Failure> {
    match guard.complete().await {
        Ok(()) => Ok(()),
        Err(MarkError::Lost(lost)) => {
            let answers = session.answers().await;
            let why = lost.reason;
            let cause = anyhow!(
                "the lock on {} is lost: {why}, the command had just ended and is not marked as \
                 done: {answers}",
                session.key
            );
            Err(Failure::new(LOST, cause))
        }
        // The code is the command's; that it may run again is worth a line.
        Err(MarkError::NoQuorum { resource, votes }) => {
            let said = answers::said(&votes);
            output::note(&format!(
                "{resource} was done, but too few masters acknowledged its mark, so it may be \
                 done again: {said}"
            ));
            Ok(())
        }
        Err(error) => {
            output::note(&format!("{} was done, and is not marked as done: {error}", session.key));
            Ok(())
        }
    }
}

/// Who has done the work, and when.
fn done(key: &str, at: SystemTime, by: Option<&str>, now: SystemTime) -> String {
    let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
    let ago = Duration::from_secs(now.duration_since(at).unwrap_or_default().as_secs());
    format!(
        "{key} was done{by} at {}, {} ago: nothing to do",
        moment::date_and_time(at),
        spelled(ago)
    )
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn what_was_done_says_by_whom_and_when() {
        let at = UNIX_EPOCH + Duration::from_secs(1_795_402_800);
        let now = at + Duration::from_millis(61_700);
        assert_eq!(
            done("report", at, Some("me@web-1:7"), now),
            "report was done by me@web-1:7 at 2026-11-23 03:00:00 UTC, 1m1s ago: nothing to do"
        );
        // By another clock it may lie ahead.
        let done = done("report", at, None, UNIX_EPOCH);
        assert_eq!(done, "report was done at 2026-11-23 03:00:00 UTC, 0s ago: nothing to do");
    }
}
