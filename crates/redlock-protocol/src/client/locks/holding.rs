//! Held leases: the keeper, the deadline, and keys added again.

use super::*;
use crate::LostReason;
use crate::client::draws::Draw;
use crate::client::effects::Fence;
use crate::client::view::Purpose;
use crate::terms::HoldOptions;
use crate::token::lease::Step;
use crate::token::lease::hand_over::HandOver;
use crate::token::lifecycle::{self, Event};

impl Locks {
    /// Does the work that is due for a lease.
    pub fn keep_due(&mut self, id: LockId, at: Instant, cx: &mut Context<'_>) {
        let (random, limit) = (cx.draws.unit(Draw::Keep(id), cx.now), cx.voters.max_ttl());
        let Some((lease, holder)) = self.held(id) else { return };
        if holder.scheduled != Some(at) {
            return;
        }
        holder.scheduled = None;
        let is_over_limit = lease.timing().ttl.get() > limit;
        let before = cx.moment.change_acceptance(holder.id, Acceptance::Awaited);
        if before != Acceptance::Accepted {
            // Once its caller can no longer take it, it is released. Otherwise an unpolled future
            // would hold it forever.
            let (until, holder) = (holder.acceptable_until(lease), holder.id);
            if cx.now < until
                || cx.moment.change_acceptance(holder, Acceptance::Withdrawn)
                    == Acceptance::Accepted
            {
                return self.schedule(id, cx);
            }
            return self.happens(id, Event::Untaken, cx);
        }
        // After `max_ttl` was lowered, further extensions are limited, because a quarantine is now
        // shorter than this lease.
        if is_over_limit && let Ok(timing) = self.terms.limits.timing(Some(limit), limit) {
            self.decide(id, Event::Limited(timing), cx);
        }
        let silent = self.held(id).map(|(lease, _)| lease.silent(cx.now)).unwrap_or_default();
        let Some(step) = self.decide(id, Event::Tick(random), cx) else { return };
        if let Some(lock) = self.table.get(id) {
            lock.timed_out(silent, cx.effects);
        }
        self.carry_out(id, step, cx);
    }

    /// Sends the requests that the lease's machine wants. Sends nothing if the lease is over,
    /// because the holder may have seen its end on a later clock reading.
    pub(super) fn hold(&mut self, id: LockId, step: Step, cx: &mut Context<'_>) {
        self.publish(id, cx);
        if step == Step::default() {
            return;
        }
        let Some(lock) = self.table.get_mut(id) else { return };
        let is_held = lock.holder().is_some_and(|holder| cx.moment.is_held(holder));
        let step = if is_held { step } else { lock.machine.call_off(step) };
        lock.readd(id, step.readd, self.terms.fencing, cx);
        if let Some(extend) = step.extend {
            lock.send_extension(id, extend, cx);
        }
        if let Some((number, extended)) = step.extended
            && let Some((_, holder)) = lock.held()
        {
            holder.answer_extension(number, extended, cx);
        }
    }

    /// Carries what the machine has found out to the holder, and sets the keeper's alarm.
    fn publish(&mut self, id: LockId, cx: &mut Context<'_>) {
        let Some((lease, holder)) = self.held(id) else { return };
        let (deadline, holder) = (lease.deadline(), holder.id);
        let moves = |to| cx.moment.move_deadline(holder, to, cx.now);
        // If it is over, or its holder has seen its end, nothing extends it from here on. The first
        // end stays. After a release, nothing else ends the lease.
        if !deadline.is_some_and(moves)
            && let Some(reason) = self.held(id).map(|(lease, _)| lease.reason())
            && self.lose(id, reason, cx).is_some()
        {
            self.outcomes.push_back(Outcome::Left(id));
        }
        self.schedule(id, cx);
    }

    /// Ends a lease for its holder, unless it is already over, and counts its loss. Its keys are left
    /// to expire. Returns how it was lost.
    pub fn lose(
        &mut self,
        id: LockId,
        reason: LostReason,
        cx: &mut Context<'_>,
    ) -> Option<LostReason> {
        self.table.get_mut(id)?.machine.end(reason);
        let (lease, holder) = self.held(id)?;
        let lost = cx.moment.lose(holder.id, reason, lease.ledger())?;
        self.note_loss(id, lost, cx);
        Some(lost)
    }

    /// Counts the loss of a lease, once.
    pub fn note_loss(&mut self, id: LockId, reason: LostReason, cx: &mut Context<'_>) {
        let Some(Lock { owner: Owner::Holds(holder), .. }) = self.table.get_mut(id) else { return };
        if !std::mem::replace(&mut holder.is_lost, true) {
            self.lost_leases += 1;
            cx.effects.push(Effect::Lost(holder.id, reason));
        }
    }

