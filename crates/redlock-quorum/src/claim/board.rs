//! `Board`: the votes of a claim, and how far they have brought it.

use std::sync::Arc;
use std::time::Duration;

use redlock_core::{Answer, Cause, Instant, Verdict, Vote};

use crate::driver::Request;
use crate::settings::Timing;
use crate::tally::Tally;
use crate::validity::HoldUntil;
use crate::votes::{NodeVote, Said};

/// The votes and what follows from them.
pub(super) struct Board {
    pub(super) timing: Timing,
    /// The longest life, in milliseconds, that any master was told to give the key.
    pub(super) px_max: u64,
    pub(super) tally: Tally,
    pub(super) told: Vec<Told>,
    pub(super) holds: HoldUntil,
    /// The masters on which our key may be, a bit each: these must be told to release it.
    pub(super) touched: u32,
    pub(super) phase: Phase,
    pub(super) decided: Instant,
}

/// What one master has told, and when.
#[derive(Clone, Default)]
pub(super) struct Told {
    pub(super) answer: Option<Answer>,
    pub(super) latency: Option<Duration>,
    pub(super) is_holder: bool,
}

pub(super) enum Phase {
    /// The vote is open; the caller waits.
    Voting(Box<Request>),
    /// Won, and for a short grace more copies are waited for.
    Gathering(Box<Request>),
    /// Won, and handed to the caller.
    Held,
    /// Lost or released.
    Over,
}

impl Board {
    /// Writes down that those who have not answered were not waited for any longer.
    pub(super) fn time_out(&mut self) {
        for told in self.told.iter_mut().filter(|told| told.answer.is_none()) {
            told.answer = Some(Answer::unknown(Cause::TimedOut));
        }
    }
}

impl Told {
    pub(super) fn new(vote: &Vote, now: Instant, is_holder: bool) -> Self {
        let latency = vote.answer.is_reply().then(|| now.saturating_since(vote.sent_at));
        Self { answer: Some(vote.answer.clone()), latency, is_holder }
    }

    /// Whether the master has said yes or no.
    pub(super) fn is_clear(&self) -> bool {
        let answer = self.answer.as_ref();
        answer.is_some_and(|answer| !matches!(answer.verdict, Verdict::Unknown(_)))
    }

    pub(super) fn vote(&self, node: Arc<str>) -> NodeVote {
        let said = match &self.answer {
            None => Said::Pending,
            Some(answer) if self.is_holder => Said::to_holder(answer),
            Some(answer) => Said::to_acquire(answer),
        };
        NodeVote { node, said, latency: self.latency }
    }
}
