//! Callers, from the request for a key to their turn: one queue for each key, of which only the
//! head talks to masters.

use super::*;
use crate::waiting::{Ask, QueueAnswer, Refusal, Step, Waiting};

impl Keys {
    /// Handles a caller that may wait for a key. It requests the key immediately if no other caller
    /// of this process requests or holds it. Otherwise it waits for those callers.
    pub fn ask(&mut self, id: RequestId, cx: &mut Context<'_>) {
        let Some(caller) = cx.callers.get_mut(id) else { return };
        let has_queue = self.waiters.of(&caller.key).is_some();
        let usage = if has_queue {
            self.uses.of_mut(&caller.key)
        } else {
            // The caller is the first, or the others have a use of the key already.
            caller.key_use = self.uses.enter(&caller.key);
            self.uses.get_mut(caller.key_use)
        };
        let (is_held_here, asker) =
            usage.as_ref().map_or((false, None), |one| (one.lease().is_some(), one.asker));
        if !has_queue && !is_held_here && asker.is_none() {
            if let Some(one) = usage {
                one.asker = Some(id);
            }
            return self.news.push_back(News::Stands(id));
        }
        let key = caller.key.clone();
        cx.limit_wait(id);
        self.said(id, "wait in the queue", cx);
        let queue = self.waiters.enter(&key);
        if let Some(asker) = asker {
            // It is the head of the callers that wait from now on.
            self.uses.end_asking(&key, asker);
            cx.limit_wait(asker);
            self.waiters.queues[queue].waiting.join_attempting(asker, cx.now);
        }
        let step = self.waiters.queues[queue].waiting.join(id, is_held_here, cx.now);
        self.step(queue, step, cx);
    }

    /// Handles the lost attempt of a caller that still waits. `answer` is the answer of the meeting
    /// point if it did not let the attempt in.
    pub fn wait_on(
        &mut self,
        id: RequestId,
        refusal: Refusal,
        answer: Option<QueueAnswer>,
        cx: &mut Context<'_>,
    ) {
        let Some(caller) = cx.callers.get_mut(id) else { return };
        caller.is_attempted = false;
        let key = caller.key.clone();
        self.uses.end_asking(&key, id);
        self.said(id, "wait", cx);
        let queue = self.waiters.enter(&key);
        let waiting = &mut self.waiters.queues[queue].waiting;
        if waiting.head() != Some(id) {
            cx.limit_wait(id);
            if !waiting.join_attempting(id, cx.now) {
                // Other callers were first.
                return;
            }
        }
        let step = match refusal {
            Refusal::Held | Refusal::Split if self.uses.is_held(&key) => {
                waiting.lost_here(answer, cx.moment(queue))
            }
            _ if cx.points.lacks_votes() => {
                waiting.lost_for_want_of_votes(answer, cx.moment(queue))
            }
            refusal => waiting.lost(refusal, answer, cx.moment(queue)),
        };
        self.step(queue, step, cx);
    }

    /// Records a lost attempt for `key`.
    pub fn refused(&mut self, key: &[u8], now: Instant) {
        self.uses.wanted(key);
        if let Some(one) = self.uses.of_mut(key) {
            one.was_refused = true;
        }
        if let Some(queue) = self.waiters.of(key) {
            self.waiters.queues[queue].lost_at = Some(now);
        }
    }

    /// Records that a caller has the key. The callers after it wait for its release. `key_use` is
    /// the use under which it requested the key. `since` is when this process got the lease, unless
    /// it was resumed.
    pub fn won(
        &mut self,
        claim: &mut Claim,
        lock: LockId,
        (id, key_use): (RequestId, UseId),
        since: Option<Instant>,
        cx: &mut Context<'_>,
    ) {
        claim.key_use = self.uses.won(&claim.key, key_use, (id, lock), since);
        let Some(queue) = self.waiters.of(&claim.key) else { return };
        let waiting = &mut self.waiters.queues[queue].waiting;
        if waiting.head() == Some(id) {
            let step = waiting.won(cx.now);
            self.step(queue, step, cx);
        }
    }

    /// Records that a caller of this process no longer holds the key, because its release is in
    /// line or its lease is over.
    pub fn left(&mut self, claim: &Claim, lock: LockId, cx: &mut Context<'_>) {
        if !self.uses.left(claim.key_use, lock) {
            return;
        }
        let Some(queue) = self.waiters.of(&claim.key) else { return };
        let step = self.waiters.queues[queue].waiting.released(cx.now);
        self.step(queue, step, cx);
    }

    /// Returns the caller that gets the lease of this process on `key` without a request.
    pub fn next_here(&self, key: &[u8]) -> Option<RequestId> {
        let waiting = &self.waiters.get(key)?.waiting;
        waiting.head().filter(|_| waiting.awaits_release())
    }

    /// Records that a caller has its answer and no longer waits.
    pub fn answered(&mut self, id: RequestId, key: &[u8], cx: &mut Context<'_>) {
        self.uses.end_asking(key, id);
        let Some(queue) = self.waiters.of(key) else { return };
        let step = self.waiters.queues[queue].waiting.leave(id, cx.now);
        self.step(queue, step, cx);
    }

