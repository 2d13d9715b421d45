//! From a lease to its release, or to its next holder.
//!
//! A released lease passes to the next caller of this process, without a request. The lock keeps its
//! entry, its token and all requests under way, and gets a new holder with its own cell. Later
//! requests of the former holder are recognized by the number of hand-overs before it got the lease.

use super::ids::HoldId;
use super::moment::Acceptance;
use super::*;

impl Client {
    /// The holder is done.
    pub(super) fn returned(&mut self, returned: Returned, at: &mut At<'_>) {
        let Returned { hold, lost, is_token_known, reply } = returned;
        let lock = self.locks.held_by(hold).and_then(|id| Some((id, self.locks.get(id)?)));
        let Some((id, lock)) = lock else {
            // The next caller has it, or no master has anything left to do, which became true
            // before this request.
            return answer(reply, at);
        };
        if lock.is_lease() {
            if let Some(reason) = lost {
                self.with_locks(at, |locks, cx| locks.note_loss(id, reason, cx));
            } else if !is_token_known && self.hand_on(id, at) {
                return answer(reply, at);
            }
            let event = Event::Returned { was_lost: lost.is_some() };
            self.with_locks(at, |locks, cx| locks.happens(id, event, cx));
        } else if reply.is_some() {
            // A caller whose runtime went away with the answer requested it earlier.
            self.with_locks(at, |locks, cx| locks.happens(id, Event::ReturnedAgain, cx));
        }
        self.with_locks(at, |locks, cx| locks.await_release(id, reply, cx));
    }

    /// The holder of a lease is done. Returns whether the next caller of this process has it now,
    /// without a request.
    pub(super) fn hand_on(&mut self, id: LockId, at: &mut At<'_>) -> bool {
        if !self.hands_over || self.closing.is_some() {
            return false;
        }
        let Common { callers, limits, .. } = &self.common;
        let next = self.locks.get(id).and_then(|lock| {
            let next = self.keys.next_here(&lock.claim.key)?;
            let caller = callers.get(next)?;
            lock.fits(caller, limits, self.masters.max_ttl()).then_some((next, caller.options))
        });
        let Some((next, options)) = next else { return false };
        let handed = self.with_locks(at, |locks, cx| locks.hand_on(id, options, cx));
        let Some(hand_over) = handed else { return false };
        let Some(caller) = self.common.callers.remove(next) else { return false };
        self.key_won(id, next, &caller, at);
        self.with_locks(at, |locks, cx| locks.pass_on(id, next, hand_over, cx));
        true
    }

    /// A lease ends: its key decides how it is left to others, and then its release begins.
    pub(super) fn lease_ends(&mut self, id: LockId, at: &mut At<'_>) {
        let Some(lock) = self.locks.get(id) else { return };
        let Some(holder) = lock.holder() else { return };
        let is_taken = at.moment.acceptance(holder) == Acceptance::Accepted;
        let copies = lock.copies();
        self.with_claim(id, at, |keys, (claim, _), cx| {
            keys.lease_ends((claim, id), is_taken, |master| copies.contains(master), cx);
        });
        self.with_locks(at, |locks, cx| locks.begin_release(id, cx));
    }

    /// Passes the event to a lease, if the holder still has it.
    pub(super) fn holder_wants(&mut self, hold: HoldId, event: Event<'_>, at: &mut At<'_>) {
        if let Some(id) = self.locks.held_by(hold) {
            self.with_locks(at, |locks, cx| locks.happens(id, event, cx));
        }
    }
}

/// There is nothing to release.
fn answer(reply: Option<RequestId>, at: &mut At<'_>) {
    if let Some(reply) = reply {
        at.effects.push(Effect::Released(reply, None));
    }
}
