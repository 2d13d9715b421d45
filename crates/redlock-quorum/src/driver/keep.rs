//! Held leases: extensions, keys that are given back to masters, and the deadline.

use std::time::Duration;

use redlock_core::{Instant, Op, Vote};

use super::command::ExtendReply;
use super::ticket::{LockId, Ticket};
use super::timers::Due;
use super::{Driver, Lock, Stage, Tenure};
use crate::error::ExtendError;
use crate::hold::Acceptance;
use crate::lost::Ended;
use crate::protocol::extension::Extended;
use crate::protocol::heard::{Heard, Standing};
use crate::protocol::lease::{Extend, HeldLease, Step};
use crate::protocol::master_set::MasterSet;
use crate::settings::{InvalidRequest, Timing};

impl Driver {
    /// The keeper of a lease has something to do.
    pub(super) fn keep_due(&mut self, id: LockId, at: Instant, now: Instant) {
        let random = self.random();
        let limit = self.masters.max_ttl();
        let Some(tenure) = self.tenure(id).filter(|tenure| tenure.scheduled == Some(at)) else {
            return;
        };
        tenure.scheduled = None;
        if tenure.cell.change_acceptance(Acceptance::Awaited) != Acceptance::Accepted {
            return self.await_acceptance(id, now);
        }
        if tenure.lease.timing().ttl.get() > limit {
            self.limit(id, limit);
        }
        let Some(tenure) = self.tenure(id) else { return };
        let silent = tenure.lease.silent(now);
        let step = tenure.lease.tick(now, random);
        tenure.cell.write_terms(&tenure.lease);
        tenure.cell.write_all(tenure.lease.ledger());
        self.extension_silent(id, silent);
        self.carry_out(id, step, now);
    }

    /// Sends what the machine wants for a lease, unless that is over: its holder may have seen the
    /// end by a later reading of the clock.
    fn carry_out(&mut self, id: LockId, step: Step, now: Instant) {
        self.publish(id, now);
        let Some(tenure) = self.tenure(id) else { return };
        let step = if tenure.cell.is_held() { step } else { tenure.lease.call_off(step) };
        self.readd(id, step.readd, now);
        if let Some(extend) = step.extend {
            self.send_extension(id, extend, now);
        }
    }

    /// Nobody has taken the lock: it is given back once nobody can. A future that is not polled any
    /// more would keep it for ever otherwise.
    fn await_acceptance(&mut self, id: LockId, now: Instant) {
        let Some(tenure) = self.tenure(id) else { return };
        if now < tenure.cell.acceptable_until() {
            return self.schedule(id);
        }
        if tenure.cell.change_acceptance(Acceptance::Withdrawn) == Acceptance::Accepted {
            return self.schedule(id);
        }
        if tenure.is_resumed { self.forget(id, now) } else { self.release(id, None, now) }
    }

    /// The masters allow less than they did: a quarantine does not last as long as this lease any
    /// more.
    fn limit(&mut self, id: LockId, limit: Duration) {
        let timing = self.settings.timing(Some(limit), limit);
        if let (Ok(timing), Some(tenure)) = (timing, self.tenure(id)) {
            tenure.lease.limit(timing);
        }
    }

    /// The holder wants more time, now and from each extension that follows.
    pub(super) fn extend(&mut self, id: LockId, ttl: Duration, reply: ExtendReply, now: Instant) {
        self.ask(now);
        let timing = match self.extended_timing(id, ttl) {
            Ok(timing) => timing,
            Err(invalid) => return drop(reply.send(Err(invalid.into()))),
        };
        if let Some(lock) = self.locks.get_mut(id) {
            lock.node_timeout = timing.node_timeout;
        }
        let Some(tenure) = self.tenure(id) else {
            let _ = reply.send(Err(ExtendError::Shutdown));
            return;
        };
        if let Err(lost) = tenure.cell.check() {
            let _ = reply.send(Err(lost.into()));
            return;
        }
        let extend = tenure.lease.extend(timing);
        tenure.cell.write_terms(&tenure.lease);
        tenure.extending.push((extend.number, reply));
        let due = now.saturating_add(timing.node_timeout);
        self.timers.enter(due, Due::Extension(id, extend.number));
        self.send_extension(id, extend, now);
    }

    /// The durations of an extension, by what the masters allow now.
    fn extended_timing(&self, id: LockId, ttl: Duration) -> Result<Timing, InvalidRequest> {
        let timing = self.settings.timing(Some(ttl), self.masters.max_ttl())?;
        if let Some(Stage::Lease(tenure)) = self.locks.get(id).map(|lock| &lock.stage) {
            timing.check_margin(tenure.cell.stop_margin)?;
        }
        Ok(timing)
    }

