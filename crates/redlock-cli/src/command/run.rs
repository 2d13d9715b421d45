//! `redlock run`: a command under a lock.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use redlock_quorum::{Guard, GuardSet, HoldSet, LostReason, ReleaseError, Resource};
use rustix::process::Signal;

use crate::answers;
use crate::args::Run;
use crate::child::Child;
use crate::command::once::{self, Lock};
use crate::command::{enter, release};
use crate::duration::{self, Wait, spelled};
use crate::environment::Environment;
use crate::exit::{self, CANNOT_RUN, Failure, LOST, NOT_FOUND};
use crate::global::Global;
use crate::group;
use crate::launcher;
use crate::session::Session;
use crate::signals::Signals;
use crate::stderr;
use crate::supervise::{Deadlines, Outcome, Pause, Stage, Supervisor};
use crate::terminal::Terminal;
use crate::waiting::Found;

/// Runs the command under its locks. With `-q`, a run that exits with 0 or with the code of `-E`
/// prints nothing itself.
pub(crate) async fn run(global: &Global, args: &Run) -> Result<u8, Failure> {
    if global.quiet {
        stderr::hold_notes_back();
    }
    let outcome = run_and_note(global, args).await;
    let code = match &outcome {
        Ok(code) => *code,
        Err(failure) => failure.code,
    };
    stderr::end_holding_back([0, args.patience.held_code].contains(&code));
    outcome
}

async fn run_and_note(global: &Global, args: &Run) -> Result<u8, Failure> {
    check(args)?;
    let mut session = Session::acquiring(global, &args.keys, args.ttl)?;
    session.permits = args.permits;
    let mut signals = Signals::new()?;
    let found = match args.reentrant {
        true => session.entry(args.patience, args.wait, &mut signals).await,
        false => Ok(Found::None(args.wait)),
    };
    let outcome = match found {
        Ok(Found::Entry(entry, said)) => {
            return Err(enter::enter(session, global, args, &entry, &said, signals).await);
        }
        Ok(Found::None(wait)) => acquire_and_run(&session, global, args, wait, &mut signals).await,
        Err(failure) => Err(failure),
    };
    session.close().await;
    outcome
}

async fn acquire_and_run(
    session: &Session,
    global: &Global,
    args: &Run,
    wait: Wait,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let fire = once::check_fire(session, args, signals).await?;
    let locks = session.acquire(args.patience, wait, args.max_hold, signals).await?;
    locks.iter().for_each(|guard| session.say(guard.resource(), "acquired", &guard.votes()));
    match once::begin(session, args, fire, locks, signals).await? {
        Some(lock) => under_lock(session, global, args, lock, signals).await,
        None => Ok(0),
    }
}

/// Checks rules that the definition of the command line cannot express.
fn check(args: &Run) -> Result<(), Failure> {
    if let Some(why) = launcher::hindrance() {
        return Err(Failure::new(CANNOT_RUN, anyhow!("the command was not run: {why}")));
    }
    needs_proc(args)?;
    if args.keys.len() > 1 && args.is_once() {
        let cause = anyhow!("--once-in and --fire accept a single KEY");
        return Err(Failure::usage(cause));
    }
    if args.keys.len() > 1 && args.permits.is_some() {
        return Err(Failure::usage(anyhow!("--permits accepts a single KEY")));
    }
    if args.keys.len() > 1 && args.reentrant {
        let cause = anyhow!(
            "--reentrant accepts a single KEY; nest one `redlock run --reentrant` in another"
        );
        return Err(Failure::usage(cause));
    }
    Ok(())
}

/// Fails if an option needs the list of processes and this system has none.
fn needs_proc(args: &Run) -> Result<(), Failure> {
    let (option, instead) = match () {
        () if group::is_countable() => return Ok(()),
        () if args.wait_group => {
            ("--wait-group", "wait for background processes inside the command")
        }
        () if args.reentrant => {
            ("--reentrant", "run the nested command directly, without `redlock run`")
        }
        () => return Ok(()),
    };
    let why = "needs /proc, which is not available here";
    Err(Failure::usage(anyhow!("{option} {why}: {instead}")))
}

