//! Attempts at the meeting point.

use redlock_core::{Leaving, Verdict, Vote};

use super::claim::Way;
use super::*;
use crate::waiting::{Ask, QueueAnswer, Refusal};

/// How an attempt uses the meeting point of its key.
#[derive(Debug, Default)]
pub struct Meets {
    /// The master that is queried before the others.
    pub first: Option<usize>,
    /// The queue that the attempt enters.
    pub meeting: Option<Box<Meeting>>,
    /// The last attempt of this process for the key saw no quorum.
    pub seeks_quorum: bool,
}

impl Keys {
    /// Decides how the attempt of a caller whose turn has come uses the meeting point.
    pub fn meets(&mut self, id: RequestId, cx: &mut Context<'_>) -> Meets {
        let Some(caller) = cx.callers.get(id) else { return Meets::default() };
        let queue = self.waiters.get(&caller.key);
        let seeks_quorum = queue.is_some_and(|queue| queue.waiting.is_without_quorum());
        let at = self.meeting_of(caller, cx);
        let first = at.filter(|_| caller.ask == Ask::First);
        let enters = at.filter(|at| self.queue_works(&caller.key, *at, cx));
        let meeting = enters.map(|at| Box::new(self.enter(id, at, cx)));
        Meets { first, meeting, seeks_quorum }
    }

    /// The attempt of a caller enters the queue at the master `at`.
    fn enter(&mut self, id: RequestId, at: usize, cx: &mut Context<'_>) -> Meeting {
        let caller = &cx.callers[id];
        let (mut former, mut since) = (None, caller.asked_at);
        if let Some(queue) = self.waiters.of(&caller.key) {
            let waiting = &mut self.waiters.queues[queue].waiting;
            former = waiting.place().filter(|place| *place != at);
            waiting.entering(at);
            since = since.max(waiting.since());
        }
        let meeting = Meeting {
            at,
            entry: self.entry(&caller.resource, since, cx),
            takes: caller.ask != Ask::All,
            is_open: true,
            answer: None,
            has_failed: false,
            others_wait: false,
        };
        if let Some(former) = former {
            let key = caller.key.clone();
            self.give_up_place(&key, former, cx);
        }
        meeting
    }

    /// Handles a master's answer to an attempt. The meeting point shows what it knows of others.
    pub fn entered(
        &mut self,
        (claim, lock): (&mut Claim, LockId),
        is_lease: bool,
        vote: &Vote,
        cx: &mut Context<'_>,
    ) {
        let Some(meeting) = &mut claim.meeting else { return };
        if meeting.at != vote.master || !std::mem::take(&mut meeting.is_open) {
            return;
        }
        meeting.answer = QueueAnswer::of(vote.master, &vote.answer, self.terms.ticket);
        if vote.answer.queued.is_some() {
            self.broken.works(&claim.key, vote.master);
        }
        if is_queue_error(&vote.answer) {
            meeting.answer = Some(QueueAnswer::failed(vote.master));
            meeting.has_failed = true;
            return self.broken.failed(&claim.key, vote.master, cx.now);
        }
        let queued_waiters = vote.answer.queued.map_or(0, |queued| queued.waiters);
        let others_wait = queued_waiters > 0;
        let is_in = meeting.answer.is_none();
        // The other masters may keep the key for this process, so requests that are repeated take it.
        meeting.takes |= is_in && vote.answer.queued.is_some();
        meeting.others_wait |= others_wait && is_in;
        if is_in && others_wait {
            self.others_wait(&claim.key, queued_waiters, cx);
        } else if is_in && let Some(one) = self.uses.of_mut(&claim.key) {
            one.waiters = 0;
        } else if !is_in && is_lease {
            self.give_up_place_of(claim, lock, cx);
        }
    }

    /// Handles the end of the time for answers to an attempt. A meeting point that has not answered
    /// is avoided for a moment. Afterwards, the client gives up the place that it may have there.
    pub fn silent(
        &mut self,
        (claim, lock): (&mut Claim, LockId),
        is_lease: bool,
        cx: &mut Context<'_>,
    ) {
        let Some(at) = claim.meeting.as_ref().filter(|it| it.is_open).map(|it| it.at) else {
            return;
        };
        if is_lease {
            self.give_up_place_of(claim, lock, cx);
        }
        self.news.push_back(News::Suspect(at, suspected_until(at, cx.draws, cx.now)));
    }

    /// Gives up the place at the meeting point if a lock was won without it.
    pub fn won_without(&mut self, claim: &mut Claim, lock: LockId, cx: &mut Context<'_>) {
        if claim.meeting.as_ref().is_some_and(|meeting| meeting.answer.is_some()) {
            self.give_up_place_of(claim, lock, cx);
        }
    }

    fn give_up_place_of(&mut self, claim: &mut Claim, lock: LockId, cx: &mut Context<'_>) {
        let Some(at) = claim.meeting.as_ref().map(|meeting| meeting.at) else { return };
        let way = Way { has_token: false, gives_up_place: true, leaving: Leaving::Undo };
        let op = Op::leave(claim.key.clone(), self.exit(claim, way, cx));
        self.news.push_back(News::Send(at, op, Ticket::Exit(lock)));
    }

    /// Decides how an attempt that was not won leaves the meeting point, if its key may be there. An
    /// attempt whose caller continues to wait in the queue there deletes its key as at every master.
    /// An attempt that saw no quorum, and has no place there, calls no process: they would see no
    /// quorum either.
    pub fn leave_after(&mut self, claim: &mut Claim, refusal: Refusal, cx: &mut Context<'_>) {
        let (at, gives_up_place) = match &claim.meeting {
            Some(meeting) if refusal == Refusal::Alone || meeting.answer.is_some() => return,
            Some(meeting) => (Some(meeting.at), true),
            None if refusal == Refusal::NoQuorum => return,
            None => (self.queue_of(&claim.key, cx), false),
        };
        let way = Way { has_token: true, gives_up_place, leaving: Leaving::Undo };
        claim.legacy.exit = at.map(|at| (at, self.exit(claim, way, cx)));
    }

    /// Handles a master's report of its waiters, in its answer to a release or to a given-up place.
    pub fn left_queue(&mut self, claim: &Claim, vote: &Vote, cx: &mut Context<'_>) {
        let Some(queued) = vote.answer.queued else { return };
        if claim.left_at.is_some_and(|at| at != vote.master) {
            if let Some(one) = self.uses.get_mut(claim.key_use) {
                one.waiters_elsewhere = one.waiters_elsewhere.saturating_add(queued.waiters);
            }
        } else if queued.waiters > 0 {
            self.others_wait(&claim.key, queued.waiters, cx);
        } else if vote.answer.verdict == Verdict::Granted {
            if let Some(one) = self.uses.get_mut(claim.key_use) {
                one.left_unwanted(vote.master, cx.now);
            }
            if let Some(one) = self.uses.of_mut(&claim.key) {
                one.waiters = 0;
            }
            if let Some(queue) = self.waiters.of(&claim.key) {
                self.waiters.queues[queue].waiting.nobody_waits();
                self.schedule(queue, cx);
            }
        } else {
            // Another process has the key there. A called process no longer waits, and has no lock
            // yet.
            self.uses.wanted(&claim.key);
        }
    }
}
