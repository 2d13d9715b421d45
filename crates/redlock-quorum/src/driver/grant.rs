//! `Grant`: a lock that was won, on its way to its holder and then in the holder's hands.

use std::sync::Arc;

use super::command::{Command, ReleaseReply};
use super::life::Slot;
use super::ticket::LockId;
use crate::hold::HoldCell;
use crate::lost::Ended;

/// The right to hold a lock, and the duty to give it back: a grant that is dropped releases it.
///
/// One that was taken over and never reached its new holder is forgotten instead: its former
/// holder may go on with it, and must not lose it to a caller that went away.
pub(crate) struct Grant {
    pub(crate) cell: Arc<HoldCell>,
    pub(crate) lock: LockId,
    slot: Arc<Slot>,
    on_drop: OnDrop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnDrop {
    Release,
    Forget,
    Nothing,
}

impl Grant {
    pub(super) fn new(
        cell: Arc<HoldCell>,
        lock: LockId,
        slot: Arc<Slot>,
        is_resumed: bool,
    ) -> Self {
        let on_drop = if is_resumed { OnDrop::Forget } else { OnDrop::Release };
        Self { cell, lock, slot, on_drop }
    }

    /// The holder has it: from here on dropping it releases the lock, wherever it came from.
    pub(crate) fn accept(&mut self) {
        self.on_drop = OnDrop::Release;
    }

    /// The handle's driver has kept the grant: dropping it does nothing.
    pub(super) fn cancel(mut self) {
        self.on_drop = OnDrop::Nothing;
    }

    pub(crate) fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    /// Ends the hold, and returns how to ask for its release; more than once where the first was
    /// not answered.
    pub(crate) fn release(mut self) -> impl Fn(Option<ReleaseReply>) -> Command {
        self.on_drop = OnDrop::Nothing;
        self.cell.end(Ended::Released);
        let lock = self.lock;
        move |reply| Command::Release { lock, reply }
    }

    /// Ends the hold without releasing the lock.
    pub(crate) fn forget(mut self) {
        self.on_drop = OnDrop::Forget;
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let lock = self.lock;
        let command = match self.on_drop {
            OnDrop::Nothing => return,
            OnDrop::Release => Command::Release { lock, reply: None },
            OnDrop::Forget => Command::Forget { lock },
        };
        self.cell.end(Ended::Released);
        self.slot.post(command);
        // Outside of a runtime nothing can be started: the next use of the handle goes on with it.
        self.slot.look_after();
    }
}
