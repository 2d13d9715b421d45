//! Durations in the usual notation.

use std::time::Duration;

pub use redlock_core::duration::{about, at_least, at_most, spelled};

/// Parses `500ms`, `10s`, `1.5m`, `1h30m` or `2d`. A number without a unit is in seconds.
///
/// # Errors
/// Returns the expected form if the text is in none of these forms, or too long for a clock.
pub fn parse(text: &str) -> Result<Duration, String> {
    let mut rest = text.trim();
    let mut sum = Duration::ZERO;
    loop {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(end);
        let end = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let part = length(number, unit, rest.len() == text.trim().len() && tail.is_empty());
        sum = part.and_then(|part| sum.checked_add(part)).ok_or_else(expected)?;
        rest = tail;
        if rest.is_empty() {
            return Ok(sum);
        }
    }
}

/// Parses one number with its unit. Only a single number may go without.
fn length(number: &str, unit: &str, is_alone: bool) -> Option<Duration> {
    let seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "" if is_alone => 1.0,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    // Milliseconds are the finest that Redis knows, and f64 has no exact thousandth.
    let millis = (number * seconds * 1_000.0).round();
    (millis <= MILLIS_MAX).then(|| Duration::from_millis(millis as u64))
}

fn expected() -> String {
    "write a duration as 500ms, 10s, 1.5m, 1h30m or 2d, at most 1000 years; a bare number is \
     seconds"
        .into()
}

/// Far beyond any use, and far from the end of any clock: 1000 years.
const MILLIS_MAX: f64 = 1_000.0 * 365.0 * 86_400_000.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_common_units() {
        for (text, millis) in [
            ("500ms", 500),
            ("10s", 10_000),
            ("10", 10_000),
            ("0", 0),
            ("1.5", 1_500),
            ("0.1s", 100),
            ("1.5m", 90_000),
            ("2min", 120_000),
            ("1h", 3_600_000),
            ("1h30m", 5_400_000),
            ("1d", 86_400_000),
            (" 3s ", 3_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn invalid_duration_is_refused_with_the_expected_form() {
        for text in ["", "s", "10x", "-1", "1h30", "1 s", "1..2s", "nan", "inf", "9e9", "forever"] {
            let refused = parse(text).unwrap_err();
            assert!(refused.contains("500ms, 10s"), "{text}: {refused}");
        }
        assert!(parse("1001000d").is_err());
    }
}