    /// The holder wants a keeper that it did not have before.
    pub(super) fn keep(&mut self, id: LockId) {
        if let Some(tenure) = self.tenure(id) {
            tenure.lease.keep_from_here();
            self.schedule(id);
        }
    }

    fn send_extension(&mut self, id: LockId, extend: Extend, now: Instant) {
        let Some(lock) = self.locks.get(id) else { return };
        let Stage::Lease(tenure) = &lock.stage else { return };
        let px = tenure.lease.timing().px;
        let op = Op::extend(lock.key.clone(), lock.token.clone(), px);
        let ticket = Ticket::Extension(id, extend.number);
        self.observer.counters.extensions.add(1);
        self.say(id, "extension");
        for vote in self.masters.send(&op, extend.masters, ticket, now) {
            self.vote(&vote);
        }
        // An extension counts only where a score came.
        self.ask_scores(id, now);
    }

    /// The answer of a master to an extension.
    pub(super) fn extension_vote(
        &mut self,
        id: LockId,
        number: u32,
        vote: &Vote,
        standing: &Standing,
        now: Instant,
    ) {
        let Some(tenure) = self.tenure(id) else { return };
        let before = tenure.lease.deadline();
        let heard = Heard { answer: &vote.answer, standing };
        let step = tenure.lease.extended(number, vote.master, heard, vote.sent_at, now);
        tenure.cell.write(tenure.lease.ledger(), vote.master);
        if let Some(before) = before {
            self.note_margin(id, number, before, now);
        }
        self.carry_out(id, step, now);
        if let Some(extended) = step.extended {
            self.answer_extension(id, number, extended);
        }
    }

    /// Masters have lost the key of a lease, and no other holds it there: they are given it again.
    fn readd(&mut self, id: LockId, masters: MasterSet, now: Instant) {
        if masters.is_empty() || self.closing.is_some() {
            return;
        }
        let copies = self.masters.copies_only(masters);
        let Some(lock) = self.locks.get(id) else { return };
        let Lock { key, token, stage: Stage::Lease(tenure), .. } = lock else { return };
        let px = tenure.lease.timing().px;
        let plain = Op::acquire(key.clone(), token.clone(), px);
        let counted = match self.settings.fencing {
            true => Op::give_back(key.clone(), token.clone(), px, lock.member()),
            false => plain.clone(),
        };
        for (op, masters) in [(counted, masters.without(copies)), (plain, copies)] {
            for vote in self.masters.send(&op, masters, Ticket::Readd(id), now) {
                self.vote(&vote);
            }
        }
    }

    pub(super) fn readd_vote(
        &mut self,
        id: LockId,
        vote: &Vote,
        standing: &Standing,
        now: Instant,
    ) {
        let Some(tenure) = self.tenure(id) else { return };
        let heard = Heard { answer: &vote.answer, standing };
        tenure.lease.readded(vote.master, heard, vote.sent_at, now);
        tenure.cell.write(tenure.lease.ledger(), vote.master);
        self.publish(id, now);
    }

    /// The node timeout of an extension that its holder waits for has passed.
    pub(super) fn extension_due(&mut self, id: LockId, number: u32) {
        let Some(tenure) = self.tenure(id) else { return };
        let silent = tenure.lease.unanswered_of(number);
        let extended = tenure.lease.extension_timed_out(number);
        tenure.cell.write_all(tenure.lease.ledger());
        self.extension_silent(id, silent);
        if let Some(extended) = extended {
            self.answer_extension(id, number, extended);
        }
    }

    /// Masters have not answered an extension within the node timeout.
    fn extension_silent(&self, id: LockId, silent: MasterSet) {
        if let Some(lock) = self.locks.get(id) {
            self.observer.timed_out(lock, silent);
        }
    }

    pub(super) fn answer_extension(&mut self, id: LockId, number: u32, extended: Extended) {
        let Some(tenure) = self.tenure(id) else { return };
        let Some(at) = tenure.extending.iter().position(|(one, _)| *one == number) else { return };
        let (_, reply) = tenure.extending.swap_remove(at);
        let outcome = match (tenure.cell.check(), extended) {
            (Err(lost), _) => Err(lost.into()),
            (Ok(()), Extended::Confirmed) => Ok(()),
            (Ok(()), refused) => Err(tenure.refused(refused)),
        };
        // A caller that has stopped waiting does not need to know.
        let _ = reply.send(outcome);
    }

    /// `master` may have forgotten every key. What it still has it confirms with the next
    /// extension.
    pub(super) fn disown(&mut self, master: usize, now: Instant) {
        self.disown_attempts(master, now);
        self.each_lease(master, now, |lease| lease.disown(master, now));
    }

