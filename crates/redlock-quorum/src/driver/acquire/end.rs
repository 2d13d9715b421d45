//! The end of an attempt: the lease that its caller gets, or the reason for the failure.

use std::sync::Arc;
use std::time::Duration;

use redlock_core::Instant;
use redlock_protocol::inspection::is_hopeless;
use redlock_protocol::token::attempt::Defeat;
use redlock_protocol::token::lifecycle::{Event, Loss, Won};
use redlock_protocol::waiting::Refusal;

use crate::counters::Outcome;
use crate::driver::Driver;
use crate::driver::command::Request;
use crate::driver::hold::held_lock::HeldLock;
use crate::driver::lock::{Caller, Holder, Lock};
use crate::hold::{Fence, HoldCell};
use redlock_protocol::client::ids::{HoldId, LockId, RequestId};
use redlock_protocol::client::key::suspected_until;

impl Driver {
    /// Hands the lease to its caller, which is woken from here.
    pub(in crate::driver) fn won(&mut self, id: LockId, won: Won, now: Instant) {
        let Some(asked_by) = self.leave_attempt(id, now) else { return };
        self.observer.counters.outcome(Outcome::Won);
        if let Some(fan_out) = won.fan_out {
            self.measure(fan_out);
        }
        self.with_claim(id, now, |keys, lock, cx| keys.won_without(&mut lock.claim, id, cx));
        let Some(request) = self.requests.remove(asked_by) else {
            // The caller no longer wants it.
            return self.happens(id, Event::Untaken, now);
        };
        self.key_won(id, asked_by, &request, now);
        let Some(cell) = self.cell(id, Fence::of(won.proof)) else { return };
        let Some(lock) = self.locks.get(id) else { return };
        self.observer.won(&request, lock, now);
        let is_resumed = lock.machine.is_resumed();
        self.locks.won(id, Holder::new(cell.clone()));
        self.set_holding();
        self.locks.schedule(id, &mut self.timers);
        if !self.deliver(id, request, cell, is_resumed) {
            self.happens(id, Event::Untaken, now);
        }
    }

    /// Records that a caller has the key.
    pub(in crate::driver) fn key_won(
        &mut self,
        lock: LockId,
        id: RequestId,
        request: &Request,
        now: Instant,
    ) {
        // A resumed lease is older than its lock here.
        let since = request.resume.is_none().then_some(now);
        self.with_claim(lock, now, |keys, entry, cx| {
            keys.won(&mut entry.claim, lock, (id, request.key_use), since, cx);
        });
    }

    /// The cell that a holder of the lease shares with the driver.
    pub(in crate::driver) fn cell(&self, id: LockId, fence: Fence) -> Option<Arc<HoldCell>> {
        let lock = self.locks.get(id)?;
        Some(HoldCell::new(
            lock.claim.resource.clone(),
            lock.claim.token.clone(),
            self.clock.clone(),
            self.nodes.names.clone(),
            lock.machine.lease()?,
            fence,
        ))
    }

    /// Hands the lock to its caller, which is woken from here. Returns `true` if the caller was
    /// still there. Otherwise it gets nothing.
    pub(in crate::driver) fn deliver(
        &self,
        id: LockId,
        request: Request,
        cell: Arc<HoldCell>,
        is_resumed: bool,
    ) -> bool {
        let (Some(slot), Some(lock)) = (self.slot.upgrade(), self.locks.get(id)) else {
            return true;
        };
        let hold = HoldId { lock: id, hand_overs: lock.claim.hand_overs };
        let held = HeldLock::new(cell, hold, slot, is_resumed);
        match request.reply.send(Ok(held)) {
            Err(Ok(held)) => {
                held.cancel();
                false
            }
            _ => true,
        }
    }

    /// The attempt was lost: it is released, and then it is tried again, or the caller is answered.
    pub(in crate::driver) fn lost(&mut self, id: LockId, loss: Loss, now: Instant) {
        let Some(request) = self.leave_attempt(id, now) else { return };
        let Some(Lock { claim, machine, .. }) = self.locks.get(id) else { return };
        let (is_resumed, (refusal, answer)) = (machine.is_resumed(), claim.refusal(&loss));
        if let Some(silent) = loss.silent_first.filter(|_| !claim.has_queue_failed()) {
            self.masters.suspect(silent, suspected_until(silent, self.draws, now));
        }
        if let Some(fan_out) = loss.fan_out {
            self.measure(fan_out);
        }
        self.count_loss(&loss);
        self.with_claim(id, now, |keys, lock, cx| keys.leave_after(&mut lock.claim, refusal, cx));
        self.begin_release(id, now);
        let Some(asked_by) = self.requests.get(request) else { return };
        let key = asked_by.key.clone();
        let is_gone = asked_by.is_gone;
        let may_wait = !is_resumed
            && asked_by.until.is_none_or(|until| now < until)
            && !self.is_hopeless(&loss, refusal, asked_by.asked_at);
        self.keys.refused(&key, now);
        if !is_gone && may_wait {
            return self.with_keys(now, |keys, cx| keys.wait_on(request, refusal, answer, cx));
        }
        if is_gone {
            return self.with_keys(now, |keys, cx| keys.cancelled(request, cx));
        }
        self.with_keys(now, |keys, cx| keys.answered(request, &key, cx));
        if loss.is_explicable {
            // The error reports who holds the resource, so masters are queried after our own
            // release. If no remaining master can know the holder, none is queried.
            if let Some(inspection) = self.explain(request, loss.defeat, loss.answers) {
                self.locks.set_explains(id, inspection);
            }
        } else if let Some(asked_by) = self.requests.remove(request) {
            self.fail(asked_by, loss.defeat, &loss.answers);
        }
    }

