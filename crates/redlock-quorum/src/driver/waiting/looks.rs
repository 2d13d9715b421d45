//! Looks: the meeting point of a key is asked who holds it, and reports its next change.

use std::time::Duration;

use redlock_core::{Instant, Op, Verdict, Vote};

use crate::driver::Driver;
use crate::driver::ticket::{RequestId, Ticket, WaitingId};
use crate::driver::timers::Due;
use crate::protocol::master_set::MasterSet;
use crate::protocol::waiting::Step;

/// For how long a master that was slow is no meeting point; half of it is random.
const SUSPICION: Duration = Duration::from_secs(1);
/// The least time that a meeting point has to answer.
const ANSWER_MIN: Duration = Duration::from_millis(10);

impl Driver {
    /// Asks the meeting point who holds the key, and has it report the next change.
    pub(super) fn look(&mut self, id: WaitingId, now: Instant) -> Step<RequestId> {
        let (fan_out, random, time) = (self.fan_out, self.random(), self.answer_time());
        let Some(queue) = self.waiters.queues.get_mut(id) else { return Step::Wait };
        let at = self.masters.meeting_point(&queue.key, now);
        let step = queue.waiting.look_sent(at, now, fan_out, random);
        let Some(at) = at else { return step };
        queue.look = queue.look.wrapping_add(1);
        queue.looks_at = at;
        let (op, ticket) = (Op::watch(queue.key.clone()), Ticket::Look(id, queue.look));
        let due = now.saturating_add(time);
        self.timers.enter(due, Due::Look(id, queue.look));
        self.observer.counters.looks.add(1);
        self.say_waiting(id, at, "look");
        for vote in self.masters.send(&op, MasterSet::from_iter([at]), ticket, now) {
            self.vote(&vote);
        }
        step
    }

    /// How long a meeting point may take to answer before it is left alone.
    pub(in crate::driver) fn answer_time(&self) -> Duration {
        (self.fan_out * 6).max(ANSWER_MIN)
    }

    /// What the meeting point answered.
    pub(in crate::driver) fn look_vote(
        &mut self,
        id: WaitingId,
        number: u32,
        vote: &Vote,
        now: Instant,
    ) {
        let (fan_out, random) = (self.fan_out, self.random());
        let Some(queue) = self.waiters.queues.get_mut(id) else { return };
        if queue.look != number {
            return;
        }
        let verdict = &vote.answer.verdict;
        let step = queue.waiting.looked(vote.master, verdict, now, fan_out, random);
        self.step(id, step, now);
    }

    /// The meeting point did not answer in time: for a moment it is none.
    pub(in crate::driver) fn look_due(&mut self, id: WaitingId, number: u32, now: Instant) {
        let (fan_out, random) = (self.fan_out, self.random());
        let Some(queue) = self.waiters.queues.get_mut(id) else { return };
        let at = queue.looks_at;
        if queue.look != number || !queue.waiting.is_looking() {
            return;
        }
        let silent = Verdict::Unknown(redlock_core::Cause::TimedOut);
        self.observer.counters.vote(at, &silent);
        let step = queue.waiting.looked(at, &silent, now, fan_out, random);
        self.suspect(at, now);
        self.step(id, step, now);
    }

    /// `master` was slow: it is no meeting point for a moment.
    pub(in crate::driver) fn suspect(&mut self, master: usize, now: Instant) {
        let random = self.random();
        let until = now.saturating_add(SUSPICION.mul_f64(0.5 + random));
        self.masters.suspect(master, until);
    }

    /// A key that was looked at has changed.
    pub(in crate::driver) fn key_changed(&mut self, master: usize, key: &[u8], now: Instant) {
        let Some(id) = self.waiters.of(key) else { return };
        self.say_waiting(id, master, "push");
        let step = self.waiters.queues[id].waiting.changed(master);
        self.step(id, step, now);
    }

    /// The connection to `master`, or its data, is lost: those that watch there wake up.
    pub(in crate::driver) fn lost_sight(&mut self, master: usize, now: Instant) {
        let ids: Vec<WaitingId> = self.waiters.queues.keys().collect();
        for id in ids {
            let (fan_out, random) = (self.fan_out, self.random());
            let step = self.waiters.queues[id].waiting.lost_sight(master, now, fan_out, random);
            self.step(id, step, now);
        }
    }
}
