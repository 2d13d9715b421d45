//! What `--fire` takes: a number, or a time.

use redlock_quorum::OnceRequest;

/// A number from 1, or a time of RFC 3339, which stands for its seconds since 1970. Its seconds may
/// be left out.
///
/// # Errors
/// In words, with what may be written.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let fire = text.parse().ok().or_else(|| seconds(text));
    fire.filter(|fire| (1..=OnceRequest::FIRE_MAX).contains(fire)).ok_or_else(|| {
        let max = OnceRequest::FIRE_MAX;
        format!(
            "write the time for which the run is planned, such as 2026-11-23T03:00Z or \
             2026-11-23T04:00:00+01:00, from 1970 on, or a number from 1 to {max}"
        )
    })
}

/// The seconds since 1970 of a time; fractions of a second are cut off.
fn seconds(text: &str) -> Option<u64> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let (time, offset) = rest.split_at(rest.find(['Z', 'z', '+', '-'])?);
    let [year, month, day] = numbers(date, '-', &[4, 2, 2])?[..] else { return None };
    let days = days(year, month, day)?;
    let whole = time.split_once('.').map_or(Some(time), |(whole, fraction)| {
        let is_fraction = !fraction.is_empty() && is_digits(fraction) && whole.len() == 8;
        is_fraction.then_some(whole)
    })?;
    let second = match &numbers(whole, ':', if whole.len() == 5 { &[2, 2] } else { &[2, 2, 2] })?[..]
    {
        [hour, minute] => day_second(*hour, *minute, 0)?,
        [hour, minute, second] => day_second(*hour, *minute, *second)?,
        _ => return None,
    };
    u64::try_from(days * 86_400 + second - self::offset(offset)?).ok()
}

/// A leap second is that of the next minute.
fn day_second(hour: i64, minute: i64, second: i64) -> Option<i64> {
    let is_time = hour < 24 && minute < 60 && second <= 60;
    is_time.then_some(hour * 3_600 + minute * 60 + second)
}

/// How far a local time is ahead of UTC, in seconds.
fn offset(text: &str) -> Option<i64> {
    if matches!(text, "Z" | "z") {
        return Some(0);
    }
    let [hour, minute] = numbers(text.get(1..)?, ':', &[2, 2])?[..] else { return None };
    let by = day_second(hour, minute, 0)?;
    Some(if text.starts_with('-') { -by } else { by })
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
            ("1970-01-01T00:00:01Z", 1),
            ("2000-02-29T12:00Z", 951_825_600),
            ("2016-12-31T23:59:60Z", 1_483_228_800),
            ("7", 7),
            ("9007199254740991", 9_007_199_254_740_991),
        ] {
            assert_eq!(parse(text), Ok(seconds), "{text}");
        }
    }

    #[test]
    fn what_is_neither_is_refused_with_what_to_write() {
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
            "2026-11-23T03:00+1:00",
            "2026-11-23T03:00Zulu",
            "+026-11-23T03:00Z",
            "tomorrow",
        ] {
            assert!(parse(text).is_err_and(|error| error.contains("T03:00Z")), "{text}");
        }
    }
}
