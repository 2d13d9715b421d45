//! `Lifecycle`: one token, from its first request to its last release.
//!
//! Only this file decides the next stage. A won vote turns the attempt into a lease. A lost vote
//! turns it into a release, or into nothing if no master can hold its key. A resumed lease that no
//! caller wants is left to its former holder. Any other lease is passed to the next caller of the
//! process, or released. The driver passes each event in and carries out the step that comes back.

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
use crate::votes::last_answer::LastAnswer;
use crate::votes::ledger::Ledger;
use crate::waiting::Refusal;

mod on;

/// One token, in exactly one stage.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lifecycle {
    /// A resumed lease that no caller wants is left to its former holder.
    is_resumed: bool,
    stage: Stage,
}

/// The stage of a token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Masters are queried for it.
    Attempt(Attempt),
    /// A holder has it.
    Lease(HeldLease),
    /// The token is being released.
    Release(Release),
    /// The token needs no more work.
    Over,
}

/// An event of a token. Events without a meaning in the present stage change nothing.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// A master has answered, in time or late.
    Answered(Answered<'a>),

    // Events of an attempt.
    /// These masters do not vote, each for its reason, and only receive a copy.
    OnlyCopies(Vec<(usize, Cause)>),
    /// The ballot for [`Step::NeedBallot`]. `None` if none is left.
    Drawn(Option<Ballot>),
    /// The next ballot is not above the scores of these masters.
    Refusing(MasterSet),
    /// The node timeout of the first requests has passed.
    AttemptTimedOut,
    /// The wait for more copies is over.
    GraceEnded,
    /// Masters that refused must be queried again, after [`Step::TakeAgain`].
    TakeAgain,
    /// The time for ballots may be over.
    BallotsEnded,
    /// The caller no longer waits for the token.
    Cancelled,

    // News about masters.
    /// A master may have lost its data. Its grants are invalid, for this reason.
    Disowned(usize, Cause),
    /// A master may have lost its data, and only the key itself can prove the contrary. A lease
    /// queries it for the key. Grants that are not yet part of a lease are invalid, for this
    /// reason.
    Suspected(usize, Cause),
    /// A suspected master has had the time to prove that it has the key.
    Unproven(usize),
    /// A master has proven that its data is there.
    Proven(usize),
    /// A master votes now and did not vote before.
    Voting(usize),
    /// The server process of a master has exited, and all requests on their way to it are gone.
    ProcessEnded(usize),

    // Events of a lease.
    /// The keeper must start.
    Kept,
    /// The keeper may be due. The number, from 0 to 1, draws the pause after a failure.
    Tick(f64),
    /// From now on, each extension lasts only this long.
    Limited(Timing),
    /// The holder wants the lease to last this long from now.
    Extend(Timing),
    /// The node timeout of the extension with this number has passed.
    ExtensionTimedOut(u32),
    /// The holder has finished, and another caller of the process wants the key on these terms.
    HandOn(HoldOptions),
    /// The holder has finished.
    Returned {
        /// The holder had already lost the lease.
        was_lost: bool,
    },
    /// No caller has taken the lease, and no caller can take it.
    Untaken,
    /// The holder gives the lease away, and its keys stay.
    GivenAway,

    // Events of a release.
    /// The requests of the attempt have reached the front of the line.
    Turn,
    /// A caller requests the release again, because its runtime was dropped with the answer.
    ReturnedAgain,
    /// The node timeout of the requests has passed.
    ReleaseTimedOut,
    /// A master that did not acknowledge can be queried again.
    Retry(usize),
    /// Keys may have expired.
    Expired,
    /// The longest expiry that masters allow for a key, including keys of other processes.
    Allowed(Duration),
    /// A master receives no more requests, and its key is left to expire.
    GivenUp(usize),
}

/// An answer of a master, and the request that it answers.
#[derive(Clone, Copy, Debug)]
pub struct Answered<'a> {
    /// The request that the master answers.
    pub to: Asked,
    /// The master, as an index into the list.
    pub master: usize,
    /// The answer, and whether it is valid.
    pub judged: Judged<'a>,
    /// The request was sent no earlier than this.
    pub sent_at: Instant,
}

/// A request to a master for one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Asked {
    /// Set the key, or extend the key of a resumed lease.
    First,
    /// Accept the ballot with this number.
    Ballot(u32),
    /// Report the score.
    Score,
    /// Extend the key, with the number of the extension.
    Extension(u32),
    /// Set the key again.
    Readd,
    /// Delete the key.
    Release,
}

