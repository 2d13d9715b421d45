//! Messages between a contender and a master.

use redlock_core::{Answer, Balloted, Cause, NotAdmitted, Verdict, WhyNot};
use redlock_protocol::token::lifecycle::Asked;

/// The value of a key.
pub(crate) type Value = u8;

/// A ballot, by its number; 0 where there is none.
pub(crate) type Number = u8;

/// A fencing token.
pub(crate) type Token = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// `SET NX`, followed by `ZADD` and `GET` if there is a ballot.
    Acquire,
    /// The same where it enters the queue of the meeting point, which is this master.
    Enter,
    /// The same on another master, by a contender that enters a queue.
    Take,
    Extend(u32),
    Readd,
    Release,
    /// A release that puts a reservation in the place of the key.
    Reserve,
    /// The same at the meeting point, for this contender.
    Leave(usize),
    /// The meeting point is left, and no key of ours can be there.
    Exit(usize),
    /// A ballot with this number, for a granted key: `ZADD`, `ZSCORE`, `GET`.
    Ballot(u32),
    Score,
    /// An extension with the ballot of this number, for a lease that is taken over.
    Resume(u32),
}

impl Kind {
    /// Returns its kind for the machine.
    pub(crate) fn asked(self) -> Asked {
        match self {
            Self::Acquire | Self::Enter | Self::Take | Self::Resume(1) => Asked::First,
            Self::Ballot(number) | Self::Resume(number) => Asked::Ballot(number),
            Self::Score => Asked::Score,
            Self::Extend(number) => Asked::Extension(number),
            Self::Readd => Asked::Readd,
            Self::Release | Self::Reserve | Self::Leave(_) | Self::Exit(_) => Asked::Release,
        }
    }

    /// Returns `true` if it sets a key that was not ours, followed by a ballot.
    pub(crate) fn is_acquire(self) -> bool {
        matches!(self, Self::Acquire | Self::Enter | Self::Take)
    }

    /// Returns `true` if no key of ours exists afterwards.
    pub(crate) fn is_release(self) -> bool {
        matches!(self, Self::Release | Self::Reserve | Self::Leave(_))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reply {
    Granted,
    Held,
    NotOurs,
    /// The key is ours, and the ballot was accepted.
    Accepted,
    /// The key is ours, and the ballot was refused.
    Refused,
    /// The same, with the score.
    RefusedAt(Number),
    /// The key is ours, or the reply does not show it.
    Score(Number),
    /// There are no ballots.
    NoMember,
    /// The connection broke.
    Unknown,
}

/// A request, and its reply once the master has carried it out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Request {
    /// Which lock of the contender it is for.
    pub(crate) lock: u8,
    pub(crate) value: Value,
    pub(crate) kind: Kind,
    pub(crate) ballot: Number,
    /// The life of the master that it is for: the set of ballots is named after it.
    pub(crate) life: u8,
    /// When it was sent, by the contender's clock.
    pub(crate) sent: u8,
    /// Its answer is valid: the master votes, and did so when the request was sent.
    pub(crate) counts: bool,
    pub(crate) done: Done,
    pub(crate) reply: Option<Reply>,
    /// The reply can be read: it is late, by a tick at least.
    pub(crate) is_readable: bool,
}

/// The executed commands of an acquire, and whether each succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Done {
    pub(crate) set: Option<bool>,
    pub(crate) ballot: Option<bool>,
}

impl Reply {
    pub(crate) fn answer(self) -> Answer {
        match self {
            Self::Granted => Answer::granted(),
            Self::Held => Answer::new(Verdict::HELD),
            Self::NotOurs => Answer::new(Verdict::NotOurs),
            Self::Accepted => Answer::granted().with_ballot(Balloted::Accepted),
            Self::Refused => Answer::new(Verdict::BallotRefused).with_ballot(Balloted::Refused),
            Self::RefusedAt(number) => {
                Answer::new(Verdict::BallotRefused).with_ballot(score(number))
            }
            Self::Score(number) => Answer::granted().with_ballot(score(number)),
            Self::NoMember => {
                let cause = Cause::NotAdmitted(NotAdmitted::new(WhyNot::Incomplete).into());
                Answer::unknown(cause).with_ballot(Balloted::NoMember).with_key_set()
            }
            Self::Unknown => Answer::unknown(Cause::ConnectionClosed),
        }
    }
}

fn score(number: Number) -> Balloted {
    Balloted::Score(u64::from(number) * 32 + 31)
}
