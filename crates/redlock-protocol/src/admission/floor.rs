//! The score that all members get at admission: at least every ballot that the master may have
//! accepted before it lost its data and that was handed out.
//!
//! A ballot that was handed out has q acceptors. The master itself was one, so q - 1 are among the
//! N - 1 others, and any N - q + 1 of the others hold one of them. Their scores are read after the
//! quarantine is over, because until then an attempt may still count an answer from before the
//! loss.

use redlock_core::admission::{Millis, SCORE_END, Score};

use super::view::{Incarnation, MasterView};
use crate::quorum::quorum;

/// The answer of one master to *read the floor*: one batch, the score first, then all the rest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scored {
    /// The index of the master.
    pub master: usize,
    /// The incarnation whose score was asked for, from the step.
    pub asked: Incarnation,
    /// The highest score below 2^53 of the set of that incarnation, or of the set of clients
    /// without quarantine if the incarnation has no `run`. `None`: there is no such set.
    pub highest: Option<Score>,
    /// The facts of the master, read behind the score.
    pub facts: MasterView,
}

/// A floor, and what it rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Floor {
    /// The largest ballot that it has accepted, or none.
    pub score: Score,
    /// Too few others were admitted: it rests on the masters' clocks too, which is worth a
    /// warning.
    pub by_clock: bool,
}

impl Scored {
    /// Whether the score is that of an admitted master: behind it, it was admitted, and still in
    /// the incarnation whose set was read. Being admitted *then* is not enough: the score may come
    /// from an old set, and quarantine and admission may lie between the two.
    pub(super) fn is_proven(&self) -> bool {
        let facts = &self.facts;
        self.highest.is_some()
            && facts.record.admits(facts.identity)
            && Incarnation::of(facts) == self.asked
    }

    /// Whether clients without quarantine have left ballots there. One that has a `run` was not
    /// asked for them.
    pub(super) fn shows_no_quarantine(&self) -> bool {
        self.asked.run.is_none() && self.highest.is_some()
    }

    /// The largest ballot that the answer shows: in quarantine it has a `q:ballot` and no set.
    fn largest(&self) -> Score {
        let ballot = self.facts.record.quarantine.as_ref().map_or(0, |found| found.ballot);
        self.highest.unwrap_or(0).max(ballot)
    }
}

/// The floor for `master` of `masters`, from its own `q:ballot` and the answers, which must hold
/// one of the master itself.
///
/// `None` if it would reach 2^53.
pub(super) fn floor(
    masters: usize,
    master: usize,
    own: Score,
    answers: &[Scored],
    is_proven: impl Fn(&Scored) -> bool,
) -> Option<Floor> {
    let proven = answers.iter().filter(|answer| answer.master != master && is_proven(answer));
    if proven.clone().count() > masters - quorum(masters) {
        let score = proven.filter_map(|answer| answer.highest).fold(own, Score::max);
        return rounded(score).map(|score| Floor { score, by_clock: false });
    }
    rounded(by_clock(answers).max(own)).map(|score| Floor { score, by_clock: true })
}

/// The largest of all that was read, and of the TIMEs: the only place where a clock is trusted.
pub(super) fn by_clock(answers: &[Scored]) -> Score {
    let scores = answers.iter().map(Scored::largest);
    let times = answers.iter().map(|answer| above(answer.facts.time));
    scores.chain(times).max().unwrap_or(0)
}

/// A score above every ballot that was made by a clock like this: the next second, and two more,
/// in microseconds.
fn above(time: Millis) -> Score {
    (time.div_ceil(1000) + 2).saturating_mul(1_000_000)
}

/// Rounded up to 31 mod 32, as all scores are. `None` if it would reach 2^53.
pub(super) fn rounded(score: Score) -> Option<Score> {
    let rounded = score | 31;
    (rounded < SCORE_END).then_some(rounded)
}
