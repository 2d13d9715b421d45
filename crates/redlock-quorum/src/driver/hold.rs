//! Held leases: extensions, keys added again, and the deadline.

mod hand_over;
pub(crate) mod held_lock;

use std::time::Duration;

use redlock_core::{Instant, Vote};
use redlock_protocol::master_set::MasterSet;
use redlock_protocol::terms::Timing;
use redlock_protocol::token::lease::extension::Extended;
use redlock_protocol::token::lease::{Extend, Step};
use redlock_protocol::token::lifecycle::{self, Answered, Asked, Event};
use redlock_protocol::votes::answer::Judged;

use super::Driver;
use super::command::ExtendReply;
use super::lock::{Holder, Lock};
use crate::error::ExtendError;
use crate::hold::Acceptance;
use crate::lost::Ended;
use crate::settings::{InvalidRequest, check_margin};
use redlock_protocol::client::draws::Draw;
use redlock_protocol::client::ids::{HoldId, LockId, Ticket};
use redlock_protocol::client::timers::Due;

impl Driver {
    /// The keeper of a lease has something to do.
    pub(super) fn keep_due(&mut self, id: LockId, at: Instant, now: Instant) {
        let (random, limit) = (self.draws.unit(Draw::Keep(id), now), self.masters.max_ttl());
        let Some((lease, holder)) = self.locks.held(id) else { return };
        if holder.scheduled != Some(at) {
            return;
        }
        holder.scheduled = None;
        let is_over_limit = lease.timing().ttl.get() > limit;
        if holder.cell.change_acceptance(Acceptance::Awaited) != Acceptance::Accepted {
            return self.await_acceptance(id, now);
        }
        if is_over_limit {
            self.limit(id, limit, now);
        }
        let silent = self.locks.held(id).map(|(lease, _)| lease.silent(now)).unwrap_or_default();
        let Some(step) = self.locks.decide(id, Event::Tick(random), &mut self.timers, now) else {
            return;
        };
        self.observer.timed_out(self.locks.get(id), silent);
        self.carry_out(id, step, now);
    }

    /// Sends the requests that the lease's machine wants. Sends nothing if the lease is over,
    /// because the holder may have seen its end on a later clock reading.
    pub(super) fn hold(&mut self, id: LockId, step: Step, now: Instant) {
        self.publish(id, now);
        if step == Step::default() {
            return;
        }
        let Some(lock) = self.locks.get_mut(id) else { return };
        let step = if lock.is_held() { step } else { lock.machine.call_off(step) };
        self.readd(id, step.readd, now);
        if let Some(extend) = step.extend {
            self.send_extension(id, extend, now);
        }
        if let Some((number, extended)) = step.extended {
            self.answer_extension(id, number, extended);
        }
    }

    /// Releases a lock that its caller has not taken, once the caller no longer can. Otherwise an
    /// unpolled future would hold it forever.
    fn await_acceptance(&mut self, id: LockId, now: Instant) {
        let Some((_, holder)) = self.locks.held(id) else { return };
        if now < holder.cell.acceptable_until()
            || holder.cell.change_acceptance(Acceptance::Withdrawn) == Acceptance::Accepted
        {
            return self.locks.schedule(id, &mut self.timers);
        }
        self.happens(id, Event::Untaken, now);
    }

    /// Limits further extensions after `max_ttl` was lowered, because a quarantine is now shorter
    /// than this lease.
    fn limit(&mut self, id: LockId, limit: Duration, now: Instant) {
        if let Ok(timing) = self.settings.timing(Some(limit), limit) {
            self.locks.decide(id, Event::Limited(timing), &mut self.timers, now);
        }
    }

    /// The holder wants more time, now and from each extension that follows.
    pub(super) fn extend(&mut self, hold: HoldId, ttl: Duration, reply: ExtendReply, now: Instant) {
        self.ask(now);
        let Some(id) = self.locks.held_by(hold) else {
            return self.locks.refuse_former(hold, reply);
        };
        let timing = match self.extended_timing(id, ttl) {
            Ok(timing) => timing,
            Err(invalid) => return drop(reply.send(Err(invalid.into()))),
        };
        if let Some(lock) = self.locks.get_mut(id) {
            lock.node_timeout = timing.node_timeout;
        }
        let Some((_, holder)) = self.locks.held(id) else {
            let _ = reply.send(Err(ExtendError::Shutdown));
            return;
        };
        if let Err(lost) = holder.cell.check() {
            let _ = reply.send(Err(lost.into()));
            return;
        }
        let step = self.locks.decide(id, Event::Extend(timing), &mut self.timers, now);
        let Some(lifecycle::Step::Hold(Step { extend: Some(extend), .. })) = step else { return };
        if let Some((_, holder)) = self.locks.held(id) {
            holder.extending.push((extend.number, reply));
        }
        let due = now.saturating_add(timing.node_timeout);
        self.timers.enter(due, Due::Extension(id, extend.number));
        self.send_extension(id, extend, now);
    }

    /// The durations of an extension, by what the masters allow now.
    fn extended_timing(&mut self, id: LockId, ttl: Duration) -> Result<Timing, InvalidRequest> {
        let timing = self.settings.timing(Some(ttl), self.masters.max_ttl())?;
        if let Some((_, holder)) = self.locks.held(id) {
            check_margin(&timing, holder.cell.stop_margin)?;
        }
        Ok(timing)
    }

