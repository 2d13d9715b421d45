//! `Pushes`: whether what a master reports of a key is of any use to those that wait for it.

use std::time::Duration;

use redlock_core::Instant;

/// So many reports in a row that nothing came of, and the next one is not acted on at once.
const USELESS_MAX: u32 = 3;
/// By how much the end of a key may seem to move because looks take their time.
const INACCURACY: Duration = Duration::from_millis(20);

/// What looks have seen between reports. A server whose table of watched keys is full reports
/// changes that never happened, as often as it is asked to report the next one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Pushes {
    /// The holder that was seen last, and when its key ends.
    seen: Option<(Option<String>, Option<Instant>)>,
    /// There was a report since.
    is_pushed: bool,
    /// Reports in a row behind which the same holder had the key for no longer than before.
    useless: u32,
}

impl Pushes {
    /// Whether the reports have been of no use for some time.
    pub(super) fn are_useless(&self) -> bool {
        self.useless >= USELESS_MAX
    }

    pub(super) fn pushed(&mut self) {
        self.is_pushed = true;
    }

    /// No report came for as long as a head sleeps, or the key was won.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// A look finds this holder.
    pub(super) fn saw(&mut self, token: Option<&str>, ttl: Option<Duration>, now: Instant) {
        let ends_at = ttl.map(|ttl| now.saturating_add(ttl));
        let is_same = self.seen.as_ref().is_some_and(|(holder, end)| {
            let latest = end.map(|end| end.saturating_add(INACCURACY));
            holder.as_deref() == token && ends_at <= latest
        });
        if std::mem::take(&mut self.is_pushed) {
            self.useless = if is_same { self.useless.saturating_add(1) } else { 0 };
        }
        if !is_same {
            self.seen = Some((token.map(str::to_owned), ends_at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Whether four reports are useless, each followed by a look that finds this.
    fn useless(seen: [(&str, Option<u64>); 5]) -> bool {
        let mut pushes = Pushes::default();
        for (nth, (token, ttl)) in (0..).zip(seen) {
            let now = Instant::ORIGIN.saturating_add(ms(nth * 30));
            pushes.saw(Some(token), ttl.map(ms), now);
            pushes.pushed();
        }
        pushes.are_useless()
    }

    #[test]
    fn reports_behind_which_nothing_has_changed_are_useless() {
        assert!(useless([("a", Some(900)); 5].map(|(token, _)| (token, None))));
        assert!(useless([900, 870, 841, 809, 780].map(|left| ("a", Some(left)))));
    }

    #[test]
    fn three_reports_in_a_row_must_be_useless() {
        let mut pushes = Pushes::default();
        pushes.saw(Some("a"), None, Instant::ORIGIN);
        for (holder, is_useless) in [("a", false), ("a", false), ("b", false)].into_iter().chain([
            ("b", false),
            ("b", false),
            ("b", true),
        ]) {
            pushes.pushed();
            pushes.saw(Some(holder), None, Instant::ORIGIN);
            assert_eq!(pushes.are_useless(), is_useless, "{pushes:?}");
        }
    }

    /// Each end is compared with the one that was seen first, or small steps would go unnoticed.
    #[test]
    fn extensions_by_little_are_noticed_too() {
        assert!(!useless([900, 885, 870, 855, 840].map(|left| ("a", Some(left)))));
    }

    #[test]
    fn reports_of_other_holders_and_of_extensions_are_not() {
        assert!(!useless(["a", "b", "a", "b", "a"].map(|token| (token, None))));
        assert!(!useless([900, 930, 900, 930, 900].map(|left| ("a", Some(left)))));
        assert!(!useless([None, Some(900), None, Some(900), None].map(|left| ("a", left))));
    }

    #[test]
    fn looks_without_a_report_in_between_say_nothing() {
        let mut pushes = Pushes::default();
        for _ in 0..9 {
            pushes.saw(Some("a"), None, Instant::ORIGIN);
        }
        assert!(!pushes.are_useless());
    }
}
