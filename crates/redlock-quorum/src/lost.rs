//! `Lost` and `Ended`: how a lock came to its end.

use std::fmt;

use redlock_core::Resource;
pub use redlock_protocol::LostReason;

use crate::votes::Votes;

/// The reason why a lock is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The holder released the lock, or passed it on.
    Released,
    /// The lock was lost.
    Lost(Lost),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Released => f.write_str("the lock was released"),
            Self::Lost(lost) => lost.fmt(f),
        }
    }
}

/// A lost lock: its resource, the reason for the loss, and the masters' answers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("the lock on {resource} is lost: {reason}")]
pub struct Lost {
    /// The resource of the lock.
    pub resource: Resource,
    /// The reason for the loss.
    pub reason: LostReason,
    /// Each master's last answer when the loss was noticed.
    pub votes: Votes,
}