    fn send_extension(&mut self, id: LockId, extend: Extend, now: Instant) {
        let Some(lock) = self.locks.get(id) else { return };
        let Some(lease) = lock.machine.lease() else { return };
        let px = lease.timing().px;
        let op = lock.claim.extend_op(px);
        let ticket = Ticket::Extension(id, extend.number);
        self.observer.counters.extensions.add(1);
        self.observer.say(&self.locks, id, "extension");
        self.send(&op, extend.masters, ticket, now);
        // An extension is valid only if a score has arrived.
        self.ask_scores(id, now);
    }

    /// The answer of a master to an extension.
    pub(super) fn extension_vote(
        &mut self,
        id: LockId,
        number: u32,
        vote: &Vote,
        judged: Judged<'_>,
        now: Instant,
    ) {
        let before = self.locks.held(id).and_then(|(lease, _)| lease.deadline());
        let event = Event::Answered(Answered::of(Asked::Extension(number), vote, judged));
        let Some(step) = self.locks.decide(id, event, &mut self.timers, now) else { return };
        if let Some(before) = before {
            self.note_margin(id, number, before, now);
        }
        self.carry_out(id, step, now);
    }

    /// Masters have lost the key of a lease, and no other holds it there: they are given it again.
    fn readd(&mut self, id: LockId, masters: MasterSet, now: Instant) {
        if masters.is_empty() || self.closing.is_some() {
            return;
        }
        let copies = self.masters.copies_only(masters);
        let Some(Lock { claim, machine, .. }) = self.locks.get(id) else { return };
        let Some(lease) = machine.lease() else { return };
        let (px, is_fenced) = (lease.timing().px, self.settings.fencing);
        for (op, masters) in claim.readd_ops(px, is_fenced, (masters, copies)) {
            self.send(&op, masters, Ticket::Readd(id), now);
        }
    }

    /// The node timeout of an extension that its holder waits for has passed.
    pub(super) fn extension_due(&mut self, id: LockId, number: u32, now: Instant) {
        let Some((lease, _)) = self.locks.held(id) else { return };
        let silent = lease.unanswered_of(number);
        let Some(step) =
            self.locks.decide(id, Event::ExtensionTimedOut(number), &mut self.timers, now)
        else {
            return;
        };
        self.observer.timed_out(self.locks.get(id), silent);
        self.carry_out(id, step, now);
    }

    fn answer_extension(&mut self, id: LockId, number: u32, extended: Extended) {
        let Some((_, holder)) = self.locks.held(id) else { return };
        let Some(at) = holder.extending.iter().position(|(one, _)| *one == number) else { return };
        let (_, reply) = holder.extending.swap_remove(at);
        let outcome = match (holder.cell.check(), extended) {
            (Err(lost), _) => Err(lost.into()),
            (Ok(()), Extended::Confirmed) => Ok(()),
            (Ok(()), refused) => Err(holder.refused(refused)),
        };
        // A caller that has stopped waiting does not need to know.
        let _ = reply.send(outcome);
    }

    /// Handles news about a master that concern every attempt and lease there.
    pub(super) fn each_lock(&mut self, now: Instant, event: impl Fn() -> Event<'static>) {
        for id in self.locks.ids(|lock| lock.is_attempt() || lock.is_lease()) {
            self.happens(id, event(), now);
        }
    }

    /// Handles news after which leases may query masters. Leases that no caller has taken are not
    /// extended.
    pub(super) fn each_taken(&mut self, now: Instant, event: impl Fn() -> Event<'static>) {
        for id in self.locks.ids(Lock::is_lease) {
            let acceptance = self.locks.held(id).map(|(_, holder)| holder.cell.acceptance());
            if acceptance == Some(Acceptance::Accepted) {
                self.happens(id, event(), now);
            }
        }
    }

    /// Carries what the machine has found out to the holder, and sets the keeper's alarm.
    fn publish(&mut self, id: LockId, now: Instant) {
        let Some((lease, holder)) = self.locks.held(id) else { return };
        let deadline = lease.deadline();
        if !deadline.is_some_and(|deadline| holder.cell.move_deadline(deadline, now)) {
            self.lease_over(id, now);
        }
        self.locks.schedule(id, &mut self.timers);
    }

    /// Ends the lease, because it is over or its holder has seen its end. Nothing extends it from
    /// here on.
    fn lease_over(&mut self, id: LockId, now: Instant) {
        let Some((lease, _)) = self.locks.held(id) else { return };
        let reason = lease.reason();
        // The first end stays. After a release, nothing else ends the lease.
        if let Some(Ended::Lost(_)) = self.locks.end_lease(id, reason) {
            self.note_loss(id, now);
            self.key_left(id, now);
        }
    }

    /// The leases that the runtime before has left are kept again.
    pub(super) fn resume_leases(&mut self, now: Instant) {
        for id in self.locks.ids(Lock::is_lease) {
            if let Some((_, holder)) = self.locks.held(id) {
                holder.scheduled = None;
            }
            self.publish(id, now);
        }
    }

    /// Passes the event to a lease, if the holder still has it.
    pub(super) fn holder_wants(&mut self, hold: HoldId, event: Event<'_>, now: Instant) {
        if let Some(id) = self.locks.held_by(hold) {
            self.happens(id, event, now);
        }
    }

    /// A token that is not released needs nothing more.
    pub(super) fn gone(&mut self, id: LockId, now: Instant) {
        self.observer.say(&self.locks, id, "forgotten");
        if self.locks.leave_holder(id).is_some() {
            self.set_holding();
        }
        self.key_left(id, now);
        self.locks.remove(id);
    }
}

impl Holder {
    fn refused(&self, extended: Extended) -> ExtendError {
        let (resource, votes) = (self.cell.resource.clone(), self.cell.votes());
        match extended {
            Extended::NotOurs => ExtendError::NotOurs { resource, votes },
            _ => ExtendError::NoQuorum { resource, votes },
        }
    }
}
