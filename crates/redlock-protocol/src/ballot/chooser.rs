//! `Chooser`: the next ballot for a member. See rule F2 of `docs/PROTOCOL.md`.

use std::collections::BTreeMap;
use std::time::Duration;

use redlock_core::{Ballot, Instant, Member};

use super::super::master_set::MasterSet;
use super::clock::BallotClock;
use crate::quorum::quorum;

/// The ballots that one handle has sent and seen for each member, and its ballot clock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Chooser {
    /// The number of masters.
    masters: usize,
    clock: BallotClock,
    /// The largest number that was sent or followed. Holds at most 1,024 members.
    largest: BTreeMap<Member, u64>,
    /// Numbers far ahead of the clock, each with the master that shows it. Empty while only locks
    /// write scores.
    far: BTreeMap<Member, BTreeMap<usize, u64>>,
}

impl Chooser {
    /// Creates a chooser that has learned from no master yet.
    pub fn new(masters: usize) -> Self {
        let (largest, far) = (BTreeMap::new(), BTreeMap::new());
        Self { masters, clock: BallotClock::default(), largest, far }
    }

    /// Returns a ballot larger than all that this handle has sent and seen for `member`, by
    /// `margin` if there is room for that. `None` if no ballot below 2^53 is left.
    pub fn next(&mut self, member: Member, margin: Duration, now: Instant) -> Option<Ballot> {
        let largest = self.largest.get_mut(&member);
        let least = largest.as_ref().map_or(0, |largest| largest.saturating_add(1));
        let number = least.max(self.clock.number(now));
        let with_margin = self.clock.with_margin(number, margin, now);
        let ballot = Ballot::new(with_margin).or_else(|| Ballot::new(number))?;
        match largest {
            Some(largest) => *largest = ballot.number(),
            None => drop(self.largest.insert(member, ballot.number())),
        }
        Some(ballot)
    }

    /// Records a score of `master` for `member`, read now by an attempt whose ballot was chosen at
    /// `since`.
    ///
    /// A score that is 71 years ahead is followed only if it keeps a quorum from accepting less. If
    /// a single master could make the client follow it, the score would reach all masters and use
    /// up the numbers of the member.
    pub fn saw(
        &mut self,
        member: Member,
        master: usize,
        score: u64,
        (since, now): (Instant, Instant),
    ) {
        let mut number = number(score);
        if self.clock.is_far(number, now) {
            number = self.needed(member, master, number);
        }
        let largest = self.largest.entry(member).or_default();
        *largest = number.max(*largest);
        self.clock.saw(number, since, now);
    }

    /// Returns the masters with a far score that the next ballot does not exceed.
    pub fn refusing(&self, member: Member) -> MasterSet {
        let largest = self.largest.get(&member).copied().unwrap_or_default();
        let far = self.far.get(&member).into_iter().flatten();
        far.filter(|(_, number)| **number > largest).map(|(master, _)| *master).collect()
    }

    /// Returns the largest of the far numbers of `member` that more than N - q masters reach. A
    /// ballot below it finds no quorum. Zero if fewer masters show one.
    fn needed(&mut self, member: Member, master: usize, number: u64) -> u64 {
        let shown = self.far.entry(member).or_default();
        shown.insert(master, number);
        let mut numbers: Vec<u64> = shown.values().copied().collect();
        numbers.sort_unstable_by(|one, other| other.cmp(one));
        numbers.get(self.masters - quorum(self.masters)).copied().unwrap_or_default()
    }

    /// Records that a master was admitted with this score for all members.
    pub fn saw_floor(&mut self, floor: u64, now: Instant) {
        self.clock.saw_floor(number(floor), now);
    }

    /// Records the TIME of `master`, in microseconds since 1970.
    pub fn learn_clock(&mut self, master: usize, micros: u64, now: Instant) {
        self.clock.learn(master, micros, now);
    }
}

