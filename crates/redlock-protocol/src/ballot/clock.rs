//! `BallotClock`: the number from which ballots are likely to be accepted. See rule F3 of
//! `docs/PROTOCOL.md`.

use std::time::Duration;

use redlock_core::{Ballot, Instant};

use crate::quorum::MASTERS_MAX;
use crate::quorum::lower_median;

/// How long one number of a ballot lasts, in microseconds.
const STRIDE_US: u64 = 32;
/// How long a lead stays unchanged. Two clients whose readings of TIME differ by a few
/// milliseconds, and that take turns on one key faster than that, would otherwise learn it again
/// every few locks.
const HOLDS: Duration = Duration::from_secs(10);
/// The lead then shrinks by an eighth of the time that passes.
const SHRINKS: u32 = 8;
/// Limits how far a lead is followed that concurrent ballots show: one second more than the lead
/// that a floor has made.
const FOLLOWED_US: u64 = 1_000_000;
/// A floor that rests on a clock is at most this far ahead of it: three seconds.
const FLOOR_US: u64 = 3_000_000;
/// Scores further ahead than this are *far*: 2^51 us, about 71 years. No clock follows them,
/// because one such score would bring all members close to the end of the numbers. An operator
/// cannot set a floor beyond it.
pub const LEAD_MAX_US: u64 = 1 << 51;

/// The masters' TIME, and the *lead*: the largest distance by which a score was ahead of it.
///
/// The clock is the lower median of the TIMEs that the masters reported, advanced by our own clock.
/// Once three masters have reported, a single wrong clock does not move it. If a client's masters
/// lag those of other clients, it learns that from scores and uses times ahead of its clock for a
/// while. The lead stays for ten seconds, so that it is not learned again every few locks. It then
/// shrinks slowly, so that one wrong clock does not move all others forever.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct BallotClock {
    samples: [Option<Sample>; MASTERS_MAX],
    /// The lower median of the clocks. It stays with the same master until another one reports its
    /// TIME, because our own clock advances all of them.
    median: Option<Sample>,
    lead: Option<Lead>,
    /// The distance of a floor ahead of the clock.
    floor: Option<Lead>,
}

/// A master's reported TIME, and when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Sample {
    micros: u64,
    at: Instant,
}

/// Our distance ahead of the clock, and when it starts to shrink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Lead {
    micros: u64,
    shrinks_from: Instant,
}

impl BallotClock {
    /// Records the TIME of `master`, in microseconds since 1970.
    pub fn learn(&mut self, master: usize, micros: u64, now: Instant) {
        let before = self.micros(now);
        self.samples[master] = Some(Sample { micros, at: now });
        self.median = self.median(now);
        // An apparent lead of other clients may have been our own late clock.
        let corrected = self.micros(now).saturating_sub(before);
        for lead in [&mut self.lead, &mut self.floor] {
            *lead = lead.and_then(|lead| lead.corrected(corrected, now));
        }
    }

    /// Records that a master was admitted with a floor of this number. A floor that rests on a
    /// clock is seconds ahead of it, and so are all ballots until that much time has passed. A
    /// floor that rests on scores contains leads that were followed earlier, and adds at most one
    /// lead of a clock.
    pub fn saw_floor(&mut self, number: u64, now: Instant) {
        self.saw(number, now, now);
        let ahead = self.ahead(number, now).min(FLOOR_US);
        if ahead > left(self.floor, now) {
            self.floor = Some(Lead::new(ahead, now));
        }
    }

    /// Records a score with this number, read now by an attempt whose ballot was chosen at `since`.
    /// The next ballots must exceed such scores.
    ///
    /// The ballot was too small, compared with the lock of another client, by the distance of the
    /// score at `since`. Measured now, the distance would be too small by the round trips since
    /// then, and the next lock that follows that client as closely would be refused again. If
    /// ballots of several clients are under way for one member, however, that distance is part of
    /// their scores too, and would grow from ballot to ballot without end. It is therefore followed
    /// only up to one second beyond the floor. No score was chosen after it was read, so beyond
    /// that limit the present clock applies.
    pub fn saw(&mut self, number: u64, since: Instant, now: Instant) {
        let followed = self.followed(now);
        let ahead = self.ahead(number, since).min(followed).max(self.ahead(number, now));
        if ahead > left(self.lead, now) && ahead <= LEAD_MAX_US {
            self.lead = Some(Lead::new(ahead, now));
        }
    }

    /// Returns how far a lead shown by concurrent ballots is followed, in microseconds.
    fn followed(&self, now: Instant) -> u64 {
        FOLLOWED_US.saturating_add(left(self.floor, now))
    }