/// The driver's next task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Do nothing.
    Wait,
    /// Draw a ballot and answer with [`Event::Drawn`].
    NeedBallot {
        /// How many ballots were proposed before.
        proposed: u32,
    },
    /// Query the other masters, because the meeting point has granted the key.
    AskOthers {
        /// The other masters.
        others: MasterSet,
        /// The masters that have the key and receive only the ballot.
        first: MasterSet,
        /// The ballot, if the lock has a fencing token.
        ballot: Option<Ballot>,
    },
    /// Propose a ballot to masters that have granted the key.
    SendBallot {
        /// Its number among the ballots of this attempt.
        number: u32,
        /// The ballot.
        ballot: Ballot,
        /// The masters that receive it.
        masters: MasterSet,
    },
    /// Schedule [`Event::TakeAgain`] a little later: the meeting point granted the key, but too few
    /// others did.
    TakeAgain,
    /// Repeat the request to masters that refused.
    AskAgain {
        /// The masters that refused.
        masters: MasterSet,
        /// The ballot, if the lock has a fencing token.
        ballot: Option<Ballot>,
    },
    /// Wait for more copies for this long, which is as long as the quorum took.
    AwaitCopies(Duration),
    /// The lease is ours.
    Won(Won),
    /// The attempt failed. Any remaining keys wait in line for their release.
    Lost(Loss),
    /// Send these requests and answers for a held lease.
    Hold(lease::Step),
    /// The lease belongs to the next caller from now on.
    HandedOn(HandOver),
    /// Send the release when its turn comes.
    Release,
    /// Send these masters the request to delete the key.
    SendRelease(MasterSet),
    /// The outcome of the release is known.
    Released,
    /// The token needs no more work.
    Gone,
}

/// An attempt that was won.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Won {
    /// The ballot of its fencing token.
    pub proof: Option<Proof>,
    /// How long the first vote of each master took.
    pub fan_out: Duration,
}

/// A lost attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The reason.
    pub defeat: Defeat,
    /// The effect of the loss on callers that continue to wait.
    pub refusal: Refusal,
    /// Each master's answer.
    pub answers: Vec<LastAnswer>,
    /// How long the first vote of each master took. `None` unless refusals decided the vote.
    pub fan_out: Option<Duration>,
    /// The meeting point, if it was queried before the others and has not answered.
    pub silent_first: Option<usize>,
    /// The meeting point, whose queue the attempt entered, has granted the key.
    pub is_let_in: bool,
    /// So many masters did not answer that no attempt can win now.
    pub is_without_quorum: bool,
    /// Masters that answered may report who holds the key.
    pub is_explicable: bool,
}

impl<'a> Answered<'a> {
    /// Pairs an answer with the request that it answers.
    #[inline]
    pub fn of(to: Asked, vote: &Vote, judged: Judged<'a>) -> Self {
        let Vote { master, sent_at, .. } = *vote;
        Self { to, master, judged, sent_at }
    }
}

impl Event<'_> {
    /// Returns the master that the event concerns, if it is exactly one.
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
    /// Creates a token whose first requests are sent now.
    pub fn new(attempt: Attempt) -> Self {
        let is_resumed = attempt.origin() == Origin::Resumed;
        Self { is_resumed, stage: Stage::Attempt(attempt) }
    }

    /// Creates the release of another process's token. Its key may be on each of `masters`.
    pub fn releasing(masters: usize, timing: Timing, now: Instant) -> Self {
        let (all, ledger) = (MasterSet::all(masters), Ledger::new(masters));
        let release = Release::new(ledger, all, timing.expiry(), false, now).of_another();
        Self { is_resumed: false, stage: Stage::Release(release) }
    }

    /// Returns the stage of the token.
    pub fn stage(&self) -> &Stage {
        &self.stage
    }

    /// Returns the attempt, while the token is one.
    pub fn attempt(&self) -> Option<&Attempt> {
        if let Stage::Attempt(attempt) = &self.stage { Some(attempt) } else { None }
    }

    /// Returns the lease, while the token is held.
    pub fn lease(&self) -> Option<&HeldLease> {
        if let Stage::Lease(lease) = &self.stage { Some(lease) } else { None }
    }

    /// Returns the release, while the token is being released.
    pub fn release(&self) -> Option<&Release> {
        if let Stage::Release(release) = &self.stage { Some(release) } else { None }
    }

    /// Returns `true` if the token was taken over from another holder.
    pub fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    /// Returns `true` if the token needs no more work.
    pub fn is_over(&self) -> bool {
        match &self.stage {
            Stage::Release(release) => release.is_over(),
            stage => *stage == Stage::Over,
        }
    }

    /// Returns the masters whose first answer is missing, or, for a release, whose last answer is.
    pub fn pending(&self) -> MasterSet {
        match &self.stage {
            Stage::Attempt(attempt) => attempt.pending(),
            Stage::Lease(lease) => lease.ledger().pending(),
            Stage::Release(release) => release.pending(),
            Stage::Over => MasterSet::EMPTY,
        }
    }

    /// Returns the masters that must report their score now.
    pub fn ask_scores(&mut self) -> MasterSet {
        match &mut self.stage {
            Stage::Attempt(attempt) => attempt.ask_scores(),
            Stage::Lease(lease) => lease.ask_scores(),
            Stage::Release(_) | Stage::Over => MasterSet::EMPTY,
        }
    }

    /// Ends the lease for its holder, by the holder's clock or by a report.
    pub fn end(&mut self, reason: LostReason) {
        if let Stage::Lease(lease) = &mut self.stage {
            lease.end(reason);
        }
    }

    /// Discards the requests of `step`, because the holder saw the end of the lease before they
    /// were sent.
    pub fn call_off(&mut self, step: lease::Step) -> lease::Step {
        match &mut self.stage {
            Stage::Lease(lease) => lease.call_off(step),
            _ => lease::Step::default(),
        }
    }

    /// Returns how long the key may still stay on each master that may have it. `None` means its
    /// whole expiry from the moment the master resumes.
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

    /// Returns how long the key stays on the master that set or extended it last.
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
