//! How long to wait before the next attempt. Pure: the random part is an argument.

use std::time::Duration;

/// The first pause lies between nothing and this, and the range doubles with every attempt.
const RANGE_MIN: Duration = Duration::from_millis(1);
/// The widest range: a waiter tries a lock that stays held about ten times a second.
const RANGE_MAX: Duration = Duration::from_millis(200);

/// The longest pause of a waiter that sees no quorum, without the fan-out: sixteen of them are
/// served within 0.3 s after a quorum votes again.
const NO_QUORUM_MAX: Duration = Duration::from_millis(100);

/// The longest pause between a push and what follows, where there is no queue.
pub const APART_MAX: Duration = Duration::from_millis(40);

/// The pause after the `attempt`-th failure (from 0): never shorter than `fan_out`, what the
/// attempt itself took, so that contenders cannot overtake their own clean-up; and on top of that
/// a random part, so that those who collided do not collide again ("full jitter").
///
/// The rule is step 5 of the Redis page: a random delay, larger than the time to get a majority.
pub fn pause(attempt: u32, fan_out: Duration, random: f64) -> Duration {
    let range = RANGE_MIN.max(fan_out * 2).saturating_mul(1 << attempt.min(16)).min(RANGE_MAX);
    fan_out + range.mul_f64(random)
}

/// The pause after so many attempts in a row that saw no quorum. At least half of the range passes:
/// each attempt costs the masters that are left several commands.
pub fn without_quorum(attempt: u32, fan_out: Duration, random: f64) -> Duration {
    let range = RANGE_MIN.max(fan_out * 2).saturating_mul(1 << attempt.min(16)).min(NO_QUORUM_MAX);
    fan_out + range.mul_f64(0.5 + random / 2.0)
}

/// The pause of a waiter that a push has woken, with others, after so many tries in vain: the more
/// contenders there are, the fewer of them take part in one hand-over.
pub fn apart(tries: u32, fan_out: Duration, random: f64) -> Duration {
    (fan_out * 2).saturating_mul(1 << tries.min(16)).min(APART_MAX).mul_f64(random)
}

/// The pause before a lease is extended again, when the `failures`-th extension in a row (from 0)
/// did not move it: about a node timeout, doubling up to `longest`. Half of it is random, so that
/// many leases on one slow master do not come back in step.
pub fn extension_pause(
    node_timeout: Duration,
    failures: u32,
    longest: Duration,
    random: f64,
) -> Duration {
    let range = node_timeout.saturating_mul(1 << failures.min(16)).min(longest);
    range.mul_f64(0.5 + random / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAN_OUT: Duration = Duration::from_micros(300);

    #[test]
    fn a_pause_is_never_shorter_than_the_fan_out() {
        for attempt in 0..100 {
            assert_eq!(pause(attempt, FAN_OUT, 0.0), FAN_OUT);
        }
    }

    #[test]
    fn the_range_doubles_up_to_its_limit() {
        let ranges: Vec<_> =
            (0..20).map(|attempt| pause(attempt, FAN_OUT, 1.0) - FAN_OUT).collect();
        assert_eq!(ranges[0], RANGE_MIN);
        assert!(ranges.windows(2).all(|pair| pair[1] == RANGE_MAX.min(pair[0] * 2)), "{ranges:?}");
        assert_eq!(pause(u32::MAX, FAN_OUT, 1.0), FAN_OUT + RANGE_MAX);
    }

    #[test]
    fn a_slow_network_gets_a_range_of_its_own_measure() {
        let slow = Duration::from_millis(40);
        assert_eq!(pause(0, slow, 1.0), slow * 3);
    }
}
