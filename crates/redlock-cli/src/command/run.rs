//! `redlock run`: a command under a lock.

use std::ffi::OsStr;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use redlock_quorum::{Guard, ReleaseError};
use rustix::process::Signal;

use crate::args::{Global, Run};
use crate::child::Child;
use crate::exit::{CANNOT_RUN, Failure, LOST};
use crate::output;
use crate::session::Session;
use crate::signals::Signals;
use crate::supervise::{Deadlines, Stage, supervise};
use crate::terminal::Terminal;

pub(crate) async fn run(global: &Global, args: &Run) -> Result<u8, Failure> {
    let ttl = args.ttl.unwrap_or_else(|| Session::default_ttl(global));
    let session = Session::new(global, &args.key, Some(ttl))?;
    let mut signals = Signals::new()?;
    let acquired = session.acquire(args.patience, args.wait, args.max_hold, &mut signals).await;
    let outcome = match acquired {
        Ok(guard) => {
            session.tell("acquired", &guard.votes());
            under_lock(&session, args, guard, &mut signals).await
        }
        Err(failure) => Err(failure),
    };
    session.close().await;
    outcome
}

async fn under_lock(
    session: &Session,
    args: &Run,
    guard: Guard,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let began = Instant::now();
    let child = match start(args, &guard, signals) {
        Ok(child) => child,
        Err(failure) => {
            release(guard).await?;
            return Err(failure);
        }
    };
    let deadlines = Deadlines::new(session.ttl, args.kill_after);
    let work = supervise(&child, &guard, deadlines, signals);
    let stage = session.with_margin_watched(&guard, work).await;
    let code = child.reap().map_err(|error| Failure::new(CANNOT_RUN, error));
    if stage == Stage::Running && guard.is_held() {
        release(guard).await?;
        return code;
    }
    let failure = lost(args, &guard, stage, began.elapsed(), &session.answers().await);
    // Only where our own key still is: nobody else's lock is touched, and no lease revived.
    let _ = guard.release().await;
    Err(failure)
}

fn start(args: &Run, guard: &Guard, signals: &mut Signals) -> Result<Child, Failure> {
    let cannot = |error: std::io::Error| {
        let cause = anyhow::Error::new(error).context("the command cannot be started");
        Failure::new(CANNOT_RUN, cause)
    };
    signals.listen_to(Signal::CHILD).map_err(cannot)?;
    let terminal = Terminal::open();
    if terminal.is_some() {
        // Until now Ctrl-Z has stopped this process; from here on the command stops first.
        signals.listen_to(Signal::TSTP).map_err(cannot)?;
    }
    let token = OsStr::new(guard.token().as_str());
    let fence = output::fence(guard.fencing_token().map(|fence| fence.get()));
    let variables = [
        ("REDLOCK_KEY", args.key.as_os_str()),
        ("REDLOCK_TOKEN", token),
        ("REDLOCK_FENCING_TOKEN", OsStr::new(&fence)),
    ];
    Child::start(&args.command, variables, terminal).map_err(cannot)
}

/// The command has ended while its lock was held. Masters may still tell that it was not.
async fn release(guard: Guard) -> Result<(), Failure> {
    match guard.release().await {
        Err(error @ ReleaseError::NotOurs { .. }) => {
            let cause = anyhow!(error).context("the lock was lost while the command ran");
            Err(Failure::new(LOST, cause))
        }
        // The code is the command's; that the lock may live on a while is worth a line.
        Err(error) => {
            output::note(&error.to_string());
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// `answers` is what the masters have now: what they said when the lock was acquired says nothing
/// of how it was lost.
fn lost(args: &Run, guard: &Guard, stage: Stage, held: Duration, answers: &str) -> Failure {
    let key = guard.resource();
    let why = match (guard.check(), args.max_hold) {
        (_, Some(max_hold)) if held >= max_hold => {
            format!("the lock on {key} was held for its --max-hold of {max_hold:?}")
        }
        (Err(lost), _) => lost.to_string(),
        (Ok(()), _) => format!("the lock on {key} was not extended in time"),
    };
    let what = match stage {
        Stage::Running => "the command had just ended",
        Stage::Asked(_) => "the command was ended with SIGTERM",
        Stage::Killed => "the command was ended with SIGKILL",
    };
    Failure::new(LOST, anyhow!("{why}, {what}: {answers}"))
}
