//! Requests without an answer, and the results of their replies.

use redis::Value;

use super::super::admission::InHand;
use super::admission::Counting;
use crate::admission::Identity;
use crate::{Answer, Balloted, Instant, NodeEvent, Op, VoteSlot};

/// A request without an answer.
pub(super) enum Pending {
    Request(Op, VoteSlot, Form),
    /// `SUBSCRIBE`, and when it was sent. Granted it is a push and no reply; refused it is a reply.
    Subscribe(Instant),
    /// The first half of a watch, and when it was sent.
    TrackNext(Instant),
    /// The connection's own `INFO replication`, and when it was sent.
    Role(Instant),
    /// Our own test of the rights that a release needs, and when it was made.
    Release(Instant),
    /// A request about admission.
    Admission(Box<InHand>),
    /// The last part of an admission request that reads facts.
    Count(Box<Counting>),
    /// The connection's own count of the members of the set of `run`, or, without a `run`, of the
    /// set of clients without quarantine. With the time when it was sent.
    Members(Instant, Option<Identity>),
}

impl Pending {
    /// Returns when the request was made.
    pub(super) fn sent_at(&self) -> Instant {
        match self {
            Self::Request(_, slot, _) => slot.sent_at(),
            Self::TrackNext(at)
            | Self::Subscribe(at)
            | Self::Role(at)
            | Self::Release(at)
            | Self::Members(at, _) => *at,
            Self::Admission(in_hand) => in_hand.slot.sent_at(),
            Self::Count(counting) => counting.slot.sent_at(),
        }
    }
}

/// How a request was sent. After its last form there is no other one left to try.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// As the server's own command.
    Native,
    /// As the published command, or as a script by its digest.
    Short,
    /// As a script with its text.
    Text,
    /// As several commands, each with its own reply: with a ballot, or with its score.
    Parts,
    /// As several commands for the second time, because the server had lost the script that is the
    /// first of them.
    PartsAgain,
    /// As only the first of these commands, because the name of the ballot set is not known.
    Alone,
}

/// The result of one reply.
pub(in crate::redis) enum Settled {
    /// The answer to the oldest request.
    Vote(VoteSlot, Answer),
    /// There is more to come: this was the first half of an answer, or the master has lost the
    /// script, and its text is on the way.
    More,
    /// The oldest request, with a reply that does not fit it.
    Garbage(VoteSlot),
    /// News about the master, perhaps in the answer to the oldest request.
    Event(Box<NodeEvent>, Option<(VoteSlot, Answer)>),
    /// The answer to the question for the server's role.
    Role(Value),
    /// There is no request that it could answer.
    Unasked(Value),
}

impl Settled {
    /// Boxes the event, which is rare and large.
    pub(super) fn event(event: NodeEvent, vote: Option<(VoteSlot, Answer)>) -> Self {
        Self::Event(Box::new(event), vote)
    }

    pub(super) fn vote(slot: VoteSlot, answer: Answer) -> Self {
        match answer.balloted {
            // The server's ballots are gone.
            Some(Balloted::NoMember) => Self::event(NodeEvent::DataLost, Some((slot, answer))),
            _ => Self::Vote(slot, answer),
        }
    }
}
