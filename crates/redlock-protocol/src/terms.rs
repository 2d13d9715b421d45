//! `Timing` and `HoldOptions`: on which terms one lock is held.

use std::time::Duration;

use redlock_core::Ttl;

/// The durations of one request, which all follow from its TTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    /// How long the lease is, before it is extended.
    pub ttl: Ttl,
    /// How long each master has for its answer.
    pub node_timeout: Duration,
    /// The expiry that Redis gets, in milliseconds.
    pub px: u64,
}

impl Timing {
    /// How long the key stays from when a master sets or extends it.
    pub fn expiry(&self) -> Duration {
        Duration::from_millis(self.px)
    }
}

/// The options of the holder besides the TTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HoldOptions {
    /// Whether the lease is extended while its holder has it.
    pub auto_extend: bool,
    /// After which time it is extended no more; `None` for never.
    pub max_hold: Option<Duration>,
    /// How many masters have to hold the key when the lock is returned; `None` for a quorum.
    pub min_copies: Option<usize>,
    /// The time before the end at which the holder has to stop.
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