    fn count_loss(&self, loss: &Loss) {
        let counters = &self.observer.counters;
        if loss.defeat == Defeat::BallotRefused {
            counters.ballots_refused.add(1);
        }
        let is_late = loss.defeat == Defeat::TooLate;
        counters.outcome(if is_late { Outcome::TooLate } else { loss.refusal.into() });
    }

    /// Returns `true` if waiting cannot change the last answers of the masters. More votes may be
    /// on their way.
    fn is_hopeless(&self, loss: &Loss, refusal: Refusal, asked_at: Instant) -> bool {
        let curable = self.masters.links().step_failed_before(asked_at);
        let is_unanswered = refusal == Refusal::Silent
            || refusal == Refusal::NoQuorum && loss.refusal == Refusal::Silent;
        is_unanswered && is_hopeless(&loss.answers, self.masters.links().incurable(), curable)
    }

    /// How long votes take: what waiters pause for is measured by it.
    /// Never nothing: a pause of a few times nothing would be none.
    fn measure(&mut self, fan_out: Duration) {
        /// No network is quicker.
        const FAN_OUT_MIN: Duration = Duration::from_micros(50);
        self.fan_out = (self.fan_out * 4 + fan_out.max(FAN_OUT_MIN)) / 5;
    }

    /// The attempt is decided, or given up. Returns whose it was.
    fn leave_attempt(&mut self, id: LockId, now: Instant) -> Option<RequestId> {
        self.leave_window(id, now);
        let Caller::Asks { request, .. } = self.locks.get(id)?.caller else { return None };
        Some(request)
    }

    /// Gives up an open attempt, but keeps its request.
    pub(in crate::driver) fn abort_attempt(&mut self, id: LockId, now: Instant) {
        self.leave_window(id, now);
        self.observer.counters.outcome(Outcome::Aborted);
        self.with_claim(id, now, |keys, lock, cx| {
            keys.leave_after(&mut lock.claim, Refusal::Silent, cx);
        });
        self.happens(id, Event::Cancelled, now);
    }
}

#[cfg(test)]
mod tests {
    use redlock_core::{Answer, Resource, Token};

    use super::*;
    use crate::Redlock;
    use redlock_protocol::client::key::Claim;
    use redlock_protocol::terms::HoldOptions;
    use redlock_protocol::token::attempt::{Attempt, Origin};
    use redlock_protocol::token::lifecycle::{Answered, Asked, Lifecycle};
    use redlock_protocol::votes::answer::{Counts, Judged};

    #[test]
    fn an_attempt_whose_request_is_gone_is_released() {
        let masters = (1..=3).map(|nth| format!("redis://127.0.0.1:{nth}"));
        let redlock = Redlock::connect(masters).unwrap();
        let slot = redlock.handle.inbox.slot();
        let mut driver = slot.enter(&mut slot.state(), None).expect("nothing works on it");
        let (now, resource) = (driver.now(), Resource::from("orders:42"));
        let timing = driver.settings.timing(None, driver.masters.max_ttl()).unwrap();
        let attempt = Attempt::new(3, Origin::Acquired, timing, HoldOptions::default(), now);
        let id = driver.locks.insert(Lock {
            claim: Claim::new(
                resource.clone(),
                resource.key(b"").into(),
                Token::random(None),
                None,
            ),
            node_timeout: timing.node_timeout,
            machine: Lifecycle::new(attempt),
            caller: Caller::Asks { request: RequestId::default(), alarm: None },
            opened: None,
            due: now,
        });
        let (answer, counts) = (Answer::granted(), Counts::Yes);
        let judged = Judged { answer: &answer, counts: &counts };
        for master in 0..2 {
            let answered = Answered { to: Asked::First, master, judged, sent_at: now };
            driver.happens(id, Event::Answered(answered), now);
        }
        assert!(driver.locks.get(id).unwrap().machine.release().is_some());
    }
}
