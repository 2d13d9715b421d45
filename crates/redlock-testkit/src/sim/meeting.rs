//! `Meeting`: the state of a master on which a script about a queue decides.

use std::time::Duration;

use redlock_core::{Call, Instant, QueueTicket};

use super::agenda::Audience;
use super::master::Master;

/// A master during one request about one key.
pub trait Meeting {
    /// Returns the value of the key (`None` if it is not a string) and its remaining expiry.
    fn found(&self) -> Option<(Option<Vec<u8>>, Duration)>;

    /// Sets the key for `px` milliseconds, and overwrites any value.
    fn set(&mut self, value: &str, px: u64);

    /// Deletes the key.
    fn delete(&mut self);

    /// Returns `true` if a connection listens on the channel of this ticket.
    fn listens(&self, ticket: QueueTicket) -> bool;

    /// Publishes a call about the key.
    fn tell(&mut self, ticket: QueueTicket, call: Call);

    /// Returns the master's clock, in microseconds since 1970.
    fn time_us(&self) -> i64;
}

/// A simulated master during one request about one key.
pub(super) struct AtMaster<'a> {
    pub(super) master: &'a mut Master,
    pub(super) now: Instant,
    pub(super) key: &'a [u8],
    pub(super) listening: &'a Audience<QueueTicket>,
}

impl Meeting for AtMaster<'_> {
    fn found(&self) -> Option<(Option<Vec<u8>>, Duration)> {
        let value = self.master.value(self.key)?.map(<[u8]>::to_vec);
        Some((value, Duration::from_millis(self.master.left(self.now, self.key))))
    }

    fn set(&mut self, value: &str, px: u64) {
        self.master.put(self.now, self.key, Some(value.as_bytes()), px);
    }

    fn delete(&mut self) {
        self.master.remove(self.key);
    }

    fn listens(&self, ticket: QueueTicket) -> bool {
        !self.listening.of(&ticket).is_empty()
    }

    fn tell(&mut self, ticket: QueueTicket, call: Call) {
        self.master.calls.push((ticket, call, self.key.to_vec()));
    }

    fn time_us(&self) -> i64 {
        self.master.clock.micros(self.now)
    }
}
