//! Scores of a lease's masters that refused a ballot: they may have lost their ballots.

use redlock_core::{Cause, Instant, NotAdmitted, Verdict, WhyNot};

use super::HeldLease;
use crate::LostReason;
use crate::master_set::MasterSet;
use crate::votes::answer::{Judged, Shown};

impl HeldLease {
    /// Returns the masters that must report their score now.
    pub fn ask_scores(&mut self) -> MasterSet {
        self.ledger.ask_scores()
    }

    /// Records the answer of `master` to a ballot of the attempt, or to the request for its score.
    /// Ballots no longer matter. A score makes the master's grant a copy.
    pub fn balloted<'a>(
        &mut self,
        master: usize,
        judged: impl Into<Judged<'a>>,
        sent_at: Instant,
        now: Instant,
    ) {
        let judged = self.receive(judged, now);
        let latency = now.saturating_since(sent_at);
        let shown = if judged.does_count() { Shown::by(judged.answer) } else { Shown::Nothing };
        if let Shown::NoKey | Shown::NoBallots = shown {
            self.ledger.write_balloted(master, judged, latency);
            let is_gone = shown == Shown::NoKey;
            self.lose(master, if is_gone { LostReason::NotOurs } else { LostReason::DataLost });
        }
        match shown {
            Shown::Ballots => self.ledger.scored(master, self.acquired_validity),
            // The next extension requests it again.
            _ => self.ledger.score_missing(master),
        }
        self.settle(now);
    }

    /// Returns the verdict of the answer of `master` to an extension. A grant of a master whose
    /// score is missing confirms nothing. It is *unknown*, with the missing score as its cause.
    pub(super) fn shown_by_score(&mut self, master: usize, verdict: Verdict) -> Verdict {
        if verdict != Verdict::Granted || !self.ledger.is_unscored(master) {
            return verdict;
        }
        self.ledger.answered_instead(master, Verdict::BallotRefused);
        Verdict::Unknown(Cause::NotAdmitted(NotAdmitted::new(WhyNot::AskedTooEarly).into()))
    }
}

#[cfg(test)]
mod tests {
    use redlock_core::{Answer, Balloted};

    use super::*;
    use crate::lab::*;
    use crate::terms::HoldOptions;

    /// A lease on masters 0 and 1, while master 2 has granted the key and refused the ballot.
    fn refused() -> HeldLease {
        let mut lease = lease(3, 2, HoldOptions::default(), at(0));
        let answer = Answer::new(Verdict::BallotRefused).with_ballot(Balloted::Refused);
        lease.acquired(2, &answer, at(0), at(1));
        lease
    }

    fn extend(lease: &mut HeldLease, master: usize, now: u64) {
        let number = lease.extend(timing(TTL)).number;
        lease.extended(number, master, &Answer::granted(), at(now), at(now + 1));
    }

    fn no_member() -> Answer {
        let why = Cause::NotAdmitted(NotAdmitted::new(WhyNot::Incomplete).into());
        Answer::unknown(why).with_ballot(Balloted::NoMember)
    }

    #[test]
    fn grants_and_extensions_are_invalid_until_a_score_is_shown() {
        let mut lease = refused();
        assert_eq!(lease.ask_scores().iter().collect::<Vec<_>>(), [2]);
        extend(&mut lease, 2, 100);
        assert_eq!(lease.ledger().hold_until(2), Instant::ORIGIN);
        extend(&mut lease, 0, 100);
        assert_eq!(lease.deadline(), Some(at(VALIDITY)), "one extension is not a quorum");
        let score = Answer::granted().with_ballot(Balloted::Score(31));
        lease.balloted(2, &score, at(2), at(110));
        assert_eq!(lease.ledger().hold_until(2), at(VALIDITY), "from when the SET was sent");
        extend(&mut lease, 2, 200);
        assert_eq!(lease.ledger().hold_until(2), at(VALIDITY + 200));
        assert_eq!(lease.deadline(), Some(at(VALIDITY + 100)), "a quorum was extended by then");
    }

    #[test]
    fn refused_ballot_requests_a_score_even_for_an_invalid_grant() {
        let mut lease = lease(3, 2, HoldOptions::default(), at(0));
        let answer = Answer::new(Verdict::BallotRefused).with_ballot(Balloted::Refused);
        lease.acquired(2, uncounted(&answer), at(0), at(1));
        extend(&mut lease, 2, 100);
        assert_eq!(lease.ledger().hold_until(2), Instant::ORIGIN);
        assert_eq!(lease.ask_scores().len(), 1);
        let score = Answer::granted().with_ballot(Balloted::Score(31));
        lease.balloted(2, &score, at(110), at(111));
        assert_eq!(lease.ledger().hold_until(2), Instant::ORIGIN, "the grant is not used");
        extend(&mut lease, 2, 200);
        assert_eq!(lease.ledger().hold_until(2), at(VALIDITY + 200));
    }

    #[test]
    fn grant_without_a_score_is_shown_as_a_refused_ballot() {
        let mut lease = refused();
        let number = lease.extend(timing(TTL)).number;
        lease.extended(number, 2, &Answer::granted(), at(100), at(107));
        let shown = lease.ledger().answer(2);
        assert_eq!((&shown.verdict, shown.latency), (&Verdict::BallotRefused, Some(ms(7))));
    }

    #[test]
    fn an_extension_is_not_confirmed_by_a_master_without_a_score() {
        let mut lease = refused();
        let number = lease.extend(timing(TTL)).number;
        let answer = |lease: &mut HeldLease, master, answer: &Answer| {
            lease.extended(number, master, answer, at(100), at(101)).extended
        };
        assert_eq!(answer(&mut lease, 2, &Answer::granted()), None);
        assert_eq!(answer(&mut lease, 0, &Answer::granted()), None);
        let outcome = answer(&mut lease, 1, &closed());
        let refused = crate::token::lease::extension::Extended::NoQuorum;
        assert_eq!(outcome, Some((number, refused)));
    }

    #[test]
    fn score_is_requested_again_after_a_lost_answer() {
        let mut lease = refused();
        lease.ask_scores();
        lease.balloted(2, &closed(), at(2), at(3));
        assert_eq!(lease.ask_scores().len(), 1, "its answer was lost");
        let score = Answer::granted().with_ballot(Balloted::Score(31));
        lease.balloted(2, uncounted(&score), at(2), at(3));
        assert_eq!(lease.ask_scores().len(), 1);
        lease.balloted(2, &no_member(), at(2), at(3));
        extend(&mut lease, 2, 100);
        assert_eq!(lease.ledger().hold_until(2), Instant::ORIGIN);
    }

    #[test]
    fn late_ballot_without_member_or_key_is_evidence_of_loss() {
        for late in [no_member(), not_ours()] {
            let mut lease = lease(3, 3, HoldOptions::default(), at(0));
            lease.balloted(0, &late, at(2), at(3));
            assert_eq!(lease.ledger().hold_until(0), Instant::ORIGIN);
            assert_eq!(lease.ledger().may_hold().contains(0), late != not_ours());
            lease.balloted(1, &late, at(2), at(3));
            assert_eq!(lease.deadline(), None, "no quorum has the key");
        }
    }
}