/// Returns the number of the largest ballot not above `score`, or one more. The next number is
/// above the score.
fn number(score: u64) -> u64 {
    Ballot::above(score).map_or(Ballot::NUMBER_MAX, |next| next.number().saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Duration = Duration::ZERO;
    const TIME: u64 = 1_767_225_600_000_000;
    /// Just above 71 years.
    const FAR: u64 = (1 << 51) + 64;

    fn chooser() -> (Chooser, Member) {
        let mut chooser = Chooser::new(3);
        chooser.learn_clock(0, TIME, Instant::ORIGIN);
        (chooser, Member::of(b"orders:42"))
    }

    fn score(ballot: Option<Ballot>) -> u64 {
        ballot.unwrap().score()
    }

    /// The instants at which a ballot was chosen and a score was read.
    const NOW: (Instant, Instant) = (Instant::ORIGIN, Instant::ORIGIN);

    fn at(millis: u64) -> Instant {
        Instant::ORIGIN.saturating_add(Duration::from_millis(millis))
    }

    #[test]
    fn ballots_of_one_member_grow_even_if_the_clock_is_stopped() {
        let (mut chooser, member) = chooser();
        let ballots = [0; 3].map(|_| score(chooser.next(member, NONE, at(0))));
        assert_eq!(ballots, [TIME + 31, TIME + 63, TIME + 95]);
        assert_eq!(
            score(chooser.next(member, NONE, at(1))),
            TIME + 992 + 31,
            "then the clock is ahead"
        );
        assert_eq!(score(chooser.next(Member::of(b"another"), NONE, at(0))), TIME + 31);
    }

    #[test]
    fn next_ballot_exceeds_every_score_seen() {
        for ahead in [0, 1, 30, 31, 32, 63, 1_000_000] {
            let (mut chooser, member) = chooser();
            chooser.saw(member, 0, TIME + ahead, NOW);
            assert!(score(chooser.next(member, NONE, at(0))) > TIME + ahead, "{ahead}");
        }
    }

    #[test]
    fn score_of_one_member_raises_ballots_of_all_members() {
        let (mut chooser, member) = chooser();
        chooser.saw(member, 0, TIME + 1_000_000 + 31, NOW);
        let other = score(chooser.next(Member::of(b"another"), NONE, at(0)));
        assert!(other > TIME + 1_000_000 + 31, "another member may be as far ahead");
        let later = at(800);
        assert!(
            score(chooser.next(Member::of(b"third"), NONE, later)) > TIME + 1_000_000 + 700_000
        );
    }

    #[test]
    fn score_far_ahead_is_followed_if_it_blocks_a_quorum() {
        for (masters, follows) in [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3)] {
            let mut chooser = Chooser::new(masters);
            chooser.learn_clock(0, TIME, at(0));
            let member = Member::of(b"orders:42");
            for master in 0..masters {
                let shown = TIME + FAR + 9_000 - master as u64 * 1_000;
                chooser.saw(member, master, shown, NOW);
                let next = score(chooser.next(member, NONE, at(0)));
                let is_followed = master + 1 >= follows;
                assert_eq!(next > TIME + FAR, is_followed, "{masters} masters, {master}");
                let is_refusing = |master: usize| TIME + FAR + 9_000 - master as u64 * 1_000 > next;
                let refusing = (0..=master).filter(|&master| is_refusing(master)).collect();
                assert_eq!(chooser.refusing(member), refusing, "{masters} masters, {master}");
                // The ballot leaves out as many of the masters with a far score as it can.
                assert!(next < TIME + FAR + 9_500 - (follows as u64 - 1) * 1_000, "{masters}");
            }
            let other = score(chooser.next(Member::of(b"another"), NONE, at(0)));
            assert!(other < TIME + 10_000, "it moves no other member");
        }
    }

    /// The next ballot is above the number that a quorum shows, and no longer refused by those
    /// masters.
    #[test]
    fn score_below_the_next_ballot_does_not_refuse_it() {
        let (mut chooser, member) = chooser();
        for master in 0..3 {
            chooser.saw(member, master, TIME + FAR + 9_000, NOW);
        }
        assert!(score(chooser.next(member, NONE, at(0))) > TIME + FAR + 9_000);
        assert_eq!(chooser.refusing(member), MasterSet::EMPTY);
        let (mut chooser, member) = self::chooser();
        for master in 0..3 {
            chooser.saw(member, master, TIME + FAR + 9_000, NOW);
        }
        assert_eq!(chooser.refusing(member), MasterSet::EMPTY, "also before it was chosen");
    }

    #[test]
    fn repeated_far_scores_of_one_master_are_not_followed() {
        let (mut chooser, member) = chooser();
        for ahead in [FAR, FAR + 64, FAR + 128] {
            chooser.saw(member, 2, TIME + ahead, NOW);
        }
        assert!(score(chooser.next(member, NONE, at(0))) < TIME + 10_000);
    }

    #[test]
    fn a_floor_is_passed_by_the_first_ballot() {
        let (mut chooser, member) = chooser();
        let floor = (TIME + 2_000_000) | 31;
        chooser.saw_floor(floor, at(0));
        assert!(score(chooser.next(member, NONE, at(0))) > floor);
        assert!(score(chooser.next(member, NONE, at(5_000))) > floor);
    }

    #[test]
    fn margin_is_added_to_the_next_ballot() {
        let (mut chooser, member) = chooser();
        let margin = Duration::from_millis(1);
        assert_eq!(score(chooser.next(member, margin, at(0))), TIME + 1_024 + 31);
    }

    #[test]
    fn ballots_stay_below_2_to_the_53() {
        let (mut chooser, member) = chooser();
        for master in 0..2 {
            chooser.saw(member, master, (1 << 53) - 40, NOW);
        }
        let last = chooser.next(member, Duration::from_secs(1), at(0));
        assert_eq!(score(last), (1 << 53) - 33, "there is no room for the margin");
        assert_eq!(score(chooser.next(member, NONE, at(0))), (1 << 53) - 1);
        assert_eq!(chooser.next(member, NONE, at(0)), None);
        assert!(chooser.next(Member::of(b"another"), NONE, at(0)).is_some());
    }
}
