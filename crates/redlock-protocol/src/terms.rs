//! `Timing` and `HoldOptions`: the durations and options of one lock.

use std::time::Duration;

use redlock_core::Ttl;

/// The durations of one request, which all follow from its TTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    /// How long the lease lasts without an extension.
    pub ttl: Ttl,
    /// How long to wait for each master's answer.
    pub node_timeout: Duration,
    /// The expiry that Redis gets, in milliseconds.
    pub px: u64,
}

impl Timing {
    /// Returns how long the key stays after a master sets or extends it.
    pub fn expiry(&self) -> Duration {
        Duration::from_millis(self.px)
    }
}

/// The options of a holder in addition to the TTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HoldOptions {
    /// Whether the lease is extended while it is held.
    pub auto_extend: bool,
    /// How long the lease is extended. `None` for no limit.
    pub max_hold: Option<Duration>,
    /// How many masters have to hold the key when the lock is returned. `None` for a quorum.
    pub min_copies: Option<usize>,
    /// How long before the end the holder has to stop.
    pub stop_margin: Duration,
}

impl Default for HoldOptions {
    fn default() -> Self {
        Self { auto_extend: true, max_hold: None, min_copies: None, stop_margin: Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use crate::lab::{ms, timing};

    #[test]
    fn a_key_stays_for_as_long_as_redis_was_told() {
        assert_eq!(timing(1_000).expiry(), ms(1_100));
    }
}
