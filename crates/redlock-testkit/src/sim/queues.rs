//! Requests about shared queues to a simulated master.

use redlock_core::{Answer, Cause, Instant, Op, QueueTicket, Queued, Verb, Verdict};

use super::agenda::Audience;
use super::master::Master;
use super::meeting::AtMaster;
use super::queue_scripts::{reserve, take};

impl Master {
    pub(super) fn queue(
        &mut self,
        now: Instant,
        op: &Op,
        listening: &Audience<QueueTicket>,
    ) -> Answer {
        let time_us = self.clock.micros(now);
        let queue = op.entry().map(|entry| &entry.queue);
        let queue = queue.or_else(|| op.exit().map(|exit| &exit.queue));
        if let (Some(_), Some(error)) = (queue, &self.queue_error) {
            return Answer::unknown(Cause::of_error_reply(error.clone()));
        }
        let name = queue.map_or_else(|| op.key().to_vec(), |queue| queue.key().to_vec());
        if queue.is_some() && self.value(&name).is_some() {
            return self.queue_of_another_type(op);
        }
        let mut tickets = self.queues.remove(&name).unwrap_or_default();
        let mut meeting = AtMaster { master: self, now, key: op.key(), listening };
        let answer = match (op.verb(), op.entry(), op.exit()) {
            (_, Some(entry), _) => tickets.enter(&mut meeting, entry),
            (_, _, Some(exit)) => tickets.leave(&mut meeting, exit),
            (Verb::Take { px }, ..) => take(&mut meeting, token(op), px),
            (Verb::Reserve { px }, ..) => reserve(&mut meeting, token(op), px),
            _ => {
                let queued = Queued { waiters: tickets.count(time_us), rank: None };
                Answer::granted().with_queued(queued)
            }
        };
        if !tickets.is_over(time_us) {
            self.queues.insert(name, tickets);
        }
        answer
    }

    /// The key of the queue belongs to another program. An exit still deletes its own key, and
    /// reports that one client waits.
    fn queue_of_another_type(&mut self, op: &Op) -> Answer {
        const ERROR: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
        if op.entry().is_some() {
            return Answer::unknown(Cause::of_error_reply(ERROR.into()));
        }
        let token = op.exit().and_then(|exit| exit.token.as_ref()).map(|it| it.as_str().as_bytes());
        let is_ours = token.is_some() && self.value(op.key()).flatten() == token;
        if is_ours {
            self.remove(op.key());
        }
        let verdict = if is_ours { Verdict::Granted } else { Verdict::NotOurs };
        Answer::new(verdict).with_queued(Queued { waiters: 1, rank: None })
    }

    /// Returns how many tickets wait in a queue.
    pub(super) fn waiters(&self, now: Instant, queue: &[u8]) -> u32 {
        self.queues.get(queue).map_or(0, |tickets| tickets.count(self.clock.micros(now)))
    }
}

/// A token is text.
fn token(op: &Op) -> &str {
    str::from_utf8(op.token()).unwrap_or_default()
}
