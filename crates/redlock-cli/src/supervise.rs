//! Watching over a command that runs under a lock: signals, stops, and the end of the lease.

use std::time::{Duration, Instant};

use redlock_quorum::Guard;
use rustix::process::Signal;
use tokio::time::sleep;

use crate::child::{Child, News};
use crate::signals::Signals;

/// When a command is stopped, counted back from the end of the lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    /// Before the end: SIGTERM.
    term: Duration,
    /// Before the end: SIGKILL.
    kill: Duration,
    /// The longest time between the two, should the lease be extended after all.
    kill_after: Duration,
}

impl Deadlines {
    /// The keeper extends at a third of the TTL and goes on trying, so no more than a third of it
    /// is left only when extending has failed for as long.
    pub(crate) fn new(ttl: Duration, kill_after: Duration) -> Self {
        /// The scheduler may be late by some of this, and the lease must not have ended.
        const KILL_MARGIN_MAX: Duration = Duration::from_millis(100);
        let kill = KILL_MARGIN_MAX.min(ttl / 20);
        Self { term: kill_after.min(ttl / 3).max(kill), kill, kill_after }
    }
}

/// How far a command was told to end because of its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The lock is held.
    Running,
    /// The lease was about to end: SIGTERM was sent then.
    Asked(Instant),
    /// The lease ends now, or was lost: SIGKILL was sent.
    Killed,
}

/// Waits until the command has ended, and makes sure that this is before its lock does.
pub(crate) async fn supervise(
    child: &Child,
    guard: &Guard,
    deadlines: Deadlines,
    signals: &mut Signals,
) -> Stage {
    let mut stage = Stage::Running;
    loop {
        stage = advance(stage, child, guard, deadlines);
        tokio::select! {
            biased;
            () = next_look(stage, guard, deadlines) => {}
            signal = signals.next() => match signal {
                Signal::CHILD => match child.news() {
                    News::None => {}
                    News::Ended => break,
                    News::Stopped(signal) => stage = pause(stage, child, guard, signal).await,
                },
                signal => child.signal(signal),
            },
        }
    }
    if stage != Stage::Running {
        // It has done as it was told; what it has started may not have.
        child.kill();
    }
    stage
}

/// Does what is due, by the clock and at this moment.
fn advance(stage: Stage, child: &Child, guard: &Guard, deadlines: Deadlines) -> Stage {
    let left = guard.remaining();
    let is_overdue = match stage {
        Stage::Running => left <= deadlines.kill,
        Stage::Asked(at) => left <= deadlines.kill || at.elapsed() >= deadlines.kill_after,
        Stage::Killed => false,
    };
    if is_overdue {
        child.kill();
        Stage::Killed
    } else if stage == Stage::Running && left <= deadlines.term {
        child.ask_to_end();
        Stage::Asked(Instant::now())
    } else {
        stage
    }
}

/// Resolves when the next deadline may have come, or when masters have told that the lock is gone.
async fn next_look(stage: Stage, guard: &Guard, deadlines: Deadlines) {
    /// The runtime's timers stand still while the machine is suspended, and the lease does not.
    const LOOK_AGAIN: Duration = Duration::from_secs(1);
    let left = guard.remaining();
    let wait = match stage {
        Stage::Running => left.saturating_sub(deadlines.term),
        Stage::Asked(at) => {
            let patience = deadlines.kill_after.saturating_sub(at.elapsed());
            left.saturating_sub(deadlines.kill).min(patience)
        }
        Stage::Killed => return std::future::pending().await,
    };
    tokio::select! {
        _ = guard.lost() => {}
        () = sleep(wait.min(LOOK_AGAIN)) => {}
    }
}

/// The command was stopped. On a terminal the job stops as a whole, this process included, and
/// nobody extends the lease: whether it goes on is decided by what is left of it.
async fn pause(stage: Stage, child: &Child, guard: &Guard, signal: i32) -> Stage {
    /// A command that is stopped again at once, because there is nobody to give it the terminal,
    /// must not keep us busy.
    const BREATH: Duration = Duration::from_millis(20);
    if !child.has_terminal() {
        return stage;
    }
    child.stop_with(signal);
    sleep(BREATH).await;
    if guard.is_held() {
        child.go_on();
        stage
    } else {
        child.kill();
        Stage::Killed
    }
}
