//! `Fire`: the planned time of a run, or a number, as `--fire` takes it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redlock_quorum::OnceRequest;

use crate::moment;

/// The value of `--fire`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fire {
    /// For a time its seconds since 1970. Fractions of a second are cut off.
    pub(crate) number: u64,
    /// It was written as a time. A bare number may be a counter.
    is_time: bool,
}

/// The longest time by which a fire may be ahead.
const AHEAD_MAX: Duration = Duration::from_secs(24 * 3_600);

impl Fire {
    /// Returns the planned time if it is more than a day after `now`. Its year may be mistyped, and
    /// its mark would keep the job from running until then. A bare number is never too far.
    pub(crate) fn too_far(self, now: SystemTime) -> Option<SystemTime> {
        let at = UNIX_EPOCH + Duration::from_secs(self.number);
        (self.is_time && at > now + AHEAD_MAX).then_some(at)
    }

    /// Returns `true` if [`too_far`](Self::too_far) depends on the time.
    pub(crate) fn is_time(self) -> bool {
        self.is_time
    }
}

/// Reads a number from 1, or a time of RFC 3339 (seconds optional, also with `+0000` and a comma as
/// `date -Ins` writes it) or of RFC 5322 (`date -R`).
///
/// # Errors
/// Describes the accepted forms.
pub(crate) fn parse(text: &str) -> Result<Fire, String> {
    let number = text.parse().ok().map(|number| Fire { number, is_time: false });
    let time = || seconds(text).map(|number| Fire { number, is_time: true });
    let is_valid = |fire: &Fire| (1..=OnceRequest::FIRE_MAX).contains(&fire.number);
    number.or_else(time).filter(is_valid).ok_or_else(|| {
        let max = OnceRequest::FIRE_MAX;
        format!(
            "expected the planned time of the run, such as 2026-11-23T03:00Z or \
             2026-11-23T04:00:00+01:00, from 1970 on, or an integer from 1 to {max}"
        )
    })
}

/// Returns the time of a completed fire that is more than a day after `now`, if the fire reads as
/// seconds since 1970.
pub(crate) fn too_far_ahead(fire: u64, now: SystemTime) -> Option<SystemTime> {
    time_of(fire).filter(|at| *at > now + AHEAD_MAX)
}

/// Names a fire: its number, and its date if it has as many digits as the seconds of our time.
pub(crate) fn in_words(fire: u64) -> String {
    const FROM: u64 = 1_000_000_000;
    match time_of(fire).filter(|_| fire >= FROM) {
        Some(at) => format!("fire {fire} ({})", moment::date_and_time(at)),
        None => format!("fire {fire}"),
    }
}

/// Larger numbers are milliseconds, or no times at all.
fn time_of(fire: u64) -> Option<SystemTime> {
    const END: u64 = 10_000_000_000;
    (fire < END).then(|| UNIX_EPOCH + Duration::from_secs(fire))
}

fn seconds(text: &str) -> Option<u64> {
    let seconds = rfc3339(text).or_else(|| rfc5322(text))?;
    u64::try_from(seconds).ok()
}

/// `2026-11-23T04:00:00.5+01:00`.
fn rfc3339(text: &str) -> Option<i64> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let (time, offset) = rest.split_at(rest.find(['Z', 'z', '+', '-'])?);
    let [year, month, day] = numbers(date, '-', &[4, 2, 2])?[..] else { return None };
    let whole = time.split_once(['.', ',']).map_or(Some(time), |(whole, fraction)| {
        let is_fraction = !fraction.is_empty() && is_digits(fraction) && whole.len() == 8;
        is_fraction.then_some(whole)
    })?;
    Some(days(year, month, day)? * DAY + time_of_day(whole)? - self::offset(offset)?)
}

/// `Mon, 23 Nov 2026 04:00:00 +0100`.
fn rfc5322(text: &str) -> Option<i64> {
    const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let words: Vec<&str> = text.split(' ').collect();
    let [weekday, day, month, year, time, offset] = words[..] else { return None };
    let (_, month) = MONTHS.iter().zip(1..).find(|(name, _)| **name == month)?;
    let [day] = numbers(day, ' ', &[day.len().clamp(1, 2)])?[..] else { return None };
    let [year] = numbers(year, ' ', &[4])?[..] else { return None };
    let days = days(year, month, day)?;
    // A mistyped date rarely has its weekday. 1 January 1970 was a Thursday.
    let named = WEEKDAYS.get(usize::try_from(days.rem_euclid(7)).ok()?)?;
    let is_that_day = weekday.strip_suffix(',') == Some(named);
    let seconds = days * DAY + time_of_day(time)? - self::offset(offset)?;
    is_that_day.then_some(seconds)
}

const DAY: i64 = 86_400;

/// `04:00` or `04:00:00`.
fn time_of_day(text: &str) -> Option<i64> {
    match &numbers(text, ':', if text.len() == 5 { &[2, 2] } else { &[2, 2, 2] })?[..] {
        [hour, minute] => day_second(*hour, *minute, 0),
        [hour, minute, second] => day_second(*hour, *minute, *second),
        _ => None,
    }
}

/// A leap second is the first second of the next minute.
fn day_second(hour: i64, minute: i64, second: i64) -> Option<i64> {
    let is_time = hour < 24 && minute < 60 && second <= 60;
    is_time.then_some(hour * 3_600 + minute * 60 + second)
}

/// Returns how far a local time is ahead of UTC, in seconds: `Z`, `+01:00` or `+0100`.
fn offset(text: &str) -> Option<i64> {
    if matches!(text, "Z" | "z") {
        return Some(0);
    }
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let by = text.strip_prefix(['+', '-'])?;
    let (hour, minute) = match by.split_once(':') {
        Some(parts) => parts,
        None => by.split_at_checked(2)?,
    };
    let [hour] = numbers(hour, ':', &[2])?[..] else { return None };
    let [minute] = numbers(minute, ':', &[2])?[..] else { return None };
    Some(sign * day_second(hour, minute, 0)?)
}

