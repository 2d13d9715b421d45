//! The score that all members get at admission. It is at least as large as every ballot that the
//! master may have accepted before it lost its data and whose token was handed out. See rule A14 of
//! `docs/PROTOCOL.md`.
//!
//! A ballot that was handed out has q acceptors. The master itself was one, so q - 1 are among the
//! N - 1 others, and any N - q + 1 of the others include one of them. Their scores are read after
//! the quarantine is over, because until then an attempt may still use an answer from before the
//! loss.

use redlock_core::admission::{Millis, SCORE_END, Score};

use super::view::{Incarnation, MasterView};
use crate::quorum::quorum;

/// The answer of one master to *read the floor*: one batch, the score first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scored {
    /// The index of the master.
    pub master: usize,
    /// The incarnation whose score was requested, from the step.
    pub asked: Incarnation,
    /// The highest score below 2^53 of the set of that incarnation, or of the set of clients
    /// without a quarantine if the incarnation has no `run`. `None` if there is no such set.
    pub highest: Option<Score>,
    /// The facts of the master, read after the score.
    pub facts: MasterView,
}

/// A floor, and its evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Floor {
    /// The largest ballot that the master has accepted, or none.
    pub score: Score,
    /// Too few other masters were admitted, so the floor also rests on the masters' clocks. The
    /// client logs a warning.
    pub by_clock: bool,
}

impl Scored {
    /// Returns `true` if the score is from an admitted master that is still in the incarnation
    /// whose set was read. Being admitted at the time of the read is not enough: the score may come
    /// from an old set, and a quarantine and an admission may lie between the two.
    pub(super) fn is_proven(&self) -> bool {
        let facts = &self.facts;
        self.highest.is_some()
            && facts.record.admits(facts.identity)
            && Incarnation::of(facts) == self.asked
    }

    /// Returns `true` if clients without a quarantine have left ballots there. A master that has a
    /// `run` was not queried for them.
    pub(super) fn shows_no_quarantine(&self) -> bool {
        self.asked.run.is_none() && self.highest.is_some()
    }

    /// Returns the largest ballot that the answer shows. A master in quarantine has a `q:ballot`
    /// and no set.
    fn largest(&self) -> Score {
        let ballot = self.facts.record.quarantine.as_ref().map_or(0, |found| found.ballot);
        self.highest.unwrap_or(0).max(ballot)
    }
}

/// Returns the floor for `master` of `masters`, from its own `q:ballot` and the answers, which must
/// include the answer of the master itself.
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

/// Returns the largest of all scores and TIMEs read. No other function trusts a clock.
pub(super) fn by_clock(answers: &[Scored]) -> Score {
    let scores = answers.iter().map(Scored::largest);
    let times = answers.iter().map(|answer| above(answer.facts.time));
    scores.chain(times).max().unwrap_or(0)
}

/// Returns a score above every ballot made with a clock like this: the next second, and two more,
/// in microseconds.
fn above(time: Millis) -> Score {
    (time.div_ceil(1000) + 2).saturating_mul(1_000_000)
}

/// Rounds up to 31 mod 32, as all scores are. `None` if the result would reach 2^53.
pub(super) fn rounded(score: Score) -> Option<Score> {
    let rounded = score | 31;
    (rounded < SCORE_END).then_some(rounded)
}
