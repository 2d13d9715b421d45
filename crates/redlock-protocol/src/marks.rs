//! `Reading`: what the completion marks of several masters mean together. See rule M4 of
//! `docs/PROTOCOL.md`.
//!
//! Each master keeps one mark per name, and only ever raises it. The mark of a completed run is on
//! a quorum of masters as long as they keep their data, so the largest mark of any quorum is at
//! least as large. A mark that is larger on some masters is written to the others.

use redlock_core::admission::Millis;
use redlock_core::{Mark, Marked};

use super::master_set::MasterSet;
use crate::quorum::{lower_median, quorum};

/// The largest distance of a mark ahead of the masters' clocks. A mark further ahead was written
/// while clocks were wrong, and would keep a job from running until the clocks have caught up.
const AHEAD_MAX: Millis = 60_000;

/// The minimum time for which masters keep a mark.
const KEPT_MIN: Millis = 32 * 24 * 3_600_000;

/// The condition under which another run is unnecessary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum When {
    /// A completed run began less than this many milliseconds ago.
    Within(Millis),
    /// This scheduled run, or a later one, was completed.
    Fire(u64),
}

impl When {
    /// Returns how long masters keep the mark of such a run, in milliseconds.
    pub fn kept(self) -> u64 {
        match self {
            Self::Within(period) => KEPT_MIN.max(period.saturating_mul(2)),
            Self::Fire(_) => KEPT_MIN,
        }
    }

    /// Returns the scheduled run that a run completes, or zero for none.
    pub fn fire(self) -> u64 {
        match self {
            Self::Within(_) => 0,
            Self::Fire(fire) => fire,
        }
    }
}

/// One master's answer to a query for a mark.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MarkAnswer {
    /// `None` if the master has not answered.
    pub marked: Option<Marked>,
    /// The master votes, and did when it was queried.
    pub counts: bool,
}

/// The answers of all masters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reading {
    /// The largest values that the masters have, each number separately.
    pub mark: Option<Mark>,
    /// The masters' time, in milliseconds since 1970.
    pub now: Millis,
    /// Masters that answered with a smaller mark.
    pub behind: MasterSet,
}

impl Reading {
    /// Returns `None` if fewer than a quorum of voting masters have answered.
    pub fn of(heard: &[MarkAnswer]) -> Option<Self> {
        let now = now(heard)?;
        let answered: Vec<(usize, Option<&Mark>)> = heard
            .iter()
            .enumerate()
            .filter_map(|(master, heard)| Some((master, heard.marked.as_ref()?.mark.as_ref())))
            .collect();
        let counting = answered.iter().filter_map(|(_, had)| Some(counting((*had)?, now)));
        let mark = counting.reduce(|most, mark| most.raised(&mark));
        let has_all = |had: Option<&Mark>| {
            mark.as_ref().is_none_or(|mark| had.is_some_and(|had| had.covers(mark)))
        };
        let behind = answered.iter().filter(|(_, had)| !has_all(*had));
        let behind = behind.map(|(master, _)| *master).collect();
        Some(Self { mark, now, behind })
    }

    /// Returns the run that makes another one unnecessary.
    pub fn done(&self, when: When) -> Option<&Mark> {
        self.mark.as_ref().filter(|mark| match when {
            When::Within(period) => mark.at > 0 && self.now.saturating_sub(mark.at) < period,
            When::Fire(fire) => mark.fire >= fire,
        })
    }
}

/// Returns the masters' time. As long as fewer than half of their clocks are wrong, it lies between
/// two correct clocks.
fn now(heard: &[MarkAnswer]) -> Option<Millis> {
    let counted = heard.iter().filter(|heard| heard.counts);
    let mut times: Vec<Millis> =
        counted.filter_map(|heard| Some(heard.marked.as_ref()?.time)).collect();
    if times.len() < quorum(heard.len()) { None } else { lower_median(&mut times) }
}

/// Returns the valid part of a mark. A scheduled run is not a time and is always valid.
fn counting(mark: &Mark, now: Millis) -> Mark {
    if mark.at <= now.saturating_add(AHEAD_MAX) {
        return mark.clone();
    }
    Mark { fire: mark.fire, ..Mark::default() }
}

#[cfg(test)]
mod tests {
    use redlock_core::Label;

    use super::*;

    const NOW: Millis = 1_700_000_000_000;
    const HOUR: Millis = 3_600_000;

    fn mark(at: Millis, fire: u64, by: &str) -> Mark {
        Mark { at, fire, by: Some(Label::parse(by).unwrap()) }
    }

    fn says(mark: Option<Mark>, time: Millis) -> MarkAnswer {
        MarkAnswer { marked: Some(Marked { mark, time }), counts: true }
    }

