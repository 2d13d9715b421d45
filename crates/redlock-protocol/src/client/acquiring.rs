//! From the request of a caller to its lease, or to an error.

use redlock_core::Cause;

use super::callers::Caller;
use super::effects::{Failed, Fence, Refused};
use super::key::Claim;
use super::locks::Begin;
use super::masters::Links;
use super::*;
use crate::inspection;
use crate::token::attempt::{Defeat, Origin};
use crate::token::lifecycle::{Loss, Won};
use crate::votes::last_answer::LastAnswer;
use crate::waiting::{QueueAnswer, Refusal};

/// A lost attempt.
struct Ended {
    request: RequestId,
    is_resumed: bool,
    refusal: Refusal,
    answer: Option<QueueAnswer>,
}

/// Why there is no lock.
pub(super) struct Why {
    pub(super) defeat: Defeat,
    pub(super) answers: Vec<LastAnswer>,
}

impl Why {
    /// The request was sent to no master, for this reason.
    pub(super) fn unsent(cause: Cause, masters: usize) -> Self {
        Self { defeat: Defeat::Outvoted, answers: vec![LastAnswer::unknown(cause); masters] }
    }
}

impl Client {
    /// A caller wants a lock.
    pub(super) fn acquire(&mut self, id: RequestId, caller: Caller, at: &mut At<'_>) {
        at.effects.count(Count::Request);
        if self.closing.is_some() {
            at.effects.push(Effect::Refused(id, Refused::Shutdown));
        } else if self.common.line.is_full() {
            let why = format!("{} requests wait for their turn", line::WAITING_MAX);
            let cause = Cause::NotConnected(why.into());
            self.fail(id, &caller, Why::unsent(cause, self.masters.len()), at);
        } else {
            let stands_alone = caller.is_try() || caller.resume.is_some();
            if self.masters.ask() {
                self.with_masters(at, Masters::advance);
            }
            // Its attempt waits if steps may be under way that no attempt has waited for.
            let was_idle = || self.common.timers.is_late(at.now, timers::IDLE_MIN);
            if let Some(until) = self.masters.close_gate(was_idle, at.now) {
                self.common.timers.enter(until, Due::Wake);
                self.with_masters(at, Masters::advance);
            }
            self.common.callers.insert(id, caller);
            self.common.trace(id, What::Happens("request"), at.effects);
            if stands_alone {
                self.start.stand_in_line(id, &mut self.common);
            } else {
                self.with_keys(at, |keys, cx| keys.ask(id, cx));
            }
        }
    }

    /// Removes a caller that gets its answer without a vote.
    pub(super) fn take_caller(&mut self, id: RequestId, at: &mut At<'_>) -> Option<Caller> {
        let caller = self.common.callers.remove(id)?;
        self.with_keys(at, |keys, cx| keys.answered(id, &caller.key, cx));
        Some(caller)
    }

    /// Answers the caller with why there is no lock.
    pub(super) fn fail(&self, id: RequestId, caller: &Caller, why: Why, at: &mut At<'_>) {
        let Why { defeat, answers } = why;
        let lock = self.keys.lease(&caller.key).and_then(|lock| self.locks.get(lock));
        let is_held =
            |lock: &&locks::Lock| lock.holder().is_some_and(|holder| at.moment.is_held(holder));
        let here = lock.filter(is_held).map(|lock| lock.claim.token.clone());
        let resource = caller.resource.clone();
        at.effects.push(Effect::Failed(id, Failed { resource, defeat, answers, here }.into()));
    }

