//! The requests about shared queues to a simulated master: the state on which they are decided.

use std::time::Duration;

use redlock_core::{Answer, Call, Cause, Instant, Op, QueueTicket, Queued, Verb, Verdict};

use super::master::Master;
use super::tickets::{reserve, take};

/// The master during one request about one key.
pub(super) struct Meeting<'a> {
    master: &'a mut Master,
    now: Instant,
    key: &'a [u8],
    listening: &'a [QueueTicket],
}

impl Master {
    pub(super) fn queue(&mut self, now: Instant, op: &Op, listening: &[QueueTicket]) -> Answer {
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
        let mut meeting = Meeting { master: self, now, key: op.key(), listening };
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

    /// The key of the queue belongs to something else. An exit deletes its own key all the same, and
    /// reports that one waits.
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

    /// How many tickets wait in a queue.
    pub(super) fn waiters(&self, now: Instant, queue: &[u8]) -> u32 {
        self.queues.get(queue).map_or(0, |tickets| tickets.count(self.clock.micros(now)))
    }
}

/// A token is text.
fn token(op: &Op) -> &str {
    str::from_utf8(op.token()).unwrap_or_default()
}

impl Meeting<'_> {
    /// The value of the key, `None` if it is no string, and its remaining expiry.
    pub(super) fn found(&self) -> Option<(Option<Vec<u8>>, Duration)> {
        let value = self.master.value(self.key)?.map(<[u8]>::to_vec);
        Some((value, Duration::from_millis(self.master.left(self.now, self.key))))
    }

    /// Sets the key for `px` milliseconds, and overwrites any value.
    pub(super) fn set(&mut self, value: &str, px: u64) {
        self.master.put(self.now, self.key, Some(value.as_bytes()), px);
    }

    pub(super) fn delete(&mut self) {
        self.master.remove(self.key);
    }

    /// Whether a connection listens on the channel of this ticket.
    pub(super) fn listens(&self, ticket: QueueTicket) -> bool {
        self.listening.contains(&ticket)
    }

    /// Publishes a call about the key.
    pub(super) fn tell(&mut self, ticket: QueueTicket, call: Call) {
        self.master.calls.push((ticket, call, self.key.to_vec()));
    }

    /// The master's clock, in microseconds since 1970.
    pub(super) fn time_us(&self) -> i64 {
        self.master.clock.micros(self.now)
    }
}
