//! `Ttl`: how long a key stays, and how much of that the holder may count on.

use std::fmt;
use std::time::Duration;

use crate::duration::spelled;

/// The time for which a lease lasts without an extension, in whole milliseconds.
///
/// Two durations follow from it and must not be confused: [`Ttl::px`] is sent to Redis, and
/// [`Ttl::validity`] is the time on which the holder can rely.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl {
    millis: u64,
}

/// The reason why a duration is not a valid [`Ttl`]. Nothing was sent to any master.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTtl {
    /// Shorter than [`Ttl::MIN`].
    #[error("a TTL must be at least {1} (got {0})", spelled(*.ttl), spelled(Ttl::MIN))]
    TooShort {
        /// The requested TTL.
        ttl: Duration,
    },
    /// Longer than the prefix allows.
    #[error(
        "a TTL of {} exceeds max_ttl ({}); use a shorter TTL, which is extended as needed, or raise \
         the limit with `redlock init --max-ttl D` (`.max_ttl(..)` or --max-ttl while the masters \
         have no record)",
        spelled(*.ttl), spelled(*.max)
    )]
    TooLong {
        /// The requested TTL.
        ttl: Duration,
        /// The largest TTL under this prefix.
        max: Duration,
    },
}

impl Ttl {
    /// The shortest TTL: below it, drift and a single slow reply eat most of the validity.
    pub const MIN: Duration = Duration::from_millis(10);

    /// Set aside for clock granularity: 1 ms for the precision of expiry in Redis and 1 ms for
    /// small TTLs. The author's reference implementation takes the same two.
    pub const GRANULARITY: Duration = Duration::from_millis(2);

    /// Checks a duration against [`Ttl::MIN`] and `max`. Parts of a millisecond are cut off.
    ///
    /// # Errors
    /// Returns [`InvalidTtl`] with the violated limit.
    pub fn new(ttl: Duration, max: Duration) -> Result<Self, InvalidTtl> {
        if ttl < Self::MIN {
            return Err(InvalidTtl::TooShort { ttl });
        }
        match u64::try_from(ttl.as_millis()) {
            Ok(millis) if ttl <= max => Ok(Self { millis }),
            _ => Err(InvalidTtl::TooLong { ttl, max }),
        }
    }

    /// Returns the TTL itself.
    pub fn get(self) -> Duration {
        Duration::from_millis(self.millis)
    }

    /// Returns the time on which a holder can rely, measured from before the request reached the
    /// socket: the TTL less 1% for clocks that run at different rates, less [`Ttl::GRANULARITY`].
    ///
    /// The rule is step 3 of the algorithm on Redis's "Distributed Locks" page, with the drift of
    /// the author's reference implementation.
    pub fn validity(self) -> Duration {
        // 10 ms less 1 % and 2 ms is 7.9 ms: the subtraction cannot pass below zero. One percent of
        // whole milliseconds is whole microseconds.
        Duration::from_micros(self.millis * 990) - Self::GRANULARITY
    }

    /// Returns the `PX` for Redis, in milliseconds: the TTL plus `guard`, rounded up.
    ///
    /// Redis expires by wall clock, and a time daemon may step or slew that clock by more than the
    /// 1% of [`Ttl::validity`]. The guard covers a correction of up to its own length.
    pub fn px(self, guard: Duration) -> u64 {
        let part = u64::from(guard.subsec_nanos().div_ceil(1_000_000));
        let guard = guard.as_secs().saturating_mul(1_000).saturating_add(part);
        self.millis.saturating_add(guard)
    }
}

impl fmt::Debug for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ttl({:?})", self.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn validity_is_the_ttl_less_one_percent_and_two_milliseconds() {
        let ttl = |t| Ttl::new(t, ms(60_000)).unwrap().validity();
        assert_eq!(ttl(ms(10_000)), ms(9_898));
        assert_eq!(ttl(ms(10)), Duration::from_micros(7_900));
    }

    #[test]
    fn the_guard_goes_to_redis_and_not_to_the_holder() {
        let ttl = Ttl::new(ms(10_000), ms(60_000)).unwrap();
        assert_eq!(ttl.px(ms(1_000)), 11_000);
        assert_eq!(ttl.px(Duration::from_nanos(1)), 10_001);
        assert_eq!(ttl.validity(), ms(9_898));
    }

    #[test]
    fn ttl_out_of_range_is_refused_with_the_limit() {
        for short in [Duration::ZERO, ms(9), Duration::from_micros(9_999)] {
            let refused = Ttl::new(short, ms(60_000)).unwrap_err().to_string();
            assert!(refused.contains("must be at least 10ms"), "{refused}");
        }
        for long in [ms(60_001), Duration::from_nanos(60_000_000_001), Duration::MAX] {
            let refused = Ttl::new(long, ms(60_000)).unwrap_err().to_string();
            assert!(refused.contains("exceeds max_ttl (1m)"), "{refused}");
        }
    }

    #[test]
    fn fractions_of_a_millisecond_are_truncated() {
        let ttl = Ttl::new(Duration::from_micros(10_999), ms(60_000)).unwrap();
        assert_eq!(ttl.get(), ms(10));
    }
}
