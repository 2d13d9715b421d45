//! Attempts: from the token to the end of the vote.

use std::borrow::Cow;

use redlock_core::{Answer, Ballot, Cause, Verdict};

use super::*;
use crate::client::effects::Fence;
use crate::client::key::{Claim, answer_time};
use crate::client::view::Purpose;
use crate::terms::{HoldOptions, Timing};
use crate::token::attempt::{Attempt, FIRST, Origin};
use crate::token::lifecycle::{Answered, Asked, Event, Lifecycle};
use crate::votes::answer::Judged;

/// An attempt that begins.
#[derive(Debug)]
pub struct Begin {
    /// The caller.
    pub request: RequestId,
    /// The token, its key, and how it uses the meeting point.
    pub claim: Claim,
    /// The source of the token.
    pub origin: Origin,
    /// The durations.
    pub timing: Timing,
    /// The options of the lease.
    pub options: HoldOptions,
    /// The master that is queried before the others.
    pub first: Option<usize>,
    /// The last attempt of this process for the key saw no quorum.
    pub seeks_quorum: bool,
}

impl Locks {
    /// Makes one attempt: the same request to all masters at the same time, with its own token.
    /// Returns `false` if no ballot is left.
    pub fn begin(&mut self, begin: Begin, cx: &mut Context<'_>) -> bool {
        let Begin { request, claim, origin, timing, options, first, seeks_quorum } = begin;
        let mut attempt = Attempt::new(self.terms.masters, origin, timing, options, cx.now);
        if seeks_quorum {
            attempt = attempt.seeking_quorum();
        }
        if let Some(meeting) = claim.meeting() {
            attempt = attempt.entering(meeting.at);
        }
        let mut time = timing.node_timeout;
        if let Some(first) = first {
            attempt = attempt.asking_first(first);
            time = time.min(answer_time(cx.fan_out));
        }
        let mut ballot = None;
        if self.terms.fencing {
            if first.is_none() {
                ballot = choose(claim.member, Duration::ZERO, cx);
                if ballot.is_none() {
                    return false;
                }
            }
            attempt = attempt.fenced(ballot);
        }
        let asked = attempt.asked();
        let due = cx.now.saturating_add(time);
        let lock = Lock {
            claim,
            node_timeout: timing.node_timeout,
            machine: Lifecycle::new(attempt),
            owner: Owner::Asks { request, alarm: None },
            opened: Some(cx.now),
            due,
        };
        cx.effects.count(Count::Attempt);
        let what = || What::Attempt(crate::client::table::Id::number(request), asked.len());
        lock.trace(what, cx.effects);
        let id = self.table.insert(lock);
        cx.line.open();
        cx.timers.enter(due, Due::Attempt(id, due));
        self.send_attempt(id, asked, ballot, cx);
        true
    }

    /// Masters that do not vote receive the request as well, without a ballot, and their vote is
    /// decided immediately.
    pub(super) fn send_attempt(
        &mut self,
        id: LockId,
        asked: MasterSet,
        ballot: Option<Ballot>,
        cx: &mut Context<'_>,
    ) {
        cx.effects.count(Count::Round);
        let Some(Lock { claim, machine, .. }) = self.table.get(id) else { return };
        let Some(attempt) = machine.attempt() else { return };
        let purpose = match attempt.origin() {
            Origin::Acquired => Purpose::Acquire,
            Origin::Resumed => Purpose::Resume,
        };
        let copies = cx.voters.copies_only(asked, purpose);
        let ops = claim.attempt_ops(attempt, (asked, copies), ballot);
        for (op, masters) in ops.into_iter().flatten() {
            cx.send(op, masters, Ticket::Attempt(id));
        }
        if copies.is_empty() {
            return;
        }
        let why = |master| (master, cx.voters.cause(master, cx.now));
        let whys: Vec<(usize, Cause)> = copies.iter().map(why).collect();
        for (master, why) in &whys {
            cx.voters.answered(*master, &Verdict::Unknown(why.clone()));
        }
        let Some(step) = self.decide(id, Event::OnlyCopies(whys), cx) else { return };
        if let Some(lock) = self.table.get_mut(id).filter(|lock| lock.is_answered()) {
            lock.leave_window(cx);
        }
        self.carry_out(id, step, cx);
    }

