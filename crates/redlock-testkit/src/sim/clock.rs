//! `WallClock`: a master's own idea of the time, by which its keys expire.

use redlock_core::Instant;

/// The TIME of the master when the simulation begins, in microseconds. Any number is possible; zero
/// would hide mistakes.
const EPOCH_US: i64 = 1_700_000_000_000_000;

/// A clock that can be stepped and that can run too fast or too slow.
#[derive(Debug)]
pub(super) struct WallClock {
    /// Its TIME in microseconds when it was last set.
    shown: i64,
    set_at: Instant,
    /// Its seconds in one second.
    rate: f64,
}

impl WallClock {
    pub(super) fn new(now: Instant) -> Self {
        Self { shown: EPOCH_US, set_at: now, rate: 1.0 }
    }

    /// Whole milliseconds, rounded down, as Redis reads its clock.
    pub(super) fn millis(&self, now: Instant) -> i64 {
        self.micros(now).div_euclid(1_000)
    }

    pub(super) fn step(&mut self, millis: i64) {
        self.shown = self.shown.saturating_add(millis.saturating_mul(1_000));
    }

    pub(super) fn set_rate(&mut self, now: Instant, rate: f64) {
        self.shown = self.micros(now);
        self.set_at = now;
        self.rate = rate;
    }

    pub(super) fn micros(&self, now: Instant) -> i64 {
        let since = now.saturating_since(self.set_at);
        // At the right rate no floating point is in the way of an exact simulation.
        let passed = if self.rate == 1.0 {
            i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
        } else {
            (since.as_secs_f64() * self.rate * 1e6) as i64
        };
        self.shown.saturating_add(passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn steps_and_rates_add_up() {
        let mut clock = WallClock::new(at(0));
        let start = clock.millis(at(0));
        assert_eq!(clock.millis(at(1_000)) - start, 1_000);
        clock.step(-300);
        assert_eq!(clock.millis(at(1_000)) - start, 700);
        clock.set_rate(at(1_000), 1.5);
        assert_eq!(clock.millis(at(3_000)) - start, 3_700);
    }

    #[test]
    fn a_part_of_a_millisecond_is_not_shown() {
        let clock = WallClock::new(at(0));
        let start = clock.millis(at(0));
        assert_eq!(clock.millis(Instant::from_nanos(999_999)), start);
    }
}
