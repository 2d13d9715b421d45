//! Durations in the usual notation: `500ms`, `1.5s`, `5m`, `1h30m`, `2d`.

use std::time::Duration;

/// Formats a duration exactly, to the millisecond from one minute on. Options accept this form.
pub fn spelled(duration: Duration) -> String {
    if duration.is_zero() {
        return "0s".into();
    }
    if duration < MINUTE {
        return format!("{duration:?}");
    }
    let mut text = String::new();
    let mut seconds = duration.as_secs();
    for (unit, length) in [("d", 86_400), ("h", 3_600), ("m", 60)] {
        if seconds >= length {
            text += &format!("{}{unit}", seconds / length);
            seconds %= length;
        }
    }
    let rest = Duration::new(seconds, duration.subsec_millis() * 1_000_000);
    if !rest.is_zero() {
        text += &spelled(rest);
    }
    text
}

/// Formats a measured duration: to a tenth of a second below a minute, and rounded up to a second
/// from there on.
pub fn about(duration: Duration) -> String {
    match duration {
        short if short < MINUTE => format!("{short:.1?}"),
        long => spelled(Duration::from_secs(long.as_secs())),
    }
}

/// Formats an upper bound, never too low: rounded up to a tenth of a second below a minute, and to
/// a second from there on.
pub fn at_most(duration: Duration) -> String {
    let up_to = |unit: u64| {
        let units = duration.as_millis().div_ceil(u128::from(unit));
        Duration::from_millis(u64::try_from(units).unwrap_or(u64::MAX).saturating_mul(unit))
    };
    about(if duration < MINUTE { up_to(100) } else { up_to(1_000) })
}

/// Formats a time to wait, never too short: rounded up to a tenth of a second, and to a second from
/// two minutes on.
pub fn at_least(duration: Duration) -> String {
    const LONG: Duration = Duration::from_secs(120);
    if duration >= LONG {
        let seconds = duration.as_millis().div_ceil(1_000);
        return spelled(Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX)));
    }
    let tenths = duration.as_millis().div_ceil(100);
    format!("{}.{} s", tenths / 10, tenths % 10)
}

const MINUTE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_with_common_units() {
        for (millis, text) in [
            (0, "0s"),
            (500, "500ms"),
            (1_500, "1.5s"),
            (30_000, "30s"),
            (60_000, "1m"),
            (90_000, "1m30s"),
            (300_000, "5m"),
            (300_500, "5m500ms"),
            (5_400_000, "1h30m"),
            (86_400_000, "1d"),
            (90_061_000, "1d1h1m1s"),
        ] {
            assert_eq!(spelled(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn a_measured_duration_has_few_digits() {
        assert_eq!(about(Duration::from_micros(8_543)), "8.5ms");
        assert_eq!(about(Duration::from_millis(9_960)), "10.0s");
        assert_eq!(about(Duration::from_millis(299_900)), "4m59s");
        assert_eq!(at_most(Duration::from_millis(299_900)), "5m");
        assert_eq!(at_most(Duration::from_millis(65_900)), "1m6s");
        assert_eq!(at_most(Duration::from_millis(3_210)), "3.3s");
    }

    #[test]
    fn remaining_time_is_rounded_up() {
        assert_eq!(at_least(Duration::from_millis(63_810)), "63.9 s");
        assert_eq!(at_least(Duration::from_millis(330_001)), "5m31s");
    }
}
