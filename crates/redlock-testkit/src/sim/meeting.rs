//! `Meeting`: the state of a simulated master on which a script about a queue decides.

use std::time::Duration;

use redlock_core::{Call, Instant, QueueTicket};

use super::master::Master;

/// The master during one request about one key.
pub(super) struct Meeting<'a> {
    pub(super) master: &'a mut Master,
    pub(super) now: Instant,
    pub(super) key: &'a [u8],
    pub(super) listening: &'a [QueueTicket],
}

impl Meeting<'_> {
    /// Returns the value of the key (`None` if it is not a string) and its remaining expiry.
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