    /// Sets the alarm of a lease. An earlier alarm replaces a later one. A lock that no caller has
    /// taken is not extended, and its alarm is the end of the time for taking it.
    pub fn schedule(&mut self, id: LockId, cx: &mut Context<'_>) {
        let Some((lease, holder)) = self.held(id) else { return };
        let (due, until) = (lease.due(), holder.acceptable_until(lease));
        let due = match cx.moment.acceptance(holder.id) {
            Acceptance::Offered => Some(due.map_or(until, |due| due.min(until))),
            Acceptance::Awaited => Some(until),
            Acceptance::Accepted => due,
            Acceptance::Withdrawn => None,
        };
        let Some(due) = due else { return };
        if holder.scheduled.is_none_or(|scheduled| due < scheduled) {
            holder.scheduled = Some(due);
            cx.timers.enter(due, Due::Keep(id, due));
        }
    }

    /// Handles news after which a lease may query masters. A lease that no caller has taken is not
    /// extended.
    pub fn happens_if_taken(&mut self, id: LockId, event: Event<'_>, cx: &mut Context<'_>) {
        let Some(holder) = self.table.get(id).and_then(Lock::holder) else { return };
        if cx.moment.acceptance(holder) == Acceptance::Accepted {
            self.happens(id, event, cx);
        }
    }

    /// Takes back and releases a lock that its caller has not taken. No caller relies on it yet.
    pub fn withdraw_offer(&mut self, id: LockId, cx: &mut Context<'_>) {
        let Some(holder) = self.table.get(id).and_then(Lock::holder) else { return };
        let before = cx.moment.change_acceptance(holder, Acceptance::Withdrawn);
        if before != Acceptance::Accepted {
            self.happens(id, Event::Untaken, cx);
        }
    }

    /// Keeps a lease again after the previous runtime has left it.
    pub fn resume(&mut self, id: LockId, cx: &mut Context<'_>) {
        if let Some((_, holder)) = self.held(id) {
            holder.scheduled = None;
        }
        self.publish(id, cx);
    }

    /// Passes the lease on to a caller with these options, if that is possible.
    pub fn hand_on(
        &mut self,
        id: LockId,
        options: HoldOptions,
        cx: &mut Context<'_>,
    ) -> Option<HandOver> {
        match self.decide(id, Event::HandOn(options), cx)? {
            lifecycle::Step::HandedOn(hand_over) => Some(hand_over),
            _ => None,
        }
    }

    /// Gives the lease to this caller.
    pub fn pass_on(
        &mut self,
        id: LockId,
        caller: RequestId,
        hand_over: HandOver,
        cx: &mut Context<'_>,
    ) {
        let Some(lock) = self.table.get_mut(id) else { return };
        lock.claim.hand_overs = hand_over.number;
        let Owner::Holds(former) = &mut lock.owner else { return };
        let fence = Fence::handed_on(hand_over);
        let holder = Holder { measured: former.measured, ..Holder::new(caller, fence.until) };
        std::mem::replace(former, holder).end(cx);
        cx.effects.count(Count::HandedOver);
        self.schedule(id, cx);
        if let Some(lock) = self.table.get(id) {
            lock.deliver(id, fence, cx);
        }
    }

    /// Removes the holder of a token.
    pub(super) fn leave_holder(&mut self, id: LockId) -> Option<Holder> {
        let lock = self.table.get_mut(id)?;
        match std::mem::replace(&mut lock.owner, Owner::NOBODY) {
            Owner::Holds(holder) => {
                self.leases -= 1;
                self.lost_leases -= usize::from(holder.is_lost);
                Some(holder)
            }
            _ => None,
        }
    }
}

impl Lock {
    /// Gives the lock to its holder.
    pub(super) fn deliver(&self, id: LockId, fence: Fence, cx: &mut Context<'_>) {
        let Some(caller) = self.holder() else { return };
        let hold = HoldId { lock: id, hand_overs: self.claim.hand_overs };
        let is_resumed = self.machine.is_resumed();
        cx.effects.push(Effect::Won { caller, hold, fence, is_resumed });
    }

    /// Masters have lost the key of a lease, and no other holds it there: they are given it again.
    fn readd(&self, id: LockId, masters: MasterSet, fencing: bool, cx: &mut Context<'_>) {
        if masters.is_empty() || cx.is_closing {
            return;
        }
        let copies = cx.voters.copies_only(masters, Purpose::Other);
        let Some(lease) = self.machine.lease() else { return };
        let px = lease.timing().px;
        for (op, masters) in self.claim.readd_ops(px, fencing, (masters, copies)) {
            cx.send(op, masters, Ticket::Readd(id));
        }
    }
}