    /// Handles a grant of the meeting point: sends the same request to the others, and its ballot
    /// to the meeting point only.
    pub(super) fn ask_others(
        &mut self,
        id: LockId,
        others: MasterSet,
        first: MasterSet,
        ballot: Option<Ballot>,
        cx: &mut Context<'_>,
    ) {
        let Some(lock) = self.table.get_mut(id) else { return };
        // The answer may have been read a while ago.
        cx.now = cx.moment.now();
        lock.due = cx.now.saturating_add(lock.node_timeout);
        cx.timers.enter(lock.due, Due::Attempt(id, lock.due));
        if let Some(ballot) = ballot {
            lock.send_ballot(id, FIRST, ballot, first, cx);
        }
        self.send_attempt(id, others, ballot, cx);
    }

    /// Records the answer of a master to an attempt, in time or late.
    pub fn attempt_answered(
        &mut self,
        id: LockId,
        vote: &Vote,
        judged: Judged<'_>,
        cx: &mut Context<'_>,
    ) {
        if !self.table.get(id).is_some_and(|lock| lock.claim.is_of_queue(vote)) {
            cx.voters.answered(vote.master, &judged.verdict());
        }
        self.answered(id, Answered::of(Asked::First, vote, judged), cx);
        if matches!(vote.answer.verdict, Verdict::BallotRefused)
            && let Some(lock) = self.table.get_mut(id)
        {
            lock.ask_scores(id, cx);
        }
    }

    /// Handles the end of an attempt's node timeout.
    pub fn attempt_due(&mut self, id: LockId, cx: &mut Context<'_>) {
        let Some(lock) = self.table.get_mut(id) else { return };
        if !matches!(lock.machine.stage(), Stage::Attempt(_) | Stage::Lease(_)) {
            return;
        }
        lock.timed_out(lock.machine.pending(), cx.effects);
        if lock.is_attempt() {
            lock.leave_window(cx);
        }
        self.happens(id, Event::AttemptTimedOut, cx);
    }

    /// Takes an attempt that is decided or given up, and returns its caller.
    pub fn leave_attempt(&mut self, id: LockId, cx: &mut Context<'_>) -> Option<RequestId> {
        let lock = self.table.get_mut(id)?;
        lock.leave_window(cx);
        match lock.owner {
            Owner::Asks { request, .. } => Some(request),
            _ => None,
        }
    }

    /// Gives the lease of a won attempt to this caller, and wakes the caller.
    pub fn hand_out(&mut self, id: LockId, caller: RequestId, fence: Fence, cx: &mut Context<'_>) {
        let Some(lock) = self.table.get_mut(id) else { return };
        lock.owner = Owner::Holds(Holder::new(caller, fence.until));
        self.leases += 1;
        cx.set_holding(self.leases > 0);
        self.schedule(id, cx);
        if let Some(lock) = self.table.get(id) {
            lock.deliver(id, fence, cx);
        }
    }
}

impl Lock {
    /// Passes late answers to the attempt on to this inspection.
    pub fn explain_by(&mut self, inspection: InspectionId) {
        if let Owner::Returned { explains, .. } = &mut self.owner {
            *explains = Some(inspection);
        }
    }
}

/// Returns the ballot for the next attempt on a resource of this member, or for the next one of the
/// same attempt. `None` if no ballot is left below 2^53.
pub(super) fn choose(
    member: redlock_core::Member,
    margin: Duration,
    cx: &mut Context<'_>,
) -> Option<Ballot> {
    let ballot = cx.voters.ballots().next(member, margin, cx.now);
    if ballot.is_some() {
        cx.effects.count(Count::Ballot);
    }
    ballot
}

/// Returns the answer of a master. A master without the key that does not let the head in refuses.
#[inline]
pub fn refusal_of(answer: &Answer) -> Cow<'_, Answer> {
    match answer.verdict {
        Verdict::Free => {
            let mut refusal = answer.clone();
            refusal.verdict = Verdict::HELD;
            Cow::Owned(refusal)
        }
        _ => Cow::Borrowed(answer),
    }
}
