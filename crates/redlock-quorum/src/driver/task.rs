//! The task that does the driver's work, on the runtime that first uses the handle.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use redlock_core::Instant;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::{Sleep, sleep};

use super::timers::Due;
use super::{Driver, Link, Start};
use crate::InvalidRequest;
use crate::claim::Claim;
use crate::driver::Message;

/// Where the driver is while no task works on it.
pub(crate) struct Slot {
    is_running: AtomicBool,
    was_started: AtomicBool,
    has_panicked: AtomicBool,
    parked: Mutex<Option<Box<Driver>>>,
}

impl Slot {
    pub(crate) fn new(driver: Driver) -> Arc<Self> {
        let parked = Mutex::new(Some(Box::new(driver)));
        Arc::new(Self {
            is_running: AtomicBool::new(false),
            was_started: AtomicBool::new(false),
            has_panicked: AtomicBool::new(false),
            parked,
        })
    }

    /// Makes sure that a task works on the driver.
    ///
    /// # Errors
    /// [`InvalidRequest::NoRuntime`] when none does and there is no runtime to start one on, and
    /// [`InvalidRequest::Panicked`] when one did until it panicked.
    pub(crate) fn start(self: &Arc<Self>) -> Result<(), InvalidRequest> {
        if self.has_panicked.load(Ordering::SeqCst) {
            return Err(InvalidRequest::Panicked);
        }
        if self.is_running() {
            return Ok(());
        }
        let runtime = Handle::try_current().map_err(|_| InvalidRequest::NoRuntime)?;
        let mut parked = self.parked();
        if let Some(driver) = parked.take() {
            self.is_running.store(true, Ordering::SeqCst);
            self.was_started.store(true, Ordering::SeqCst);
            runtime.spawn(Task::new(driver, self.clone()));
        }
        Ok(())
    }

    pub(crate) fn is_running(&self) -> bool {
        self.is_running.load(Ordering::SeqCst)
    }

    /// Whether the handle has ever been used.
    pub(crate) fn was_started(&self) -> bool {
        self.was_started.load(Ordering::SeqCst)
    }

    fn parked(&self) -> MutexGuard<'_, Option<Box<Driver>>> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Task {
    driver: Option<Box<Driver>>,
    slot: Arc<Slot>,
    alarm: Option<(Instant, Pin<Box<Sleep>>)>,
    /// There was nothing left to do at the end of the last turn.
    is_rested: bool,
    /// On a runtime with several threads whoever wakes a task has it run next, before the other
    /// tasks that are ready and would leave messages too. Where there were several messages at a
    /// time it lets them go first, or each would be written to the masters by itself.
    lets_others_first: bool,
}

impl Task {
    fn new(mut driver: Box<Driver>, slot: Arc<Slot>) -> Self {
        driver.connect();
        let flavor = Handle::current().runtime_flavor();
        let lets_others_first = flavor == RuntimeFlavor::MultiThread;
        Self { driver: Some(driver), slot, alarm: None, is_rested: false, lets_others_first }
    }

    /// Ready when something is due. There is one timer of the runtime for all that is to come.
    fn poll_alarm(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(driver) = &mut self.driver else { return Poll::Pending };
        driver.timers.prune();
        let Some(next) = driver.timers.next() else { return Poll::Pending };
        // An alarm that was set for something earlier is left to ring: one look too many costs
        // less than setting it anew for every request.
        if self.alarm.as_ref().is_none_or(|(at, _)| *at > next) {
            let wait = next.saturating_since(driver.now());
            self.alarm = Some((next, Box::pin(sleep(wait))));
        }
        if let Some((_, alarm)) = &mut self.alarm {
            ready!(alarm.as_mut().poll(cx));
        }
        self.alarm = None;
        Poll::Ready(())
    }
}

impl Future for Task {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let is_busy = self.driver.as_ref().is_some_and(|driver| driver.is_busy);
        if std::mem::take(&mut self.is_rested) && self.lets_others_first && is_busy {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        loop {
            let Some(driver) = &mut self.driver else { return Poll::Ready(()) };
            if driver.work(cx).is_ready() {
                driver.disconnect();
                self.driver = None;
                return Poll::Ready(());
            }
            self.is_rested = true;
            ready!(self.poll_alarm(cx));
        }
    }
}

