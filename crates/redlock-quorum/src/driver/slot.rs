//! `Slot`: the place of the driver, which moves from one runtime to the next.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redlock_core::{Clock, Instant};
use tokio::runtime::{self, Handle, RuntimeFlavor};

use super::command::Command;
use super::mailbox::Mailbox;
use super::reply::{Entered, Withdrawals};
use super::{Driver, Setup};
use crate::error::Unreleased;

/// The place of the driver.
///
/// Between two turns the driver rests here, so that a second runtime can take it over if its own
/// runtime does not poll its tasks. The mutex is locked for a few instructions, and nothing is
/// woken under it.
pub(crate) struct Slot {
    mailbox: Arc<Mailbox>,
    clock: Clock,
    state: Mutex<State>,
    /// The driver is in use: read without the lock for a first check, and written under the lock.
    pub(super) is_running: AtomicBool,
    /// The runtime of the driver polls it only while a thread blocks on it.
    may_idle: AtomicBool,
    /// The driver is leaving its runtime. Dismissed callers send their commands again only after it
    /// has left, because new commands would keep it there.
    is_parking: AtomicBool,
    /// Turns and take-overs so far. They grow while the driver is polled.
    pub(super) turns: AtomicU64,
    /// The process that made it. A forked child has copies of all values, but no thread that works
    /// on them, and shares the sockets with its parent.
    pid: u32,
}

pub(super) enum State {
    /// No task works on the driver: it was never used, or its runtime has ended.
    Parked(Box<Driver>),
    /// A task works on it; there is no driver in here while it does.
    Running { task: u64, home: Option<Home>, driver: Option<Box<Driver>> },
    /// The driver will never work again.
    Ended(End),
}

/// The runtime that polls the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Home {
    runtime: runtime::Id,
    /// `true` if the runtime polls tasks only while a thread blocks on it.
    may_idle: bool,
}

/// How the driver ended.
pub(super) struct End {
    pub(super) has_panicked: bool,
    outcome: Result<(), Unreleased>,
    at: Instant,
}

impl Slot {
    pub(crate) fn new(setup: Setup) -> Arc<Self> {
        let mailbox = Mailbox::new();
        Arc::new_cyclic(|slot| Self {
            clock: setup.clock.clone(),
            state: Mutex::new(State::Parked(Box::new(Driver::new(
                setup,
                mailbox.clone(),
                slot.clone(),
            )))),
            mailbox,
            is_running: AtomicBool::new(false),
            may_idle: AtomicBool::new(false),
            is_parking: AtomicBool::new(false),
            turns: AtomicU64::new(0),
            pid: std::process::id(),
        })
    }

    /// Returns `true` in a process that was forked after this was made. It must come before any
    /// lock is taken: a thread of the parent may have held it during the fork.
    pub(crate) fn is_forked(&self) -> bool {
        std::process::id() != self.pid
    }

    /// Leaves a command for the driver, wherever it is. In a forked child nothing reads it, and its
    /// locks belong to the parent.
    pub(crate) fn post(&self, command: Command) {
        if !self.is_forked() {
            self.mailbox.post(command);
        }
    }

    /// The same for a caller that has just checked that this is not a child.
    pub(crate) fn post_here(&self, command: Command) {
        self.mailbox.post(command);
    }

    /// Returns `true` if the driver is on another runtime, which might not be polled at all.
    pub(crate) fn is_elsewhere(&self) -> bool {
        if !self.may_idle.load(Ordering::SeqCst) {
            return false;
        }
        let here = Handle::try_current().ok().map(|runtime| runtime.id());
        match &*self.state() {
            State::Running { home: Some(home), .. } => home.may_idle && Some(home.runtime) != here,
            _ => false,
        }
    }

    /// Returns how many turns the driver had. It has another soon, if its runtime polls it.
    pub(crate) fn ring(&self) -> u64 {
        let turns = self.turns.load(Ordering::Relaxed);
        self.mailbox.ring();
        turns
    }

    /// Returns `true` if the driver had a turn since there were `turns` of them.
    pub(crate) fn has_turned(&self, turns: u64) -> bool {
        self.turns.load(Ordering::Relaxed) != turns
    }

    /// Works on the driver, which is not in the slot. `None` if that has panicked. In that case the
    /// driver can no longer be used, and all waiting callers get an answer.
    pub(super) fn work<T>(
        &self,
        mut driver: Box<Driver>,
        work: impl FnOnce(&mut Driver) -> T,
    ) -> Option<(Box<Driver>, T)> {
        // After a panic only the keys that are left on masters are read from the driver.
        match catch_unwind(AssertUnwindSafe(|| work(&mut driver))) {
            Ok(output) => Some((driver, output)),
            Err(_) => {
                let outcome = driver.panicked();
                self.end(true, outcome);
                None
            }
        }
    }

