//! `Abandoned`: keys on one master that the client no longer tries to release.

use std::time::Duration;

use redlock_core::Instant;

/// The abandoned keys of releases, of which too many were unacknowledged. Only their number and the
/// expiry of the last one are kept, to save memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Abandoned {
    count: u64,
    /// When the last of the keys with a known expiry has expired.
    expires: Option<Instant>,
    /// The longest expiry of the other keys. The master may still have requests buffered that set
    /// them.
    from_wake_up: Option<Duration>,
}

/// The abandoned keys that may remain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// How many keys may remain.
    pub count: u64,
    /// The last of them expires within this time.
    pub within: Duration,
    /// Whether that time begins only when the master resumes.
    pub from_wake_up: bool,
}

impl Abandoned {
    /// Adds a key that expires after `left`. If `left` is `None`, it expires `expiry` after the
    /// master resumes.
    pub fn add(&mut self, left: Option<Duration>, expiry: Duration, now: Instant) {
        self.expire(now);
        if left == Some(Duration::ZERO) {
            return;
        }
        self.count += 1;
        match left {
            Some(left) => self.expires = self.expires.max(Some(now.saturating_add(left))),
            None => self.from_wake_up = self.from_wake_up.max(Some(expiry)),
        }
    }

    /// Records that the master has answered, or its process has exited, so that it has no request
    /// buffered.
    pub fn settle(&mut self, now: Instant) {
        if let Some(expiry) = self.from_wake_up.take() {
            self.expires = self.expires.max(Some(now.saturating_add(expiry)));
        }
    }

    /// Returns the keys that may remain, or `None` if all have expired.
    pub fn left(&mut self, now: Instant) -> Option<Left> {
        self.expire(now);
        let left = self.expires.map_or(Duration::ZERO, |expires| expires.saturating_since(now));
        let within = left.max(self.from_wake_up.unwrap_or_default());
        let from_wake_up = self.from_wake_up.is_some();
        (self.count > 0).then_some(Left { count: self.count, within, from_wake_up })
    }

    fn expire(&mut self, now: Instant) {
        if self.from_wake_up.is_none() && self.expires.is_none_or(|expires| expires < now) {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lab::{at, ms};
    use super::*;

    const EXPIRY: Duration = Duration::from_millis(1_000);

    fn left(forgotten: &mut Abandoned, now: u64) -> Option<(u64, Duration, bool)> {
        forgotten.left(at(now)).map(|left| (left.count, left.within, left.from_wake_up))
    }

    #[test]
    fn abandoned_keys_are_reported_until_the_last_expires() {
        let mut forgotten = Abandoned::default();
        assert_eq!(left(&mut forgotten, 0), None);
        forgotten.add(Some(ms(300)), EXPIRY, at(0));
        forgotten.add(Some(ms(100)), EXPIRY, at(100));
        forgotten.add(Some(ms(0)), EXPIRY, at(100));
        assert_eq!(left(&mut forgotten, 250), Some((2, ms(50), false)));
        assert_eq!(left(&mut forgotten, 300), Some((2, ms(0), false)), "in its last millisecond");
        assert_eq!(left(&mut forgotten, 301), None);
        forgotten.add(Some(ms(300)), EXPIRY, at(400));
        assert_eq!(left(&mut forgotten, 400), Some((1, ms(300), false)));
    }

    #[test]
    fn expiry_of_unsettled_keys_starts_when_the_master_runs_again() {
        let mut forgotten = Abandoned::default();
        forgotten.add(None, EXPIRY, at(0));
        forgotten.add(None, EXPIRY / 2, at(0));
        forgotten.add(Some(ms(300)), EXPIRY, at(0));
        assert_eq!(left(&mut forgotten, 90_000), Some((3, EXPIRY, true)));
        forgotten.settle(at(90_000));
        assert_eq!(left(&mut forgotten, 90_400), Some((3, ms(600), false)));
        forgotten.settle(at(90_400));
        assert_eq!(left(&mut forgotten, 91_001), None);
    }
}
