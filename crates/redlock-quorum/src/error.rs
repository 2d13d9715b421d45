//! The errors: one small enum for each operation. Each says whether a key may be left somewhere.

use std::time::Duration;

use redlock_core::Resource;

use crate::{InvalidRequest, Lost, Votes};

/// Why a lock was not acquired.
///
/// Whatever the reason, every master that was asked is told to release the key again, in the
/// background; [`Redlock::shutdown`](crate::Redlock::shutdown) waits for that and tells which
/// masters may keep it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// A quorum of masters answered, and not with yes: somebody else holds the resource, or
    /// several contenders split the masters between them. Wait longer, or try again later.
    #[error("{resource} is held by another: {votes}")]
    Held {
        /// What the lock was for.
        resource: Resource,
        /// What each master said.
        votes: Votes,
    },
    /// Too few masters answered: nobody can say who holds the resource. See to the masters.
    #[error("no quorum for {resource}, too few masters answered: {votes}")]
    NoQuorum {
        /// What the lock was for.
        resource: Resource,
        /// What each master said.
        votes: Votes,
    },
    /// A quorum granted, but so late that nothing of the lease was left. The TTL is too short for
    /// the network, or this process did not get to run.
    #[error("a quorum granted {resource} too late, nothing of the lease is left: {votes}")]
    TooLate {
        /// What the lock was for.
        resource: Resource,
        /// What each master said.
        votes: Votes,
    },
    /// The request itself is wrong. Nothing was sent.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// The handle was shut down.
    #[error("the lock handle was shut down")]
    Shutdown,
}

impl AcquireError {
    /// What each master said, where masters were asked.
    pub fn votes(&self) -> Option<&Votes> {
        match self {
            Self::Held { votes, .. }
            | Self::NoQuorum { votes, .. }
            | Self::TooLate { votes, .. } => Some(votes),
            Self::Invalid(_) | Self::Shutdown => None,
        }
    }
}

/// Why a lease was not extended. An extension that fails releases nothing and shortens nothing:
/// a lease that was valid before is valid as long as before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExtendError {
    /// The lease is over. It cannot be revived: acquire again.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// A quorum of masters answered, and too few of them hold our key: the lock is not ours.
    #[error("{resource} is not ours: {votes}")]
    NotOurs {
        /// What the lock was for.
        resource: Resource,
        /// What each master said.
        votes: Votes,
    },
    /// Too few masters answered. The lease may still be extended; try again while it is valid.
    #[error("no quorum to extend {resource}, too few masters answered: {votes}")]
    NoQuorum {
        /// What the lock was for.
        resource: Resource,
        /// What each master said.
        votes: Votes,
    },
    /// A quorum confirmed too late, nothing of the extended lease was left.
    #[error("a quorum extended {resource} too late, nothing of the lease is left: {votes}")]
    TooLate {
        /// What the lock was for.
        resource: Resource,
        /// What each master said.
        votes: Votes,
    },
    /// The request itself is wrong. Nothing was sent.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// The handle was shut down.
    #[error("the lock handle was shut down")]
    Shutdown,
}

/// Why a release is not known to have freed the resource. Clean-up goes on in the background
/// either way, until every master has acknowledged it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// A quorum of masters did not hold our key any more: the lock was lost before.
    #[error("{resource} was not ours any more: {votes}")]
    NotOurs {
        /// What the lock was for.
        resource: Resource,
        /// What each master said.
        votes: Votes,
    },
    /// Too few masters have confirmed in time. Those that have not may keep the key until it
    /// expires there.
    #[error("the release of {resource} is not confirmed by a quorum: {votes}")]
    Unconfirmed {
        /// What the lock was for.
        resource: Resource,
        /// What each master said.
        votes: Votes,
    },
    /// The request itself is wrong. Nothing was sent.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// The handle was shut down: the key stays until it expires.
    #[error("the lock handle was shut down, the key stays until it expires")]
    Shutdown,
}

/// Why [`LockRequest::run`](crate::LockRequest::run) has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The lock was not acquired; the work was not begun.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
    /// The lock was lost while the work was going on; the work was stopped where it was.
    #[error(transparent)]
    Lost(#[from] Lost),
}

/// Keys that may be left on masters after [`Redlock::shutdown`](crate::Redlock::shutdown).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} may be left on masters: {}", count(.owed.len()), list(.owed))]
pub struct Unreleased {
    pub(crate) owed: Vec<Owed>,
}

/// One key that may be left on one master.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Owed {
    /// The master.
    pub node: String,
    /// What the lock was for.
    pub resource: Resource,
    /// How long it may stay: it expires by itself then. A master that does not run at all counts
    /// from when it runs again.
    pub within: Duration,
}

impl Unreleased {
    /// What may be left, and where.
    pub fn owed(&self) -> &[Owed] {
        &self.owed
    }
}

fn count(keys: usize) -> String {
    if keys == 1 { "1 key".into() } else { format!("{keys} keys") }
}

fn list(owed: &[Owed]) -> String {
    /// An error is one line: the rest is in [`Unreleased::owed`].
    const SHOWN: usize = 5;
    let one =
        |owed: &Owed| format!("{} on {} for up to {:.1?}", owed.resource, owed.node, owed.within);
    let mut shown: Vec<String> = owed.iter().take(SHOWN).map(one).collect();
    if owed.len() > SHOWN {
        shown.push(format!("{} more", owed.len() - SHOWN));
    }
    shown.join(", ")
}
