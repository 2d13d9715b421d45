//! `Claim`: how one token uses its key. `Meeting`: how it uses the queue of the key.

use redlock_core::{
    Answer, Bid, Cause, Entry, Exit, Key, Leaving, Member, Op, Resource, Token, Verdict, Vote,
};

use crate::client::ids::UseId;
use crate::master_set::MasterSet;
use crate::token::attempt::Defeat;
use crate::token::lifecycle::Loss;
use crate::waiting::{QueueAnswer, Refusal};

/// One token and its key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The resource.
    pub resource: Resource,
    /// The key of the resource.
    pub key: Key,
    /// The token.
    pub token: Token,
    /// The member of the ballot sets that the resource uses.
    pub member: Member,
    /// How often its lease was passed from caller to caller.
    pub hand_overs: u8,
    /// The use of the key, while it is held.
    pub(super) key_use: UseId,
    /// How it uses the queue at the meeting point. `None` if it never requested to enter the queue.
    pub(super) meeting: Option<Box<Meeting>>,
    /// The parts that its release leaves to others, once.
    pub(super) legacy: Legacy,
    /// The meeting point, once the release has also gone to the queues of other masters.
    pub(super) left_at: Option<usize>,
}

/// The parts that a release leaves to others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Legacy {
    /// The exit at the meeting point.
    pub(super) exit: Option<(usize, Exit)>,
    /// How many milliseconds the other masters reserve the key.
    pub(super) reserve_ms: Option<u64>,
    /// The other masters that hand the key to the first in their own queue.
    pub(super) elsewhere: MasterSet,
}

/// The requests of a release.
#[derive(Debug)]
pub struct Exits {
    /// The release of the key.
    pub release: Op,
    /// The request to the meeting point in place of it.
    pub meeting: Option<(usize, Op)>,
    /// The same for the masters that hand the key to the first in their own queue.
    pub elsewhere: Option<(MasterSet, Op)>,
}

/// How one token uses the shared queue of its key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Meeting {
    /// The master that keeps the queue.
    pub at: usize,
    /// Whether the requests to the other masters also take a reserved key.
    pub(super) takes: bool,
    /// The parameters of the caller there.
    pub(super) entry: Entry,
    /// The master has not answered yet.
    pub(super) is_open: bool,
    /// The answer if it did not let the caller in.
    pub(super) answer: Option<QueueAnswer>,
    /// The script on the queue has failed.
    pub(super) has_failed: bool,
    /// Others wait for the key, by the latest answer.
    pub(super) others_wait: bool,
}

impl Claim {
    /// Creates the claim of a token that has not been sent.
    pub fn new(resource: Resource, key: Key, token: Token, meeting: Option<Box<Meeting>>) -> Self {
        let member = Member::of(resource.as_bytes());
        let (key_use, legacy) = (UseId::default(), Legacy::default());
        let left_at = None;
        Self { resource, key, token, member, hand_overs: 0, key_use, meeting, legacy, left_at }
    }

    /// Returns how the token uses the shared queue of its key.
    pub fn meeting(&self) -> Option<&Meeting> {
        self.meeting.as_deref()
    }

    /// Returns `true` if the script on the queue has failed, which shows that its master answers.
    pub fn has_queue_failed(&self) -> bool {
        self.meeting.as_ref().is_some_and(|meeting| meeting.has_failed)
    }

    /// Returns `true` if the vote reports that a queue has failed, which shows nothing about the
    /// vote of its master.
    pub fn is_of_queue(&self, vote: &Vote) -> bool {
        is_queue_error(&vote.answer)
            && self.meeting.as_ref().is_some_and(|meeting| meeting.at == vote.master)
    }

    /// Returns how an attempt was lost, for callers that wait on.
    pub fn refusal(&self, loss: &Loss) -> (Refusal, Option<QueueAnswer>) {
        let refusal = if loss.is_without_quorum { Refusal::NoQuorum } else { loss.refusal };
        let Some(meeting) = &self.meeting else { return (refusal, None) };
        let refusal = match refusal {
            _ if loss.defeat == Defeat::BallotRefused => Refusal::Silent,
            // That shows nothing about votes: the next attempt does without the queue.
            _ if meeting.has_failed => Refusal::Held,
            Refusal::Held | Refusal::Split if loss.is_let_in => Refusal::Alone,
            refusal => refusal,
        };
        (refusal, meeting.answer)
    }

    /// Returns the release, and the requests in place of it that are sent once.
    pub fn take_exits(&mut self) -> Exits {
        let Legacy { exit, reserve_ms, elsewhere } = std::mem::take(&mut self.legacy);
        let (key, token) = (|| self.key.clone(), || self.token.clone());
        let elsewhere = exit.as_ref().filter(|_| !elsewhere.is_empty()).map(|(at, exit)| {
            self.left_at = Some(*at);
            let exit = Exit { leaving: Leaving::Done, gives_up_place: false, ..exit.clone() };
            (elsewhere, Op::leave(key(), exit))
        });
        let exit = exit.map(|(at, exit)| (at, Op::leave(key(), exit)));
        let release = match (reserve_ms, &exit) {
            (Some(px), _) => Op::reserve(key(), token(), px),
            (None, Some((_, leave))) => leave.without_exit(),
            (None, None) => Op::release(key(), token()),
        };
        Exits { release, meeting: exit, elsewhere }
    }

    /// Makes the release delete the key and nothing else, because the place in the queue may belong
    /// to a later wait when it is sent.
    pub fn leave_nothing(&mut self) {
        self.legacy = Legacy::default();
    }
}

impl Meeting {
    /// Returns `true` if the meeting point has not answered yet. Others may wait there, and this
    /// process may have a place.
    pub(super) fn is_unanswered(&self) -> bool {
        self.is_open
    }

    /// Returns the request to enter the queue.
    pub(super) fn enter(&self, claim: &Claim, px: u64, bid: Option<Bid>) -> Op {
        let entry = Entry { ask: Some((claim.token.clone(), px)), ..self.entry.clone() };
        Op::enter(claim.key.clone(), entry, bid)
    }
}

/// The exit of an attempt without a lease, or of a lease.
pub(super) struct Way {
    pub(super) has_token: bool,
    pub(super) gives_up_place: bool,
    pub(super) leaving: Leaving,
}

/// Returns `true` if the script has failed before it set the key.
pub fn is_queue_error(answer: &Answer) -> bool {
    matches!(answer.verdict, Verdict::Unknown(Cause::ErrorReply(_))) && !answer.key_set
}
