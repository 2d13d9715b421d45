//! Decides the vote. Pure: no time, no input or output, nothing to await. See rules V4 and V5 of
//! `docs/PROTOCOL.md`.

use redlock_core::Verdict;

use crate::quorum::quorum;

/// The decision by the votes recorded so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Missing votes can turn it either way.
    Open,
    /// A quorum has granted.
    Won,
    /// A quorum can no longer be reached, whatever the others answer.
    Lost,
}

/// The votes of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tally {
    masters: usize,
    granted: usize,
    refused: usize,
    unknown: usize,
    /// How many *unknown* votes may still arrive: their time is up.
    late: usize,
}

impl Tally {
    /// Creates the tally of a vote without any answer.
    #[inline]
    pub fn new(masters: usize) -> Self {
        Self { masters, granted: 0, refused: 0, unknown: 0, late: 0 }
    }

    /// Records the vote of one more master, in time or late. *Unknown* is not a grant.
    #[inline]
    pub fn count(&mut self, verdict: &Verdict) {
        if self.late > 0 {
            self.late -= 1;
            self.unknown -= 1;
        }
        match verdict {
            Verdict::Granted | Verdict::BallotRefused => self.granted += 1,
            verdict if verdict.is_refusal() => self.refused += 1,
            _ => self.unknown += 1,
        }
    }

    /// Records one more master that does not vote.
    pub fn count_unknown(&mut self) {
        self.unknown += 1;
    }

    /// Turns a recorded grant into *unknown*.
    pub fn revoke(&mut self) {
        self.granted -= 1;
        self.unknown += 1;
    }

    /// Turns a recorded grant into a refusal, because the key is no longer there.
    pub fn deny(&mut self) {
        self.granted -= 1;
        self.refused += 1;
    }

    /// Removes the refusals of `masters` masters, which are queried again.
    pub fn ask_again(&mut self, masters: usize) {
        self.refused -= masters;
    }

    /// Turns every missing vote into *unknown*, because the time is up.
    pub fn close(&mut self) {
        self.late += self.pending();
        self.unknown += self.pending();
    }

    /// Returns the decision by the votes so far.
    #[inline]
    pub fn decision(&self) -> Decision {
        let quorum = quorum(self.masters);
        if self.granted >= quorum {
            Decision::Won
        } else if self.granted + self.pending() < quorum {
            Decision::Lost
        } else {
            Decision::Open
        }
    }

    /// Returns `true` if a lost vote was certainly lost to silence, whatever answers still arrive.
    pub fn is_unanswered(&self) -> bool {
        self.granted + self.refused + self.pending() < quorum(self.masters)
    }

    /// Returns `true` if fewer than a quorum have granted or refused so far.
    pub fn is_short_of_answers(&self) -> bool {
        self.granted + self.refused < quorum(self.masters)
    }

    /// Returns `true` if so many have refused that no quorum can hold the key.
    pub fn is_refused(&self) -> bool {
        self.refused > self.masters - quorum(self.masters)
    }

    /// Returns how many granted.
    #[inline]
    pub fn granted(&self) -> usize {
        self.granted
    }

    /// Returns how many votes have arrived.
    #[inline]
    pub fn counted(&self) -> usize {
        self.masters - self.pending()
    }

    /// Returns how many votes are missing.
    #[inline]
    pub fn pending(&self) -> usize {
        self.masters - self.granted - self.refused - self.unknown
    }
}

#[cfg(test)]
mod tests {
    use redlock_core::Cause;

    use super::*;

    const ANSWERS: [Verdict; 3] =
        [Verdict::Granted, Verdict::HELD, Verdict::Unknown(Cause::TimedOut)];

    /// Every assignment of three answers to `masters` masters.
    fn assignments(masters: usize) -> impl Iterator<Item = Vec<usize>> {
        (0..3_usize.pow(u32::try_from(masters).unwrap()))
            .map(move |code| (0..masters).map(|i| code / 3_usize.pow(i as u32) % 3).collect())
    }

    fn tally(masters: usize, votes: &[usize]) -> Tally {
        let mut tally = Tally::new(masters);
        votes.iter().for_each(|vote| tally.count(&ANSWERS[*vote]));
        tally
    }