    /// Puts the driver back after work. Returns the number of the task that works on it.
    pub(super) fn rest(&self, rested: Box<Driver>) -> Option<u64> {
        match &mut *self.state() {
            State::Running { task, driver, .. } => {
                *driver = Some(rested);
                Some(*task)
            }
            // Only the one who took the driver out changes the state during that time.
            State::Parked(_) | State::Ended(_) => None,
        }
    }

    /// Takes the driver out for work of `task`, if it is still this task's.
    pub(super) fn take(&self, of: u64) -> Option<Box<Driver>> {
        match &mut *self.state() {
            State::Running { task, driver, .. } if *task == of => driver.take(),
            _ => None,
        }
    }

    /// Parks the driver, on which no task works from here on. Commands that arrived until now are
    /// handled first, so that no caller waits for a task that does not exist.
    pub(super) fn park(&self, mut driver: Box<Driver>) {
        self.is_parking.store(true, Ordering::SeqCst);
        while let Some((rested, ())) = self.work(driver, Driver::leave) {
            let mut state = self.state();
            if self.mailbox.is_empty() {
                self.is_running.store(false, Ordering::SeqCst);
                *state = State::Parked(rested);
                break;
            }
            driver = rested;
        }
        self.is_parking.store(false, Ordering::SeqCst);
    }

    /// Returns `true` if the driver is leaving its runtime.
    pub(crate) fn is_parking(&self) -> bool {
        self.is_parking.load(Ordering::SeqCst)
    }

    /// The driver is done.
    pub(super) fn conclude(&self, driver: Box<Driver>) {
        let finished = self.work(driver, |driver| {
            driver.disconnect();
            driver.finish()
        });
        if let Some((_, outcome)) = finished {
            self.end(false, outcome);
        }
    }

    fn end(&self, has_panicked: bool, outcome: Result<(), Unreleased>) {
        let at = self.clock.now();
        let mut state = self.state();
        self.is_running.store(false, Ordering::SeqCst);
        *state = State::Ended(End { has_panicked, outcome, at });
    }

    /// Returns `true` if the driver will never work again.
    pub(crate) fn is_ended(&self) -> bool {
        !self.is_running.load(Ordering::SeqCst) && matches!(&*self.state(), State::Ended(_))
    }

    /// The keys that an ended driver left on masters; `None` if it has not ended.
    pub(crate) fn outcome(&self) -> Option<Result<(), Unreleased>> {
        let now = self.clock.now();
        match &*self.state() {
            State::Ended(end) => Some(end.outcome(now)),
            State::Parked(_) | State::Running { .. } => None,
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Ends a driver that nothing polls, without sending anything.
    pub(crate) fn end_unpolled(&self) {
        let mut state = self.state();
        let driver = self.enter(&mut state, None);
        drop(state);
        let closed = driver.and_then(|driver| {
            self.work(driver, |driver| {
                driver.park();
                driver.close();
            })
        });
        if let Some((driver, ())) = closed {
            self.conclude(driver);
        }
    }

    /// Takes the driver out for its next task. The task that works on it now can no longer take it.
    /// `None` if the driver is currently at work, or has ended.
    pub(super) fn enter(&self, state: &mut State, home: Option<Home>) -> Option<Box<Driver>> {
        let next = |task: u64| State::Running { task: task.wrapping_add(1), home, driver: None };
        let next = match state {
            State::Parked(_) => next(0),
            State::Running { task, driver: Some(_), .. } => next(*task),
            State::Running { .. } | State::Ended(_) => return None,
        };
        self.is_running.store(true, Ordering::SeqCst);
        self.may_idle.store(home.is_some_and(|home| home.may_idle), Ordering::SeqCst);
        // Other threads that wait for a turn see this one: the driver is taken over once.
        self.turns.fetch_add(1, Ordering::Relaxed);
        match std::mem::replace(state, next) {
            State::Parked(driver) => Some(driver),
            State::Running { driver, .. } => driver,
            State::Ended(_) => None,
        }
    }

    /// No code that holds this lock can panic half-way through a change.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    /// A forked child leaks its copy of the driver: closing the connections would remove them from
    /// the parent's event queue, which both processes share.
    fn drop(&mut self) {
        if !self.is_forked() {
            return;
        }
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let end = End { has_panicked: false, outcome: Ok(()), at: self.clock.now() };
        std::mem::forget(std::mem::replace(state, State::Ended(end)));
    }
}

impl Withdrawals for Slot {
    fn withdraw(&self, entry: Arc<dyn Entered>) {
        self.post(Command::Withdrawn { entry });
    }
}

impl Home {
    pub(super) fn of(runtime: &Handle) -> Self {
        let may_idle = runtime.runtime_flavor() == RuntimeFlavor::CurrentThread;
        Self { runtime: runtime.id(), may_idle }
    }
}

impl End {
    /// Returns the keys left on masters at `now`, without keys that have expired since.
    fn outcome(&self, now: Instant) -> Result<(), Unreleased> {
        let Err(unreleased) = &self.outcome else { return Ok(()) };
        unreleased.after(now.saturating_since(self.at)).into_result()
    }
}