    /// Something has happened at `master` that concerns each lease.
    pub(super) fn each_lease(
        &mut self,
        master: usize,
        now: Instant,
        happens: impl Fn(&mut HeldLease),
    ) {
        for id in self.lease_ids() {
            let Some(tenure) = self.tenure(id) else { continue };
            happens(&mut tenure.lease);
            tenure.cell.write(tenure.lease.ledger(), master);
            self.publish(id, now);
        }
    }

    /// `master` votes, and did not before.
    pub(super) fn confirm_copies(&mut self, master: usize, now: Instant) {
        self.each_taken(now, |lease| lease.confirm_copy(master, now));
    }

    /// Something has happened for which leases may ask masters. What nobody has taken is not
    /// extended.
    pub(super) fn each_taken(&mut self, now: Instant, happens: impl Fn(&mut HeldLease) -> Step) {
        for id in self.lease_ids() {
            let is_taken = |tenure: &&mut Tenure| tenure.cell.acceptance() == Acceptance::Accepted;
            if let Some(tenure) = self.tenure(id).filter(is_taken) {
                let step = happens(&mut tenure.lease);
                self.carry_out(id, step, now);
            }
        }
    }

    /// Carries what the machine has found out to the holder, and sets the keeper's alarm.
    pub(super) fn publish(&mut self, id: LockId, now: Instant) {
        let Some(tenure) = self.tenure(id) else { return };
        let deadline = tenure.lease.deadline();
        if !deadline.is_some_and(|deadline| tenure.cell.move_deadline(deadline, now)) {
            self.lease_over(id, now);
        }
        self.schedule(id);
    }

    /// The lease is over, or its holder has seen the end of it: nothing extends it any more.
    fn lease_over(&mut self, id: LockId, now: Instant) {
        let Some(tenure) = self.tenure(id) else { return };
        let reason = tenure.lease.reason();
        tenure.lease.end(reason);
        // The first end stays: behind one that was released comes its release.
        let lost = tenure.cell.lost(reason);
        tenure.cell.end(Ended::Lost(lost));
        if let Some(Ended::Lost(_)) = tenure.cell.ended() {
            self.note_loss(id, now);
            self.key_left(id, now);
        }
    }

    /// One alarm for each lease: an earlier one replaces a later one.
    pub(super) fn schedule(&mut self, id: LockId) {
        let Some(tenure) = self.tenure(id) else { return };
        let Some(due) = tenure.due() else { return };
        if tenure.scheduled.is_none_or(|scheduled| due < scheduled) {
            tenure.scheduled = Some(due);
            self.timers.enter(due, Due::Keep(id, due));
        }
    }

    /// The leases that the runtime before has left are kept again.
    pub(super) fn resume_leases(&mut self, now: Instant) {
        for id in self.lease_ids() {
            if let Some(tenure) = self.tenure(id) {
                tenure.scheduled = None;
            }
            self.publish(id, now);
        }
    }

    /// The holder gives the lease away: it is neither kept nor released.
    pub(super) fn forget(&mut self, id: LockId, now: Instant) {
        if self.tenure(id).is_some() {
            self.say(id, "forgotten");
            self.end_lease(id);
            self.key_left(id, now);
            self.locks.remove(id);
        }
    }

    /// Takes the lease out of its lock, which gets another stage.
    pub(super) fn end_lease(&mut self, id: LockId) -> Option<Tenure> {
        let lock = self.locks.get_mut(id)?;
        match std::mem::replace(&mut lock.stage, Stage::Changing) {
            Stage::Lease(tenure) => {
                self.leases -= 1;
                self.lost_leases -= usize::from(tenure.is_lost);
                self.masters.set_holding(self.leases > 0);
                Some(tenure)
            }
            stage => {
                lock.stage = stage;
                None
            }
        }
    }

    pub(super) fn lease_ids(&self) -> Vec<LockId> {
        let is_lease = |lock: &Lock| matches!(lock.stage, Stage::Lease(_));
        self.locks.iter().filter(|(_, lock)| is_lease(lock)).map(|(id, _)| id).collect()
    }

    pub(super) fn tenure(&mut self, id: LockId) -> Option<&mut Tenure> {
        match &mut self.locks.get_mut(id)?.stage {
            Stage::Lease(tenure) => Some(tenure),
            _ => None,
        }
    }
}

impl Tenure {
    fn refused(&self, extended: Extended) -> ExtendError {
        let (resource, votes) = (self.cell.resource.clone(), self.cell.votes());
        match extended {
            Extended::NotOurs => ExtendError::NotOurs { resource, votes },
            _ => ExtendError::NoQuorum { resource, votes },
        }
    }
}
