//! `redlock run --once-in` and `--fire`: a lock whose job must run once.

use std::ops::Deref;
use std::time::{Duration, SystemTime};

use anyhow::anyhow;
use redlock_quorum::{
    AcquireError, Decided, Guard, GuardSet, LastRun, MarkError, OnceGuard, ReleaseError, RunError,
};

use crate::answers;
use crate::args::Run;
use crate::duration::spelled;
use crate::exit::{Failure, LOST, UNAVAILABLE};
use crate::fire::{self, Fire};
use crate::moment;
use crate::session::Session;
use crate::signals::Signals;
use crate::stderr;

/// A lock, and how it ends after its command has exited.
pub(super) enum Lock {
    /// Released, or left to expire.
    Plain(GuardSet),
    /// The work is marked as done before.
    Once(OnceGuard),
}

impl Lock {
    /// Releases the locks without a mark.
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

/// Whether the masters' time was compared with the fire.
#[derive(Debug)]
pub(super) enum Checked {
    Yes,
    /// Too few masters answered.
    NotYet(AcquireError),
}

/// Rejects a fire that is written as a time and is too far ahead, before the lock is requested: its
/// mark would keep the job from running until then.
pub(super) async fn check_fire(
    session: &Session,
    args: &Run,
    signals: &mut Signals,
) -> Result<Checked, Failure> {
    let Some(fire) = args.fire.filter(|fire| fire.is_time() && !args.far_fire) else {
        return Ok(Checked::Yes);
    };
    let now = tokio::select! {
        biased;
        signal = signals.next() => return Err(session.stopped_by(signal, signals).await),
        now = session.redlock.masters_time(&session.key) => now,
    };
    match now {
        Ok(now) => near(&session.key.to_string(), fire, now).map(|()| Checked::Yes),
        Err(error @ AcquireError::NoQuorum { .. }) => Ok(Checked::NotYet(error)),
        Err(error) => Err(session.unread(error).await),
    }
}

fn near(key: &str, fire: Fire, now: SystemTime) -> Result<(), Failure> {
    let Some(at) = fire.too_far(now) else { return Ok(()) };
    let (at, now) = (moment::date_and_time(at), moment::date_and_time(now));
    Err(Failure::usage(anyhow!(
        "{key}: refused, the command was not run: --fire {at} is more than one day ahead of the \
         masters' clocks ({now}); correct the time, or use --far-fire"
    )))
}

/// Decides whether to run the command under the held lock. Returns `None`, and prints a line, if
/// the job was already completed.
pub(super) async fn begin(
    session: &Session,
    args: &Run,
    fire: Checked,
    locks: GuardSet,
    signals: &mut Signals,
) -> Result<Option<Lock>, Failure> {
    let Some(request) = args.once(&session.redlock, &session.key) else {
        return Ok(Some(Lock::Plain(locks)));
    };
    // `args` guarantees that a job that must run once has a single key.
    let Some(guard) = locks.into_iter().next() else { return Ok(None) };
    if let Checked::NotYet(_) = fire
        && let Checked::NotYet(error) = check_fire(session, args, signals).await?
    {
        return Err(session.unread(error).await);
    }
    // Dropping it releases the lock.
    let begun = tokio::select! {
        biased;
        signal = signals.next() => return Err(session.stopped_by(signal, signals).await),
        begun = request.decide(guard) => begun,
    };
    match begun {
        Ok(Decided::Run(guard)) => Ok(Some(Lock::Once(guard))),
        Ok(Decided::Done(last)) => {
            if !session.is_quiet {
                let fire = last.fire.filter(|_| args.fire.is_some());
                let done = done(&session.key.to_string(), &last, fire, SystemTime::now());
                stderr::complain(&format!("redlock: {done}"));
            }
            Ok(None)
        }
        Err(RunError::Acquire(error)) => Err(session.unread(error).await),
        Err(RunError::Lost { lost, .. }) => {
            let status = session.status().await;
            let cause = anyhow!(
                "{}: lock lost before the command started ({}): {}",
                session.key,
                lost.reason,
                answers::list(&status)
            );
            let failure = Failure::new(UNAVAILABLE, cause);
            Err(session.explained(failure, &answers::causes(&status.nodes)).await)
        }
        Err(error) => Err(Failure::new(UNAVAILABLE, error)),
    }
}

/// Records the job as completed after its command has exited.
pub(super) async fn complete(session: &Session, guard: OnceGuard) -> Result<(), Failure> {
    match guard.complete().await {
        Ok(()) => Ok(()),
        Err(MarkError::Lost(lost)) => {
            let answers = session.answers().await;
            let why = lost.reason;
            let cause = anyhow!(
                "{}: lock lost as the command finished ({why}); the run was not recorded as \
                    completed: {answers}",
                session.key
            );
            Err(Failure::new(LOST, cause))
        }
        // The exit code is the command's, but the job may run again, so a note shows that.
        Err(MarkError::NoQuorum { resource, votes }) => {
            let said = answers::said(&votes);
            stderr::note(&format!(
                "{resource} completed, but too few masters recorded it, so it may run again: \
                {said}"
            ));
            Ok(())
        }
        Err(error) => {
            stderr::note(&format!(
                "{} completed, but its completion was not recorded: {error}",
                session.key
            ));
            Ok(())
        }
    }
}

/// Describes who completed the job, and when.
fn done(key: &str, last: &LastRun, fire: Option<u64>, now: SystemTime) -> String {
    let by = last.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
    let ago = Duration::from_secs(now.duration_since(last.at).unwrap_or_default().as_secs());
    let blocked = fire.map(|fire| format!(", up to {}", fire::in_words(fire)));
    let is_far = fire.is_some_and(|fire| fire::too_far_ahead(fire, now).is_some());
    let fix = if is_far {
        format!("; if that --fire was a mistake, run `redlock release --force --mark {key}`")
    } else {
        String::new()
    };
    format!(
        "{key} was already completed{by} at {} ({} ago){}; nothing to do{fix}",
        moment::date_and_time(last.at),
        spelled(ago),
        blocked.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use redlock_quorum::{Label, Mark};

    use super::*;

    #[test]
    fn completed_run_is_reported_with_holder_and_time() {
        let at = UNIX_EPOCH + Duration::from_secs(1_795_402_800);
        let now = at + Duration::from_millis(61_700);
        let last = |fire, by: Option<&str>| {
            let by = by.map(|by| Label::parse(by).unwrap());
            LastRun::from(&Mark { at: 1_795_402_800_000, fire, by })
        };
        let done = |last: LastRun, now| done("report", &last, last.fire, now);
        let at_3 = "at 2026-11-23 03:00:00 UTC";
        assert_eq!(
            done(last(0, Some("me@web-1:7")), now),
            format!("report was already completed by me@web-1:7 {at_3} (1m1s ago); nothing to do")
        );
        // By another clock it may lie ahead.
        let ahead = done(last(7, None), UNIX_EPOCH);
        let said = format!("report was already completed {at_3} (0s ago), up to fire 7");
        assert_eq!(ahead, format!("{said}; nothing to do"));
        let far = done(last(7_476_462_000, None), now);
        assert!(far.contains("up to fire 7476462000 (2206-12-03 "), "{far}");
        assert!(far.ends_with("run `redlock release --force --mark report`"), "{far}");
    }
}
