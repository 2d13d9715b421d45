//! `Input`: what a client learns from the outside.

use std::time::Duration;

use redlock_core::{Instant, Key, NodeEvent, Resource, Token, Vote};

use super::callers::Caller;
use super::ids::{HoldId, RequestId};
use super::questions::{About, Order};
use crate::LostReason;
use crate::master_set::MasterSet;
use crate::terms::Timing;

/// One input. Requests of callers have an id of the shell, under which they are answered.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// A master has answered.
    Vote(&'a Vote),
    /// Something has happened to the connection to a master.
    Event(usize, NodeEvent),
    /// A turn begins: what the line sends now leaves when the links are polled next.
    Turn,
    /// Fire the alarms that were due when the sockets were checked last.
    Alarms {
        /// When that check began.
        seen: Instant,
    },

    /// A caller wants a lock, or a lease proved.
    Acquire(RequestId, Caller),
    /// A caller that waits has gone away.
    Withdrawn(RequestId),
    /// A won lock found no caller.
    Untaken(HoldId),
    /// A caller has taken its lock, which the keeper waited for.
    Accepted(HoldId),
    /// The holder wants the lease to last longer.
    Extend(HoldId, Duration, RequestId),
    /// Start to extend the lease automatically.
    Keep(HoldId),
    /// The holder gives the lease away: it is neither kept nor released.
    Forget(HoldId),
    /// The holder is done.
    Returned(Returned),
    /// Release the key of a stored lease.
    ReleaseToken(Box<TokenRelease>, RequestId),
    /// Query these masters about a key or a mark.
    Inspect(Box<Inspect>, RequestId),
    /// Read who holds a key, and report its next change. A look reads only its meeting point.
    Observe {
        /// The key.
        key: Key,
        /// How long to wait for answers.
        node_timeout: Duration,
        /// Only the meeting point is read, if there is one.
        is_look: bool,
        /// The observer.
        reply: RequestId,
    },
    /// An operator asserts that no lock of a former incarnation is held.
    Init(Order, RequestId),
    /// Query the state of each master.
    Report(RequestId),
    /// Start no new work, and wait for releases so long at most.
    Close(Duration, Option<RequestId>),

    /// The links are being opened.
    Connect,
    /// The runtime goes away: no caller can be answered from here on.
    Dismiss,
    /// All links are closed. Votes for unanswered requests follow.
    Disconnect,
    /// All votes were handled, and nothing drives the client now.
    Park,
}

/// A returned lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Returned {
    /// The hold.
    pub hold: HoldId,
    /// How the holder had lost it before.
    pub lost: Option<LostReason>,
    /// The program has read the token, and may have passed it on.
    pub is_token_known: bool,
    /// The caller that waits for the release.
    pub reply: Option<RequestId>,
}

/// The release of a lease of which only the token is known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TokenRelease {
    /// The resource.
    pub resource: Resource,
    /// Its key.
    pub key: Key,
    /// The token.
    pub token: Token,
    /// The durations of the lease.
    pub timing: Timing,
}

/// A question to masters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Inspect {
    /// The subject.
    pub about: About,
    /// How long to wait for answers.
    pub node_timeout: Duration,
    /// The masters. `None` for all.
    pub masters: Option<MasterSet>,
}
