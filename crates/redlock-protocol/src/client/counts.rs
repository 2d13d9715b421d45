//! `Count`: the events that statistics count.

use redlock_core::{Cause, Verdict};

use crate::token::attempt::Defeat;
use crate::token::lifecycle::Loss;
use crate::waiting::Refusal;

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Count {
    /// A caller wants a lock.
    Request,
    /// An attempt was begun.
    Attempt,
    /// The requests of an attempt were sent to several masters.
    Round,
    /// A ballot was chosen.
    Ballot,
    /// The ballot was not the first one of its attempt.
    SecondBallot,
    /// An attempt was lost because too few masters accepted its ballot.
    BallotRefused,
    /// An attempt has ended.
    Ended(End),
    /// A caller has stopped waiting.
    Cancelled,
    /// A caller got the lock of the caller before it.
    HandedOver,
    /// A head watches a key.
    Watch,
    /// A head requests the key again because of the time.
    Poll,
    /// A key was read for an observer.
    Observation,
    /// A server has reported a change.
    Push,
    /// An extension was sent.
    Extension,
    /// A master has answered, or has not answered in time.
    Vote(u8, Said),
}

/// How an attempt has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The attempt was won.
    Won,
    /// Another client holds the key.
    Held,
    /// Several clients have some of the masters each.
    Split,
    /// Too few masters have answered.
    Unanswered,
    /// No validity was left.
    TooLate,
    /// The caller gave up during the attempt.
    Aborted,
}

impl End {
    /// Returns how a lost attempt has ended.
    pub fn of(loss: &Loss) -> Self {
        match loss.refusal {
            _ if loss.defeat == Defeat::TooLate => Self::TooLate,
            Refusal::Held => Self::Held,
            Refusal::Split | Refusal::Alone => Self::Split,
            Refusal::Silent | Refusal::NoQuorum => Self::Unanswered,
        }
    }
}

/// The kinds of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Said {
    /// The request was carried out.
    Granted,
    /// Another client holds the key.
    Held,
    /// The key is not ours.
    NotOurs,
    /// There is no key.
    Free,
    /// There was no answer in time.
    TimedOut,
    /// The connection was refused.
    ConnectionRefused,
    /// The connection was closed.
    ConnectionClosed,
    /// There was no connection.
    NotConnected,
    /// The server cannot be used.
    Unusable,
    /// The request was not sent.
    NotSent,
    /// The server answered an error.
    ErrorReply,
    /// The server is no longer a master.
    Demoted,
    /// The answer of the master is not valid.
    NotAdmitted,
    /// The server is listed twice.
    Twin,
    /// The ballot was refused.
    BallotRefused,
}

impl Said {
    /// The number of kinds.
    pub const KINDS: usize = Self::BallotRefused as usize + 1;

    /// Returns the kind of an answer. `None` if it is not counted.
    pub fn of(verdict: &Verdict) -> Option<Self> {
        Some(match verdict {
            Verdict::Granted => Self::Granted,
            Verdict::Held { .. } => Self::Held,
            Verdict::NotOurs => Self::NotOurs,
            Verdict::Free => Self::Free,
            Verdict::BallotRefused => Self::BallotRefused,
            Verdict::Unknown(cause) => match cause {
                Cause::TimedOut => Self::TimedOut,
                Cause::ConnectionRefused => Self::ConnectionRefused,
                Cause::ConnectionClosed => Self::ConnectionClosed,
                Cause::NotConnected(_) => Self::NotConnected,
                Cause::Unusable(_) => Self::Unusable,
                Cause::NotSent(_) => Self::NotSent,
                Cause::ErrorReply(_) => Self::ErrorReply,
                Cause::Demoted(_) => Self::Demoted,
                Cause::NotAdmitted(_) => Self::NotAdmitted,
                Cause::TwinOf(_) => Self::Twin,
                _ => return None,
            },
            _ => return None,
        })
    }
}
