//! `Doorbell`: wakes the driver no more often than needed.
//!
//! The model of its wake-up protocol compiles this very file with the types of a model checker.

use std::task::Waker;

use super::sync::{AtomicBool, AtomicWaker, Ordering};

/// While the driver is at work it looks for more before it goes to sleep, so nothing needs to wake
/// it: votes are counted, replies read and requests sent in one turn, with one wake-up.
pub(super) struct Doorbell {
    /// The driver will look for work again before it sleeps. All change it by a swap, so that one
    /// that comes second sees what the first has left, and all that the first did before.
    is_awake: AtomicBool,
    driver: AtomicWaker,
}

impl Doorbell {
    pub(super) fn new() -> Self {
        Self { is_awake: AtomicBool::new(false), driver: AtomicWaker::new() }
    }

    /// The driver begins its turn, and wants `waker` woken once it sleeps.
    pub(super) fn begin(&self, waker: &Waker) {
        self.driver.register_by_ref(waker);
        self.is_awake.swap(true, Ordering::SeqCst);
    }

    /// There is work, and it can be seen already.
    pub(super) fn ring(&self) {
        // A look costs less than a write, and is enough while the driver is at work.
        if !self.is_awake.load(Ordering::SeqCst) && !self.is_awake.swap(true, Ordering::SeqCst) {
            self.driver.wake();
        }
    }

    /// Whether the driver may sleep, because `is_idle` finds nothing to do.
    ///
    /// First it says that it sleeps and then it looks. Those that leave work do the opposite, so
    /// one of the two always sees the other.
    pub(super) fn may_sleep(&self, is_idle: impl FnOnce() -> bool) -> bool {
        self.is_awake.swap(false, Ordering::SeqCst);
        let is_idle = is_idle();
        if !is_idle {
            self.is_awake.swap(true, Ordering::SeqCst);
        }
        is_idle
    }
}
