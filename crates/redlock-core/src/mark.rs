//! `Mark`: the last completed run under a name. Each master stores it in addition to its locks. See
//! rule M2 of `docs/PROTOCOL.md`.
//!
//! A mark is not a lock and protects nothing. The holder of the lock of that name reads and raises
//! it on several masters at a time. `redlock-protocol` decides what the answers mean together.

use std::fmt;
use std::sync::Arc;

use crate::numbers::{Millis, SCORE_END, number};
use crate::{Label, Resource};

/// The last run completed under a name: one small string on each master, `AT FIRE LABEL`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mark {
    /// The start of the latest completed run, in milliseconds since 1970 by the masters' clocks:
    /// below 2^53.
    pub at: Millis,
    /// The largest completed fire, such as the second since 1970 for which a run was planned: below
    /// 2^53. Zero for none.
    pub fire: u64,
    /// The label of the process that completed the run of [`at`](Self::at).
    pub by: Option<Label>,
}

impl Mark {
    /// The part of a mark's key between the prefix and the name. Other clients know it, so it never
    /// changes.
    pub const PREFIX: &'static str = "redlock-quorum:1:done:";

    /// The text in place of a label when there is none.
    pub(crate) const NOBODY: &'static str = "-";

    /// The bound of the numbers in a mark, which are below 2^53.
    pub const END: u64 = SCORE_END;

    /// Returns the key of the mark of `name` under `prefix`.
    pub fn key(prefix: &[u8], name: &Resource) -> Arc<[u8]> {
        [prefix, Self::PREFIX.as_bytes(), name.as_bytes()].concat().into()
    }

    /// Parses the value of a key. `None` if it is not a mark.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let mut parts = str::from_utf8(value).ok()?.split(' ');
        let (at, fire, by) = (number(parts.next()?)?, number(parts.next()?)?, parts.next()?);
        let by = if by == Self::NOBODY { None } else { Some(Label::parse(by).ok()?) };
        parts.next().is_none().then_some(Self { at, fire, by })
    }

    /// Returns the mark of a master that had `self` and receives `other`: the larger of each
    /// number, and the label of the later run. Therefore a mark never falls, and the order of the
    /// writes does not matter.
    #[must_use]
    pub fn raised(self, other: &Self) -> Self {
        let later = if other.at > self.at { other } else { &self };
        Self { at: later.at, by: later.by.clone(), fire: self.fire.max(other.fire) }
    }

    /// Returns `true` if a master with this mark would not change it for `other`.
    pub fn covers(&self, other: &Self) -> bool {
        self.at >= other.at && self.fire >= other.fire
    }
}

/// The value of the key.
impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = self.by.as_ref().map_or(Self::NOBODY, Label::as_str);
        write!(f, "{} {} {by}", self.at, self.fire)
    }
}

/// A master's answer to a request about a mark.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Marked {
    /// The mark. `None` if the master has none.
    pub mark: Option<Mark>,
    /// The master's clock, in milliseconds since 1970.
    pub time: Millis,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(at: Millis, fire: u64, by: &str) -> Mark {
        Mark { at, fire, by: Some(Label::parse(by).unwrap()) }
    }

    #[test]
    fn a_mark_is_written_and_read_back() {
        for mark in [mark(1_763_866_800_000, 7, "me@web-1:4711"), Mark::default()] {
            assert_eq!(Mark::parse(mark.to_string().as_bytes()), Some(mark));
        }
        assert_eq!(Mark { at: 5, ..Mark::default() }.to_string(), "5 0 -");
        let last = Mark { at: Mark::END - 1, fire: Mark::END - 1, by: None };
        assert_eq!(last.to_string(), "9007199254740991 9007199254740991 -");
        assert_eq!(Mark::parse(last.to_string().as_bytes()), Some(last));
    }

    #[test]
    fn other_values_are_not_read_as_marks() {
        for value in [
            "",
            "1",
            "1 2",
            "1 2 ",
            "1 2 a b",
            " 1 2 a",
            "1  2 a",
            "+1 2 a",
            "-1 2 a",
            "1 x a",
            "1 2 a/b",
            "1 2 -\n",
            "9007199254740992 0 -",
            "0 9007199254740992 -",
        ] {
            assert_eq!(Mark::parse(value.as_bytes()), None, "{value:?}");
        }
        assert_eq!(Mark::parse(b"1 2 \xff"), None);
    }

    #[test]
    fn a_mark_never_falls_and_the_order_of_raising_does_not_matter() {
        let marks = [mark(5, 1, "a"), mark(3, 9, "b"), mark(4, 4, "c"), Mark::default()];
        let (most, mut orders) = (mark(5, 9, "a"), 0);
        for first in &marks {
            for second in &marks {
                let raised = first.clone().raised(second);
                assert!(raised.covers(first) && raised.covers(second));
                let all = marks.iter().fold(raised, Mark::raised);
                assert_eq!(all, most);
                orders += 1;
            }
        }
        assert_eq!(orders, 16);
        assert!(most.covers(&most) && !marks[0].covers(&marks[1]) && !marks[1].covers(&marks[0]));
    }

    #[test]
    fn the_label_of_the_first_of_two_equal_runs_stays() {
        assert_eq!(mark(5, 1, "a").raised(&mark(5, 2, "b")), mark(5, 2, "a"));
    }
}