    /// Returns `number` plus this margin, as long as that is not further ahead of the clock than a
    /// lead is followed. Otherwise the numbers that other clients learn from it would grow without
    /// end.
    #[inline]
    pub fn with_margin(&self, number: u64, margin: Duration, now: Instant) -> u64 {
        let last = self.micros(now).saturating_add(self.followed(now)) / STRIDE_US;
        number.max(last.min(number.saturating_add(micros(margin).div_ceil(STRIDE_US))))
    }

    /// Returns `true` if a client must have used a clock that is wrong by 71 years, or another
    /// program wrote this number.
    pub fn is_far(&self, number: u64, now: Instant) -> bool {
        self.ahead(number, now) > LEAD_MAX_US
    }

    /// Returns how far the next number is ahead of the masters' clock.
    fn ahead(&self, number: u64, now: Instant) -> u64 {
        let micros = number.saturating_add(1).saturating_mul(STRIDE_US);
        micros.saturating_sub(self.micros(now) / STRIDE_US * STRIDE_US)
    }

    /// Returns the current number: the clock plus the lead.
    #[inline]
    pub fn number(&self, now: Instant) -> u64 {
        (self.micros(now) / STRIDE_US).saturating_add(left(self.lead, now).div_ceil(STRIDE_US))
    }

    /// Returns the lower median of the masters' clocks, or zero while no master has reported its
    /// TIME.
    #[inline]
    fn micros(&self, now: Instant) -> u64 {
        self.median.map_or(0, |samples| samples.micros(now))
    }

    fn median(&self, now: Instant) -> Option<Sample> {
        let mut shown = [0; MASTERS_MAX];
        let mut count = 0;
        for samples in self.samples.iter().flatten() {
            shown[count] = samples.micros(now);
            count += 1;
        }
        lower_median(&mut shown[..count]).map(|micros| Sample { micros, at: now })
    }
}

impl Lead {
    fn new(micros: u64, now: Instant) -> Self {
        Self { micros, shrinks_from: now.saturating_add(HOLDS) }
    }

    fn left(self, now: Instant) -> u64 {
        self.micros.saturating_sub(micros(now.saturating_since(self.shrinks_from) / SHRINKS))
    }

    /// Returns the rest of the lead after the clock is set forward by this many microseconds.
    /// `None` if nothing is left.
    fn corrected(self, by: u64, now: Instant) -> Option<Self> {
        let left = self.left(now).saturating_sub(by);
        (left > 0).then_some(Self { micros: left, shrinks_from: self.shrinks_from.max(now) })
    }
}

/// Returns the rest of a lead.
#[inline]
fn left(lead: Option<Lead>, now: Instant) -> u64 {
    lead.map_or(0, |lead| lead.left(now))
}

