//! Attempts: from the token to the lease or the loss.

use std::borrow::Cow;
use std::time::Duration;

use redlock_core::{Answer, Ballot, Cause, Instant, Token, Verdict, Vote};
use redlock_protocol::master_set::MasterSet;
use redlock_protocol::token::attempt::{Attempt, FIRST, Origin};
use redlock_protocol::token::lifecycle::{Answered, Asked, Event, Lifecycle, Stage};
use redlock_protocol::votes::answer::{Counts, Judged};

use crate::driver::Driver;
use crate::driver::lock::{Caller, Lock};
use crate::settings::check_margin;
use redlock_protocol::client::ids::{LockId, RequestId, Ticket};
use redlock_protocol::client::key::{Claim, Meets, answer_time};
use redlock_protocol::client::timers::Due;

impl Driver {
    /// Makes one attempt: the same request to all masters at the same time, with its own token.
    pub(in crate::driver) fn attempt(&mut self, id: RequestId, now: Instant) {
        if !self.prepare(id, now) {
            return;
        }
        let Some(request) = self.requests.get(id) else { return };
        let (resource, key) = (request.resource.clone(), request.key.clone());
        let (timing, node_timeout) = (request.timing, request.timing.node_timeout);
        let (token, origin) = match &request.resume {
            Some(token) => (token.clone(), Origin::Resumed),
            None => (Token::random(request.label.as_ref()), Origin::Acquired),
        };
        let mut attempt = Attempt::new(self.masters.len(), origin, timing, request.options, now);
        let Meets { first, meeting, seeks_quorum } =
            self.with_keys(now, |keys, cx| keys.meets(id, cx));
        if seeks_quorum {
            attempt = attempt.seeking_quorum();
        }
        if let Some(meeting) = &meeting {
            attempt = attempt.entering(meeting.at);
        }
        let mut time = node_timeout;
        if let Some(first) = first {
            attempt = attempt.asking_first(first);
            time = time.min(answer_time(self.fan_out));
        }
        let is_fenced = self.settings.fencing;
        let claim = Claim::new(resource, key, token, meeting);
        let ballot = match first {
            None if is_fenced => match self.choose(claim.member, Duration::ZERO, now) {
                Some(ballot) => Some(ballot),
                None => return self.refuse_exhausted(id, now),
            },
            _ => None,
        };
        if is_fenced {
            attempt = attempt.fenced(ballot);
        }
        let asked = attempt.asked();
        let due = now.saturating_add(time);
        let lock = self.locks.insert(Lock {
            claim,
            node_timeout,
            machine: Lifecycle::new(attempt),
            caller: Caller::Asks { request: id, alarm: None },
            opened: Some(now),
            due,
        });
        self.observer.counters.attempts.add(1);
        self.observer.say_attempt(&self.locks, lock, id, asked);
        self.line.open();
        self.timers.enter(due, Due::Attempt(lock, due));
        self.send_attempt(lock, asked, ballot, now);
    }

    /// Returns `true` if the attempt should be made, and sets the length of its lease.
    fn prepare(&mut self, id: RequestId, now: Instant) -> bool {
        let Some(request) = self.requests.get_mut(id).filter(|request| !request.has_failed) else {
            return false;
        };
        if request.is_gone {
            // Nothing is acquired for it.
            self.with_keys(now, |keys, cx| keys.cancelled(id, cx));
            return false;
        }
        let limit = self.masters.max_ttl();
        let checked = self.settings.timing(request.ttl, limit).and_then(|timing| {
            check_margin(&timing, request.options.stop_margin)?;
            Ok(timing)
        });
        match checked {
            Ok(timing) => {
                request.timing = timing;
                request.is_attempted = true;
                true
            }
            Err(invalid) => {
                self.refuse_invalid(id, invalid);
                false
            }
        }
    }

    /// Masters that do not vote receive the request as well, without a ballot, and their vote is
    /// decided immediately.
    pub(in crate::driver) fn send_attempt(
        &mut self,
        id: LockId,
        asked: MasterSet,
        ballot: Option<Ballot>,
        now: Instant,
    ) {
        self.observer.counters.rounds.add(1);
        let copies = self.masters.copies_only(asked);
        let Some(Lock { claim, machine, .. }) = self.locks.get(id) else { return };
        let Some(attempt) = machine.attempt() else { return };
        let ops = claim.attempt_ops(attempt, (asked, copies), ballot);
        for (op, masters) in ops.into_iter().flatten() {
            self.send(&op, masters, Ticket::Attempt(id), now);
        }
        if !copies.is_empty() {
            let why = |master| (master, self.masters.cause(master, now));
            let whys: Vec<_> = copies.iter().map(why).collect();
            self.only_copies(id, whys, now);
        }
    }

