//! The handling of ballots and of requests for a score by a simulated master.

use redlock_core::admission::{MEMBERS, SCORE_END, Score};
use redlock_core::{Answer, Balloted, Bid, Cause, Member, NotAdmitted, Op, Verb, Verdict, WhyNot};

use super::ballot_set::Ballots;
use super::link::{Link, Set};
use super::master::Master;

/// The replies to the commands after the `SET`. `None` for an unsent command.
struct Said {
    raised: Option<bool>,
    score: Option<Option<Score>>,
}

impl Link {
    /// The set that requests on this connection name.
    pub(super) fn set(&self) -> Set {
        match self.admitted {
            _ if !self.has_quarantine => Set::Off,
            Some(run) => Set::Of(run),
            None => Set::Unknown,
        }
    }

    /// Returns why this request cannot be sent for want of a set.
    pub(super) fn obstacle_to(&self, op: &Op) -> Option<Cause> {
        let is_about_set = matches!(op.verb(), Verb::Ballot | Verb::Score);
        (is_about_set && self.set() == Set::Unknown).then(too_early)
    }
}

impl Master {
    /// Executes the rest of `op` after the part that was answered with `key`. The ballot of an
    /// acquire raises the score whether or not the key was granted.
    pub(super) fn propose(&mut self, op: &Op, set: Set, key: Answer) -> Answer {
        let Some(member) = op.member() else { return key };
        let queued = key.queued;
        let with = |answer: Answer| match queued {
            Some(queued) => answer.with_queued(queued),
            None => answer,
        };
        // A query for a score does not depend on the key.
        let is_lost = op.verb() == Verb::Ballot && !self.is_ours(op);
        let said = match (set, &self.ballot_error) {
            (Set::Unknown, _) => Err(too_early()),
            (_, Some(error)) => Err(Cause::of_error_reply(error.clone())),
            _ => Ok(self.carry_out(op, set, member)),
        };
        match said {
            _ if key.verdict != Verdict::Granted => key,
            _ if is_lost => Answer::new(Verdict::NotOurs),
            Err(cause) => with(Answer::unknown(cause).with_key_set()),
            Ok(said) => with(said.answer(set)),
        }
    }

    fn carry_out(&mut self, op: &Op, set: Set, member: Member) -> Said {
        let raised = op.bid().map(|bid| self.raise(set, bid));
        let asks = !matches!(op.verb(), Verb::Acquire { .. });
        Said { raised, score: asks.then(|| self.score(set, member)) }
    }

    fn raise(&mut self, set: Set, Bid { ballot, member }: Bid) -> bool {
        match set {
            Set::Unknown => false,
            Set::Of(run) => self.data.accept(run, member, ballot.score()),
            Set::Off => {
                // There is no `XX`: a member that is not there yet is below every ballot.
                let off = self.data.off.get_or_insert_with(|| Ballots::new(MEMBERS, 0));
                off.raise(member, ballot.score())
            }
        }
    }

    fn score(&self, set: Set, member: Member) -> Option<Score> {
        match set {
            Set::Unknown => None,
            Set::Of(run) => self.data.ballots(run)?.score(member),
            Set::Off => self.data.off.as_ref()?.score(member),
        }
    }
}

impl Said {
    fn answer(self, set: Set) -> Answer {
        let refused = self.raised.map_or(Verdict::Granted, |_| Verdict::BallotRefused);
        match self.score {
            // Without quarantine a member that is not there has accepted nothing so far.
            Some(None) if set != Set::Off => unfit(WhyNot::Incomplete, Balloted::NoMember),
            Some(Some(SCORE_END..)) => unfit(WhyNot::ScoreTooLarge, Balloted::Foreign),
            _ if self.raised == Some(true) => Answer::granted().with_ballot(Balloted::Accepted),
            Some(score) => Answer::new(refused).with_ballot(Balloted::Score(score.unwrap_or(0))),
            None => Answer::new(refused).with_ballot(Balloted::Refused),
        }
    }
}

fn unfit(why: WhyNot, found: Balloted) -> Answer {
    let cause = Cause::NotAdmitted(NotAdmitted::new(why).into());
    Answer::unknown(cause).with_ballot(found).with_key_set()
}

fn too_early() -> Cause {
    Cause::NotAdmitted(NotAdmitted::new(WhyNot::AskedTooEarly).into())
}