/// Days since 1970 of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let lengths = [31, if is_leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let month = usize::try_from(month - 1).ok()?;
    if !(1..=*lengths.get(month)?).contains(&day) || year < 1 {
        return None;
    }
    let before = year - 1;
    let years = before * 365 + before / 4 - before / 100 + before / 400;
    /// The days before 1970.
    const EPOCH: i64 = 719_162;
    Some(years + lengths[..month].iter().sum::<i64>() + day - 1 - EPOCH)
}

/// Numbers of so many digits each.
fn numbers(text: &str, sign: char, digits: &[usize]) -> Option<Vec<i64>> {
    let parts: Vec<&str> = text.split(sign).collect();
    let fits = |(part, len): (&&str, &usize)| part.len() == *len && is_digits(part);
    let is_whole = parts.len() == digits.len() && parts.iter().zip(digits).all(fits);
    if is_whole { parts.iter().map(|part| part.parse().ok()).collect() } else { None }
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_its_seconds_since_1970() {
        for (text, seconds) in [
            ("2026-11-23T03:00Z", 1_795_402_800),
            ("2026-11-23T03:00:00Z", 1_795_402_800),
            ("2026-11-23t03:00:00.999z", 1_795_402_800),
            ("2026-11-23 03:00:07Z", 1_795_402_807),
            ("2026-11-23T04:00+01:00", 1_795_402_800),
            ("2026-11-22T21:30:00-05:30", 1_795_402_800),
            ("2026-11-23T03:00:00+0000", 1_795_402_800),
            ("2026-11-23T04:00+0100", 1_795_402_800),
            ("2026-11-23T04:00:00,123456789+01:00", 1_795_402_800),
            ("Mon, 23 Nov 2026 03:00:00 +0000", 1_795_402_800),
            ("Sun, 22 Nov 2026 21:30:00 -0530", 1_795_402_800),
            ("Tue, 3 Nov 2026 03:00 +0000", 1_793_674_800),
            ("Thu, 01 Jan 1970 00:00:01 +0000", 1),
            ("1970-01-01T00:00:01Z", 1),
            ("2000-02-29T12:00Z", 951_825_600),
            ("2016-12-31T23:59:60Z", 1_483_228_800),
            ("7", 7),
            ("9007199254740991", 9_007_199_254_740_991),
        ] {
            let is_time = !is_digits(text);
            assert_eq!(parse(text), Ok(Fire { number: seconds, is_time }), "{text}");
        }
    }

    #[test]
    fn fire_time_more_than_a_day_ahead_is_too_far() {
        let now = UNIX_EPOCH + Duration::from_secs(1_795_402_800);
        let too_far = |text: &str| parse(text).unwrap().too_far(now).is_some();
        for text in ["2026-11-24T03:00:01Z", "2206-11-23T03:00Z", "9999-12-31T00:00Z"] {
            assert!(too_far(text), "{text}");
        }
        for text in ["2026-11-24T03:00Z", "1999-11-23T03:00Z", "7455000000", "9007199254740991"] {
            assert!(!too_far(text), "{text}");
        }
        assert_eq!(too_far_ahead(1_795_489_201, now), time_of(1_795_489_201));
        for fire in [0, 7, 1_795_489_200, 10_000_000_000, OnceRequest::FIRE_MAX] {
            assert_eq!(too_far_ahead(fire, now), None, "{fire}");
        }
    }

    #[test]
    fn fire_is_named_with_its_date() {
        assert_eq!(in_words(1_795_402_800), "fire 1795402800 (2026-11-23 03:00:00 UTC)");
        assert_eq!(in_words(20_261_123), "fire 20261123");
        assert_eq!(in_words(10_000_000_000), "fire 10000000000");
    }

    #[test]
    fn invalid_fire_is_refused_with_the_expected_form() {
        for text in [
            "",
            "0",
            "-1",
            "9007199254740992",
            "1970-01-01T00:00Z",
            "1969-12-31T23:00Z",
            "2026-11-23",
            "2026-11-23T03:00",
            "2026-11-23T3:00Z",
            "2026-02-29T03:00Z",
            "2100-02-29T03:00Z",
            "2026-13-01T03:00Z",
            "2026-11-00T03:00Z",
            "2026-11-23T24:00Z",
            "2026-11-23T03:60Z",
            "2026-11-23T03:00.5Z",
            "2026-11-23T03:00:00.Z",
            "2026-11-23T03:00:00,Z",
            "2026-11-23T03:00+1:00",
            "2026-11-23T03:00+100",
            "2026-11-23T03:00+01000",
            "2026-11-23T03:00+2400",
            "2026-11-23T03:00+0a00",
            "2026-11-23T03:00+\u{e9}\u{e9}",
            "Sun, 23 Nov 2026 03:00:00 +0000",
            "Mon 23 Nov 2026 03:00:00 +0000",
            "Mon, 23 nov 2026 03:00:00 +0000",
            "Mon, 023 Nov 2026 03:00:00 +0000",
            "Mon, 23 Nov 26 03:00:00 +0000",
            "Mon, 23 Nov 2026 03:00:00 CET",
            "Mon, 30 Feb 2026 03:00:00 +0000",
            "2026-11-23T03:00Zulu",
            "+026-11-23T03:00Z",
            "tomorrow",
        ] {
            assert!(parse(text).is_err_and(|error| error.contains("T03:00Z")), "{text}");
        }
    }
}
