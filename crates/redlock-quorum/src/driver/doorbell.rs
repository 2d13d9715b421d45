//! `Doorbell`: wakes the driver no more often than needed.
//!
//! The model of its wake-up protocol compiles this very file with the types of a model checker.

use std::task::Waker;

use super::sync::{AtomicBool, AtomicWaker, Ordering};

/// While the driver is at work it checks for more before it goes to sleep, so nothing needs to wake
/// it: votes are counted, replies read and requests sent in one turn, with one wake-up.
pub(super) struct Doorbell {
    /// The driver will check for work again before it sleeps. Every writer uses a swap, so that the
    /// second one sees the value that the first has left, and all earlier writes of the first.
    is_awake: AtomicBool,
    driver: AtomicWaker,
}

impl Doorbell {
    pub(super) fn new() -> Self {
        Self { is_awake: AtomicBool::new(false), driver: AtomicWaker::new() }
    }

    /// The driver begins its turn, and wants `waker` woken once it sleeps.
    pub(super) fn begin(&self, waker: &Waker) {
        self.driver.register(waker);
        self.is_awake.swap(true, Ordering::SeqCst);
    }

    /// There is work, and it can be seen already.
    pub(super) fn ring(&self) {
        // A read costs less than a write, and is enough while the driver is at work.
        if !self.is_awake.load(Ordering::SeqCst) && !self.is_awake.swap(true, Ordering::SeqCst) {
            self.driver.wake();
        }
    }

    /// Returns `true` if the driver may sleep, because `is_idle` finds nothing to do.
    ///
    /// First the driver marks itself as asleep, then it checks for work. A thread that leaves work
    /// writes the work first and then reads the mark, so one of the two always sees the other.
    pub(super) fn may_sleep(&self, is_idle: impl FnOnce() -> bool) -> bool {
        self.is_awake.swap(false, Ordering::SeqCst);
        let is_idle = is_idle();
        if !is_idle {
            self.is_awake.swap(true, Ordering::SeqCst);
        }
        is_idle
    }
}
