//! `Lifecycle`: one token, from its first request to its last release.
//!
//! This file alone decides which stage follows which: a vote that is won makes a lease of the
//! attempt, and one that is lost makes a release of it, or nothing where no key of it can be left.
//! A lease that was taken over and that no caller wants is left to its former holder; any other is
//! handed on to the next caller of the process, or released. The driver hands each event in and
//! carries out the step that comes back.

use std::time::Duration;

use redlock_core::{Ballot, Cause, Instant, Vote};

use super::attempt::{self, Attempt, Defeat, Origin};
use super::lease::hand_over::HandOver;
use super::lease::{self, HeldLease};
use super::release::{Release, Released};
use crate::LostReason;
use crate::ballot::proposals::Proof;
use crate::master_set::MasterSet;
use crate::terms::{HoldOptions, Timing};
use crate::votes::answer::Judged;
use crate::votes::ledger::{LastAnswer, Ledger};
use crate::waiting::Refusal;

mod on;

/// One token, in exactly one stage.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lifecycle {
    /// Where nobody wants it, it is left to its former holder.
    is_resumed: bool,
    stage: Stage,
}

/// Where a token is in its lifecycle.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Masters are asked for it.
    Attempt(Attempt),
    /// It is held.
    Lease(HeldLease),
    /// It is given back.
    Release(Release),
    /// The token needs no more work.
    Over,
}

/// An event of a token. An event that has no meaning in the present stage changes nothing.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// A master has answered, in time or late.
    Answered(Answered<'a>),

    // While it is attempted.
    /// These masters do not vote, each for its reason: they are asked for a copy only.
    OnlyCopies(Vec<(usize, Cause)>),
    /// The ballot for [`Step::NeedBallot`]; `None` where none is left.
    Drawn(Option<Ballot>),
    /// The next ballot is not above the scores of these masters.
    Refusing(MasterSet),
    /// The node timeout of the first requests has passed.
    AttemptTimedOut,
    /// The grace for more copies is over.
    GraceEnded,
    /// Masters that refused are to be asked again, after [`Step::TakeAgain`].
    TakeAgain,
    /// The time for ballots may be over.
    BallotsEnded,
    /// Nobody waits for it any more.
    Cancelled,

    // News about masters.
    /// A master may have lost its data: what it granted does not count, for this reason.
    Disowned(usize, Cause),
    /// A master may have lost its data, and nothing but the key itself can prove the contrary: a
    /// lease asks for that, and what is not held yet does not count, for this reason.
    Suspected(usize, Cause),
    /// A master that was suspected had the time to prove that it has the key.
    Unproven(usize),
    /// A master has proven that its data is there.
    Proven(usize),
    /// A master votes, and did not before.
    Voting(usize),
    /// The server process of a master is gone, and with it all that was on its way there.
    ProcessEnded(usize),

    // While it is held.
    /// The keeper is to begin.
    Kept,
    /// The keeper may be due. The number, from 0 to 1, draws the pause after a failure.
    Tick(f64),
    /// From now on each extension lasts for this long only.
    Limited(Timing),
    /// The holder wants it to last so long from now.
    Extend(Timing),
    /// The node timeout of the extension with this number has passed.
    ExtensionTimedOut(u32),
    /// The holder is done, and another caller of the process wants the key on these terms.
    HandOn(HoldOptions),
    /// The holder is done.
    Returned {
        /// The holder had lost it before.
        was_lost: bool,
    },
    /// Nobody has taken it, and nobody can any more.
    Untaken,
    /// The holder gives it away: its keys stay.
    GivenAway,

    // While it is released.
    /// The turn of its requests has come.
    Turn,
    /// A caller asks for the release once more, because its runtime went away with the answer.
    ReturnedAgain,
    /// The node timeout of the requests has passed.
    ReleaseTimedOut,
    /// A master that did not acknowledge can be asked again.
    Retry(usize),
    /// Keys may have expired by themselves.
    Expired,
    /// The longest expiry that the masters allow a key, also a key that another process has set.
    Allowed(Duration),
    /// A master is not asked any more: its key is left to expire.
    GivenUp(usize),
}

