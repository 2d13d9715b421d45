//! `Chooser`: the next ballot for a member.

use std::collections::BTreeMap;
use std::time::Duration;

use redlock_core::{Ballot, Instant, Member};

use super::clock::BallotClock;

/// What one handle has sent and seen of each member, and its ballot clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Chooser {
    clock: BallotClock,
    /// The largest number that was sent or seen: 1,024 at most.
    largest: BTreeMap<Member, u64>,
}

impl Chooser {
    /// A ballot that is larger than all that this handle has sent and seen for `member`, by so much
    /// more where there is room for that. None where none is left below 2^53.
    pub(crate) fn next(
        &mut self,
        member: Member,
        margin: Duration,
        now: Instant,
    ) -> Option<Ballot> {
        let least = self.largest.get(&member).map_or(0, |largest| largest.saturating_add(1));
        let number = least.max(self.clock.number(now));
        let ballot = Ballot::new(number.saturating_add(BallotClock::numbers(margin)))
            .or_else(|| Ballot::new(number))?;
        self.largest.insert(member, ballot.number());
        Some(ballot)
    }

    /// A master has this score for `member`.
    pub(crate) fn saw(&mut self, member: Member, score: u64, now: Instant) {
        let number = number(score);
        let largest = self.largest.entry(member).or_default();
        *largest = number.max(*largest);
        self.clock.saw(number, now);
    }

    /// A master was admitted with this score for all members.
    pub(crate) fn saw_floor(&mut self, floor: u64, now: Instant) {
        self.clock.saw(number(floor), now);
    }

    /// `master` told its TIME, in microseconds since 1970.
    pub(crate) fn learn_clock(&mut self, master: usize, micros: u64, now: Instant) {
        self.clock.learn(master, micros, now);
    }
}

/// The number of the largest ballot that is not above `score`, or one more: what follows it is
/// above the score.
fn number(score: u64) -> u64 {
    Ballot::above(score).map_or(Ballot::NUMBER_MAX, |next| next.number().saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Duration = Duration::ZERO;
    const TIME: u64 = 1_767_225_600_000_000;

    fn chooser() -> (Chooser, Member) {
        let mut chooser = Chooser::default();
        chooser.learn_clock(0, TIME, Instant::ORIGIN);
        (chooser, Member::of(b"orders:42"))
    }

    fn score(ballot: Option<Ballot>) -> u64 {
        ballot.unwrap().score()
    }

    fn at(millis: u64) -> Instant {
        Instant::ORIGIN.saturating_add(Duration::from_millis(millis))
    }

    #[test]
    fn ballots_of_one_member_grow_also_while_no_time_passes() {
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
    fn the_next_ballot_is_above_every_score_that_was_seen() {
        for ahead in [0, 1, 30, 31, 32, 63, 1_000_000] {
            let (mut chooser, member) = chooser();
            chooser.saw(member, TIME + ahead, at(0));
            assert!(score(chooser.next(member, NONE, at(0))) > TIME + ahead, "{ahead}");
        }
    }

    #[test]
    fn a_score_of_one_member_is_followed_by_all_and_remembered_for_its_own() {
        let (mut chooser, member) = chooser();
        chooser.saw(member, TIME + 1_000_000 + 31, at(0));
        let other = score(chooser.next(Member::of(b"another"), NONE, at(0)));
        assert!(other > TIME + 1_000_000 + 31, "another member may be as far ahead");
        let later = at(800);
        assert!(
            score(chooser.next(Member::of(b"third"), NONE, later)) > TIME + 1_000_000 + 700_000
        );
        chooser.saw(member, TIME + (1 << 52), later);
        assert!(score(chooser.next(member, NONE, later)) > TIME + (1 << 52));
        assert!(score(chooser.next(Member::of(b"fourth"), NONE, later)) < TIME + 10_000_000);
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
    fn a_margin_is_so_much_more() {
        let (mut chooser, member) = chooser();
        let margin = Duration::from_millis(1);
        assert_eq!(score(chooser.next(member, margin, at(0))), TIME + 1_024 + 31);
    }

    #[test]
    fn no_ballot_is_made_that_would_reach_2_to_the_53() {
        let (mut chooser, member) = chooser();
        chooser.saw(member, (1 << 53) - 40, at(0));
        let last = chooser.next(member, Duration::from_secs(1), at(0));
        assert_eq!(score(last), (1 << 53) - 33, "there is no room for the margin");
        assert_eq!(score(chooser.next(member, NONE, at(0))), (1 << 53) - 1);
        assert_eq!(chooser.next(member, NONE, at(0)), None);
        assert!(chooser.next(Member::of(b"another"), NONE, at(0)).is_some());
    }
}