    fn only_copies(&mut self, id: LockId, whys: Vec<(usize, Cause)>, now: Instant) {
        for (master, why) in &whys {
            self.masters.answered(*master, &Verdict::Unknown(why.clone()));
        }
        let Some(step) = self.locks.decide(id, Event::OnlyCopies(whys), &mut self.timers, now)
        else {
            return;
        };
        if self.locks.get(id).is_some_and(Lock::is_answered) {
            self.leave_window(id, now);
        }
        self.carry_out(id, step, now);
    }

    /// Handles a grant of the meeting point: sends the same request to the others, and its ballot
    /// to the meeting point only.
    pub(in crate::driver) fn ask_others(
        &mut self,
        id: LockId,
        others: MasterSet,
        first: MasterSet,
        ballot: Option<Ballot>,
    ) {
        let now = self.now();
        let Some(lock) = self.locks.get_mut(id) else { return };
        lock.due = now.saturating_add(lock.node_timeout);
        self.timers.enter(lock.due, Due::Attempt(id, lock.due));
        if let Some(ballot) = ballot {
            self.send_ballot(id, FIRST, ballot, first, now);
        }
        self.send_attempt(id, others, ballot, now);
    }

    /// The answer of a master to an attempt, in time or late.
    pub(in crate::driver) fn attempt_vote(
        &mut self,
        id: LockId,
        vote: &Vote,
        counts: &Counts,
        now: Instant,
    ) {
        let lock = self.locks.get(id);
        let explains = lock.and_then(Lock::explains);
        let is_of_queue = lock.is_some_and(|lock| lock.claim.is_of_queue(vote));
        if lock.is_some_and(|lock| lock.claim.meeting().is_some()) {
            self.with_claim(id, now, |keys, lock, cx| {
                let is_lease = lock.is_lease();
                keys.entered((&mut lock.claim, id), is_lease, vote, cx);
            });
        }
        let answer = &refusal_of(&vote.answer);
        let judged = Judged { answer, counts };
        if !is_of_queue {
            self.masters.answered(vote.master, &counts.apply(&answer.verdict));
        }
        if let Some(inspection) = explains {
            let latency = now.saturating_since(vote.sent_at);
            self.questions.late_vote(inspection, vote.master, judged, latency);
        }
        self.answered(id, Answered::of(Asked::First, vote, judged), now);
        if matches!(vote.answer.verdict, Verdict::BallotRefused) {
            self.ask_scores(id, now);
        }
    }

    /// The node timeout of an attempt has passed.
    pub(in crate::driver) fn attempt_due(&mut self, id: LockId, at: Instant, now: Instant) {
        if self.locks.get(id).is_none_or(|lock| lock.due != at) {
            return;
        }
        self.with_claim(id, now, |keys, lock, cx| {
            let is_lease = lock.is_lease();
            keys.silent((&mut lock.claim, id), is_lease, cx);
        });
        let Some(lock) = self.locks.get(id) else { return };
        if !matches!(lock.machine.stage(), Stage::Attempt(_) | Stage::Lease(_)) {
            return;
        }
        self.observer.timed_out(Some(lock), lock.machine.pending());
        if lock.is_attempt() {
            self.leave_window(id, now);
        }
        self.happens(id, Event::AttemptTimedOut, now);
    }

    /// Records that a quorum has answered the requests, or that the attempt no longer waits for
    /// them.
    pub(in crate::driver) fn leave_window(&mut self, id: LockId, now: Instant) {
        if let Some(lock) = self.locks.get_mut(id) {
            self.line.close(&mut lock.opened, now, lock.node_timeout);
        }
    }

    /// A quorum is there, and its holder wants more copies: they have as long again as the quorum
    /// took, and no longer than the node timeout.
    pub(in crate::driver) fn await_copies(&mut self, id: LockId, fan_out: Duration, now: Instant) {
        /// The least grace: answers that were sent together come together.
        const GRACE_MIN: Duration = Duration::from_millis(10);
        self.timers.enter(now.saturating_add(fan_out.max(GRACE_MIN)), Due::Grace(id));
    }
}

/// Returns the answer of a master. A master without the key that does not let the head in refuses.
#[inline]
fn refusal_of(answer: &Answer) -> Cow<'_, Answer> {
    match answer.verdict {
        Verdict::Free => {
            let mut refusal = answer.clone();
            refusal.verdict = Verdict::HELD;
            Cow::Owned(refusal)
        }
        _ => Cow::Borrowed(answer),
    }
}