/// An answer of a master, and what it answers.
#[derive(Clone, Copy, Debug)]
pub struct Answered<'a> {
    /// The request that the master answers.
    pub to: Asked,
    /// The master, by its place in the list.
    pub master: usize,
    /// Its answer, and whether that counts.
    pub judged: Judged<'a>,
    /// The request was sent no earlier.
    pub sent_at: Instant,
}

/// A request to a master for one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Asked {
    /// For the key, or to extend the key of a lease that is resumed.
    First,
    /// To accept the ballot of this number.
    Ballot(u32),
    /// For its score.
    Score,
    /// For the extension of this number.
    Extension(u32),
    /// To set the key again.
    Readd,
    /// To delete the key.
    Release,
}

/// The step to carry out now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// No step.
    Wait,
    /// A ballot is to be drawn; [`Event::Drawn`] answers.
    NeedBallot {
        /// How many were proposed before.
        proposed: u32,
    },
    /// The meeting point has granted, and the others are asked for the same.
    AskOthers {
        /// The others.
        others: MasterSet,
        /// The masters that have the key, and get the ballot alone.
        first: MasterSet,
        /// Where there is to be a fencing token.
        ballot: Option<Ballot>,
    },
    /// A ballot is proposed to masters that have granted the key.
    SendBallot {
        /// Its number among those of this attempt.
        number: u32,
        /// The ballot.
        ballot: Ballot,
        /// These masters.
        masters: MasterSet,
    },
    /// The meeting point has granted, and too few of the others: [`Event::TakeAgain`] is to follow
    /// a little later.
    TakeAgain,
    /// These masters have refused, and are asked for the same again.
    AskAgain {
        /// The masters that refused.
        masters: MasterSet,
        /// Where there is to be a fencing token.
        ballot: Option<Ballot>,
    },
    /// A quorum is there, and its holder wants more copies: they have as long again as this, which
    /// the quorum took.
    AwaitCopies(Duration),
    /// The lease is ours.
    Won(Won),
    /// It is not. What is left of the attempt stands in line for its release, or is over.
    Lost(Loss),
    /// It is held, and this is to be sent and answered.
    Hold(lease::Step),
    /// It is the next caller's from now on.
    HandedOn(HandOver),
    /// Its release is to be sent, in its turn.
    Release,
    /// These masters are asked to delete the key.
    SendRelease(MasterSet),
    /// The outcome of the release is known.
    Released,
    /// The token needs no more work.
    Gone,
}

/// An attempt that was won.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Won {
    /// The ballot behind its fencing token.
    pub proof: Option<Proof>,
    /// How long the votes took, where all masters were asked once.
    pub fan_out: Option<Duration>,
}

/// An attempt that was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Why.
    pub defeat: Defeat,
    /// The meaning for callers that go on waiting.
    pub refusal: Refusal,
    /// Each master's answer.
    pub answers: Vec<LastAnswer>,
    /// How long the votes took, where refusals have decided.
    pub fan_out: Option<Duration>,
    /// The meeting point that was asked before the others, if it has not answered.
    pub silent_first: Option<usize>,
    /// The meeting point, whose queue it asked to enter, has granted the key.
    pub is_let_in: bool,
    /// So many masters did not answer that no attempt can be won now.
    pub is_without_quorum: bool,
    /// Masters that answered may report who holds the key.
    pub is_explicable: bool,
}

impl<'a> Answered<'a> {
    /// A master has answered what it was asked.
    #[inline]
    pub fn of(to: Asked, vote: &Vote, judged: Judged<'a>) -> Self {
        let Vote { master, sent_at, .. } = *vote;
        Self { to, master, judged, sent_at }
    }
}

impl Event<'_> {
    /// The only master that it concerns.
    pub fn master(&self) -> Option<usize> {
        match *self {
            Self::Answered(Answered { master, .. })
            | Self::Disowned(master, _)
            | Self::Suspected(master, _)
            | Self::Unproven(master)
            | Self::Proven(master)
            | Self::Voting(master)
            | Self::ProcessEnded(master) => Some(master),
            _ => None,
        }
    }
}

