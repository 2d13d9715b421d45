//! A released lease passes to the next caller of this process, without a request.
//!
//! The lock keeps its entry, its token and all requests under way, and gets a new holder with its
//! own cell. Later requests of the former holder are recognized by the number of hand-overs before
//! it got the lease.

use redlock_core::Instant;
use redlock_protocol::token::lease::hand_over::HandOver;
use redlock_protocol::token::lifecycle::{Event, Step};

use crate::driver::Driver;
use crate::driver::lock::{Caller, Holder};
use crate::error::ExtendError;
use crate::hold::Fence;
use crate::lost::{Ended, LostReason};
use redlock_protocol::client::ids::{LockId, RequestId};

impl Driver {
    /// The holder of a lease is done. Says whether the next caller has it now.
    pub(in crate::driver) fn hand_on(&mut self, id: LockId, now: Instant) -> bool {
        while let Some(next) = self.next_here(id) {
            let Some(request) = self.requests.get(next) else { return false };
            let event = Event::HandOn(request.options);
            let Some(Step::HandedOn(hand_over)) =
                self.locks.decide(id, event, &mut self.timers, now)
            else {
                return false;
            };
            if self.pass_on(id, next, hand_over, now) {
                return true;
            }
        }
        false
    }

    /// Returns the caller of this process that gets the key of this lock next, without a request.
    fn next_here(&self, id: LockId) -> Option<RequestId> {
        if !self.settings.hand_over || self.closing.is_some() {
            return None;
        }
        let next = self.keys.next_here(&self.locks.get(id)?.claim.key)?;
        self.has_equal_terms(id, next).then_some(next)
    }

    /// Returns `true` if the caller wants the lock with its present terms: the key has the expiry
    /// and the value that the caller would set. A value read by the program may be used elsewhere,
    /// so such a lock is not passed on.
    fn has_equal_terms(&self, id: LockId, next: RequestId) -> bool {
        let (Some(lock), Some(request)) = (self.locks.get(id), self.requests.get(next)) else {
            return false;
        };
        let (Some(lease), Caller::Holds(holder)) = (lock.machine.lease(), &lock.caller) else {
            return false;
        };
        let timing = self.settings.timing(request.ttl, self.masters.max_ttl());
        let label = request.label.as_ref().map(|label| label.as_str());
        timing.is_ok_and(|timing| timing == lease.timing())
            && label == lock.claim.token.label()
            && !holder.cell.is_token_known()
    }

    /// The lease is this caller's from now on. Says whether it was still there to take it.
    fn pass_on(&mut self, id: LockId, next: RequestId, hand_over: HandOver, now: Instant) -> bool {
        let Some(request) = self.requests.remove(next) else { return false };
        let Some(cell) = self.cell(id, Fence::handed_on(hand_over)) else { return false };
        let Some(lock) = self.locks.get_mut(id) else { return false };
        lock.claim.hand_overs = hand_over.number;
        let Caller::Holds(former) = &mut lock.caller else { return false };
        let holder = Holder { measured: former.measured, ..Holder::new(cell.clone()) };
        std::mem::replace(former, holder).end();
        self.key_won(id, next, &request, now);
        if let Some(lock) = self.locks.get(id) {
            self.observer.handed_over(&request, lock, now);
        }
        self.locks.schedule(id, &mut self.timers);
        self.deliver(id, request, cell, false)
    }
}

impl Holder {
    /// It has returned the lock, and what it still waits for will not come.
    pub(in crate::driver) fn end(self) {
        self.cell.end(Ended::Released);
        for (_, waiting) in self.extending {
            let _ = waiting.send(Err(ExtendError::Lost(self.cell.lost(LostReason::Released))));
        }
    }
}
