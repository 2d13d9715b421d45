//! The errors: one small enum per operation. Each shows whether a key may remain somewhere.

mod unreleased;

use std::time::Duration;

use redlock_core::{Resource, Verdict};
use redlock_protocol::quorum::quorum;

pub use self::unreleased::{ForgottenKeys, Unreleased, UnreleasedKey};
use crate::lost::Lost;
use crate::settings::InvalidRequest;
use crate::votes::{NodeVote, Votes};

/// The reason why a lock was not acquired.
///
/// In every case, the handle releases the key in the background on each master that may have it.
/// [`Redlock::shutdown`](crate::Redlock::shutdown) waits for that and lists the masters that may
/// keep it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// A quorum of masters answered without granting: another client holds the resource, several
    /// contenders split the masters, or masters had accepted larger ballots ([`Votes::is_outbid`]).
    /// Wait longer, or try again later.
    ///
    /// If another caller of this process holds the lock, [`Votes::is_held_here`] returns `true`. If
    /// that is the caller itself, it waits in vain: see
    /// [`Redlock::reentrant`](crate::Redlock::reentrant).
    #[error("{resource} {}: {votes}", refusal(votes))]
    Held {
        /// The resource of the lock.
        resource: Resource,
        /// Each master's answer.
        votes: Votes,
    },
    /// Too few masters answered, or too few of them vote, so the holder is not known. Repair the
    /// masters, or wait for the time of [`retry_after`](Self::retry_after).
    #[error(
        "{resource}: no quorum, too few voting masters answered: {votes}{}",
        if votes.may_be_new() { BRAND_NEW } else { "" }
    )]
    NoQuorum {
        /// The resource of the lock.
        resource: Resource,
        /// Each master's answer.
        votes: Votes,
    },
    /// A quorum granted, but too late: no validity was left. The TTL is too short for the network,
    /// this process was not scheduled, or it did not poll the future in time.
    #[error("{resource}: granted too late, no validity was left: {votes}")]
    TooLate {
        /// The resource of the lock.
        resource: Resource,
        /// Each master's answer.
        votes: Votes,
    },
    /// The request is invalid. Nothing was sent.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// The handle was shut down.
    #[error("the lock handle was shut down")]
    Shutdown,
}

/// Describes what happened to a refused lock.
fn refusal(votes: &Votes) -> String {
    if votes.is_outbid() {
        return format!("was not acquired, {}", votes.why_outbid());
    }
    // Contenders may share the masters, or the holder has no label.
    let label = votes.holder_label().map(|label| format!(" ({label})")).unwrap_or_default();
    let holder = if votes.is_held_here() { "caller in this process" } else { "client" };
    format!("is held by another {holder}{label}")
}

/// The advice if no master was ever admitted.
const BRAND_NEW: &str = "; if these masters are new, run `redlock init`, or call \
    `redlock.init()`";

impl AcquireError {
    /// Returns this error about another resource, of which the refused one is a part.
    pub(crate) fn about(self, resource: &Resource) -> Self {
        let resource = resource.clone();
        match self {
            Self::Held { votes, .. } => Self::Held { resource, votes },
            Self::NoQuorum { votes, .. } => Self::NoQuorum { resource, votes },
            Self::TooLate { votes, .. } => Self::TooLate { resource, votes },
            other => other,
        }
    }

    /// Returns the shortest time until a quorum can vote, because enough quarantines are over
    /// (`NoQuorum` only). `None` if quarantines are not the reason.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::NoQuorum { votes, .. } => votes.retry_after(),
            _ => None,
        }
    }

    /// Returns the longest time until a quorum can vote if clients connect only briefly (`NoQuorum`
    /// only). `None` if the quarantine can end only while one client stays connected, for
    /// [`retry_after`](Self::retry_after) and a second or two.
    pub fn retry_after_visits(&self) -> Option<Duration> {
        match self {
            Self::NoQuorum { votes, .. } => votes.retry_after_visits(),
            _ => None,
        }
    }

    /// Returns each master's answer, if masters were queried.
    pub fn votes(&self) -> Option<&Votes> {
        match self {
            Self::Held { votes, .. }
            | Self::NoQuorum { votes, .. }
            | Self::TooLate { votes, .. } => Some(votes),
            Self::Invalid(_) | Self::Shutdown => None,
        }
    }
}

/// The reason why a lease was not extended. A failed extension releases nothing and shortens
/// nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExtendError {
    /// The lease is over. It cannot be revived: acquire the lock again.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// A quorum of masters answered, and too few of them have the key with this token. The lock was
    /// lost, or never held.
    #[error("{resource} is not held by this token: {votes}")]
    NotOurs {
        /// The resource of the lock.
        resource: Resource,
        /// Each master's answer.
        votes: Votes,
    },
    /// Too few voting masters confirmed the extension (or, for a resume, agreed on a new fencing
    /// token, see [`Votes::is_outbid`]). The lease is not shortened; retry while it is valid.
    #[error(
        "{resource}: no quorum to {} it, {}: {votes}",
        if votes.is_outbid() { "resume" } else { "extend" },
        if votes.is_outbid() { votes.why_outbid() } else { "too few voting masters answered" }
    )]
    NoQuorum {
        /// The resource of the lock.
        resource: Resource,
        /// Each master's answer.
        votes: Votes,
    },
    /// A quorum confirmed too late: no validity of the extended lease was left.
    #[error("{resource}: extended too late, no validity was left: {votes}")]
    TooLate {
        /// The resource of the lock.
        resource: Resource,
        /// Each master's answer.
        votes: Votes,
    },
    /// The request is invalid. Nothing was sent.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// The handle was shut down.
    #[error("the lock handle was shut down")]
    Shutdown,
}

