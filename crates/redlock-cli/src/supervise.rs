//! `Supervisor`: watches over a command under a lock: signals, stops, and the end of the lease.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use redlock_quorum::HoldSet;
use rustix::process::Signal;
use tokio::time::sleep;

use crate::child::{Child, News};
use crate::group::Sent;
use crate::process::Process;
use crate::signals::Signals;
use crate::watchdog;

/// When a command is stopped, counted back from the end of the lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    /// Before the end: SIGTERM.
    term: Duration,
    /// Before the end: SIGKILL.
    kill: Duration,
    /// The time before the end at which the watchdog sends SIGKILL, if this process has not done
    /// so.
    watchdog: Duration,
    /// The longest time between the two, should the lease be extended after all.
    kill_after: Duration,
    /// The interval of checks. The end of the lease moves with each extension, the watchdog must
    /// know it in time, and the runtime's timers stop while the machine is suspended.
    check_again: Duration,
}

impl Deadlines {
    /// The lock is extended at a third of the TTL, with retries. So only a third is left only if
    /// extensions have failed for that long.
    pub(crate) fn new(ttl: Duration, kill_after: Duration) -> Self {
        /// The scheduler may be late by some of this, and the lease must not have ended.
        const KILL_MARGIN_MAX: Duration = Duration::from_millis(100);
        const CHECK_AGAIN_MAX: Duration = Duration::from_secs(1);
        let kill = KILL_MARGIN_MAX.min(ttl / 20);
        Self {
            term: kill_after.min(ttl / 3).max(kill),
            kill,
            watchdog: kill / 2,
            kill_after,
            check_again: CHECK_AGAIN_MAX.min(ttl / 6),
        }
    }
}

impl Deadlines {
    /// Returns when the watchdog kills unless the lease is extended, on the clock of
    /// [`watchdog::now`].
    pub(crate) fn kill_at(&self, hold: &HoldSet) -> u64 {
        // The clock is read first, because on a busy machine a long time may pass between two
        // readings. It must not be added to the lease.
        let now = watchdog::now();
        watchdog::later(now, hold.remaining().saturating_sub(self.watchdog))
    }
}

/// The steps taken to end a command because of its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The lock is held.
    Running,
    /// The lease was about to end, and SIGTERM was sent at this time.
    Asked(Instant),
    /// The lease ends now, or was lost: SIGKILL was sent.
    Killed,
}

/// Why this process could not extend the lock for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// There was none.
    None,
    /// The job was stopped, as by Ctrl-Z.
    Job,
    /// This process was stopped (SIGSTOP), or the machine was suspended.
    Frozen,
}

/// The outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) stage: Stage,
    /// SIGTERM was sent, whatever followed.
    pub(crate) was_asked: bool,
    /// The pause in which the lock was lost.
    pub(crate) pause: Pause,
    /// How many processes of its group continue after a normal exit.
    pub(crate) left: usize,
    /// For how long the command ran on after SIGKILL could not be delivered to it.
    pub(crate) outlived: Option<Duration>,
    /// How many processes that the command started continue although it was killed: they run as
    /// another user, or have left its group.
    pub(crate) escaped: usize,
}

/// Watches one command until it has exited.
pub(crate) struct Supervisor<'a> {
    child: &'a mut Child,
    hold: HoldSet,
    deadlines: Deadlines,
    stage: Stage,
    was_asked: bool,
    pause: Pause,
    last_term: Option<Instant>,
    /// When SIGKILL could not be delivered first.
    unkilled: Option<Instant>,
    /// The processes that had left the group when the command had to end.
    strays: Vec<Process>,
}

impl<'a> Supervisor<'a> {
    pub(crate) fn new(child: &'a mut Child, hold: HoldSet, deadlines: Deadlines) -> Self {
        let (stage, pause) = (Stage::Running, Pause::None);
        let (was_asked, last_term, unkilled, strays) = (false, None, None, Vec::new());
        Self { child, hold, deadlines, stage, was_asked, pause, last_term, unkilled, strays }
    }

    /// Waits until the command has exited, and with `--wait-group` also its group, and makes sure
    /// that this happens before the lock ends.
    pub(crate) async fn supervise(
        mut self,
        signals: &mut Signals,
        waits_for_group: bool,
    ) -> Outcome {
        // No signal reports children that were adopted and ended before SIGCHLD was listened to.
        self.child.reap_others();
        self.outlast_the_command(signals).await;
        if waits_for_group {
            self.outlast_the_group(signals).await;
        }
        let outlived = self.unkilled.map(|since| since.elapsed());
        let left = self.left().await;
        if self.stage != Stage::Running || !self.hold.is_held() {
            // The command exited after SIGTERM, but its children might not have.
            self.kill();
        }
        let escaped = self.strays.iter().filter(|stray| stray.is_running()).count();
        let escaped =
            if self.stage == Stage::Running { 0 } else { escaped + self.child.refusing() };
        let Self { stage, was_asked, pause, .. } = self;
        Outcome { stage, was_asked, pause, left, outlived, escaped }
    }

    fn ask_to_end(&mut self) {
        self.was_asked = true;
        self.note_strays();
        self.child.ask_to_end();
    }

    /// Remembers the processes that have left the group. After the command has exited, nothing
    /// shows that they were its descendants.
    fn note_strays(&mut self) {
        for stray in self.child.strays() {
            if !self.strays.iter().any(|known| (known.id, known.began) == (stray.id, stray.began)) {
                self.strays.push(stray);
            }
        }
    }