impl Lifecycle {
    /// A token that masters are asked for now.
    pub fn new(attempt: Attempt) -> Self {
        let is_resumed = attempt.origin() == Origin::Resumed;
        Self { is_resumed, stage: Stage::Attempt(attempt) }
    }

    /// A token of another process: nothing is known but that its key may be on each of `masters`.
    pub fn releasing(masters: usize, timing: Timing, now: Instant) -> Self {
        let (all, ledger) = (MasterSet::all(masters), Ledger::new(masters));
        let release = Release::new(ledger, all, timing.expiry(), false, now).of_another();
        Self { is_resumed: false, stage: Stage::Release(release) }
    }

    /// Where the token is.
    pub fn stage(&self) -> &Stage {
        &self.stage
    }

    /// The attempt, while it is one.
    pub fn attempt(&self) -> Option<&Attempt> {
        if let Stage::Attempt(attempt) = &self.stage { Some(attempt) } else { None }
    }

    /// The lease, while it is held.
    pub fn lease(&self) -> Option<&HeldLease> {
        if let Stage::Lease(lease) = &self.stage { Some(lease) } else { None }
    }

    /// The release, while it is given back.
    pub fn release(&self) -> Option<&Release> {
        if let Stage::Release(release) = &self.stage { Some(release) } else { None }
    }

    /// Whether it was taken over from another holder.
    pub fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    /// Whether nothing is left to do for it.
    pub fn is_over(&self) -> bool {
        match &self.stage {
            Stage::Release(release) => release.is_over(),
            stage => *stage == Stage::Over,
        }
    }

    /// The masters whose first answer is waited for; of a release, those whose last one is.
    pub fn pending(&self) -> MasterSet {
        match &self.stage {
            Stage::Attempt(attempt) => attempt.ledger().pending(),
            Stage::Lease(lease) => lease.ledger().pending(),
            Stage::Release(release) => release.pending(),
            Stage::Over => MasterSet::EMPTY,
        }
    }

    /// The masters that are to be asked for their score now.
    pub fn ask_scores(&mut self) -> MasterSet {
        match &mut self.stage {
            Stage::Attempt(attempt) => attempt.ask_scores(),
            Stage::Lease(lease) => lease.ask_scores(),
            Stage::Release(_) | Stage::Over => MasterSet::EMPTY,
        }
    }

    /// The lease is over for its holder, by its own clock or by a report.
    pub fn end(&mut self, reason: LostReason) {
        if let Stage::Lease(lease) = &mut self.stage {
            lease.end(reason);
        }
    }

    /// The holder has seen the end of the lease before `step` was carried out: nothing is sent.
    pub fn call_off(&mut self, step: lease::Step) -> lease::Step {
        match &mut self.stage {
            Stage::Lease(lease) => lease.call_off(step),
            _ => lease::Step::default(),
        }
    }

    /// How long the key may still stay on each master that may have it; `None` for its whole
    /// expiry, counted from when the master runs again.
    pub fn left(&self, now: Instant) -> Vec<(usize, Option<Duration>)> {
        let (masters, left): (MasterSet, &dyn Fn(usize) -> Option<Duration>) = match &self.stage {
            Stage::Attempt(attempt) => (attempt.ledger().may_hold(), &|one| attempt.left(one)),
            Stage::Lease(lease) => (lease.ledger().may_hold(), &|one| lease.left(one, now)),
            Stage::Release(release) => (release.unacknowledged(), &|one| release.left(one, now)),
            Stage::Over => (MasterSet::EMPTY, &|_| None),
        };
        let of = |master| (master, left(master));
        masters.iter().map(of).filter(|(_, left)| *left != Some(Duration::ZERO)).collect()
    }

    /// How long the key stays where it was set or extended last of all.
    pub fn expiry(&self) -> Duration {
        match &self.stage {
            Stage::Attempt(attempt) => attempt.timing().expiry(),
            Stage::Lease(lease) => lease.expiry(),
            Stage::Release(release) => release.expiry(),
            Stage::Over => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests;
