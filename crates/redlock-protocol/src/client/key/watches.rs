//! Requests of a head to the meeting point, and the reports of masters.

use redlock_core::{Call, Cause, Verdict, Vote};

use super::*;
use crate::waiting::{QueueAnswer, Step};

impl Keys {
    /// Queries the meeting point for the holder of the key, and has it report the next change.
    pub(super) fn watch(&mut self, id: WaitingId, cx: &mut Context<'_>) -> Step<RequestId> {
        let Some(queue) = self.waiters.queues.get(id) else { return Step::Wait };
        let at = queue.waiting.place().or_else(|| self.meeting_point(&queue.key, cx));
        let Some(queue) = self.waiters.queues.get_mut(id) else { return Step::Wait };
        let step = queue.waiting.watch_sent(at, cx.moment(id));
        if let Some(at) = at {
            let op = Op::watch(queue.key.clone());
            self.news.push_back(News::Watched);
            self.said_at(id, at, "watch", cx);
            self.query(id, at, op, Ticket::Watch, cx);
        }
        step
    }

    /// Sends a request of the head to the meeting point.
    fn query(
        &mut self,
        id: WaitingId,
        at: usize,
        op: Op,
        ticket: fn(WaitingId, u32) -> Ticket,
        cx: &mut Context<'_>,
    ) {
        let Some(queue) = self.waiters.queues.get_mut(id) else { return };
        queue.watch = queue.watch.wrapping_add(1);
        queue.watch_at = at;
        let due = cx.now.saturating_add(answer_time(cx.fan_out));
        cx.timers.enter(due, Due::Watch(id, queue.watch));
        self.news.push_back(News::Send(at, op, ticket(id, queue.watch)));
    }

    /// Handles the answer of the meeting point to a watch.
    pub fn watched(&mut self, (id, number): (WaitingId, u32), vote: &Vote, cx: &mut Context<'_>) {
        let Some(queue) = self.waiters.queues.get_mut(id) else { return };
        if queue.watch == number {
            let (verdict, moment) = (&vote.answer.verdict, cx.moment(id));
            let step = queue.waiting.watch_answered(vote.master, verdict, moment);
            self.step(id, step, cx);
        }
    }

    /// Sends the request of a head that wants only a place in the queue, and whose turn has come.
    pub fn ask_for_place(&mut self, id: WaitingId, cx: &mut Context<'_>) {
        let Some(queue) = self.waiters.queues.get(id) else { return };
        let caller = queue.waiting.head().and_then(|head| cx.callers.get(head));
        // The request for a place without the key.
        let op = caller.map(|caller| {
            let since = queue.waiting.since().max(caller.asked_at);
            Op::enter(caller.key.clone(), self.entry(&caller.resource, since, cx), None)
        });
        let at = self.queues_at(&queue.key, queue.waiting.place(), cx);
        let at = at.filter(|at| op.is_some() && self.queue_works(&queue.key, *at, cx));
        let Some(queue) = self.waiters.queues.get_mut(id) else { return };
        let step = queue.waiting.queue_sent(at, cx.moment(id));
        if let (Some(at), Some(op)) = (at, op) {
            self.query(id, at, op, Ticket::Place, cx);
        }
        self.step(id, step, cx);
    }

    /// Handles the answer of the meeting point to the request for a place.
    pub fn placed(&mut self, (id, number): (WaitingId, u32), vote: &Vote, cx: &mut Context<'_>) {
        let answer = QueueAnswer::of(vote.master, &vote.answer, self.terms.ticket);
        let Some(queue) = self.waiters.queues.get_mut(id) else { return };
        if queue.watch != number {
            return;
        }
        let failed = is_queue_error(&vote.answer);
        let answer = answer.or_else(|| failed.then(|| QueueAnswer::failed(vote.master)));
        let step = queue.waiting.queued(vote.master, answer, cx.moment(id));
        if failed {
            self.broken.failed(&queue.key, vote.master, cx.now);
        }
        self.step(id, step, cx);
    }

    /// Handles a meeting point that has not answered in time, and avoids it for a moment.
    pub fn query_due(&mut self, id: WaitingId, number: u32, cx: &mut Context<'_>) {
        let Some(queue) = self.waiters.queues.get_mut(id) else { return };
        if queue.watch != number || !queue.waiting.is_asking() {
            return;
        }
        let at = queue.watch_at;
        let step = queue.waiting.silent(at, cx.moment(id));
        self.news.push_back(News::Silent(at));
        self.news.push_back(News::Suspect(at, suspected_until(at, cx.draws, cx.now)));
        self.step(id, step, cx);
    }

    /// Handles a master's call to this process.
    pub fn called(&mut self, master: usize, call: Call, key: &[u8], cx: &mut Context<'_>) {
        let Some(id) = self.waiters.of(key) else {
            if call == Call::Go {
                self.give_up_place(key, master, cx);
            }
            return;
        };
        self.said_at(id, master, call.word(), cx);
        let (reservation, moment) = (cx.reservation(), cx.moment(id));
        let step = self.waiters.queues[id].waiting.called(master, call, reservation, moment);
        self.step(id, step, cx);
    }

    /// Handles a change of a watched key.
    pub fn changed(&mut self, master: usize, key: &[u8], cx: &mut Context<'_>) {
        let Some(id) = self.waiters.of(key) else { return };
        self.said_at(id, master, "push", cx);
        let step = self.waiters.queues[id].waiting.changed(master, cx.moment(id));
        self.step(id, step, cx);
    }

    /// Wakes the heads that watch at `master`, because its connection or data is lost.
    pub fn lost_sight(&mut self, master: usize, cx: &mut Context<'_>) {
        self.each(cx, |waiting, moment| waiting.lost_sight(master, moment));
    }
}

/// The verdict for a master that has not answered in time.
pub const SILENT: Verdict = Verdict::Unknown(Cause::TimedOut);
