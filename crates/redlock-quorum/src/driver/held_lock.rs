//! `HeldLock`: a lock that was won, on its way to its holder and then in the holder's hands.

use std::sync::Arc;

use redlock_protocol::client::ids::HoldId;
use redlock_protocol::client::moment::Acceptance;

use crate::hold::HoldCell;
use crate::lost::Ended;

/// The right to hold a lock, and the duty to release it. Dropping it releases the lock.
///
/// A lock that was taken over and never reached its new holder is not released, because its former
/// holder may still use it and must not lose it to a caller that went away.
pub(crate) struct HeldLock {
    pub(crate) cell: Arc<HoldCell>,
    pub(crate) hold: HoldId,
    giver: Arc<dyn Giver>,
    /// The message to the giver when it is dropped; `None` for no message.
    on_drop: Option<Told>,
}

/// The source of a lock.
pub(super) trait Giver: Send + Sync {
    /// Must not be called in a forked child.
    fn tell(self: Arc<Self>, hold: HoldId, told: Told);

    /// Returns `true` in a forked child, in which the lock still belongs to the parent.
    fn is_forked(&self) -> bool;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// The holder is done.
    Release,
    /// The holder gives the lease away: it is neither kept nor released.
    Forget,
    /// The holder has taken it, and the keeper waited for that.
    Accepted,
}

impl HeldLock {
    pub(super) fn new(
        cell: Arc<HoldCell>,
        hold: HoldId,
        giver: Arc<dyn Giver>,
        is_resumed: bool,
    ) -> Self {
        let on_drop = if is_resumed { Told::Forget } else { Told::Release };
        Self { cell, hold, giver, on_drop: Some(on_drop) }
    }

    /// The holder takes it: from here on dropping it releases the lock, wherever it came from.
    /// False where it comes too late.
    pub(crate) fn accept(&mut self) -> bool {
        match self.cell.accept() {
            Acceptance::Withdrawn => return false,
            Acceptance::Awaited => self.giver.clone().tell(self.hold, Told::Accepted),
            Acceptance::Offered | Acceptance::Accepted => {}
        }
        self.on_drop = Some(Told::Release);
        true
    }

    /// The driver has kept it: dropping it does nothing.
    pub(super) fn cancel(mut self) {
        self.on_drop = None;
    }

    /// Ends the hold, for a holder that requests the release itself.
    pub(crate) fn end(mut self) {
        self.on_drop = None;
        self.cell.end(Ended::Released);
    }

    /// Ends the hold without releasing the lock.
    pub(crate) fn forget(mut self) {
        self.on_drop = Some(Told::Forget);
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        if let Some(told) = self.on_drop
            && !self.giver.is_forked()
        {
            self.cell.end(Ended::Released);
            self.giver.clone().tell(self.hold, told);
        }
    }
}
