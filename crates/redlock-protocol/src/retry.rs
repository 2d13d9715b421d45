//! How long to wait before the next attempt. Pure: the random part is an argument. See rule V7 of
//! `docs/PROTOCOL.md`.

use std::time::Duration;

/// The first pause is between zero and this. The range doubles with every attempt.
const RANGE_MIN: Duration = Duration::from_millis(1);
/// The widest range. A waiter tries a lock that stays held about ten times per second.
const RANGE_MAX: Duration = Duration::from_millis(200);

/// The longest pause, without the fan-out, of a waiter that sees no quorum. It lets sixteen waiters
/// be served within 0.3 s after a quorum votes again.
const NO_QUORUM_MAX: Duration = Duration::from_millis(100);

/// The longest pause between a free key and the next request, if there is no queue.
pub const APART_MAX: Duration = Duration::from_millis(40);
/// A process that has waited for this times as long pauses for as many times shorter.
const APART_AGE: Duration = Duration::from_millis(25);
/// The shortest limit, however long a process has waited.
const APART_MIN: Duration = Duration::from_millis(1);

/// Returns the pause after the failure number `attempt`, counted from 0. It is never shorter than
/// `fan_out`, the duration of the attempt, so that contenders cannot overtake their own clean-up. A
/// random part ("full jitter") is added, so that attempts that collided do not collide again.
///
/// The rule is step 5 of the Redis page: a random delay, larger than the time to reach a majority.
pub fn pause(attempt: u32, fan_out: Duration, random: f64) -> Duration {
    let range = RANGE_MIN.max(fan_out * 2).saturating_mul(1 << attempt.min(16)).min(RANGE_MAX);
    fan_out + range.mul_f64(random)
}

/// Returns the pause after this many consecutive attempts without a quorum. At least half of the
/// range passes, because each attempt costs the remaining masters several commands.
pub fn without_quorum(attempt: u32, fan_out: Duration, random: f64) -> Duration {
    let range = RANGE_MIN.max(fan_out * 2).saturating_mul(1 << attempt.min(16)).min(NO_QUORUM_MAX);
    fan_out + range.mul_f64(0.5 + random / 2.0)
}

/// Returns the pause of a waiter that finds the key free, together with others, after this many
/// lost chances. The more contenders there are, the longer it is, up to a limit that falls with the
/// time that the process has `waited`: the one that had no lease for the longest time comes first.
pub fn apart(tries: u32, waited: Duration, fan_out: Duration, random: f64) -> Duration {
    let by_age = APART_MAX.mul_f64(APART_AGE.as_secs_f64() / waited.max(APART_AGE).as_secs_f64());
    let range = (fan_out * 2).saturating_mul(1 << tries.min(16));
    range.min(by_age.max(APART_MIN)).mul_f64(0.75 + random / 4.0)
}

/// Returns after how many lost chances [`apart`] is as long as `pause`, unless its limit is
/// shorter.
pub fn tries_of(pause: Duration, fan_out: Duration) -> u32 {
    (0..16).find(|tries| (fan_out * 2).saturating_mul(1 << tries) >= pause).unwrap_or(16)
}

/// Returns the pause before the next extension, after `failures` consecutive ones (from 0) did not
/// move the lease. It starts at about one node timeout and doubles up to `longest`. Half of it is
/// random, so that many leases on one slow master do not retry in step.
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
    fn pause_range_follows_a_slow_network() {
        let slow = Duration::from_millis(40);
        assert_eq!(pause(0, slow, 1.0), slow * 3);
    }
}