    const SILENT: MarkAnswer = MarkAnswer { marked: None, counts: true };

    fn uncounted(heard: MarkAnswer) -> MarkAnswer {
        MarkAnswer { counts: false, ..heard }
    }

    #[test]
    fn a_run_of_a_period_completes_no_fire() {
        assert_eq!((When::Within(1_000).fire(), When::Fire(7).fire()), (0, 7));
    }

    #[test]
    fn largest_mark_is_used_and_masters_without_it_are_behind() {
        let (old, new) = (mark(NOW - HOUR, 9, "a"), mark(NOW - 5, 3, "b"));
        let heard = [
            says(Some(old), NOW),
            says(Some(new), NOW),
            says(None, NOW),
            SILENT,
            says(Some(mark(NOW - 5, 9, "c")), NOW),
        ];
        let reading = Reading::of(&heard).unwrap();
        assert_eq!(reading.mark, Some(mark(NOW - 5, 9, "b")));
        assert_eq!(reading.behind, MasterSet::from_iter([0, 1, 2]));
        let none = Reading::of(&[says(None, NOW), says(None, NOW), SILENT]).unwrap();
        assert_eq!((none.mark, none.behind), (None, MasterSet::EMPTY));
    }

    /// A mark on a master that does not vote is still a mark, but the master adds nothing to the
    /// quorum.
    #[test]
    fn reading_needs_a_voting_quorum_and_includes_other_marks() {
        let had = || says(Some(mark(NOW - HOUR, 0, "a")), NOW);
        assert_eq!(Reading::of(&[had(), SILENT, SILENT]), None);
        assert_eq!(Reading::of(&[had(), uncounted(had()), uncounted(had())]), None);
        let reading = Reading::of(&[says(None, NOW), says(None, NOW), uncounted(had())]).unwrap();
        assert_eq!(reading.mark, Some(mark(NOW - HOUR, 0, "a")));
        assert_eq!(reading.behind, MasterSet::from_iter([0, 1]));
    }

    #[test]
    fn time_is_the_median_of_the_voting_masters() {
        let at = |time| says(None, time);
        let heard = [at(NOW), at(NOW + 100 * HOUR), at(NOW + 7), SILENT, SILENT];
        assert_eq!(Reading::of(&heard).unwrap().now, NOW + 7);
        let heard = [at(NOW), at(0), at(NOW + 7), uncounted(at(1)), uncounted(at(1))];
        assert_eq!(Reading::of(&heard).unwrap().now, NOW);
    }

    #[test]
    fn mark_completes_its_period_and_earlier_scheduled_runs() {
        let had = says(Some(mark(NOW - HOUR, 7, "a")), NOW);
        let reading = Reading::of(&[had]).unwrap();
        let is_done = |when| reading.done(when).is_some();
        assert!(is_done(When::Within(HOUR + 1)) && !is_done(When::Within(HOUR)));
        assert!(is_done(When::Fire(7)) && is_done(When::Fire(1)) && !is_done(When::Fire(8)));
        // A clock slightly slower than the clock of the previous run.
        let ahead = says(Some(mark(NOW + AHEAD_MAX, 0, "a")), NOW);
        assert!(Reading::of(&[ahead]).unwrap().done(When::Within(1)).is_some());
        // A mark with only a scheduled run does not complete a period.
        let fire = says(Some(mark(0, 7, "a")), HOUR / 2);
        assert!(Reading::of(&[fire]).unwrap().done(When::Within(HOUR)).is_none());
    }

    #[test]
    fn mark_in_the_future_is_ignored_and_hides_no_other() {
        let ahead = || says(Some(mark(NOW + AHEAD_MAX + 1, 7, "a")), NOW);
        let reading = Reading::of(&[ahead(), ahead(), ahead()]).unwrap();
        assert!(reading.done(When::Within(HOUR)).is_none());
        assert!(reading.done(When::Fire(7)).is_some(), "the fire is not a time");
        let had = || says(Some(mark(NOW - 5, 0, "b")), NOW);
        let reading = Reading::of(&[ahead(), had(), ahead()]).unwrap();
        assert_eq!(reading.mark, Some(mark(NOW - 5, 7, "b")));
        assert_eq!(reading.behind, MasterSet::from_iter([1]), "a mark never falls");
    }

    #[test]
    fn a_mark_is_kept_for_a_month_or_twice_its_period() {
        assert_eq!(When::Within(12 * HOUR).kept(), 32 * 24 * HOUR);
        assert_eq!(When::Within(60 * 24 * HOUR).kept(), 120 * 24 * HOUR);
        assert_eq!(When::Fire(9).kept(), 32 * 24 * HOUR);
    }
}
