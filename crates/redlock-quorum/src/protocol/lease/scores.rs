//! What a lease makes of masters that refused a ballot: they may have none.

use std::time::Duration;

use redlock_core::{Answer, Cause, Instant, NotAdmitted, Verdict, WhyNot};

use super::super::attempt::has_ballots;
use super::super::extension::Extension;
use super::super::master_set::MasterSet;
use super::{HeldLease, Step};
use crate::lost::LostReason;

impl HeldLease {
    /// The masters that are to be asked for their score now.
    pub(crate) fn ask_scores(&mut self) -> MasterSet {
        self.ledger.ask_scores()
    }

    /// What `master` has answered to a ballot of the attempt, or when it was asked for its score. No
    /// ballot counts any more; a score makes its grant one more copy.
    pub(crate) fn balloted(
        &mut self,
        master: usize,
        answer: &Answer,
        sent_at: Instant,
        now: Instant,
    ) {
        self.answered_at = now;
        match &answer.verdict {
            _ if has_ballots(answer) => self.ledger.scored(master, self.acquired_validity),
            // The key is not there any more.
            Verdict::NotOurs => {
                self.ledger.write_balloted(master, answer, now.saturating_since(sent_at));
                self.lose(master, LostReason::NotOurs);
            }
            // It has no ballots: it is not admitted.
            Verdict::Unknown(_) if answer.balloted.is_some() => {
                self.ledger.write_balloted(master, answer, now.saturating_since(sent_at));
                self.lose(master, LostReason::DataLost);
            }
            _ => self.ledger.score_missing(master),
        }
        self.settle(now);
    }

    /// The score of a master that did not vote at some time since it was asked.
    pub(crate) fn score_uncounted(&mut self, master: usize) {
        self.ledger.score_missing(master);
    }

    /// `master` has granted the extension `number`, and has not shown a score: that confirms nothing.
    pub(super) fn extended_unscored(
        &mut self,
        number: u32,
        master: usize,
        answer: &Answer,
    ) -> Step {
        self.ledger.write(master, answer, Duration::ZERO);
        let why = Cause::NotAdmitted(NotAdmitted::new(WhyNot::AskedTooEarly).into());
        self.count(number, master, &Verdict::Unknown(why));
        let missing = self.find(number).map(Extension::take_missing).unwrap_or_default();
        Step { extend: None, readd: self.give_back(missing), extended: self.conclude(number) }
    }
}
