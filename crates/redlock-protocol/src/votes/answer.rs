//! `Judged`: what a master answered, with `Counts`: whether that counts.

use std::borrow::Cow;

use redlock_core::{Answer, Balloted, Cause, Verdict};

/// Whether an answer counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Counts {
    /// The master votes, and did so when it was asked.
    Yes,
    /// The master does not vote, or did not at some time since it was asked, for this reason: its
    /// grant confirms nothing. The answer still shows whether there is something to release.
    Not(Cause),
}

/// An answer of a master, and whether it counts.
///
/// Every machine gets it in this one form, so no event handles answers that do not count in a way
/// of its own.
#[derive(Clone, Copy, Debug)]
pub struct Judged<'a> {
    /// The answer of the master.
    pub answer: &'a Answer,
    /// Whether it counts.
    pub counts: &'a Counts,
}

impl Counts {
    /// How a verdict counts.
    #[inline]
    pub fn apply<'a>(&self, verdict: &'a Verdict) -> Cow<'a, Verdict> {
        match self {
            Self::Yes => Cow::Borrowed(verdict),
            Self::Not(why) => Cow::Owned(Verdict::Unknown(why.clone())),
        }
    }
}

impl<'a> Judged<'a> {
    #[inline]
    pub(crate) fn does_count(self) -> bool {
        *self.counts == Counts::Yes
    }

    /// How the answer counts.
    #[inline]
    pub(crate) fn verdict(self) -> Cow<'a, Verdict> {
        self.counts.apply(&self.answer.verdict)
    }

    /// The verdict on a key that was there before: that it is gone is true on any master, whether
    /// or not it votes.
    #[inline]
    pub(crate) fn of_former_key(self) -> Self {
        let is_denial = self.answer.verdict.is_refusal();
        let counts = if is_denial { &Counts::Yes } else { self.counts };
        Self { counts, ..self }
    }
}

/// The evidence in an answer to a ballot, or to the request for a score, about its master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// It has ballots: what it granted counts.
    Ballots,
    /// The key is not there any more.
    NoKey,
    /// It has no ballots of ours: it is not admitted.
    NoBallots,
    /// No evidence: it is asked again.
    Nothing,
}

impl Shown {
    #[inline]
    pub(crate) fn by(answer: &Answer) -> Self {
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
impl<'a> From<&'a Answer> for Judged<'a> {
    fn from(answer: &'a Answer) -> Self {
        Self { answer, counts: &Counts::Yes }
    }
}