    /// Makes one attempt for a caller whose turn has come.
    fn attempt(&mut self, id: RequestId, at: &mut At<'_>) {
        let Common { callers, limits, .. } = &mut self.common;
        let caller = callers.get_mut(id).filter(|caller| !caller.has_failed);
        let Some(caller) = caller else { return };
        if caller.is_gone {
            // Nothing is acquired for it.
            return self.with_keys(at, |keys, cx| keys.cancelled(id, cx));
        }
        if let Err(invalid) = caller.prepare(limits, self.masters.max_ttl()) {
            // The TTL is longer than the masters allow.
            if self.take_caller(id, at).is_some() {
                at.effects.push(Effect::Refused(id, Refused::Invalid(invalid.into())));
            }
            return;
        }
        let meets = self.with_keys(at, |keys, cx| keys.meets(id, cx));
        let Some(caller) = self.common.callers.get(id) else { return };
        let (token, origin) = match &caller.resume {
            Some(token) => (token.clone(), Origin::Resumed),
            None => (at.moment.token(caller.label.as_ref()), Origin::Acquired),
        };
        let claim = Claim::new(caller.resource.clone(), caller.key.clone(), token, meets.meeting);
        let begin = Begin {
            request: id,
            claim,
            origin,
            timing: caller.timing,
            options: caller.options,
            first: meets.first,
            seeks_quorum: meets.seeks_quorum,
        };
        let has_ballot = self.with_locks(at, |locks, cx| locks.begin(begin, cx));
        if !has_ballot && let Some(caller) = self.take_caller(id, at) {
            let why = "no fencing token is left below 2^53, because some program has written a \
                       ballot close to it; run `redlock doctor`";
            let cause = Cause::NotSent(why.into());
            self.fail(id, &caller, Why::unsent(cause, self.masters.len()), at);
        }
    }

    /// Sends the requests in the line, as far as there is room.
    pub(super) fn advance_line(&mut self, at: &mut At<'_>) {
        if !self.start.lets_pass(&mut self.common, &mut self.masters, at) {
            return;
        }
        // The clock is read before the first byte can leave, and once for all: none leaves before
        // the links are polled.
        let now = at.moment.now();
        while let Some(outgoing) = self.common.line.pop() {
            at.now = now;
            match outgoing {
                Outgoing::Attempt(request) => self.attempt(request, at),
                Outgoing::Release(lock) => {
                    self.with_locks(at, |locks, cx| locks.send_release(lock, cx));
                }
                Outgoing::Place(id) => self.with_keys(at, |keys, cx| keys.ask_for_place(id, cx)),
                Outgoing::Inspection(inspection) | Outgoing::Mark(inspection) => {
                    self.questions.send(inspection, &self.masters, &mut self.common, at);
                }
            }
            self.settle(at);
        }
    }

    /// The holder wants more time. Requests of holders wait for the first connections.
    pub(super) fn early(&mut self, request: Early, at: &mut At<'_>) {
        if self.start != Start::Done {
            return self.early.push(request);
        }
        match request {
            Early::Extend(hold, ttl, reply) => {
                if self.masters.ask() {
                    self.with_masters(at, Masters::advance);
                }
                self.with_locks(at, |locks, cx| locks.extend(hold, ttl, reply, cx));
            }
            Early::Report(reply) => {
                let number = self
                    .with_questions(at, |questions, view, cx| questions.report(reply, view, cx));
                let until = at.now.saturating_add(self.common.limits.order_timeout());
                self.common.timers.enter(until, Due::Report(number));
            }
        }
    }

    /// Hands a lease to its caller.
    pub(super) fn won(&mut self, id: LockId, won: Won, at: &mut At<'_>) {
        let left = self.with_locks(at, |locks, cx| locks.leave_attempt(id, cx));
        let Some(asked_by) = left else { return };
        at.effects.count(Count::Ended(counts::End::Won));
        self.common.fan_out.measure(won.fan_out);
        self.with_claim(id, at, |keys, (claim, _), cx| keys.won_without(claim, id, cx));
        let Some(caller) = self.common.callers.remove(asked_by) else {
            // The caller no longer wants it.
            return self.with_locks(at, |locks, cx| locks.happens(id, Event::Untaken, cx));
        };
        self.key_won(id, asked_by, &caller, at);
        let fence = Fence::of(won.proof);
        self.with_locks(at, |locks, cx| locks.hand_out(id, asked_by, fence, cx));
    }

