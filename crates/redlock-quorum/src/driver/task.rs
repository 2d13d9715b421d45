//! `Task`: works on the driver, on one runtime, as long as the driver belongs to this task.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use redlock_core::Instant;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::yield_now;
use tokio::time::{Sleep, sleep};

use super::slot::Slot;
use crate::hold::NAP_MAX;

pub(super) struct Task {
    number: u64,
    slot: Arc<Slot>,
    alarm: Option<Alarm>,
    /// There was nothing left to do at the end of the last turn, and callers come several at a
    /// time.
    was_busy: bool,
    /// On a runtime with several threads a woken task runs next, ahead of other ready tasks that
    /// would leave commands as well. If several callers come at a time, this task lets them go
    /// first, because otherwise each request would be written to the masters separately.
    lets_others_first: bool,
    /// The runtime is to check its sockets for replies.
    check: Option<Arc<SocketCheck>>,
    /// The driver has found all replies that arrived before this.
    seen: Instant,
}

/// The runtime's timer for the next due entry.
struct Alarm {
    /// The instant at which it rings.
    at: Instant,
    /// `true` if the alarm rings after [`NAP_MAX`] at the latest.
    is_nap: bool,
    timer: Pin<Box<Sleep>>,
}

/// Before anything due is handled, the runtime must check its sockets. Otherwise a reply that has
/// already arrived would be treated as late because this process was stopped or busy.
struct SocketCheck {
    asked_at: Instant,
    is_over: AtomicBool,
    task: Waker,
}

impl SocketCheck {
    /// A runtime wakes a task that has yielded once it has checked its sockets.
    fn ask(now: Instant, task: &Waker) -> Arc<Self> {
        let task = task.clone();
        let check = Arc::new(Self { asked_at: now, is_over: AtomicBool::new(false), task });
        let waker = Waker::from(check.clone());
        let _ = pin!(yield_now()).poll(&mut Context::from_waker(&waker));
        check
    }
}

impl Alarm {
    fn set(at: Instant, left: Duration, holds: bool) -> Self {
        let wait = if holds { left.min(NAP_MAX) } else { left };
        Self { at, is_nap: wait <= NAP_MAX, timer: Box::pin(sleep(wait)) }
    }
}

impl Wake for SocketCheck {
    fn wake(self: Arc<Self>) {
        self.is_over.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

impl Task {
    pub(super) fn new(number: u64, slot: Arc<Slot>, runtime: &Handle) -> Self {
        let lets_others_first = runtime.runtime_flavor() == RuntimeFlavor::MultiThread;
        let seen = Instant::ORIGIN;
        Self { number, slot, alarm: None, was_busy: false, lets_others_first, check: None, seen }
    }

    /// Returns `true` if something may be due. There is one timer of the runtime for all that is to
    /// come.
    fn is_due(&mut self, next: Option<Instant>, holds: bool, cx: &mut Context<'_>) -> bool {
        let Some(next) = next else { return false };
        // An alarm for an earlier time is kept, because one useless wake-up costs less than
        // resetting the timer for every request.
        let serves = |alarm: &Alarm| alarm.at <= next && (alarm.is_nap || !holds);
        if !self.alarm.as_ref().is_some_and(serves) {
            self.alarm = Some(Alarm::set(next, next.saturating_since(self.slot.now()), holds));
        }
        let mut rings = |alarm: &mut Alarm| alarm.timer.as_mut().poll(cx).is_ready();
        self.alarm.take_if(|alarm| rings(alarm)).is_some()
    }

    /// The runtime has finished the requested check of its sockets.
    fn end_check(&mut self) {
        if let Some(check) = self.check.take_if(|check| check.is_over.load(Ordering::Acquire)) {
            self.seen = check.asked_at;
        }
    }

    /// One turn of the driver. Returns when something is due, and whether the driver may hold
    /// something; `None` once the driver has ended, or another task works on it.
    fn turn(&mut self, cx: &mut Context<'_>) -> Option<(Option<Instant>, bool)> {
        let driver = self.slot.take(self.number)?;
        self.slot.turns.fetch_add(1, Ordering::Relaxed);
        let (driver, (is_over, was_busy, next, holds)) = self.slot.work(driver, |driver| {
            let is_over = driver.turn(cx.waker(), self.seen).is_ready();
            (is_over, driver.is_busy(), driver.next_due(), driver.holds())
        })?;
        if is_over {
            self.slot.conclude(driver);
            return None;
        }
        self.was_busy = was_busy;
        self.slot.rest(driver);
        Some((next, holds))
    }
}

impl Future for Task {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::take(&mut self.was_busy) && self.lets_others_first {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.end_check();
        let Some((next, holds)) = self.turn(cx) else { return Poll::Ready(()) };
        if self.check.is_none() && self.is_due(next, holds, cx) {
            self.check = Some(SocketCheck::ask(self.slot.now(), cx.waker()));
        }
        Poll::Pending
    }
}

/// The runtime is going away with work not done: the driver waits for the next one.
impl Drop for Task {
    fn drop(&mut self) {
        if let Some(driver) = self.slot.take(self.number) {
            self.slot.park(driver);
        }
    }
}
