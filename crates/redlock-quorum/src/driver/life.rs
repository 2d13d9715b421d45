//! `Slot`: where the driver is, on one runtime after the other.

use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redlock_core::{Clock, Instant};
use tokio::runtime::{self, Handle, RuntimeFlavor};
use tokio::time::sleep;

use super::command::Command;
use super::grant::Giver;
use super::mailbox::Mailbox;
use super::task::Task;
use super::ticket::LockId;
use super::{Driver, Setup};
use crate::error::{Unreleased, UnreleasedKey};
use crate::settings::InvalidRequest;

/// How long a driver on another runtime, which may not poll it, has for a turn after the doorbell.
pub(crate) const PATIENCE: Duration = Duration::from_millis(100);

/// Where the driver is.
///
/// Between two turns it rests here, so that another runtime can take it over from one that does
/// not poll its tasks. The lock is held for a few instructions, and nothing is woken under it.
pub(crate) struct Slot {
    mailbox: Arc<Mailbox>,
    clock: Clock,
    state: Mutex<State>,
    /// The driver is in use: a first look without the lock, under which it is written.
    is_running: AtomicBool,
    /// Turns and take-overs so far: they go on where the driver is polled.
    pub(super) turns: AtomicU64,
}

enum State {
    /// No task works on it: it was never used, or its runtime has ended.
    Parked(Box<Driver>),
    /// A task works on it; there is no driver in here while it does.
    Running { task: u64, home: Option<Home>, driver: Option<Box<Driver>> },
    /// It will never work again.
    Ended(End),
}

/// The runtime that polls the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Home {
    runtime: runtime::Id,
    /// It polls tasks only while a thread blocks on it.
    may_idle: bool,
}

/// How the driver ended.
struct End {
    has_panicked: bool,
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
            turns: AtomicU64::new(0),
        })
    }

    /// Leaves a command for the driver, wherever it is.
    pub(crate) fn post(&self, command: Command) {
        self.mailbox.post(command);
    }

    /// Makes sure that a task works on the driver.
    ///
    /// # Errors
    /// [`InvalidRequest::NoRuntime`] when none does and there is no runtime to start one on, and
    /// [`InvalidRequest::Panicked`] when one did until it panicked.
    pub(crate) fn start(self: &Arc<Self>) -> Result<(), InvalidRequest> {
        if self.is_running.load(Ordering::SeqCst) {
            return Ok(());
        }
        let runtime = living_runtime();
        let mut state = self.state();
        match &*state {
            State::Running { .. } => Ok(()),
            State::Ended(End { has_panicked: true, .. }) => Err(InvalidRequest::Panicked),
            State::Ended(_) => Ok(()),
            State::Parked(_) => {
                let runtime = runtime.ok_or(InvalidRequest::NoRuntime)?;
                let driver = self.enter(&mut state, Some(Home::of(&runtime)));
                drop(state);
                self.launch(driver, &runtime)
            }
        }
    }

    /// Whether the driver is on another runtime that may not be polled at all.
    pub(crate) fn is_elsewhere(&self) -> bool {
        let here = Handle::try_current().ok().map(|runtime| runtime.id());
        match &*self.state() {
            State::Running { home: Some(home), .. } => home.may_idle && Some(home.runtime) != here,
            _ => false,
        }
    }

    /// How many turns the driver had. It has another soon, if its runtime polls it.
    pub(crate) fn ring(&self) -> u64 {
        let turns = self.turns.load(Ordering::Relaxed);
        self.mailbox.ring();
        turns
    }

    /// Whether the driver had a turn since there were `turns` of them.
    pub(crate) fn has_turned(&self, turns: u64) -> bool {
        self.turns.load(Ordering::Relaxed) != turns
    }

    /// Takes the driver over to this runtime if it has made no turn since there were `turns`:
    /// its own runtime does not poll it.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub(crate) fn take_over(self: &Arc<Self>, turns: u64) -> Result<(), InvalidRequest> {
        let runtime = living_runtime().ok_or(InvalidRequest::NoRuntime)?;
        let mut state = self.state();
        let is_resting = matches!(&*state, State::Running { driver: Some(_), .. });
        if !is_resting || self.has_turned(turns) {
            return Ok(());
        }
        let driver = self.enter(&mut state, Some(Home::of(&runtime)));
        drop(state);
        let driver = driver.and_then(|driver| self.work(driver, Driver::leave));
        self.launch(driver.map(|(driver, ())| driver), &runtime)
    }

    /// Sees to it that what was posted, and is not waited for, is read: also where the runtime of
    /// the driver is not polled, and this one is.
    pub(crate) fn look_after(self: &Arc<Self>) {
        let is_started = self.start().is_ok();
        if !is_started || !self.is_elsewhere() {
            return;
        }
        if let Some(runtime) = living_runtime() {
            let (slot, turns) = (self.clone(), self.ring());
            runtime.spawn(async move {
                sleep(PATIENCE).await;
                // Where it has ended meanwhile nothing reads any more.
                let _ = slot.take_over(turns);
            });
        }
    }

    /// Connects the masters and hands the driver to a task of `runtime`. Without a driver it has
    /// ended meanwhile.
    fn launch(
        self: &Arc<Self>,
        driver: Option<Box<Driver>>,
        runtime: &Handle,
    ) -> Result<(), InvalidRequest> {
        let connected = driver.and_then(|driver| self.work(driver, Driver::connect));
        let Some((driver, ())) = connected else { return Err(InvalidRequest::Panicked) };
        if let Some(task) = self.rest(driver) {
            // A runtime that has ended meanwhile drops the task at once, which parks the driver.
            drop(runtime.spawn(Task::new(task, self.clone(), runtime)));
        }
        Ok(())
    }

    /// Works on the driver, which is not in the slot. None when that has panicked: then the driver
    /// is of no use any more, and all that wait get an answer.
    pub(super) fn work<T>(
        &self,
        mut driver: Box<Driver>,
        work: impl FnOnce(&mut Driver) -> T,
    ) -> Option<(Box<Driver>, T)> {
        // Nothing of it is looked at behind a panic but what is left on masters.
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
            // The one that took the driver out is the only one to change the state meanwhile.
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

    /// No task works on the driver from here on. What was left for it meanwhile is dealt with
    /// before, so that nothing waits for a task that does not exist.
    pub(super) fn park(&self, mut driver: Box<Driver>) {
        while let Some((rested, ())) = self.work(driver, Driver::leave) {
            let mut state = self.state();
            if self.mailbox.is_empty() {
                self.is_running.store(false, Ordering::SeqCst);
                *state = State::Parked(rested);
                return;
            }
            driver = rested;
        }
    }

    /// The driver is done.
    pub(super) fn conclude(&self, driver: Box<Driver>) {
        let finished = self.work(driver, |driver| {
            driver.masters.disconnect();
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

    /// Whether the driver will never work again.
    pub(crate) fn is_ended(&self) -> bool {
        !self.is_running.load(Ordering::SeqCst) && matches!(&*self.state(), State::Ended(_))
    }

    /// What is left on masters by a driver that has ended; none where it has not.
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
                driver.close(Duration::ZERO, None);
            })
        });
        if let Some((driver, ())) = closed {
            self.conclude(driver);
        }
    }

    /// Takes the driver out for what comes next, which no task that works on it now takes part in.
    /// None where one is at work at this moment, or never will be.
    fn enter(&self, state: &mut State, home: Option<Home>) -> Option<Box<Driver>> {
        let next = |task: u64| State::Running { task: task.wrapping_add(1), home, driver: None };
        let next = match state {
            State::Parked(_) => next(0),
            State::Running { task, driver: Some(_), .. } => next(*task),
            State::Running { .. } | State::Ended(_) => return None,
        };
        self.is_running.store(true, Ordering::SeqCst);
        // Others that wait for a turn find that there is one: it is taken over once.
        self.turns.fetch_add(1, Ordering::Relaxed);
        match std::mem::replace(state, next) {
            State::Parked(driver) => Some(driver),
            State::Running { driver, .. } => driver,
            State::Ended(_) => None,
        }
    }

    /// No code that holds this lock can panic half-way through a change.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Home {
    fn of(runtime: &Handle) -> Self {
        let may_idle = runtime.runtime_flavor() == RuntimeFlavor::CurrentThread;
        Self { runtime: runtime.id(), may_idle }
    }
}