async fn under_lock(
    session: &Session,
    global: &Global,
    args: &Run,
    lock: Lock,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let began = Instant::now();
    let hold: HoldSet = lock.iter().map(Guard::hold).collect();
    let deadlines = Deadlines::new(session.ttl.get(), args.kill_after);
    let kill_at = deadlines.kill_at(&hold);
    let mut child = match start(session, global, args, &lock, signals, kill_at) {
        Ok(child) => child,
        Err(failure) => {
            release(lock).await?;
            return Err(failure);
        }
    };
    let supervisor = Supervisor::new(&mut child, hold.clone(), deadlines);
    let work = supervisor.supervise(signals, args.wait_group);
    let Outcome { stage, was_asked, pause, left, outlived, escaped } =
        session.with_margin_watched(&lock, work).await;
    let status = child.reap();
    if stage == Stage::Running && hold.is_held() {
        note_what_goes_on(left);
        return held_to_the_end(session, args, lock, status).await;
    }
    let why = why(session, &hold, pause, args.max_hold, began.elapsed());
    let what = match outlived {
        Some(outlived) => format!(
            "the command could not be killed (it runs as another user) and ran for {} without the \
             lock",
            spelled(Duration::from_millis(duration::millis(outlived)))
        ),
        None => what(stage, was_asked, status.ok(), args.wait_group).to_owned(),
    };
    let why = format!("{why}, {what}{}", and_what_escaped(escaped));
    Err(lost(session, lock, &why).await)
}

/// Background processes of a command outlive its lock.
fn note_what_goes_on(left: usize) {
    let who = match left {
        0 => return,
        1 => "1 process of its group is".to_owned(),
        left => format!("{left} processes of its group are"),
    };
    stderr::note(&format!(
        "the command exited, but {who} still running without the lock; use --wait-group to hold it \
         until all have exited"
    ));
}

/// Processes that run as another user, or that have left the group, cannot be ended with it.
fn and_what_escaped(escaped: usize) -> String {
    let who = match escaped {
        0 => return String::new(),
        1 => "1 process that it started is".to_owned(),
        many => format!("{many} processes that it started are"),
    };
    format!(
        ", but {who} still running without the lock (as another user, or in another process group)"
    )
}

/// The command exited while its lock was held.
async fn held_to_the_end(
    session: &Session,
    args: &Run,
    lock: Lock,
    status: io::Result<ExitStatus>,
) -> Result<u8, Failure> {
    let status = status.map_err(|error| Failure::new(CANNOT_RUN, error));
    let is_success = status.as_ref().is_ok_and(ExitStatus::success);
    let is_done = is_success || args.mark_failures && status.as_ref().is_ok_and(has_begun);
    match lock {
        Lock::Once(guard) if is_done => once::complete(session, guard).await?,
        Lock::Plain(locks) if args.keep && is_success => keep(session, locks).await,
        lock => release(lock).await?,
    }
    status.map(exit::code)
}

/// A command that cannot be run, or is not found, has done nothing.
fn has_begun(status: &ExitStatus) -> bool {
    let code = exit::code(*status);
    code != CANNOT_RUN && code != NOT_FOUND
}

/// Creates the error for a lost lock. Queries the masters again, because their answers to the
/// acquisition do not explain the loss.
async fn lost(session: &Session, lock: Lock, why: &str) -> Failure {
    let gone = |guard: &Guard| guard.check().err().map(|lost| (lost, guard.token().clone()));
    let answers = match lock.iter().find_map(gone) {
        Some((lost, token)) => session.answers_after(&lost, &token).await,
        None => {
            let errors = lock.iter().find_map(|guard| answers::errors(&guard.votes()));
            let errors = errors.map(|errors| format!("; the last extension failed: {errors}"));
            format!("{}{}", session.answers().await, errors.unwrap_or_default())
        }
    };
    // Deletes only our own key: it touches no other client's lock, and revives no lease.
    let _ = lock.release().await;
    Failure::new(LOST, anyhow!("{why}: {answers}"))
}

