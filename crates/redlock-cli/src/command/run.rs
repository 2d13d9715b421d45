//! `redlock run`: a command under a lock.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use redlock_quorum::{Guard, LostReason, ReleaseError};
use rustix::process::Signal;

use crate::args::Run;
use crate::child::Child;
use crate::command::once::{self, Lock};
use crate::command::release;
use crate::environment::Environment;
use crate::exit::{self, CANNOT_RUN, Failure, LOST, NOT_FOUND};
use crate::global::Global;
use crate::group;
use crate::output;
use crate::session::Session;
use crate::signals::Signals;
use crate::supervise::{Deadlines, Outcome, Pause, Stage, Supervisor};
use crate::terminal::Terminal;

pub(crate) async fn run(global: &Global, args: &Run) -> Result<u8, Failure> {
    if args.wait_group && !group::is_countable() {
        let cause = anyhow!(
            "--wait-group needs /proc, which this system does not have: wait for \
                             what runs in the background in the command itself"
        );
        return Err(Failure::usage(cause));
    }
    let session = Session::acquiring(global, &args.key, args.ttl)?;
    let mut signals = Signals::new()?;
    let acquired = session.acquire(args.patience, args.wait, args.max_hold, &mut signals).await;
    let outcome = match acquired {
        Ok(guard) => {
            session.say("acquired", &guard.votes());
            match once::begin(&session, args, guard, &mut signals).await {
                Ok(Some(lock)) => under_lock(&session, global, args, lock, &mut signals).await,
                Ok(None) => Ok(0),
                Err(failure) => Err(failure),
            }
        }
        Err(failure) => Err(failure),
    };
    session.close().await;
    outcome
}

async fn under_lock(
    session: &Session,
    global: &Global,
    args: &Run,
    guard: Lock,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let began = Instant::now();
    let mut child = match start(session, global, args, &guard, signals) {
        Ok(child) => child,
        Err(failure) => {
            release(guard).await?;
            return Err(failure);
        }
    };
    let supervisor =
        Supervisor::new(&mut child, &guard, Deadlines::new(session.ttl.get(), args.kill_after));
    let work = supervisor.supervise(signals, args.wait_group);
    let Outcome { stage, pause, left } = session.with_margin_watched(&guard, work).await;
    let status = child.reap();
    if stage == Stage::Running && guard.is_held() {
        note_what_goes_on(left);
        return held_to_the_end(session, args, guard, status).await;
    }
    let why = why(&guard, pause, args.max_hold, began.elapsed());
    Err(lost(session, guard, &format!("{why}, {}", what(stage, status.ok(), args.wait_group)))
        .await)
}

/// What a command leaves in the background outlives its lock.
fn note_what_goes_on(left: usize) {
    let who = match left {
        0 => return,
        1 => "1 process of its group goes".to_owned(),
        left => format!("{left} processes of its group go"),
    };
    output::note(&format!(
        "the command has ended, and {who} on without the lock: --wait-group keeps it until then"
    ));
}

/// The command has ended while its lock was held.
async fn held_to_the_end(
    session: &Session,
    args: &Run,
    guard: Lock,
    status: io::Result<ExitStatus>,
) -> Result<u8, Failure> {
    let status = status.map_err(|error| Failure::new(CANNOT_RUN, error));
    let is_success = status.as_ref().is_ok_and(ExitStatus::success);
    let is_done = is_success || args.mark_failures && status.as_ref().is_ok_and(has_begun);
    match guard {
        Lock::Once(turn) if is_done => once::complete(session, turn).await?,
        Lock::Plain(guard) if args.keep && is_success => keep(session, guard).await,
        lock => release(lock).await?,
    }
    status.map(exit::code)
}

/// A command that cannot be run, or is not found, has done nothing.
fn has_begun(status: &ExitStatus) -> bool {
    let code = exit::code(*status);
    code != CANNOT_RUN && code != NOT_FOUND
}

/// The lock was lost. What the masters said when it was acquired says nothing of that: they are
/// asked again.
async fn lost(session: &Session, guard: Lock, why: &str) -> Failure {
    let answers = match guard.check() {
        Err(lost) => session.answers_after(&lost, guard.token()).await,
        Ok(()) => session.answers().await,
    };
    // Only where our own key still is: no lock of another is touched, and no lease revived.
    let _ = guard.release().await;
    Failure::new(LOST, anyhow!("{why}: {answers}"))
}

fn start(
    session: &Session,
    global: &Global,
    args: &Run,
    guard: &Guard,
    signals: &mut Signals,
) -> Result<Child, Failure> {
    let cannot = |error: io::Error| {
        let cause = anyhow::Error::new(error).context("the command cannot be started");
        Failure::new(CANNOT_RUN, cause)
    };
    signals.listen_to(Signal::CHILD).map_err(cannot)?;
    let terminal = Terminal::open();
    if terminal.is_some() {
        // Until now Ctrl-Z has stopped this process; from here on the command stops first.
        signals.listen_unless_ignored(Signal::TSTP).map_err(cannot)?;
    }
    let environment = Environment::new(global, args, &session.held, guard);
    Child::start(&args.words(), &environment, signals.blocked(), terminal).map_err(cannot)
}

/// The work of this period is done: the lock is left to expire, and no other host begins before.
async fn keep(session: &Session, guard: Guard) {
    let votes = session.hear_all(&guard).await;
    session.say("kept until it expires", &votes);
    guard.forget();
}

/// Releases a lock that was held by this process's clock. Masters may still say that it was not.
async fn release(guard: Lock) -> Result<(), Failure> {
    match guard.release().await {
        Err(error @ ReleaseError::NotOurs { .. }) => {
            let cause = anyhow!(release::words(&error));
            let cause = cause.context("the lock was lost while the command ran");
            Err(Failure::new(LOST, cause))
        }
        // The code is the command's; that the lock may live on a while is worth a line.
        Err(error) => {
            output::note(&release::words(&error));
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// Why the lock was lost, or is about to be: the command is ended before.
fn why(guard: &Guard, pause: Pause, max_hold: Option<Duration>, held: Duration) -> String {
    let max_hold = max_hold.filter(|max_hold| held >= *max_hold);
    let reason = match (guard.check(), max_hold) {
        (Err(lost), _) => lost.reason,
        (Ok(()), Some(_)) => LostReason::MaxHold,
        (Ok(()), None) => LostReason::NotExtended,
    };
    let why = match (pause, reason, max_hold) {
        (Pause::Job, ..) => "it was not extended in time because the job was stopped".into(),
        (Pause::Frozen, ..) => {
            "it was not extended in time because redlock itself stood still".into()
        }
        // Nothing went wrong, and nobody took it away.
        (_, LostReason::MaxHold, Some(max_hold)) => {
            let key = guard.resource();
            return format!(
                "the lock on {key} was not extended beyond its --max-hold of {max_hold:?}"
            );
        }
        _ => reason.to_string(),
    };
    format!("the lock on {} is lost: {why}", guard.resource())
}

/// How the command ended, of which this process, its watchdog or the command itself may have been
/// the first.
fn what(stage: Stage, status: Option<ExitStatus>, waits_for_group: bool) -> &'static str {
    if status.and_then(|status| status.signal()) == Some(Signal::KILL.as_raw()) {
        "the command was ended with SIGKILL"
    } else if matches!(stage, Stage::Asked(_)) {
        "the command was ended with SIGTERM"
    } else if stage == Stage::Killed && waits_for_group {
        "what the command had started was ended with SIGKILL"
    } else {
        "the command had just ended"
    }
}