    /// Records that a caller has stopped waiting. If an attempt is made for it, that ends first.
    pub fn withdrawn(&mut self, id: RequestId, cx: &mut Context<'_>) {
        match cx.callers.get_mut(id) {
            Some(caller) if caller.is_attempted => caller.is_gone = true,
            Some(_) => self.cancelled(id, cx),
            None => {}
        }
    }

    /// Removes a caller that is gone and has no attempt.
    pub fn cancelled(&mut self, id: RequestId, cx: &mut Context<'_>) {
        if let Some(Caller { key, .. }) = cx.callers.remove(id) {
            self.news.push_back(News::Cancelled(id));
            self.answered(id, &key, cx);
        }
    }

    /// Lets each head make one attempt, because the event for which heads pause may have come, or
    /// may never come.
    pub fn pauses_over(&mut self, cx: &mut Context<'_>) {
        self.each(cx, Waiting::votes_gained);
    }

    /// Lets each queue of callers handle an event.
    pub(super) fn each(
        &mut self,
        cx: &mut Context<'_>,
        event: impl Fn(&mut Waiting<RequestId>, Moment) -> Step<RequestId>,
    ) {
        let ids: Vec<WaitingId> = self.waiters.queues.ids().collect();
        for id in ids {
            let moment = cx.moment(id);
            let Some(queue) = self.waiters.queues.get_mut(id) else { continue };
            let step = event(&mut queue.waiting, moment);
            self.step(id, step, cx);
        }
    }

    /// Advances the head of a queue that has something to do.
    pub fn head_due(&mut self, id: WaitingId, at: Instant, cx: &mut Context<'_>) {
        let Some(queue) = self.waiters.queues.get_mut(id) else { return };
        if queue.scheduled != Some(at) {
            return;
        }
        queue.scheduled = None;
        let step = queue.waiting.tick(cx.now);
        if matches!(step, Step::Attempt(..)) {
            self.news.push_back(News::Polled);
        }
        self.step(id, step, cx);
    }

    /// Handles the end of a caller's wait. The head makes its last attempt. The others receive the
    /// present answers of the masters. That also applies to a caller that becomes the head because
    /// the wait of the previous head ended at the same time, because its attempt would show nothing
    /// more.
    pub fn wait_over(&mut self, id: RequestId, cx: &mut Context<'_>) {
        let Some(caller) = cx.callers.get_mut(id).filter(|caller| !caller.is_attempted) else {
            return;
        };
        let Some(queue) = self.waiters.of(&caller.key) else { return };
        let waiters::Queue { waiting, last, .. } = &mut self.waiters.queues[queue];
        let is_head = waiting.head() == Some(id);
        if is_head && waiting.is_attempting() {
            // The attempt in line is its last.
            return;
        }
        let step = waiting.leave(id, cx.now);
        let last_of = last.and_then(|last| cx.callers.get(last));
        let has_others = last_of.is_some_and(|last| !last.has_failed);
        if is_head && !has_others {
            *last = Some(id);
            cx.callers[id].ask = Ask::All;
            self.news.push_back(News::Stands(id));
        } else {
            self.explain(id, queue);
        }
        self.step(queue, step, cx);
    }

    /// Carries out what the head does, and sets its alarm.
    pub(super) fn step(&mut self, id: WaitingId, mut step: Step<RequestId>, cx: &mut Context<'_>) {
        loop {
            step = match step {
                Step::Wait => return self.schedule(id, cx),
                Step::Watch => self.watch(id, cx),
                Step::Queue => {
                    self.news.push_back(News::Line(Outgoing::Place(id)));
                    Step::Wait
                }
                Step::Leave(at) => {
                    self.give_up_place_in(id, at, cx);
                    Step::Wait
                }
                Step::Attempt(caller, _)
                    if self.waiters.queues[id].is_lost_since(cx.callers.get(caller)) =>
                {
                    self.explain(caller, id);
                    self.waiters.queues[id].waiting.leave(caller, cx.now)
                }
                Step::Attempt(caller, ask) => match cx.callers.get_mut(caller) {
                    Some(entry) => {
                        (entry.ask, entry.is_attempted) = (ask, true);
                        self.news.push_back(News::Line(Outgoing::Attempt(caller)));
                        Step::Wait
                    }
                    None => self.waiters.queues[id].waiting.leave(caller, cx.now),
                },
            };
        }
    }

    /// The wait of a caller is over, and it makes no attempt.
    fn explain(&mut self, caller: RequestId, id: WaitingId) {
        if let Some(News::Explain(callers, waiting, _)) = self.news.back_mut()
            && *waiting == id
        {
            return callers.push(caller);
        }
        let known = self.waiters.queues.get(id).and_then(|queue| queue.explanation);
        self.news.push_back(News::Explain(vec![caller], id, known));
    }

    pub(super) fn schedule(&mut self, id: WaitingId, cx: &mut Context<'_>) {
        let Some(queue) = self.waiters.queues.get_mut(id) else { return };
        if queue.waiting.is_over(cx.now) {
            return self.waiters.remove(id);
        }
        // A queue without callers is remembered for as long as its key is contended.
        let forgotten = Some(queue.waiting.remembered_until()).filter(|until| *until > cx.now);
        let Some(due) = queue.waiting.due().or(forgotten) else { return };
        if queue.scheduled.is_none_or(|scheduled| due < scheduled) {
            queue.scheduled = Some(due);
            cx.timers.enter(due, Due::Waiting(id, due));
        }
    }
}