/// The runtime is going away with work not done: the driver waits for the next one.
impl Drop for Task {
    fn drop(&mut self) {
        if let Some(mut driver) = self.driver.take() {
            if std::thread::panicking() {
                // Whatever made it panic would do so again. Whoever waits is told.
                self.slot.has_panicked.store(true, Ordering::SeqCst);
                return driver.context.mailbox.close();
            }
            driver.disconnect();
            let mut parked = self.slot.parked();
            // From here on whoever leaves a message starts a new task. What came before is dealt
            // with here, so that nobody waits for a task that does not exist.
            self.slot.is_running.store(false, Ordering::SeqCst);
            driver.orphan();
            *parked = Some(driver);
        }
    }
}

impl Driver {
    /// Opens the links. Their first poll is due at once.
    fn connect(&mut self) {
        self.start = Start::Connecting(self.now());
        self.timers.enter(self.now().saturating_add(self.connect_timeout), Due::Start);
        let masters = self.masters.clone();
        self.links = masters
            .iter()
            .enumerate()
            .map(|(master, node)| {
                let mailbox = self.context.mailbox.clone();
                let changed = Arc::new(move || mailbox.post(Message::Changed(master)));
                let waker = self.context.mailbox.link_waker(master);
                waker.wake_by_ref();
                Some(Link { drive: node.clone().drive(changed)?, waker })
            })
            .collect();
        // A master that was up before anybody listened has no change to tell.
        (0..self.masters.len()).for_each(|master| self.changed(master));
    }

    fn disconnect(&mut self) {
        self.links.clear();
    }

    /// Requests go out once every master is connected or known not to be. They do not wait for
    /// the last one, though: once a quorum is connected, the others have as long again as that
    /// took.
    pub(super) fn consider_start(&mut self) {
        /// The least time for the others: connections made at the same time end at the same time.
        const LINGER_MIN: Duration = Duration::from_millis(10);
        if self.start == Start::Done {
            return;
        }
        let states: Vec<_> = self.masters.iter().map(|node| node.state()).collect();
        let count = |wanted: fn(&redlock_core::NodeState) -> bool| {
            states.iter().filter(|state| wanted(state)).count()
        };
        let up = count(|state| matches!(state, redlock_core::NodeState::Up { .. }));
        let connecting = count(|state| matches!(state, redlock_core::NodeState::Connecting));
        if connecting == 0 {
            self.start = Start::Done;
        } else if up >= crate::tally::quorum(states.len())
            && let Start::Connecting(since) = self.start
        {
            let now = self.now();
            let linger = now.saturating_since(since).max(LINGER_MIN);
            self.start = Start::Lingering;
            self.timers.enter(now.saturating_add(linger), Due::Start);
        }
    }

    /// Lets go of everybody who waits: they try again on another runtime, if they can.
    fn orphan(&mut self) {
        self.start = Start::Done;
        let mut inbox = Vec::new();
        self.context.mailbox.take(&mut inbox);
        for message in std::mem::take(&mut self.early).into_iter().chain(inbox) {
            match message {
                Message::Acquire(_) | Message::Status { .. } | Message::Extend { .. } => {}
                Message::Defeated { claim, .. } => self.release(&claim, None),
                Message::Release { claim, .. } => self.release(&claim, None),
                message => self.handle(message),
            }
        }
        self.line.clear();
        let due: Vec<Due> = self.timers.drain().collect();
        for due in due {
            match due {
                Due::Attempt(claim) => {
                    if let Some(claim) = claim.upgrade() {
                        self.orphan_claim(claim);
                    }
                }
                Due::Keep(claim) => self.orphan_claim(claim),
                Due::Round(round) => {
                    round.time_out();
                    self.orphan_claim(round.claim.clone());
                }
                Due::Farewell(farewell) => self.farewell_due(&farewell),
                Due::Debts => self.timers.enter(self.context.clock.now(), due),
                Due::Grace(_) | Due::Retry(_) | Due::Census(_) | Due::Start | Due::Close => {}
            }
        }
    }

    /// An open vote is given up; a lease is kept again as soon as there is a runtime.
    fn orphan_claim(&mut self, claim: Arc<Claim>) {
        if claim.abandon().is_some() {
            self.release(&claim, None);
        } else {
            self.keep_later(claim);
        }
    }
}
