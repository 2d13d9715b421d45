//! `Throttle`: limits warnings to one per cause and second, and counts the others.

use std::time::Duration;

use redlock_core::Instant;

/// How long a cause is suppressed after it was reported.
const SILENCE: Duration = Duration::from_secs(1);

/// The causes that were reported recently. A cause that was quiet for a second is removed, so the
/// list holds only the causes of one second.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Throttle<Cause> {
    reported: Vec<Reported<Cause>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Reported<Cause> {
    cause: Cause,
    /// When it may be reported again.
    silent_until: Instant,
    /// Warnings that were suppressed since then.
    suppressed: u64,
}

impl<Cause> Default for Throttle<Cause> {
    fn default() -> Self {
        Self { reported: Vec::new() }
    }
}

impl<Cause: Copy + PartialEq> Throttle<Cause> {
    /// Records a warning of this cause. Returns the number of warnings suppressed since the last
    /// report if this one must be reported now. `None` if it is suppressed as well.
    pub fn admit(&mut self, cause: Cause, now: Instant) -> Option<u64> {
        let known = self.reported.iter_mut().find(|reported| reported.cause == cause);
        if let Some(reported) = known {
            if now < reported.silent_until {
                reported.suppressed += 1;
                return None;
            }
            reported.silent_until = now.saturating_add(SILENCE);
            return Some(std::mem::take(&mut reported.suppressed));
        }
        self.reported.retain(|reported| now < reported.silent_until || reported.suppressed > 0);
        let silent_until = now.saturating_add(SILENCE);
        self.reported.push(Reported { cause, silent_until, suppressed: 0 });
        Some(0)
    }

    /// Returns when a cause must be reported because warnings of it were suppressed.
    pub fn due(&self) -> Option<Instant> {
        let kept_back = self.reported.iter().filter(|reported| reported.suppressed > 0);
        kept_back.map(|reported| reported.silent_until).min()
    }

    /// Returns a cause whose second is over, and how many of its warnings were suppressed.
    pub fn overdue(&mut self, now: Instant) -> Option<(Cause, u64)> {
        let is_due = |one: &&mut Reported<Cause>| one.suppressed > 0 && one.silent_until <= now;
        let reported = self.reported.iter_mut().find(is_due)?;
        reported.silent_until = now.saturating_add(SILENCE);
        Some((reported.cause, std::mem::take(&mut reported.suppressed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ORIGIN.saturating_add(Duration::from_millis(millis))
    }

    #[test]
    fn a_cause_is_reported_once_a_second_with_the_number_kept_back() {
        let mut throttle = Throttle::default();
        assert_eq!(throttle.admit("down", at(0)), Some(0));
        assert_eq!(throttle.admit("down", at(1)), None);
        assert_eq!(throttle.admit("down", at(999)), None);
        assert_eq!(throttle.admit("down", at(1_000)), Some(2));
        assert_eq!(throttle.admit("down", at(1_500)), None);
    }

    #[test]
    fn causes_and_masters_do_not_silence_each_other() {
        let mut throttle = Throttle::default();
        for cause in [(0, "down"), (1, "down"), (0, "lost")] {
            assert_eq!(throttle.admit(cause, at(0)), Some(0));
            assert_eq!(throttle.admit(cause, at(0)), None);
        }
    }

    #[test]
    fn suppressed_warnings_are_reported_after_their_second() {
        let mut throttle = Throttle::default();
        throttle.admit("down", at(0));
        assert_eq!(throttle.due(), None, "nothing was kept back");
        throttle.admit("down", at(10));
        throttle.admit("down", at(20));
        assert_eq!(throttle.due(), Some(at(1_000)));
        assert_eq!(throttle.overdue(at(999)), None);
        assert_eq!(throttle.overdue(at(1_000)), Some(("down", 2)));
        assert_eq!((throttle.due(), throttle.overdue(at(1_000))), (None, None));
        assert_eq!(throttle.admit("down", at(1_999)), None, "that was also a line");
    }

    #[test]
    fn another_cause_does_not_end_a_pause_or_drop_its_events() {
        let mut throttle = Throttle::default();
        throttle.admit("down", at(0));
        assert_eq!(throttle.overdue(at(1_000)), None, "nothing was kept back");
        throttle.admit("lost", at(10));
        assert_eq!(throttle.admit("down", at(20)), None);
        throttle.admit("up", at(5_000));
        assert_eq!(throttle.overdue(at(5_000)), Some(("down", 1)));
    }

    #[test]
    fn a_storm_of_an_hour_is_one_line_a_second_and_loses_no_warning() {
        let (mut throttle, mut lines, mut counted) = (Throttle::default(), 0, 0);
        for millis in 0..3_600_000 {
            if let Some(suppressed) = throttle.admit("down", at(millis)) {
                (lines, counted) = (lines + 1, counted + suppressed + 1);
            }
        }
        let (_, left) = throttle.overdue(at(3_600_000)).unwrap();
        assert_eq!((lines, counted + left), (3_600, 3_600_000));
    }

    #[test]
    fn causes_quiet_for_a_second_are_forgotten() {
        let mut throttle = Throttle::default();
        for second in 0..1_000 {
            throttle.admit(second, at(second * 1_000));
        }
        assert_eq!(throttle.reported.len(), 1);
    }
}
