//! `Locks`: all tokens, from their attempts to their last releases.

use redlock_core::Instant;
use redlock_protocol::client::ids::{HoldId, InspectionId, LockId};
use redlock_protocol::client::table::Table;
use redlock_protocol::client::timers::{Due, Timers};
use redlock_protocol::token::lease::HeldLease;
use redlock_protocol::token::lifecycle::{Answered, Event, Stage, Step};

use super::command::ExtendReply;
use super::lock::{Caller, Holder, Lock};
use crate::error::ExtendError;
use crate::lost::{Ended, Lost, LostReason};

/// The entries of all tokens, and how many are in which stage.
#[derive(Default)]
pub(super) struct Locks {
    table: Table<LockId, Lock>,
    leases: usize,
    releases: usize,
    /// Leases that are over while their guards are not returned.
    lost_leases: usize,
}

impl Locks {
    pub(super) fn insert(&mut self, lock: Lock) -> LockId {
        self.table.insert(lock)
    }

    #[inline]
    pub(super) fn get(&self, id: LockId) -> Option<&Lock> {
        self.table.get(id)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: LockId) -> Option<&mut Lock> {
        self.table.get_mut(id)
    }

    pub(super) fn remove(&mut self, id: LockId) -> Option<Lock> {
        self.table.remove(id)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Lock> {
        self.table.values()
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Lock> {
        self.table.values_mut()
    }

    /// Returns the tokens for which this is true.
    pub(super) fn ids(&self, is_so: fn(&Lock) -> bool) -> Vec<LockId> {
        self.table.iter().filter(|(_, lock)| is_so(lock)).map(|(id, _)| id).collect()
    }

    /// Returns the number of leases that their holders have not returned.
    pub(super) fn leases(&self) -> usize {
        self.leases
    }

    /// Returns the number of valid leases, by the latest answers.
    pub(super) fn valid_leases(&self) -> usize {
        self.leases - self.lost_leases
    }

    /// Returns the number of unfinished releases.
    pub(super) fn releases(&self) -> usize {
        self.releases
    }

    /// Decides the next step. The holder sees the new state of the machine immediately.
    pub(super) fn decide(
        &mut self,
        id: LockId,
        event: Event<'_>,
        timers: &mut Timers,
        now: Instant,
    ) -> Option<Step> {
        let lock = self.table.get_mut(id)?;
        let master = event.master();
        let step = lock.machine.on(event, now);
        lock.show_holder(&step, master);
        lock.time_ballots(id, timers);
        Some(step)
    }

    /// Handles the answer of a master for a token. Nearly every event is one of these. Returns the
    /// step, and whether a quorum has answered a request that counts as open in the line.
    #[inline]
    pub(super) fn answered(
        &mut self,
        id: LockId,
        answered: Answered<'_>,
        timers: &mut Timers,
        now: Instant,
    ) -> Option<(Step, bool)> {
        let lock = self.table.get_mut(id)?;
        let step = lock.machine.answered(answered, now);
        lock.show_holder(&step, Some(answered.master));
        lock.time_ballots(id, timers);
        Some((step, lock.is_answered()))
    }

    /// Returns the lease of a token and its holder.
    pub(super) fn held(&mut self, id: LockId) -> Option<(&HeldLease, &mut Holder)> {
        let lock = self.table.get_mut(id)?;
        match (lock.machine.stage(), &mut lock.caller) {
            (Stage::Lease(lease), Caller::Holds(holder)) => Some((lease, holder)),
            _ => None,
        }
    }

    /// Returns the lock of this holder. `None` if it was passed on since.
    pub(super) fn held_by(&self, hold: HoldId) -> Option<LockId> {
        let lock = self.table.get(hold.lock)?;
        (lock.claim.hand_overs == hold.hand_overs).then_some(hold.lock)
    }

    /// Refuses an extension for a former holder.
    pub(super) fn refuse_former(&self, hold: HoldId, reply: ExtendReply) {
        let error = match self.table.get(hold.lock) {
            Some(Lock { caller: Caller::Holds(holder), .. }) => {
                ExtendError::Lost(holder.cell.lost(LostReason::Released))
            }
            _ => ExtendError::Shutdown,
        };
        let _ = reply.send(Err(error));
    }

    /// Records the holder of a token that was won.
    pub(super) fn won(&mut self, id: LockId, holder: Holder) {
        if let Some(lock) = self.table.get_mut(id) {
            lock.caller = Caller::Holds(holder);
            self.leases += 1;
        }
    }

    /// Removes the holder of a token.
    pub(super) fn leave_holder(&mut self, id: LockId) -> Option<Holder> {
        let lock = self.table.get_mut(id)?;
        match std::mem::replace(&mut lock.caller, Caller::NOBODY) {
            Caller::Holds(holder) => {
                self.leases -= 1;
                self.lost_leases -= usize::from(holder.is_lost);
                Some(holder)
            }
            _ => None,
        }
    }

    /// Ends a lease for its holder, unless it is already over. Returns how it ended.
    pub(super) fn end_lease(&mut self, id: LockId, reason: LostReason) -> Option<Ended> {
        self.table.get_mut(id)?.machine.end(reason);
        let (_, holder) = self.held(id)?;
        let lost = holder.cell.lost(reason);
        holder.cell.end(Ended::Lost(lost));
        holder.cell.ended()
    }

    /// Returns the loss of a lease that may be over, once. A release is not a loss.
    pub(super) fn note_loss(&mut self, id: LockId) -> Option<Lost> {
        let lock = self.table.get_mut(id)?;
        let Caller::Holds(holder) = &mut lock.caller else { return None };
        if holder.is_lost {
            return None;
        }
        let Some(Ended::Lost(lost)) = holder.cell.ended() else { return None };
        holder.is_lost = true;
        self.lost_leases += 1;
        Some(lost)
    }

    /// Sets the alarm of a lease. An earlier alarm replaces a later one.
    pub(super) fn schedule(&mut self, id: LockId, timers: &mut Timers) {
        let Some((lease, holder)) = self.held(id) else { return };
        let Some(due) = holder.due(lease.due()) else { return };
        if holder.scheduled.is_none_or(|scheduled| due < scheduled) {
            holder.scheduled = Some(due);
            timers.enter(due, Due::Keep(id, due));
        }
    }

    /// Starts a release, unless every queried master has refused or the token is left to its former
    /// holder. Returns `false` in that case.
    pub(super) fn begin_release(&mut self, id: LockId) -> bool {
        if self.table.get(id).is_none_or(|lock| lock.machine.is_over()) {
            self.table.remove(id);
            return false;
        }
        self.releases += 1;
        true
    }

    /// Removes a finished release.
    pub(super) fn end_release(&mut self, id: LockId) {
        if self.table.remove(id).is_some() {
            self.releases -= 1;
        }
    }

    /// Passes late answers to the attempt on to this inspection.
    pub(super) fn set_explains(&mut self, id: LockId, inspection: InspectionId) {
        if let Some(Lock { caller: Caller::Returned { explains, .. }, .. }) = self.table.get_mut(id)
        {
            *explains = Some(inspection);
        }
    }

    /// Drops all replies, which makes callers retry, and wakes callers that wait for the end of a
    /// lease, because one of them may continue the driver.
    pub(super) fn release_callers(&mut self) {
        for lock in self.table.values_mut() {
            lock.opened = None;
            match &mut lock.caller {
                Caller::Holds(holder) => {
                    holder.extending.clear();
                    holder.cell.wake();
                }
                returned @ Caller::Returned { .. } => *returned = Caller::NOBODY,
                Caller::Asks { .. } => {}
            }
        }
    }
}
