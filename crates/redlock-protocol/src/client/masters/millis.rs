//! Instants as milliseconds, in which records and TIME are.

use std::time::Duration;

use redlock_core::Instant;
use redlock_core::admission::Millis;

const NANOS: u64 = 1_000_000;

/// Rounds the instant of a judgement down, so that a duration that has not passed completely is not
/// complete.
pub(super) fn floor_millis(now: Instant) -> Millis {
    now.as_nanos() / NANOS
}

/// Rounds the instant of an event up.
pub(super) fn ceil_millis(now: Instant) -> Millis {
    now.as_nanos().div_ceil(NANOS)
}

/// Returns the instant at which something is due.
pub(super) fn instant(at: Millis) -> Instant {
    Instant::from_nanos(at.saturating_mul(NANOS))
}

/// Returns the whole milliseconds of a duration.
pub(super) fn to_millis(time: Duration) -> Millis {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
