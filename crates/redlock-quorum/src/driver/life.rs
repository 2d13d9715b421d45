//! `Slot`: where the driver is, and the task that works on it, on one runtime after the other.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use redlock_core::{Clock, Instant};
use tokio::runtime::{self, Handle, RuntimeFlavor};
use tokio::task::yield_now;
use tokio::time::{Sleep, sleep};

use super::command::Command;
use super::mailbox::Mailbox;
use super::{Driver, Setup};
use crate::error::{Unreleased, UnreleasedKey};
use crate::settings::InvalidRequest;

/// Where the driver is.
///
/// Between two turns it rests here, so that another runtime can take it over from one that does
/// not poll its tasks. The lock is held for a few instructions, and nothing is woken under it.
pub(crate) struct Slot {
    mailbox: Arc<Mailbox>,
    clock: Clock,
    state: Mutex<State>,
    /// A task works on the driver, as far as anybody knows: a first look without the lock.
    is_running: AtomicBool,
    /// Turns so far: they go on where the driver is polled.
    turns: AtomicU64,
}

enum State {
    /// No task works on it: it was never used, or its runtime has ended.
    Parked(Box<Driver>),
    /// A task works on it; there is no driver in here during a turn.
    Running { task: u64, home: Home, driver: Option<Box<Driver>> },
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
        let runtime = Handle::try_current().map_err(|_| InvalidRequest::NoRuntime);
        let mut state = self.state();
        match &*state {
            State::Running { .. } => Ok(()),
            State::Ended(End { has_panicked: true, .. }) => Err(InvalidRequest::Panicked),
            State::Ended(_) => Ok(()),
            State::Parked(_) => {
                let runtime = runtime?;
                let driver = state.enter(&runtime, 0);
                drop(state);
                self.launch(driver, &runtime)
            }
        }
    }

    /// Whether the driver is on another runtime that may not be polled at all.
    pub(crate) fn is_elsewhere(&self) -> bool {
        let here = Handle::try_current().ok().map(|runtime| runtime.id());
        match &*self.state() {
            State::Running { home, .. } => home.may_idle && Some(home.runtime) != here,
            State::Parked(_) | State::Ended(_) => false,
        }
    }

    /// How many turns the driver had.
    pub(crate) fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    /// Takes the driver over to this runtime if it had no turn since there were `turns` of them:
    /// its own runtime does not poll it.
    pub(crate) fn take_over(self: &Arc<Self>, turns: u64) -> Result<(), InvalidRequest> {
        let runtime = Handle::try_current().map_err(|_| InvalidRequest::NoRuntime)?;
        let mut state = self.state();
        let State::Running { task, driver: Some(_), .. } = &*state else { return Ok(()) };
        if self.turns() != turns {
            return Ok(());
        }
        let task = *task;
        let mut driver = state.enter(&runtime, task);
        drop(state);
        if let Some(driver) = &mut driver {
            driver.last_turn();
            driver.park();
        }
        self.launch(driver, &runtime)
    }

    fn launch(
        self: &Arc<Self>,
        driver: Option<Box<Driver>>,
        runtime: &Handle,
    ) -> Result<(), InvalidRequest> {
        let Some(mut driver) = driver else { return Ok(()) };
        driver.connect();
        let task = self.rest(driver);
        self.is_running.store(true, Ordering::SeqCst);
        let spawned = runtime.spawn(Task::new(task, self.clone(), runtime));
        // A runtime that shuts down drops what is spawned on it at once, unpolled.
        if spawned.is_finished() && matches!(&*self.state(), State::Parked(_)) {
            return Err(InvalidRequest::NoRuntime);
        }
        Ok(())
    }

    /// Puts the driver back after a turn. Returns the number of the task that works on it.
    fn rest(&self, rested: Box<Driver>) -> u64 {
        match &mut *self.state() {
            State::Running { task, driver, .. } => {
                *driver = Some(rested);
                *task
            }
            // Only the task that took the driver out changes the state meanwhile: never reached.
            State::Parked(_) | State::Ended(_) => 0,
        }
    }

    /// Takes the driver out for a turn of `task`, if it is still this task's.
    fn take(&self, of: u64) -> Option<Box<Driver>> {
        match &mut *self.state() {
            State::Running { task, driver, .. } if *task == of => driver.take(),
            _ => None,
        }
    }

    /// No task works on the driver from here on. What was left for it meanwhile is dealt with
    /// before, so that nothing waits for a task that does not exist.
    fn park(&self, mut driver: Box<Driver>) {
        loop {
            driver.park();
            let mut state = self.state();
            if self.mailbox.is_empty() {
                self.is_running.store(false, Ordering::SeqCst);
                *state = State::Parked(driver);
                return;
            }
        }
    }

    fn end(&self, has_panicked: bool, outcome: Result<(), Unreleased>) {
        let at = self.clock.now();
        *self.state() = State::Ended(End { has_panicked, outcome, at });
        self.is_running.store(false, Ordering::SeqCst);
    }

    /// Whether the driver will never work again.
    pub(crate) fn is_ended(&self) -> bool {
        !self.is_running.load(Ordering::SeqCst) && matches!(&*self.state(), State::Ended(_))
    }

    /// What is left on masters by a driver that has ended.
    pub(crate) fn outcome(&self) -> Result<(), Unreleased> {
        let now = self.clock.now();
        match &*self.state() {
            State::Ended(end) => end.outcome(now),
            State::Parked(_) | State::Running { .. } => Ok(()),
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Ends a driver that no task works on, without sending anything.
    pub(crate) fn end_parked(&self) {
        let mut state = self.state();
        if let State::Parked(_) = &*state {
            let end = End { has_panicked: false, outcome: Ok(()), at: self.clock.now() };
            let State::Parked(mut driver) = std::mem::replace(&mut *state, State::Ended(end))
            else {
                return;
            };
            drop(state);
            driver.park();
            driver.close(std::time::Duration::ZERO, None);
            let outcome = driver.finish();
            self.end(false, outcome);
        }
    }

    /// No code that holds this lock can panic half-way through a change.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A task of `runtime` gets the driver: the next one after `last`.
    fn enter(&mut self, runtime: &Handle, last: u64) -> Option<Box<Driver>> {
        let may_idle = runtime.runtime_flavor() == RuntimeFlavor::CurrentThread;
        let home = Home { runtime: runtime.id(), may_idle };
        let next = Self::Running { task: last.wrapping_add(1), home, driver: None };
        match std::mem::replace(self, next) {
            Self::Parked(driver) => Some(driver),
            Self::Running { driver, .. } => driver,
            Self::Ended(_) => None,
        }
    }
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

/// The task that works on the driver for as long as it is this task's.
struct Task {
    number: u64,
    slot: Arc<Slot>,
    alarm: Option<(Instant, Pin<Box<Sleep>>)>,
    /// There was nothing left to do at the end of the last turn, which was of several commands.
    was_busy: bool,
    /// On a runtime with several threads a task that was woken runs next, before the other tasks
    /// that are ready and would leave commands too. Where there were several commands at a time
    /// it lets them go first, or each would be written to the masters by itself.
    lets_others_first: bool,
}

/// What a turn has led to.
enum Outcome {
    /// The driver rests, until the instant at which something is due.
    Rests(Option<Instant>),
    /// It has ended, or another task works on it.
    Over,
}

impl Task {
    fn new(number: u64, slot: Arc<Slot>, runtime: &Handle) -> Self {
        let lets_others_first = runtime.runtime_flavor() == RuntimeFlavor::MultiThread;
        Self { number, slot, alarm: None, was_busy: false, lets_others_first }
    }

    /// Ready when something is due. There is one timer of the runtime for all that is to come.
    fn poll_alarm(&mut self, next: Option<Instant>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(next) = next else { return Poll::Pending };
        // An alarm that was set for something earlier is left to ring: one look too many costs
        // less than setting it anew for every request.
        if self.alarm.as_ref().is_none_or(|(at, _)| *at > next) {
            let wait = next.saturating_since(self.slot.clock.now());
            self.alarm = Some((next, Box::pin(sleep(wait))));
        }
        if let Some((_, alarm)) = &mut self.alarm {
            ready!(alarm.as_mut().poll(cx));
        }
        self.alarm = None;
        Poll::Ready(())
    }

    /// One turn of the driver.
    fn turn(&mut self, cx: &mut Context<'_>) -> Outcome {
        let Some(driver) = self.slot.take(self.number) else { return Outcome::Over };
        let mut turn = Turn { slot: &self.slot, driver: Some(driver) };
        let Some(driver) = &mut turn.driver else { return Outcome::Over };
        self.slot.turns.fetch_add(1, Ordering::Relaxed);
        let is_over = driver.turn(cx.waker()).is_ready();
        self.was_busy = driver.is_busy;
        let next = driver.next_due();
        if is_over {
            driver.masters.disconnect();
            let outcome = driver.finish();
            turn.driver = None;
            self.slot.end(false, outcome);
            return Outcome::Over;
        }
        Outcome::Rests(next)
    }
}

impl Future for Task {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::take(&mut self.was_busy) && self.lets_others_first {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Outcome::Rests(next) = self.turn(cx) else { return Poll::Ready(()) };
        ready!(self.poll_alarm(next, cx));
        // Something became due during the turn. The runtime looks for replies before the next one:
        // a process that was stopped finds those that came meanwhile.
        let _ = pin!(yield_now()).poll(cx);
        Poll::Pending
    }
}

/// The runtime is going away with work not done: the driver waits for the next one.
impl Drop for Task {
    fn drop(&mut self) {
        let Some(mut driver) = self.slot.take(self.number) else { return };
        // A panic of the user's, which ends the runtime, is no time for more.
        if std::thread::panicking() {
            driver.masters.disconnect();
        } else {
            driver.last_turn();
        }
        self.slot.park(driver);
    }
}

/// The driver during a turn. If its own work panics it is of no use any more, and all that wait
/// get an answer.
struct Turn<'a> {
    slot: &'a Slot,
    driver: Option<Box<Driver>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Some(mut driver) = self.driver.take() else { return };
        if std::thread::panicking() {
            driver.masters.disconnect();
            let outcome = driver.panicked();
            self.slot.end(true, outcome);
        } else {
            self.slot.rest(driver);
        }
    }
}