    /// The algorithm's definition, applied to the complete votes: more than half have granted.
    fn wins(votes: &[usize]) -> bool {
        votes.iter().filter(|vote| **vote == 0).count() * 2 > votes.len()
    }

    #[test]
    fn late_vote_replaces_its_missing_vote() {
        for (late, granted) in [(0, 1), (1, 0), (2, 0)] {
            let mut tally = Tally::new(3);
            tally.close();
            tally.count(&ANSWERS[late]);
            assert_eq!((tally.pending(), tally.granted()), (0, granted));
            tally.count(&ANSWERS[0]);
            tally.count(&Verdict::BallotRefused);
            let decision = tally.decision();
            assert_eq!((decision, tally.granted()), (Decision::Won, granted + 2));
            assert_eq!(tally.pending(), 0);
            tally.deny();
            assert_eq!((tally.granted(), tally.pending()), (granted + 1, 0));
        }
    }

    #[test]
    fn late_votes_are_recorded_once() {
        let mut tally = tally(3, &[1]);
        tally.close();
        tally.count(&ANSWERS[0]);
        tally.count(&ANSWERS[0]);
        tally.ask_again(1);
        tally.count(&ANSWERS[0]);
        assert_eq!((tally.granted(), tally.pending()), (3, 0));
    }

    #[test]
    fn refusals_decide_when_the_rest_cannot_form_a_quorum() {
        assert!(!tally(5, &[1, 1]).is_refused());
        assert!(tally(5, &[1, 1, 1]).is_refused());
        assert_eq!(tally(5, &[0, 1]).counted(), 2);
    }

    #[test]
    fn every_assignment_of_votes_follows_the_algorithm() {
        for masters in 1..=7 {
            for votes in assignments(masters) {
                let expected = if wins(&votes) { Decision::Won } else { Decision::Lost };
                assert_eq!(tally(masters, &votes).decision(), expected, "{votes:?}");
            }
        }
    }

    /// A result is certain if every way to fill in the missing votes leads to it. Nothing may be
    /// decided earlier, and everything must be decided at that point.
    #[test]
    fn votes_are_decided_as_soon_as_certain() {
        for masters in 1..=7 {
            for seen in 0..=masters {
                for votes in assignments(seen) {
                    let outcomes: Vec<bool> = assignments(masters - seen)
                        .map(|rest| wins(&[votes.as_slice(), rest.as_slice()].concat()))
                        .collect();
                    let certain = outcomes.iter().all(|outcome| *outcome == outcomes[0]);
                    let expected = match (certain, outcomes[0]) {
                        (false, _) => Decision::Open,
                        (true, true) => Decision::Won,
                        (true, false) => Decision::Lost,
                    };
                    assert_eq!(tally(masters, &votes).decision(), expected, "{masters}: {votes:?}");
                }
            }
        }
    }

    #[test]
    fn decision_never_changes_with_later_votes() {
        for masters in 1..=5 {
            for votes in assignments(masters) {
                let mut decided = Decision::Open;
                for seen in 0..=masters {
                    let now = tally(masters, &votes[..seen]).decision();
                    assert!(decided == Decision::Open || decided == now, "{votes:?}");
                    decided = now;
                }
            }
        }
    }

    #[test]
    fn two_attempts_cannot_both_win_when_every_master_grants_once() {
        for masters in 1..=7 {
            for votes in assignments(masters) {
                let swapped: Vec<usize> =
                    votes.iter().map(|vote| if *vote == 0 { 1 } else { 0 }).collect();
                let both = [&votes, &swapped].map(|votes| tally(masters, votes).decision());
                assert_ne!(both, [Decision::Won; 2], "{votes:?}");
            }
        }
    }

    #[test]
    fn missing_votes_are_not_grants() {
        let mut tally = tally(5, &[0, 0]);
        assert_eq!(tally.decision(), Decision::Open);
        tally.close();
        assert_eq!(tally.decision(), Decision::Lost);
    }

    #[test]
    fn silence_of_a_majority_is_certain_once_no_quorum_can_answer() {
        assert!(tally(5, &[2, 2, 2]).is_unanswered());
        assert!(!tally(5, &[1, 2, 2]).is_unanswered(), "two more refusals can still come");
    }
}
