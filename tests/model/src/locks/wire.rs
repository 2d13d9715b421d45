//! What is on the way between a contender and a master.

use redlock_core::{Answer, Cause, Verdict};

/// What a key is set to.
pub(crate) type Value = u8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Acquire,
    Extend(u32),
    Readd,
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reply {
    Granted,
    Held,
    NotOurs,
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
    /// When it was sent, by the contender's clock.
    pub(crate) sent: u8,
    pub(crate) reply: Option<Reply>,
    /// The reply can be read: it is late, by a tick at least.
    pub(crate) is_readable: bool,
}

impl Reply {
    pub(crate) fn answer(self) -> Answer {
        match self {
            Self::Granted => Answer::granted(),
            Self::Held => Answer::new(Verdict::HELD),
            Self::NotOurs => Answer::new(Verdict::NotOurs),
            Self::Unknown => Answer::unknown(Cause::ConnectionClosed),
        }
    }
}
