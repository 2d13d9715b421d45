//! `Effects`: the consequences of an input outside of the client.

use std::time::Duration;

use redlock_core::admission::Identity;
use redlock_core::{Cause, FencingToken, Instant, ListWarning, Op, Resource, Token, Verdict};

use super::counts::Count;
use super::ids::{HoldId, LockId, RequestId, Ticket};
use super::masters::Weakness;
use super::questions::{About, InitOutcome, ReportRow};
use crate::LostReason;
use crate::ballot::proposals::Proof;
use crate::master_set::MasterSet;
use crate::terms::InvalidTiming;
use crate::token::attempt::Defeat;
use crate::token::lease::hand_over::HandOver;
use crate::token::lifecycle::Step;
use crate::token::release::Released;
use crate::votes::last_answer::LastAnswer;

/// The consequences of one input. The shell carries them out before the next input.
#[derive(Debug)]
pub struct Effects {
    /// The instant of the input.
    pub now: Instant,
    /// The consequences, in order.
    pub list: Vec<Effect>,
    /// The events for statistics, which are published before a caller is woken.
    pub counts: Vec<Count>,
    /// After [`Alarms`](super::input::Input::Alarms): more can be sent in another turn.
    pub wants_turn: bool,
    /// Whether each step is traced. The shell sets it.
    pub is_traced: bool,
}

/// One consequence. Rare contents are boxed, so that it has at most 64 bytes.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Send a request to each of these masters. Its node timeout runs from `at`.
    Send {
        /// The masters.
        masters: MasterSet,
        /// The request.
        op: Op,
        /// The entry that the votes are for.
        ticket: Ticket,
        /// When it is sent.
        at: Instant,
    },
    /// Write to this master before the others in this turn.
    First(usize),
    /// Use the ballot set of this identity for the requests that follow to a master.
    Admitted(usize, Option<Box<Identity>>),
    /// Change the urgency of a new connection to a master.
    Urgent(usize, bool),

    /// This caller has won the lock. If it is not there,
    /// [`Untaken`](super::input::Input::Untaken) must follow.
    Won {
        /// The caller.
        caller: RequestId,
        /// The name of its hold in later requests.
        hold: HoldId,
        /// Its fencing token.
        fence: Fence,
        /// The lease was taken over from another holder.
        is_resumed: bool,
    },
    /// The request of this caller has failed, and masters have shown why.
    Failed(RequestId, Box<Failed>),
    /// The request of this caller is refused.
    Refused(RequestId, Refused),
    /// This caller has stopped waiting, and nothing is done for it any longer.
    Forgotten(RequestId),

    /// The last answer of a master for a lock has changed, or all answers and its terms.
    Show(RequestId, LockId, Option<usize>),
    /// A lease was extended, so much before its deadline.
    Extended(RequestId, Duration),
    /// A lease was lost.
    Lost(RequestId, LostReason),
    /// The cell of this holder is not used any longer.
    Over(RequestId),

    /// The answer to a caller that wanted an extension, and the holder of the lease.
    Prolonged(RequestId, Option<RequestId>, Result<(), NotExtended>),
    /// The answer to a caller that wanted a release: why it is not confirmed.
    Released(RequestId, Option<Box<Unreleased>>),
    /// An observer is informed of the next change of its key by this master.
    Tracked(RequestId, usize),
    /// The answer to a question: its subject, and the last answers.
    Inspected(RequestId, Box<Inspected>),
    /// The answer to an order of an operator.
    Initialized(RequestId, Box<InitOutcome>),
    /// The answer to a request for a report.
    Reported(RequestId, Vec<ReportRow>),
    /// Changes of keys that this master would have reported may be missed.
    LostSight(usize),
    /// The list of this client may be wrong although it works, or no longer.
    ListWarning(Option<Box<ListWarning>>),

    /// A line of the log.
    Said(Box<Said>),
    /// A step, if steps are traced.
    Traced(Box<Trace>),
}

/// The fencing token of a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fence {
    /// The fencing token. `None` without fencing.
    pub token: Option<FencingToken>,
    /// Until when it may be handed out. `None` if it was handed out.
    pub until: Option<Instant>,
}

