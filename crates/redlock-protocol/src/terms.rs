//! `Timing` and `HoldOptions`: the durations and options of one lock. `Limits`: the settings of a
//! client from which they follow.

use std::time::Duration;

use redlock_core::admission::MAX_TTL_MAX;
use redlock_core::{InvalidTtl, Ttl};

/// The default limit of TTLs.
pub const MAX_TTL: Duration = Duration::from_secs(60);
/// The default node timeout is this or a tenth of the TTL, whichever is shorter. The Redis page
/// recommends about 5 to 50 ms for a TTL of 10 s.
pub const NODE_TIMEOUT: Duration = Duration::from_millis(50);
/// The default TTL.
const TTL: Duration = Duration::from_secs(10);

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

/// The settings of a client that concern durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// The default TTL, if it was set.
    pub ttl: Option<Duration>,
    /// The `max_ttl`, if it was set. It applies while no master has another value in its record.
    pub max_ttl: Option<Duration>,
    /// How long to wait for a master's answer, if that was set.
    pub node_timeout: Option<Duration>,
    /// How much longer than its TTL a key stays, if that was set.
    pub clock_guard: Option<Duration>,
    /// How long to wait for a connection.
    pub connect_timeout: Duration,
}

/// Why a request for a lock has no valid durations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvalidTiming {
    /// The TTL is out of range.
    Ttl(InvalidTtl),
    /// The node timeout is too long for this TTL.
    NodeTimeout {
        /// The node timeout of the client.
        node_timeout: Duration,
        /// The TTL of the request.
        ttl: Duration,
    },
    /// The stop margin leaves no validity.
    StopMargin {
        /// The requested margin.
        margin: Duration,
        /// The validity that a holder may rely on.
        validity: Duration,
        /// The TTL of the request.
        ttl: Duration,
    },
}

/// Returns the default node timeout of a lock with this TTL.
pub fn node_timeout(ttl: Duration) -> Duration {
    NODE_TIMEOUT.min(ttl / 10)
}

impl Limits {
    /// Returns how long a connection may leave a request unanswered before it is replaced. A master
    /// must have its whole node timeout.
    pub fn stall_timeout(&self) -> Duration {
        self.connect_timeout.max(self.node_timeout.unwrap_or(NODE_TIMEOUT))
    }

    /// Returns the largest TTL while no master has another one in its record.
    pub fn max_ttl(&self) -> Duration {
        self.max_ttl.unwrap_or(MAX_TTL)
    }

    /// Returns the durations for `ttl`, the client's TTL, or the default. The default shrinks to
    /// `max_ttl`.
    ///
    /// # Errors
    /// Returns [`InvalidTiming`] if a TTL was set and is longer, or if the node timeout does not fit
    /// the TTL.
    pub fn timing(
        &self,
        ttl: Option<Duration>,
        max_ttl: Duration,
    ) -> Result<Timing, InvalidTiming> {
        let ttl = ttl.or(self.ttl).unwrap_or_else(|| TTL.min(max_ttl));
        let ttl = Ttl::new(ttl, max_ttl).map_err(InvalidTiming::Ttl)?;
        let longest = ttl.get() / 4;
        let node_timeout = self.node_timeout.unwrap_or_else(|| node_timeout(ttl.get()));
        if node_timeout > longest {
            return Err(InvalidTiming::NodeTimeout { node_timeout, ttl: ttl.get() });
        }
        let guard = self.clock_guard.unwrap_or_else(|| ttl.get() / 10);
        Ok(Timing { ttl, node_timeout, px: ttl.px(guard) })
    }

    /// Returns the durations of a request before the longest TTL is known.
    ///
    /// # Errors
    /// The same as of [`timing`](Self::timing).
    pub fn timing_unlimited(&self, ttl: Option<Duration>) -> Result<Timing, InvalidTiming> {
        match ttl.or(self.ttl) {
            Some(ttl) => self.timing(Some(ttl.min(MAX_TTL_MAX)), MAX_TTL_MAX),
            None => self.timing(None, self.max_ttl()),
        }
    }

    /// Returns how long a key can stay at most, if all clients use this `max_ttl` and our clock
    /// guard.
    pub fn expiry_max(&self, max_ttl: Duration) -> Duration {
        max_ttl + self.clock_guard.unwrap_or(max_ttl / 10)
    }

    /// Returns how long to wait for a master's answer that concerns no lock.
    pub fn node_timeout(&self) -> Duration {
        let ttl = self.ttl.unwrap_or_else(|| TTL.min(self.max_ttl()));
        self.node_timeout.unwrap_or_else(|| node_timeout(ttl))
    }

    /// Returns how long after sending a script of admission may act: it may wait for a connection,
    /// and in the network.
    pub fn act_within(&self) -> Duration {
        self.connect_timeout.saturating_mul(2)
    }

    /// Returns how long to wait for a probe or another order: two node timeouts, because a probe is
    /// two round trips, and at least as long as a server takes to write the members.
    pub fn order_timeout(&self) -> Duration {
        const MIN: Duration = Duration::from_millis(50);
        self.node_timeout().saturating_mul(2).max(MIN)
    }
}

impl Timing {
    /// Checks that some validity is left before the margin begins.
    ///
    /// # Errors
    /// Returns [`InvalidTiming::StopMargin`] if none is left.
    pub fn check_margin(&self, margin: Duration) -> Result<(), InvalidTiming> {
        let (ttl, validity) = (self.ttl.get(), self.ttl.validity());
        if margin >= validity {
            return Err(InvalidTiming::StopMargin { margin, validity, ttl });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::{ms, timing};

    fn limits() -> Limits {
        let connect_timeout = ms(1_000);
        Limits { ttl: None, max_ttl: None, node_timeout: None, clock_guard: None, connect_timeout }
    }

    #[test]
    fn the_durations_follow_from_the_ttl() {
        let timing = limits().timing(None, MAX_TTL).unwrap();
        assert_eq!((timing.node_timeout, timing.px), (ms(50), 11_000));
        let timing = limits().timing(Some(ms(200)), MAX_TTL).unwrap();
        assert_eq!((timing.node_timeout, timing.px), (ms(20), 220));
    }

    #[test]
    fn default_ttl_shrinks_and_an_explicit_one_is_refused() {
        assert_eq!(limits().timing(None, ms(500)).unwrap().ttl.get(), ms(500));
        assert_eq!(limits().timing(None, MAX_TTL_MAX).unwrap().ttl.get(), TTL);
        let given = Limits { ttl: Some(ms(501)), ..limits() };
        for refused in [given.timing(None, ms(500)), limits().timing(Some(ms(501)), ms(500))] {
            let Err(InvalidTiming::Ttl(refused)) = refused else { panic!("{refused:?}") };
            assert!(refused.to_string().contains("exceeds max_ttl (500ms)"));
        }
        assert_eq!(limits().timing(Some(ms(90_000)), ms(120_000)).unwrap().ttl.get(), ms(90_000));
    }

    #[test]
    fn a_node_timeout_is_at_most_a_quarter_of_the_ttl() {
        let limits = Limits { node_timeout: Some(ms(50)), ..limits() };
        assert!(limits.timing(Some(ms(200)), MAX_TTL).is_ok());
        let invalid = InvalidTiming::NodeTimeout { node_timeout: ms(50), ttl: ms(199) };
        assert_eq!(limits.timing(Some(ms(199)), MAX_TTL), Err(invalid));
    }

    #[test]
    fn expiry_equals_the_px_sent_to_redis() {
        assert_eq!(timing(1_000).expiry(), ms(1_100));
    }
}
