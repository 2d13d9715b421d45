//! Looks: the meeting point of a key is asked who holds it, and reports its next change.

use std::time::Duration;

use redlock_core::{Call, Instant, Op, Verdict, Vote};
use redlock_protocol::master_set::MasterSet;
use redlock_protocol::waiting::{QueueAnswer, Step};

use crate::driver::Driver;
use crate::driver::meeting::is_queue_error;
use redlock_protocol::client::draws::Draw;
use redlock_protocol::client::ids::{RequestId, Ticket, WaitingId};
use redlock_protocol::client::timers::Due;

/// For how long a master that was slow is no meeting point; half of it is random.
const SUSPICION: Duration = Duration::from_secs(1);
/// The least time that a meeting point has to answer.
const ANSWER_MIN: Duration = Duration::from_millis(10);

impl Driver {
    /// Asks the meeting point who holds the key, and has it report the next change.
    pub(super) fn watch(&mut self, id: WaitingId, now: Instant) -> Step<RequestId> {
        let (moment, time) = (self.moment(id, now), self.answer_time());
        let Some(queue) = self.waiters.queues.get(id) else { return Step::Wait };
        let at = match queue.waiting.place() {
            Some(at) => Some(at),
            None => self.meeting_point_of(&queue.key, now),
        };
        let Some(queue) = self.waiters.queues.get_mut(id) else { return Step::Wait };
        let step = queue.waiting.watch_sent(at, moment);
        let Some(at) = at else { return step };
        queue.watch = queue.watch.wrapping_add(1);
        queue.watch_at = at;
        let (op, ticket) = (Op::watch(queue.key.clone()), Ticket::Watch(id, queue.watch));
        let due = now.saturating_add(time);
        self.timers.enter(due, Due::Watch(id, queue.watch));
        self.observer.counters.watches.add(1);
        self.say_waiting(id, at, "watch");
        self.send(&op, MasterSet::from_iter([at]), ticket, now);
        step
    }

    /// How long a meeting point may take to answer before it is left alone.
    pub(in crate::driver) fn answer_time(&self) -> Duration {
        (self.fan_out * 6).max(ANSWER_MIN)
    }

    /// Takes in the answer of the meeting point to a watch.
    pub(in crate::driver) fn watch_vote(
        &mut self,
        id: WaitingId,
        number: u32,
        vote: &Vote,
        now: Instant,
    ) {
        let moment = self.moment(id, now);
        let Some(queue) = self.waiters.queues.get_mut(id) else { return };
        if queue.watch != number {
            return;
        }
        let step = queue.waiting.watch_answered(vote.master, &vote.answer.verdict, moment);
        self.step(id, step, now);
    }

    /// Asks for a place in the queue, and not for the key.
    pub(in crate::driver) fn ask_for_a_place(&mut self, id: WaitingId, now: Instant) {
        let (moment, time) = (self.moment(id, now), self.answer_time());
        let op = self.op_for_a_place(id, now);
        let Some(queue) = self.waiters.queues.get(id) else { return };
        let at = self.queues_at(&queue.key, queue.waiting.place(), now);
        let works = |at: &usize| !self.waiters.broken.has(&queue.key, *at, now);
        let at = at.filter(|at| self.masters.has_queue(*at) && works(at));
        let Some(queue) = self.waiters.queues.get_mut(id) else { return };
        let step = queue.waiting.queue_sent(at.filter(|_| op.is_some()), moment);
        if let (Some(at), Some(op)) = (at, op) {
            queue.watch = queue.watch.wrapping_add(1);
            queue.watch_at = at;
            let (ticket, due) = (Ticket::Place(id, queue.watch), now.saturating_add(time));
            self.timers.enter(due, Due::Watch(id, queue.watch));
            self.send(&op, MasterSet::from_iter([at]), ticket, now);
        }
        self.step(id, step, now);
    }

    /// The answer to that.
    pub(in crate::driver) fn place_vote(
        &mut self,
        id: WaitingId,
        number: u32,
        vote: &Vote,
        now: Instant,
    ) {
        let moment = self.moment(id, now);
        let answer = QueueAnswer::of(vote.master, &vote.answer, self.queue_ticket);
        let Some(queue) = self.waiters.queues.get_mut(id) else { return };
        if queue.watch != number {
            return;
        }
        let failed = is_queue_error(&vote.answer);
        let key = queue.key.clone();
        let answer = answer.or_else(|| failed.then(|| QueueAnswer::failed(vote.master)));
        let step = queue.waiting.queued(vote.master, answer, moment);
        if failed {
            self.waiters.broken.failed(&key, vote.master, now);
        }
        self.step(id, step, now);
    }

    /// The meeting point did not answer in time: for a moment it is none.
    pub(in crate::driver) fn watch_due(&mut self, id: WaitingId, number: u32, now: Instant) {
        let moment = self.moment(id, now);
        let Some(queue) = self.waiters.queues.get_mut(id) else { return };
        let at = queue.watch_at;
        if queue.watch != number || !queue.waiting.is_asking() {
            return;
        }
        let silent = Verdict::Unknown(redlock_core::Cause::TimedOut);
        self.observer.counters.vote(at, &silent);
        let step = queue.waiting.silent(at, moment);
        self.suspect(at, now);
        self.step(id, step, now);
    }

    /// `master` was slow: it is no meeting point for a moment.
    pub(in crate::driver) fn suspect(&mut self, master: usize, now: Instant) {
        let random = self.draws.unit(Draw::Suspect(master), now);
        let until = now.saturating_add(SUSPICION.mul_f64(0.5 + random));
        self.masters.suspect(master, until);
    }

    /// The request for a place alone.
    fn op_for_a_place(&self, id: WaitingId, now: Instant) -> Option<Op> {
        let waiting = &self.waiters.queues.get(id)?.waiting;
        let request = self.requests.get(waiting.head()?)?;
        let entry = self.entry(&request.resource, waiting.since().max(request.asked_at), now);
        Some(Op::enter(request.key.clone(), entry, None))
    }

    /// A master calls this process.
    pub(in crate::driver) fn called(
        &mut self,
        master: usize,
        call: Call,
        key: &[u8],
        now: Instant,
    ) {
        let Some(id) = self.waiters.of(key) else {
            if call == Call::Go {
                self.give_up_place(key, master, now);
            }
            return;
        };
        self.say_waiting(id, master, call.word());
        let (reservation, moment) = (self.reservation(), self.moment(id, now));
        let step = self.waiters.queues[id].waiting.called(master, call, reservation, moment);
        self.step(id, step, now);
    }

    /// A watched key has changed.
    pub(in crate::driver) fn key_changed(&mut self, master: usize, key: &[u8], now: Instant) {
        let Some(id) = self.waiters.of(key) else { return };
        self.say_waiting(id, master, "push");
        let moment = self.moment(id, now);
        let step = self.waiters.queues[id].waiting.changed(master, moment);
        self.step(id, step, now);
    }

    /// The connection to `master`, or its data, is lost: those that watch there wake up.
    pub(in crate::driver) fn lost_sight(&mut self, master: usize, now: Instant) {
        let ids: Vec<WaitingId> = self.waiters.queues.ids().collect();
        for id in ids {
            let moment = self.moment(id, now);
            let step = self.waiters.queues[id].waiting.lost_sight(master, moment);
            self.step(id, step, now);
        }
    }
}