/// A request that has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The resource.
    pub resource: Resource,
    /// How the last attempt was lost.
    pub defeat: Defeat,
    /// The last answers of the masters.
    pub answers: Vec<LastAnswer>,
    /// The token of a caller of this client that holds the lock.
    pub here: Option<Token>,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The client is being closed.
    Shutdown,
    /// The TTL is longer than the masters allow.
    Invalid(Box<InvalidTiming>),
}

/// Why a lease was not extended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotExtended {
    /// The holder has lost it.
    Lost,
    /// The holder has returned it.
    Released,
    /// The client does not have it any longer.
    Gone,
    /// Too few masters have the key.
    NotOurs,
    /// Too few masters have answered.
    NoQuorum,
    /// The TTL is out of range.
    Invalid(Box<InvalidTiming>),
}

/// An unconfirmed release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreleased {
    /// The resource.
    pub resource: Resource,
    /// The outcome. `None` while masters have not answered.
    pub outcome: Option<Released>,
    /// The last answers of the masters.
    pub answers: Vec<LastAnswer>,
}

/// The answers to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspected {
    /// The subject, with its results.
    pub about: About,
    /// The last answers of the masters.
    pub answers: Vec<LastAnswer>,
    /// For a status: more about each master.
    pub standing: Vec<Standing>,
    /// For a status: the recorded set that a quorum of masters agrees on.
    pub set: Option<redlock_core::admission::RecordedSet>,
}

/// The facts about a master that a status shows in addition to its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Whether the master reports changes of keys. `None` if it is not connected.
    pub tracks: Option<bool>,
    /// Why its answer is not valid.
    pub why_not: Option<Cause>,
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// There is a connection to a master.
    Up(usize),
    /// There is none. The flag is `false` if it was already down for this reason.
    Down(usize, Cause, bool),
    /// The answers of a master are not valid.
    NotCounting(usize, Cause),
    /// The answers of a master are valid from now on.
    Counting(usize),
    /// A master has a weakness.
    Weak(usize, Weakness),
    /// A key has a longer expiry than this namespace allows.
    LivesTooLong(usize),
    /// Callers that wait at a master have no shared queue.
    NoQueue(usize, String),
    /// The list of this client works and may be wrong.
    ListDoubt(Box<ListWarning>),
    /// So many unacknowledged releases of a master were abandoned.
    Abandoned(usize, u64),
}

/// A step of a request or a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The resource.
    pub resource: Resource,
    /// The token or the number of the request.
    pub of: Traced,
    /// What happens.
    pub what: What,
}

/// The subject of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Traced {
    /// A lock.
    Lock(Token),
    /// A request.
    Request(u64),
}

/// The kind of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Something happens.
    Happens(&'static str),
    /// Something happens at a master.
    HappensAt(usize, &'static str),
    /// An attempt for this request is sent to so many masters.
    Attempt(u64, usize),
    /// The machine of a lock has decided.
    Decided(Step),
    /// A master has answered a request of this kind after this time.
    Vote(usize, &'static str, Verdict, Duration),
}

impl Default for Effects {
    fn default() -> Self {
        let (list, counts) = (Vec::new(), Vec::new());
        Self { now: Instant::ORIGIN, list, counts, wants_turn: false, is_traced: false }
    }
}

impl Effects {
    /// Adds a consequence.
    #[inline]
    pub fn push(&mut self, effect: Effect) {
        self.list.push(effect);
    }

    /// Counts an event.
    #[inline]
    pub fn count(&mut self, count: Count) {
        self.counts.push(count);
    }

    /// Counts an answer of a master.
    #[inline]
    pub fn count_vote(&mut self, master: usize, verdict: &Verdict) {
        if let Some(said) = super::counts::Said::of(verdict) {
            // A client has at most 15 masters.
            self.counts.push(Count::Vote(master as u8, said));
        }
    }

    /// Adds a line of the log.
    pub fn say(&mut self, said: Said) {
        self.push(Effect::Said(said.into()));
    }
}

impl Fence {
    /// Returns the token that a quorum of masters has accepted.
    pub fn of(proof: Option<Proof>) -> Self {
        Self {
            token: proof.map(|proof| proof.ballot.token()),
            until: proof.map(|proof| proof.until),
        }
    }

    /// Returns the token of a caller to which the lease was passed.
    pub fn handed_on(hand_over: HandOver) -> Self {
        Self { token: hand_over.token(), ..Self::of(hand_over.proof) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effect_is_small() {
        assert!(size_of::<Effect>() <= 64, "{}", size_of::<Effect>());
    }
}