    fn kill(&mut self) {
        self.note_strays();
        if self.child.kill() == Sent::Refused {
            self.unkilled.get_or_insert_with(Instant::now);
        }
    }

    async fn outlast_the_command(&mut self, signals: &mut Signals) {
        loop {
            self.advance();
            tokio::select! {
                biased;
                () = self.next_check() => {}
                signal = signals.next() => match signal {
                    Signal::CHILD => match self.child.news() {
                        News::None => {}
                        News::Ended => break,
                        News::Stopped(signal) => self.pause(signal).await,
                    },
                    signal => self.pass_on(signal),
                },
            }
        }
    }

    /// Keeps the lock after the command has exited, until its group has. Nothing reports the exit
    /// of those processes.
    async fn outlast_the_group(&mut self, signals: &mut Signals) {
        const CHECK_EVERY: Duration = Duration::from_millis(50);
        self.child.take_terminal_back();
        while self.stage != Stage::Killed && self.child.left() > 0 {
            self.advance();
            tokio::select! {
                biased;
                signal = signals.next() => match signal {
                    // Orphans have other parents, unless this is process 1.
                    Signal::CHILD => drop(self.child.news()),
                    Signal::TSTP => {
                        self.pause(Signal::TSTP.as_raw()).await;
                        self.child.take_terminal_back();
                    }
                    signal => self.pass_on(signal),
                },
                () = self.next_check() => {}
                () = sleep(CHECK_EVERY) => {}
            }
        }
    }

    /// Returns how many processes of the group continue. Processes that a shell does not wait for,
    /// such as the reader of its last output, exit a moment later and need no note.
    async fn left(&self) -> usize {
        const CHECK_EVERY: Duration = Duration::from_millis(10);
        const CHECKS: usize = 10;
        for _ in 0..CHECKS {
            if self.stage != Stage::Running || self.child.left() == 0 {
                return 0;
            }
            sleep(CHECK_EVERY).await;
        }
        self.child.left()
    }

    /// Takes the steps that are due at this time.
    fn advance(&mut self) {
        self.child.kill_at(self.deadlines.kill_at(&self.hold));
        let left = self.hold.remaining();
        if !self.is_due(left) {
            return;
        }
        let is_overdue = match self.stage {
            Stage::Running => left <= self.deadlines.kill,
            Stage::Asked(_) | Stage::Killed => true,
        };
        if is_overdue {
            self.kill();
            self.stage = Stage::Killed;
        } else {
            self.ask_to_end();
            self.stage = Stage::Asked(Instant::now());
        }
    }

    /// Returns `true` if the next stage has come, when this is left of the lease.
    fn is_due(&self, left: Duration) -> bool {
        match self.stage {
            Stage::Running => left <= self.deadlines.term,
            Stage::Asked(at) => {
                left <= self.deadlines.kill || at.elapsed() >= self.deadlines.kill_after
            }
            Stage::Killed => false,
        }
    }

    /// Resolves when the next deadline may have come, or when masters report that the lock is gone.
    async fn next_check(&mut self) {
        let left = self.hold.remaining();
        let wait = match self.stage {
            Stage::Running => left.saturating_sub(self.deadlines.term),
            Stage::Asked(at) => {
                let patience = self.deadlines.kill_after.saturating_sub(at.elapsed());
                left.saturating_sub(self.deadlines.kill).min(patience)
            }
            Stage::Killed => return std::future::pending().await,
        };
        let wait = wait.min(self.deadlines.check_again);
        let began = watchdog::now();
        let mut lost = pin!(self.hold.lost());
        let mut timer = pin!(sleep(wait));
        // The lease may also have moved to an earlier end.
        poll_fn(|cx| {
            let is_time = self.is_due(self.hold.remaining())
                || lost.as_mut().poll(cx).is_ready()
                || timer.as_mut().poll(cx).is_ready();
            if is_time { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        let took = Duration::from_nanos(watchdog::now().saturating_sub(began));
        if !self.hold.is_held() && took > wait + FROZEN {
            self.pause = Pause::Frozen;
        }
    }

    /// Under systemd's default `KillMode` a service's processes get SIGTERM one by one, and a
    /// supervisor above this one may pass on its own: one request to end is passed on once.
    fn pass_on(&mut self, signal: Signal) {
        const MOMENT: Duration = Duration::from_millis(500);
        if signal == Signal::TERM {
            let before = self.last_term.replace(Instant::now());
            if before.is_some_and(|before| before.elapsed() < MOMENT) {
                return;
            }
        }
        self.child.signal(signal);
    }

    /// Handles a stopped command. On a terminal, the whole job stops, including this process, and
    /// nothing extends the lease. Its remaining time decides whether the job continues.
    async fn pause(&mut self, signal: i32) {
        /// Avoids a busy loop if a command stops again immediately, because no process can give it
        /// the terminal.
        const BREATH: Duration = Duration::from_millis(20);
        if !self.child.has_terminal() {
            return;
        }
        let is_held_before = self.hold.is_held();
        if !self.child.asks_for_terminal(signal) {
            self.child.stop_job();
        }
        sleep(BREATH).await;
        if self.hold.is_held() {
            self.child.go_on();
        } else {
            self.kill();
            self.stage = Stage::Killed;
            if is_held_before {
                self.pause = Pause::Job;
            }
        }
    }
}

/// A delay of a wake-up that a busy machine does not explain.
const FROZEN: Duration = Duration::from_secs(1);
