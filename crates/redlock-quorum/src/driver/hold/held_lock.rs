//! `HeldLock`: a lock that was won, on its way to its holder and then in the holder's hands.

use std::sync::Arc;

use crate::driver::ticket::HoldId;
use crate::hold::{Acceptance, HoldCell};
use crate::lost::Ended;

/// The right to hold a lock, and the duty to give it back: one that is dropped releases it.
///
/// A lock that was taken over and never reached its new holder is not released: its former holder
/// may go on with it, and must not lose it because of a caller that went away.
pub(crate) struct HeldLock {
    pub(crate) cell: Arc<HoldCell>,
    pub(crate) hold: HoldId,
    giver: Arc<dyn Giver>,
    on_drop: OnDrop,
}

/// Where a lock is given back.
pub(in crate::driver) trait Giver: Send + Sync {
    /// The holder is done.
    fn release(self: Arc<Self>, hold: HoldId);

    /// The holder gives the lease away: it is neither kept nor released.
    fn forget(self: Arc<Self>, hold: HoldId);

    /// The holder has taken it, and the keeper waited for that.
    fn accepted(self: Arc<Self>, hold: HoldId);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnDrop {
    Release,
    Forget,
    Nothing,
}

impl HeldLock {
    pub(in crate::driver) fn new(
        cell: Arc<HoldCell>,
        hold: HoldId,
        giver: Arc<dyn Giver>,
        is_resumed: bool,
    ) -> Self {
        let on_drop = if is_resumed { OnDrop::Forget } else { OnDrop::Release };
        Self { cell, hold, giver, on_drop }
    }

    /// The holder takes it: from here on dropping it releases the lock, wherever it came from.
    /// False where it comes too late.
    pub(crate) fn accept(&mut self) -> bool {
        match self.cell.accept() {
            Acceptance::Withdrawn => return false,
            Acceptance::Awaited => self.giver.clone().accepted(self.hold),
            Acceptance::Offered | Acceptance::Accepted => {}
        }
        self.on_drop = OnDrop::Release;
        true
    }

    /// The driver has kept it: dropping it does nothing.
    pub(in crate::driver) fn cancel(mut self) {
        self.on_drop = OnDrop::Nothing;
    }

    /// Ends the hold, for a holder that asks for the release itself.
    pub(crate) fn end(mut self) {
        self.on_drop = OnDrop::Nothing;
        self.cell.end(Ended::Released);
    }

    /// Ends the hold without releasing the lock.
    pub(crate) fn forget(mut self) {
        self.on_drop = OnDrop::Forget;
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        if self.on_drop == OnDrop::Nothing {
            return;
        }
        self.cell.end(Ended::Released);
        match self.on_drop {
            OnDrop::Forget => self.giver.clone().forget(self.hold),
            _ => self.giver.clone().release(self.hold),
        }
    }
}