impl ExtendError {
    /// Returns each master's answer, if masters were queried.
    pub fn votes(&self) -> Option<&Votes> {
        match self {
            Self::NotOurs { votes, .. }
            | Self::NoQuorum { votes, .. }
            | Self::TooLate { votes, .. } => Some(votes),
            Self::Lost(lost) => Some(&lost.votes),
            Self::Invalid(_) | Self::Shutdown => None,
        }
    }

    /// Converts the error of an attempt to resume a lease.
    pub(crate) fn of_resume(error: AcquireError) -> Self {
        match error {
            // A quorum holds our key: the lock is ours.
            AcquireError::Held { resource, votes } if votes.is_outbid() => {
                Self::NoQuorum { resource, votes }
            }
            AcquireError::Held { resource, votes } => Self::NotOurs { resource, votes },
            AcquireError::NoQuorum { resource, votes } => Self::NoQuorum { resource, votes },
            AcquireError::TooLate { resource, votes } => Self::TooLate { resource, votes },
            AcquireError::Invalid(invalid) => Self::Invalid(invalid),
            AcquireError::Shutdown => Self::Shutdown,
        }
    }
}

/// The reason why a release is not confirmed. Clean-up continues in the background in every case,
/// until each master has acknowledged it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// A quorum of masters did not hold our key: the lock was lost earlier, or never was ours.
    ///
    /// Some masters may still have had our key, and it was deleted: see [`is_late`](Self::is_late).
    #[error(
        "{resource} {}: {}",
        if is_late(votes) { LATE } else { NOT_OURS },
        released(votes)
    )]
    NotOurs {
        /// The resource of the lock.
        resource: Resource,
        /// Each master's answer.
        votes: Votes,
    },
    /// Too few masters confirmed in time. The others may keep the key until it expires.
    #[error("{resource}: release not confirmed by a quorum: {}", released(votes))]
    Unconfirmed {
        /// The resource of the lock.
        resource: Resource,
        /// Each master's answer.
        votes: Votes,
    },
    /// The request is invalid. Nothing was sent.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// The handle was shut down: the key stays until it expires.
    #[error("the lock handle was shut down, the key stays until it expires")]
    Shutdown,
}

impl ReleaseError {
    /// Returns each master's answer, if masters were queried.
    pub fn votes(&self) -> Option<&Votes> {
        match self {
            Self::NotOurs { votes, .. } | Self::Unconfirmed { votes, .. } => Some(votes),
            Self::Invalid(_) | Self::Shutdown => None,
        }
    }

    /// Returns `true` if a quorum of masters still had our key and released it (`NotOurs` only).
    /// The lease had already ended by the holder's clock, but the key had not expired.
    pub fn is_late(&self) -> bool {
        matches!(self, Self::NotOurs { votes, .. } if is_late(votes))
    }
}

fn is_late(votes: &Votes) -> bool {
    votes.granted() >= quorum(votes.len())
}

/// What happened to a lock whose key is not on a quorum of masters.
const NOT_OURS: &str = "was already lost, or was never held by this token";

/// What happened to a lock whose key still existed after its lease had ended.
const LATE: &str = "was released after its lease had ended";

/// Describes each master's answer to a release, which grants nothing.
fn released(votes: &Votes) -> String {
    let one = |vote: &NodeVote| match vote.verdict {
        Verdict::Granted => format!("{} released", vote.node),
        _ => vote.to_string(),
    };
    votes.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The work ran, but its completion could not be recorded. See
/// [`OnceGuard::complete`](crate::OnceGuard::complete).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MarkError {
    /// The lock was lost before the work ended. No completion was recorded.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// Too few masters acknowledged the completion. The lock is left to expire. After that, the job
    /// may run again.
    #[error("{resource} completed, but too few masters recorded it, so it may run again: {votes}")]
    NoQuorum {
        /// The resource of the lock.
        resource: Resource,
        /// Each master's answer.
        votes: Votes,
    },
    /// No master could be queried.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// The handle was shut down.
    #[error("the lock handle was shut down")]
    Shutdown,
}

impl From<AcquireError> for MarkError {
    fn from(error: AcquireError) -> Self {
        match error {
            AcquireError::Held { resource, votes }
            | AcquireError::NoQuorum { resource, votes }
            | AcquireError::TooLate { resource, votes } => Self::NoQuorum { resource, votes },
            AcquireError::Invalid(invalid) => Self::Invalid(invalid),
            AcquireError::Shutdown => Self::Shutdown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// *Not ours* next to five *released* answers would contradict itself.
    #[test]
    fn late_release_is_not_reported_as_not_ours() {
        let error = |verdicts: [Verdict; 3]| {
            let vote = |(node, verdict): (&str, _)| NodeVote::new(node.into(), verdict, None);
            let votes = ["a", "b", "c"].into_iter().zip(verdicts).map(vote).collect();
            ReleaseError::NotOurs { resource: "k".into(), votes: Votes::new(votes) }
        };
        let late = error([Verdict::Granted, Verdict::Granted, Verdict::NotOurs]);
        assert!(late.is_late());
        let said = "k was released after its lease had ended: a released, b released, c not ours";
        assert_eq!(late.to_string(), said);
        let gone = error([Verdict::Granted, Verdict::NotOurs, Verdict::NotOurs]);
        assert!(!gone.is_late());
        let said = "k was already lost, or was never held by this token: a released, b not ours, c not ours";
        assert_eq!(gone.to_string(), said);
    }
}
