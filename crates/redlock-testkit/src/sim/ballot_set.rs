//! `Ballots`: one ballot set of a simulated master.

use redlock_core::Member;
use redlock_core::admission::Score;

/// One ballot set. Nearly all of its members have the same score.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ballots {
    /// `ZCARD`.
    pub members: u32,
    /// The score of all members but a few.
    floor: Score,
    /// Members with another score, and missing members. Sorted by member.
    others: Vec<(Member, Option<Score>)>,
}

impl Ballots {
    /// Creates a set of `members` members with this score.
    pub fn new(members: u32, floor: Score) -> Self {
        Self { members, floor, others: Vec::new() }
    }

    /// Returns the largest score.
    pub fn highest(&self) -> Score {
        self.others.iter().filter_map(|(_, score)| *score).fold(self.floor, Score::max)
    }

    /// `ZSCORE` of a member.
    pub fn score(&self, member: Member) -> Option<Score> {
        match self.place(member) {
            Ok(at) => self.others[at].1,
            Err(_) => Some(self.floor).filter(|_| self.members > 0),
        }
    }

    /// `ZADD XX GT CH`: whether the score was raised.
    pub fn raise(&mut self, member: Member, score: Score) -> bool {
        let is_larger = self.score(member).is_some_and(|present| score > present);
        if is_larger {
            self.write(member, Some(score));
        }
        is_larger
    }

    /// `ZREM` of a member.
    pub fn remove(&mut self, member: Member) {
        if self.score(member).is_some() {
            self.members -= 1;
            self.write(member, None);
        }
    }

    /// `ZADD XX GT` of every member.
    pub(super) fn lift(&mut self, level: Score) {
        self.floor = self.floor.max(level);
        let floor = self.floor;
        self.others.retain(|(_, score)| score.is_none_or(|score| score > floor));
    }

    fn write(&mut self, member: Member, score: Option<Score>) {
        match self.place(member) {
            Ok(at) => self.others[at].1 = score,
            Err(at) => self.others.insert(at, (member, score)),
        }
    }

    /// Returns the position of the member among the separately stored members, or its insertion
    /// position.
    fn place(&self, member: Member) -> Result<usize, usize> {
        self.others.binary_search_by_key(&member, |(other, _)| *other)
    }
}

#[cfg(test)]
mod tests {
    use redlock_core::admission::MEMBERS;

    use super::*;

    fn member(number: u16) -> Member {
        Member::new(number).unwrap()
    }

    #[test]
    fn members_have_separate_scores_that_never_decrease() {
        let mut ballots = Ballots::new(MEMBERS, 31);
        assert!(ballots.raise(member(7), 95));
        assert!(!ballots.raise(member(7), 95), "an equal number is not larger");
        assert!(!ballots.raise(member(8), 31));
        assert!(ballots.raise(member(3), 63));
        let scores = [3, 7, 8].map(|number| ballots.score(member(number)));
        assert_eq!((scores, ballots.highest()), ([Some(63), Some(95), Some(31)], 95));
        ballots.lift(63);
        let scores = [3, 7, 8].map(|number| ballots.score(member(number)));
        assert_eq!((scores, ballots.highest()), ([Some(63), Some(95), Some(63)], 95));
    }

    #[test]
    fn removed_member_has_no_score_and_is_not_raised() {
        let mut ballots = Ballots::new(MEMBERS, 31);
        ballots.remove(member(7));
        ballots.remove(member(7));
        assert_eq!((ballots.members, ballots.score(member(7))), (MEMBERS - 1, None));
        assert!(!ballots.raise(member(7), 95));
        ballots.lift(127);
        assert_eq!((ballots.score(member(7)), ballots.highest()), (None, 127));
    }
}
