//! Moments of a wall clock, in words.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// `2026-11-23 17:19:33 UTC`.
pub(crate) fn date_and_time(at: SystemTime) -> String {
    let days = seconds(at) / DAY;
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02} {}", time_of_day(at))
}

/// `17:19:33 UTC`.
pub(crate) fn time_of_day(at: SystemTime) -> String {
    let seconds = seconds(at) % DAY;
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{hour:02}:{minute:02}:{second:02} UTC")
}

/// A moment so many milliseconds after 1970.
pub(crate) fn of_millis(millis: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(millis)
}

/// Milliseconds since 1970.
pub(crate) fn millis(at: SystemTime) -> u64 {
    crate::duration::millis(at.duration_since(UNIX_EPOCH).unwrap_or_default())
}

const DAY: u64 = 86_400;

fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Year, month and day of a day since 1970. Years begin in March here, so that a leap day is the
/// last of its year, and 400 years have a fixed number of days.
fn civil(days: u64) -> (u64, u64, u64) {
    const FROM_MARCH_OF_YEAR_0: u64 = 719_468;
    const DAYS_OF_400_YEARS: u64 = 146_097;
    let days = days + FROM_MARCH_OF_YEAR_0;
    let (era, day) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Five months from March on have 153 days, and so have the next five.
    let month = (5 * day + 2) / 153;
    let day_of_month = day - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year;
    if month < 10 { (year, month + 3, day_of_month) } else { (year + 1, month - 9, day_of_month) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_calendar_dates() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (951_868_800, "2000-03-01 00:00:00 UTC"),
            (1_735_689_599, "2024-12-31 23:59:59 UTC"),
            (1_795_454_373, "2026-11-23 17:19:33 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(date_and_time(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        }
    }
}
