//! `Run`: for how long the callers of one process keep a key, asking again behind each release.

use std::time::Duration;

use redlock_core::Instant;

use super::retry::REST_MAX;

/// How long a run lasts where other processes are known to want the key.
pub(crate) const CONTENDED: Duration = Duration::from_millis(100);
/// How long it lasts where none is known. One that comes second is refused and knows it; the
/// process that keeps the key is never refused, and can find out only by leaving it for a moment.
const UNKNOWN: Duration = Duration::from_secs(1);

/// Since when a key was never free for as long as a refused contender rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Run {
    since: Instant,
    /// When the key was released last; none while it was not.
    left_at: Option<Instant>,
}

impl Run {
    pub(crate) fn begin(now: Instant) -> Self {
        Self { since: now, left_at: None }
    }

    /// The key was won again, by a caller that asked at `asked_at`.
    pub(crate) fn won(self, asked_at: Instant, now: Instant) -> Self {
        if self.is_forgotten(asked_at) { Self::begin(now) } else { self }
    }

    pub(crate) fn left(&mut self, now: Instant) {
        self.left_at = Some(now);
    }

    /// Whether a caller that asks now leaves the key to other processes first.
    pub(crate) fn is_over(&self, is_contended: bool, now: Instant) -> bool {
        let longest = if is_contended { CONTENDED } else { UNKNOWN };
        !self.is_forgotten(now) && now.saturating_since(self.since) >= longest
    }

    /// Whether others have had the time to get the key.
    pub(crate) fn is_forgotten(&self, now: Instant) -> bool {
        self.left_at.is_some_and(|left_at| now.saturating_since(left_at) >= REST_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ORIGIN.saturating_add(Duration::from_millis(millis))
    }

    /// A key that is held for 50 ms and asked for again `gap` later, until `end`.
    fn kept(gap: u64, end: u64) -> Run {
        let (mut run, mut now) = (Run::begin(at(0)), 50);
        run.left(at(now));
        while now + gap + 50 <= end {
            run = run.won(at(now + gap), at(now + gap));
            now += gap + 50;
            run.left(at(now));
        }
        run
    }

    #[test]
    fn a_run_ends_after_100_ms_where_others_want_the_key_and_after_a_second_where_none_is_known() {
        for (end, contended, unknown) in
            [(50, false, false), (100, true, false), (950, true, false), (1_000, true, true)]
        {
            let run = kept(0, end);
            let over = [true, false].map(|is_contended| run.is_over(is_contended, at(end)));
            assert_eq!(over, [contended, unknown], "{end} ms");
        }
    }

    #[test]
    fn a_key_that_was_free_for_as_long_as_a_contender_rests_begins_another_run() {
        assert!(kept(39, 2_000).is_over(true, at(1_950)));
        let run = kept(40, 2_000);
        assert!(!run.is_over(true, at(1_940)), "right behind its last release: {run:?}");
        let left = kept(0, 1_000);
        assert!(left.is_over(true, at(1_039)) && !left.is_over(true, at(1_040)));
    }
}