/// The runtime around the caller, unless it has ended: its blocking threads may live on.
pub(crate) fn living_runtime() -> Option<Handle> {
    let runtime = Handle::try_current().ok()?;
    let probe = Arc::new(());
    let held = probe.clone();
    let task = runtime.spawn(async move {
        let _held = held;
        pending::<()>().await;
    });
    // A runtime that has ended drops what is spawned on it at once.
    let lives = Arc::strong_count(&probe) > 1;
    task.abort();
    lives.then_some(runtime)
}

impl End {
    /// What is left on masters at `now`: keys that have expired meanwhile are not.
    fn outcome(&self, now: Instant) -> Result<(), Unreleased> {
        let Err(unreleased) = &self.outcome else { return Ok(()) };
        let since = now.saturating_since(self.at);
        let left = |key: &UnreleasedKey| {
            let within = key.within.saturating_sub(since);
            let key = UnreleasedKey { within, ..key.clone() };
            (!key.within.is_zero()).then_some(key)
        };
        let still =
            |key: &UnreleasedKey| if key.from_wake_up { Some(key.clone()) } else { left(key) };
        let keys: Vec<UnreleasedKey> = unreleased.keys.iter().filter_map(still).collect();
        if keys.is_empty() { Ok(()) } else { Err(Unreleased { keys }) }
    }
}

/// Outside of a runtime nothing can be started: the next use of the handle goes on with it.
impl Giver for Slot {
    fn release(self: Arc<Self>, lock: LockId) {
        self.post(Command::Release { lock, reply: None });
        self.look_after();
    }

    fn forget(self: Arc<Self>, lock: LockId) {
        self.post(Command::Forget { lock });
        self.look_after();
    }
}