fn start(
    session: &Session,
    global: &Global,
    args: &Run,
    guards: &[Guard],
    signals: &mut Signals,
    kill_at: u64,
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
    let environment = Environment::new(global, args, &session.held, session.slot.get(), guards);
    let words = args.words();
    Child::start(&words, &environment, signals.blocked(), terminal, kill_at).map_err(cannot)
}

/// The work of this period is done: the lock is left to expire, and no other host begins before.
async fn keep(session: &Session, locks: GuardSet) {
    for guard in locks {
        let votes = session.hear_all(&guard).await;
        session.say(guard.resource(), "kept until it expires", &votes);
        guard.forget();
    }
}

/// Releases a lock that was held by this process's clock. Masters may still say that it was not.
async fn release(lock: Lock) -> Result<(), Failure> {
    match lock.release().await {
        Err(error @ ReleaseError::NotOurs { .. }) => {
            let cause = anyhow!(release::words(&error));
            let cause = cause.context("the lock was lost while the command ran");
            Err(Failure::new(LOST, cause))
        }
        // The exit code is the command's, but the lock may last a little longer, so a note shows
        // that.
        Err(error) => {
            stderr::note(&release::words(&error));
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// Returns which lock was lost, or is about to be lost, and why. In the second case, the command is
/// stopped first.
fn why(
    session: &Session,
    hold: &HoldSet,
    pause: Pause,
    max_hold: Option<Duration>,
    held: Duration,
) -> String {
    let max_hold = max_hold.filter(|max_hold| held >= *max_hold);
    let (key, reason) = match (hold.check(), max_hold) {
        (Err(lost), _) => (lost.resource, lost.reason),
        (Ok(()), Some(_)) => (next_to_end(session, hold), LostReason::MaxHold),
        (Ok(()), None) => (next_to_end(session, hold), LostReason::NotExtended),
    };
    let why = match (pause, reason, max_hold) {
        (Pause::Job, ..) => "it was not extended in time because the job was stopped".into(),
        (Pause::Frozen, ..) => {
            "it was not extended in time because redlock itself was stopped or the machine was \
                suspended"
                .into()
        }
        // Nothing failed, and no other client took the lock.
        (_, LostReason::MaxHold, Some(max_hold)) => {
            return format!(
                "{key}: lock lost: it was not extended beyond its --max-hold of {}",
                spelled(max_hold)
            );
        }
        _ => reason.to_string(),
    };
    format!("{key}: lock lost: {why}")
}

fn next_to_end(session: &Session, hold: &HoldSet) -> Resource {
    let next = hold.iter().min_by_key(|hold| hold.remaining());
    next.map_or_else(|| session.key.clone(), |hold| hold.resource().clone())
}

/// Returns how the command ended: by this process, by its watchdog, or by itself, whichever was
/// first.
fn what(
    stage: Stage,
    was_asked: bool,
    status: Option<ExitStatus>,
    waits_for_group: bool,
) -> &'static str {
    if status.and_then(|status| status.signal()) == Some(Signal::KILL.as_raw()) {
        "the command was killed (SIGKILL)"
    } else if stage == Stage::Killed && waits_for_group {
        "its remaining processes were killed (SIGKILL)"
    } else if was_asked {
        "the command was stopped (SIGTERM)"
    } else {
        "the command had just exited"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SIGKILL may follow SIGTERM when the command has exited, but has not been reaped.
    #[test]
    fn command_that_exits_after_sigterm_was_stopped_by_it() {
        let ended = |raw| Some(ExitStatus::from_raw(raw));
        let asked = Stage::Asked(Instant::now());
        for stage in [asked, Stage::Killed] {
            let said = what(stage, true, ended(0), false);
            assert_eq!(said, "the command was stopped (SIGTERM)");
        }
        let killed = what(Stage::Killed, true, ended(Signal::KILL.as_raw()), false);
        assert_eq!(killed, "the command was killed (SIGKILL)");
        assert_eq!(what(Stage::Killed, false, ended(0), false), "the command had just exited");
    }
}
