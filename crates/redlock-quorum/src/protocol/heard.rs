//! `Heard`: what a master has answered, and whether that counts.

use redlock_core::{Answer, Balloted, Cause, Verdict};

/// Whether what a master has answered counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Standing {
    /// It votes, and did so when it was asked.
    Counts,
    /// It does not vote, or did not at some time since it was asked, for this reason: what it
    /// grants confirms nothing. It says all the same where there is something to release.
    Not(Cause),
}

/// What a master has answered.
///
/// Every machine gets it in this one form, so no event has a way of its own for answers that do not
/// count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard<'a> {
    pub(crate) answer: &'a Answer,
    pub(crate) standing: &'a Standing,
}

impl Standing {
    /// What a verdict comes to.
    pub(crate) fn count(&self, verdict: &Verdict) -> Verdict {
        match self {
            Self::Counts => verdict.clone(),
            Self::Not(why) => Verdict::Unknown(why.clone()),
        }
    }
}

impl Heard<'_> {
    pub(super) fn counts(self) -> bool {
        *self.standing == Standing::Counts
    }

    /// What the answer comes to.
    pub(super) fn verdict(self) -> Verdict {
        self.standing.count(&self.answer.verdict)
    }

    /// The same of a key that was there before: that it is not any more is true of any master.
    pub(super) fn of_former_key(self) -> Self {
        let is_denial = self.answer.verdict.is_refusal();
        let standing = if is_denial { &Standing::Counts } else { self.standing };
        Self { standing, ..self }
    }
}

/// What an answer to a ballot, or to the question for a score, shows of its master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// It has ballots: what it granted counts.
    Ballots,
    /// The key is not there any more.
    NoKey,
    /// It has no ballots of ours: it is not admitted.
    NoBallots,
    /// Nothing: it is asked again.
    Nothing,
}

impl Shown {
    pub(super) fn by(answer: &Answer) -> Self {
        match (&answer.verdict, answer.balloted) {
            (_, Some(Balloted::Accepted | Balloted::Score(_))) => Self::Ballots,
            (verdict, _) if verdict.is_refusal() => Self::NoKey,
            (Verdict::Unknown(_), Some(_)) => Self::NoBallots,
            _ => Self::Nothing,
        }
    }
}

/// The tests of machines write down answers that count as they are.
#[cfg(test)]
impl<'a> From<&'a Answer> for Heard<'a> {
    fn from(answer: &'a Answer) -> Self {
        Self { answer, standing: &Standing::Counts }
    }
}