impl Sample {
    /// Returns the time that it shows now.
    #[inline]
    fn micros(self, now: Instant) -> u64 {
        self.micros.saturating_add(micros(now.saturating_since(self.at)))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

// No client of ours approaches the end of the numbers for more than a century.
const _: () = assert!(LEAD_MAX_US / STRIDE_US < Ballot::NUMBER_MAX / 2);

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026, in microseconds.
    const YEAR_2026: u64 = 1_767_225_600_000_000;

    fn at(seconds: u64) -> Instant {
        Instant::ORIGIN.saturating_add(Duration::from_secs(seconds))
    }

    fn secs(seconds: u64) -> u64 {
        seconds * 1_000_000 / STRIDE_US
    }

    /// Creates a clock whose masters show this many seconds after the start of 2026.
    fn clock(masters: &[u64]) -> BallotClock {
        let mut clock = BallotClock::default();
        for (master, seconds) in masters.iter().enumerate() {
            clock.learn(master, YEAR_2026 + seconds * 1_000_000, at(0));
        }
        clock
    }

    fn start() -> u64 {
        YEAR_2026 / STRIDE_US
    }

    #[test]
    fn ballot_clock_is_the_lower_median_of_the_masters() {
        for (masters, median) in [
            (&[7][..], 7),
            (&[3_600, 5], 5),
            (&[0, 3_600, 1], 1),
            (&[3_600, 3_600, 0, 1], 1),
            (&[9, 0, 4, 3_600, 2], 4),
        ] {
            let clock = clock(masters);
            assert_eq!(clock.number(at(0)), start() + secs(median), "{masters:?}");
            assert_eq!(clock.number(at(90)), start() + secs(median + 90), "{masters:?}");
        }
        assert_eq!(BallotClock::default().number(at(9)), 0);
    }

    #[test]
    fn number_is_far_only_beyond_the_limit() {
        let clock = BallotClock::default();
        let last = LEAD_MAX_US / STRIDE_US - 1;
        assert_eq!([last, last + 1].map(|number| clock.is_far(number, at(0))), [false, true]);
    }

    #[test]
    fn the_latest_report_applies() {
        let mut clock = clock(&[0, 100, 0]);
        for master in 0..3 {
            clock.learn(master, YEAR_2026 + 50_000_000, at(60));
        }
        assert_eq!(clock.number(at(60)), start() + secs(50), "our own clock ran ahead");
    }

    #[test]
    fn lead_is_the_largest_seen_and_shrinks_by_an_eighth_of_time() {
        let mut clock = clock(&[0, 0, 0]);
        clock.saw(start() + secs(80), at(0), at(0));
        clock.saw(start() + secs(40), at(0), at(0));
        assert_eq!(clock.number(at(0)), start() + secs(80) + 1, "above what was seen");
        assert_eq!(clock.number(at(10)), start() + secs(90) + 1, "it remains for some time");
        assert_eq!(clock.number(at(90)), start() + secs(160) + 1);
        assert_eq!(clock.number(at(651)), start() + secs(651), "it is used up");
        clock.saw(start() + secs(650), at(651), at(651));
        assert_eq!(clock.number(at(651)), start() + secs(651), "that was not ahead");
    }

    #[test]
    fn reading_the_clock_does_not_prolong_the_lead() {
        let mut clock = clock(&[0]);
        clock.saw(start() + secs(80), at(0), at(0));
        for now in [4, 8, 12, 50, 90] {
            clock.learn(0, YEAR_2026 + now * 1_000_000, at(now));
        }
        assert_eq!(clock.number(at(90)), start() + secs(160) + 1);
    }

    #[test]
    fn clock_correction_is_subtracted_from_the_lead() {
        let mut clock = clock(&[0]);
        clock.saw(start() + secs(3_600), at(0), at(0));
        clock.learn(1, YEAR_2026 + 3_600_000_000, at(0));
        assert_eq!(clock.number(at(0)), start() + secs(3_600) + 1, "the lower of two leads still");
        clock.learn(2, YEAR_2026 + 3_600_000_000, at(0));
        assert_eq!(clock.number(at(0)), start() + secs(3_600) + 1, "and not 3,600 s more");
    }

    #[test]
    fn lead_is_measured_when_the_ballot_was_chosen() {
        let ms = |ms| at(0).saturating_add(Duration::from_millis(ms));
        let mut clock = clock(&[0, 0, 0]);
        clock.saw(start() + secs(1) / 50, ms(0), ms(5));
        assert_eq!(clock.number(ms(0)), start() + secs(1) / 50 + 1, "20 ms, and not 15");
    }

    /// Ballots are ahead of the clock by as much as the floor was, as long as the lead lasts.
    #[test]
    fn lead_is_measured_from_a_ballot_raised_by_a_floor() {
        let ms = |ms| at(0).saturating_add(Duration::from_millis(ms));
        let mut clock = clock(&[0, 0, 0]);
        clock.saw_floor(start() + secs(3), ms(0));
        let refused_by = clock.number(ms(6_000)) + secs(1) / 50;
        clock.saw(refused_by, ms(6_000), ms(6_005));
        assert_eq!(clock.number(ms(6_000)), refused_by + 1, "20 ms, and not 15");
        clock.saw(start() + secs(90), ms(85_000), ms(85_005));
        assert_eq!(clock.number(ms(85_005)), start() + secs(90) + 1, "the floor is passed");
    }

    /// Each client learns from the score of the previous client, whose ballot was chosen in the
    /// meantime.
    #[test]
    fn leads_of_successive_clients_are_bounded() {
        let ms = |ms| at(0).saturating_add(Duration::from_millis(ms));
        let mut clocks = [clock(&[0]), clock(&[0])];
        clocks.iter_mut().for_each(|clock| clock.saw_floor(start() + secs(2), ms(0)));
        let mut chosen = clocks[0].number(ms(0));
        for step in 1..10_000 {
            let clock = &mut clocks[step as usize % 2];
            clock.saw(chosen, ms(step * 10 - 10), ms(step * 10 + 5));
            let now = ms(step * 10 + 5);
            chosen = clock.with_margin(clock.number(now), Duration::from_millis(4), now);
            let ahead = chosen - clock.micros(now) / STRIDE_US;
            assert!(ahead <= secs(3) + 3, "{ahead} at step {step}");
        }
    }

    #[test]
    fn scores_near_the_maximum_move_no_clock() {
        let mut clock = clock(&[0, 0, 0]);
        clock.saw(Ballot::NUMBER_MAX, at(0), at(0));
        assert_eq!(clock.number(at(0)), start());
    }
}