    /// Records that a caller has the key.
    pub(super) fn key_won(
        &mut self,
        lock: LockId,
        id: RequestId,
        caller: &Caller,
        at: &mut At<'_>,
    ) {
        // A resumed lease is older than its lock here.
        let since = caller.resume.is_none().then_some(at.now);
        self.with_claim(lock, at, |keys, (claim, _), cx| {
            keys.won(claim, lock, (id, caller.key_use), since, cx);
        });
    }

    /// The attempt was lost: it is released, and then it is tried again, or the caller is answered.
    pub(super) fn lost(&mut self, id: LockId, loss: Loss, at: &mut At<'_>) {
        let now = at.now;
        let left = self.with_locks(at, |locks, cx| locks.leave_attempt(id, cx));
        let Some(request) = left else { return };
        let Some(lock) = self.locks.get(id) else { return };
        let is_resumed = lock.machine().is_resumed();
        let (refusal, answer) = lock.claim.refusal(&loss);
        if let Some(silent) = loss.silent_first.filter(|_| !lock.claim.has_queue_failed()) {
            self.masters.suspect(silent, self.common.suspected_until(silent, now));
        }
        if let Some(fan_out) = loss.fan_out {
            self.common.fan_out.measure(fan_out);
        }
        if loss.defeat == Defeat::BallotRefused {
            at.effects.count(Count::BallotRefused);
        }
        at.effects.count(Count::Ended(counts::End::of(&loss)));
        self.with_claim(id, at, |keys, (claim, _), cx| keys.leave_after(claim, refusal, cx));
        let ended = Ended { request, is_resumed, refusal, answer };
        if refusal == Refusal::Alone {
            // The caller requests its place before its key at the meeting point is deleted.
            // Otherwise another process could take the key there in between.
            self.after_loss(id, ended, loss, at);
            self.with_locks(at, |locks, cx| locks.begin_release(id, cx));
        } else {
            self.with_locks(at, |locks, cx| locks.begin_release(id, cx));
            self.after_loss(id, ended, loss, at);
        }
    }

    /// The caller of a lost attempt waits on, or is answered.
    fn after_loss(&mut self, id: LockId, ended: Ended, loss: Loss, at: &mut At<'_>) {
        let Ended { request, is_resumed, refusal, answer } = ended;
        let now = at.now;
        let Some(asked_by) = self.common.callers.get(request) else { return };
        let (key, is_gone) = (asked_by.key.clone(), asked_by.is_gone);
        let may_wait = !is_resumed
            && asked_by.until.is_none_or(|until| now < until)
            && !is_hopeless(&loss, refusal, self.masters.links(), asked_by.asked_at);
        self.keys.refused(&key, now);
        if is_gone {
            return self.with_keys(at, |keys, cx| keys.cancelled(request, cx));
        }
        if may_wait {
            return self.with_keys(at, |keys, cx| keys.wait_on(request, refusal, answer, cx));
        }
        self.with_keys(at, |keys, cx| keys.answered(request, &key, cx));
        if loss.is_explicable {
            // The error reports who holds the resource, so masters are queried after our own
            // release. If no remaining master can know the holder, none is queried.
            let (masters, common) = (&self.masters, &mut self.common);
            let explained =
                self.questions.explain(request, loss.defeat, loss.answers, masters, common);
            if let Some((inspection, lock)) = explained.zip(self.locks.get_mut(id)) {
                lock.explain_by(inspection);
            }
        } else if let Some(caller) = self.common.callers.remove(request) {
            self.fail(request, &caller, Why { defeat: loss.defeat, answers: loss.answers }, at);
        }
    }
}

/// Returns `true` if waiting cannot change the last answers of the masters. More votes may be on
/// their way.
fn is_hopeless(loss: &Loss, refusal: Refusal, links: &Links, asked_at: Instant) -> bool {
    let is_unanswered = refusal == Refusal::Silent
        || refusal == Refusal::NoQuorum && loss.refusal == Refusal::Silent;
    let curable = links.step_failed_before(asked_at);
    is_unanswered && inspection::is_hopeless(&loss.answers, links.incurable(), curable)
}
