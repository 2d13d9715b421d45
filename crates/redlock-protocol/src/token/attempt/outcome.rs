//! The outcome of an attempt: the state of the masters and of the network by its votes, for callers
//! that continue to wait and for measurements.

use std::time::Duration;

use super::{Attempt, Defeat};
use crate::quorum::quorum;
use crate::waiting::Refusal;

/// The votes so far.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'a>(&'a Attempt);

impl Attempt {
    /// Returns what the votes so far show.
    #[inline]
    pub fn outcome(&self) -> Outcome<'_> {
        Outcome(self)
    }
}

impl Outcome<'_> {
    /// Returns how long the first vote of each master took until they decided, at most the node
    /// timeout. A process that was stopped during the vote has not measured its network.
    #[inline]
    pub fn fan_out(&self) -> Duration {
        let Attempt { started, decided, timing, .. } = self.0;
        decided.map_or(Duration::ZERO, |at| at.saturating_since(*started)).min(timing.node_timeout)
    }

    /// Returns `true` if a quorum of masters has answered, so that the request does not wait for
    /// the others.
    #[inline]
    pub fn is_answered(&self) -> bool {
        self.0.tally.counted() >= quorum(self.0.ledger.masters())
    }

    /// Returns `true` if refusals have decided the vote. Only such a vote measures the network:
    /// silence measures the node timeout, and one master is not a fan-out.
    pub fn is_refused(&self) -> bool {
        self.0.others().is_empty() && self.0.tally.is_refused()
    }

    /// Returns `true` if a lost vote was certainly lost to masters that did not answer.
    pub fn is_unanswered(&self) -> bool {
        self.0.tally.is_unanswered() && self.0.ledger.pending().is_empty()
    }

    /// Returns `true` if all masters received a request and too few answered for any attempt to
    /// win.
    pub fn is_without_quorum(&self) -> bool {
        self.0.others().is_empty() && self.0.tally.is_unanswered()
    }

    /// Returns `true` if the meeting point, whose queue the attempt enters, has granted the key.
    pub fn is_let_in(&self) -> bool {
        self.0.enters.as_ref().is_some_and(|enters| self.0.granted.contains(enters.at))
    }

    /// Returns the meeting point if it was queried before the others and has not answered.
    pub fn silent_first(&self) -> Option<usize> {
        let is_silent = |master: &usize| !self.0.ledger.answer(*master).verdict.is_clear();
        if self.0.others().is_empty() { None } else { self.0.asked.iter().find(is_silent) }
    }

    /// Returns how the attempt was lost, for callers that continue to wait.
    pub fn refusal(&self, defeat: Defeat) -> Refusal {
        if defeat == Defeat::TooLate {
            return Refusal::Silent;
        }
        let answers = || self.0.ledger.answers().iter().map(|answer| &answer.verdict);
        let refused = answers().filter(|verdict| verdict.is_refusal()).count();
        let granted = self.0.tally.granted();
        let quorum = quorum(self.0.ledger.masters());
        if !self.0.others().is_empty() {
            if refused > 0 { Refusal::Held } else { Refusal::Silent }
        } else if refused >= quorum || refused > 0 && granted == 0 {
            Refusal::Held
        } else if granted + refused >= quorum {
            Refusal::Split
        } else {
            Refusal::Silent
        }
    }
}
