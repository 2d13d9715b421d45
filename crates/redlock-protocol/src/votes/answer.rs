//! `Judged`: the answer of a master, with `Counts`: whether it is valid. See rule V4 of
//! `docs/PROTOCOL.md`.

use std::borrow::Cow;

use redlock_core::{Answer, Balloted, Cause, Verdict};

/// Whether an answer is valid.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Counts {
    /// The master votes, and did so when it was queried.
    Yes,
    /// The master does not vote, or did not at some time since the query, for this reason. Its
    /// grant confirms nothing. The answer still shows whether there is something to release.
    Not(Cause),
}

/// An answer of a master, and whether it is valid.
///
/// All machines receive answers in this form, so that no event has its own way of handling invalid
/// ones.
#[derive(Clone, Copy, Debug)]
pub struct Judged<'a> {
    /// The answer of the master.
    pub answer: &'a Answer,
    /// Whether it is valid.
    pub counts: &'a Counts,
}

impl Counts {
    /// Returns the effective verdict.
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

    /// Returns `true` if the answer is invalid because the list does not fit the master's set.
    pub(crate) fn is_of_wrong_list(self) -> bool {
        matches!(self.counts, Counts::Not(Cause::NotAdmitted(not)) if not.why.is_wrong_list())
    }

    /// Returns the effective verdict of the answer.
    #[inline]
    pub(crate) fn verdict(self) -> Cow<'a, Verdict> {
        self.counts.apply(&self.answer.verdict)
    }

    /// Makes this the verdict on a key that existed before. A missing key is missing whether or not
    /// the master votes.
    #[inline]
    pub(crate) fn of_former_key(self) -> Self {
        let is_denial = self.answer.verdict.is_refusal();
        let counts = if is_denial { &Counts::Yes } else { self.counts };
        Self { counts, ..self }
    }
}

/// The information about a master in an answer to a ballot, or to a query for the score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// The master has ballots, so its grants are valid.
    Ballots,
    /// The master no longer has the key.
    NoKey,
    /// The master has no ballots of ours, so it is not admitted.
    NoBallots,
    /// No evidence, so it is queried again.
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

/// Tests of machines write valid answers without a wrapper.
#[cfg(test)]
impl<'a> From<&'a Answer> for Judged<'a> {
    fn from(answer: &'a Answer) -> Self {
        Self { answer, counts: &Counts::Yes }
    }
}
