//! The errors: one small enum for each operation. Each shows whether a key may be left somewhere.

use std::fmt;
use std::time::Duration;

use redlock_core::duration::at_most;
use redlock_core::{Resource, Verdict};
use redlock_protocol::quorum::quorum;

use crate::lost::Lost;
use crate::settings::InvalidRequest;
use crate::votes::{NodeVote, Votes};

/// Why a lock was not acquired.
///
/// Whatever the reason, every master on which the key may be is asked to release it, in the
/// background; [`Redlock::shutdown`](crate::Redlock::shutdown) waits for that and lists the masters
/// that may keep it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// A quorum of masters answered, and not with yes: another holds the resource, or several
    /// contenders split the masters between them, or masters had accepted larger ballots
    /// ([`Votes::is_outbid`]). Wait longer, or try again later.
    #[error("{resource} {}: {votes}", refusal(votes))]
    Held {
        /// The resource of the lock.
        resource: Resource,
        /// Each master's answer.
        votes: Votes,
    },
    /// Too few masters answered, or too few of them count, so the holder is not known. Repair the
    /// masters, or wait for the time of [`retry_after`](Self::retry_after).
    #[error(
        "no quorum for {resource}, too few masters answered or count: {votes}{}",
        if votes.may_be_new() { BRAND_NEW } else { "" }
    )]
    NoQuorum {
        /// The resource of the lock.
        resource: Resource,
        /// Each master's answer.
        votes: Votes,
    },
    /// A quorum granted, but so late that nothing of the lease was left. The TTL is too short for
    /// the network, or this process did not get to run, or did not poll the future.
    #[error("a quorum granted {resource} too late, nothing of the lease is left: {votes}")]
    TooLate {
        /// The resource of the lock.
        resource: Resource,
        /// Each master's answer.
        votes: Votes,
    },
    /// The request itself is wrong. Nothing was sent.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// The handle was shut down.
    #[error("the lock handle was shut down")]
    Shutdown,
}

/// The fate of a lock that was refused.
fn refusal(votes: &Votes) -> String {
    if votes.is_outbid() {
        return format!("was given up, {}", votes.why_outbid());
    }
    // Contenders may share the masters, or the holder has no label.
    let label = votes.holder_label().map(|label| format!(" ({label})")).unwrap_or_default();
    format!("is held by another{label}")
}

/// The cure for masters that never were admitted.
const BRAND_NEW: &str = "; brand new? run `redlock init`, or call `redlock.init()`";

impl AcquireError {
    /// For [`NoQuorum`](Self::NoQuorum): how long it takes at least until so many quarantines are
    /// over that a quorum of masters can vote. `None` if that is not what is missing.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::NoQuorum { votes, .. } => votes.retry_after(),
            _ => None,
        }
    }

    /// For [`NoQuorum`](Self::NoQuorum): how long that takes at the latest if no client is
    /// long-running, and some clients that ask for a lock come and go. `None` also if only a
    /// long-running client ends those quarantines: one that waits for the time of
    /// [`retry_after`](Self::retry_after), and a second or two more.
    pub fn retry_after_visits(&self) -> Option<Duration> {
        match self {
            Self::NoQuorum { votes, .. } => votes.retry_after_visits(),
            _ => None,
        }
    }

    /// Each master's answer, if masters were asked.
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
        /// The resource of the lock.
        resource: Resource,
        /// Each master's answer.
        votes: Votes,
    },
    /// Too few masters answered, or count, or too few of those that extended a lease that was to be
    /// resumed accepted one ballot for its fencing token ([`Votes::is_outbid`]). The lease may
    /// still be extended; try again while it is valid.
    #[error(
        "no quorum to {} {resource}, {}: {votes}",
        if votes.is_outbid() { "resume" } else { "extend" },
        if votes.is_outbid() { votes.why_outbid() } else { "too few masters answered or count" }
    )]
    NoQuorum {
        /// The resource of the lock.
        resource: Resource,
        /// Each master's answer.
        votes: Votes,
    },
    /// A quorum confirmed too late, nothing of the extended lease was left.
    #[error("a quorum extended {resource} too late, nothing of the lease is left: {votes}")]
    TooLate {
        /// The resource of the lock.
        resource: Resource,
        /// Each master's answer.
        votes: Votes,
    },
    /// The request itself is wrong. Nothing was sent.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// The handle was shut down.
    #[error("the lock handle was shut down")]
    Shutdown,
}

impl ExtendError {
    /// Each master's answer, if masters were asked.
    pub fn votes(&self) -> Option<&Votes> {
        match self {
            Self::NotOurs { votes, .. }
            | Self::NoQuorum { votes, .. }
            | Self::TooLate { votes, .. } => Some(votes),
            Self::Lost(lost) => Some(&lost.votes),
            Self::Invalid(_) | Self::Shutdown => None,
        }
    }

    /// The outcome of an attempt that was to take a lease over, in the words of an extension.
    pub(crate) fn of_resume(error: AcquireError) -> Self {
        match error {
            // A quorum holds our key: it is ours.
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

/// Why a release is not known to have freed the resource. Clean-up goes on in the background
/// either way, until every master has acknowledged it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// A quorum of masters did not hold our key: the lock was lost before, or never was ours.
    ///
    /// Masters may still have had our key all the same, which is deleted then: see
    /// [`is_late`](Self::is_late).
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
    /// Too few masters have confirmed in time. Those that have not may keep the key until it
    /// expires there.
    #[error("the release of {resource} is not confirmed by a quorum: {}", released(votes))]
    Unconfirmed {
        /// The resource of the lock.
        resource: Resource,
        /// Each master's answer.
        votes: Votes,
    },
    /// The request itself is wrong. Nothing was sent.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// The handle was shut down: the key stays until it expires.
    #[error("the lock handle was shut down, the key stays until it expires")]
    Shutdown,
}

impl ReleaseError {
    /// Each master's answer, if masters were asked.
    pub fn votes(&self) -> Option<&Votes> {
        match self {
            Self::NotOurs { votes, .. } | Self::Unconfirmed { votes, .. } => Some(votes),
            Self::Invalid(_) | Self::Shutdown => None,
        }
    }

    /// For [`NotOurs`](Self::NotOurs): whether a quorum of masters still had our key, and released
    /// it. Its lease had ended before, by the holder's own clock, and the key had not expired yet.
    pub fn is_late(&self) -> bool {
        matches!(self, Self::NotOurs { votes, .. } if is_late(votes))
    }
}

fn is_late(votes: &Votes) -> bool {
    votes.granted() >= quorum(votes.len())
}

/// The fate of a lock whose key is not on a quorum of masters.
const NOT_OURS: &str = "was not ours, or not any more";

/// The fate of a lock whose key was still there when its lease had ended.
const LATE: &str = "was released after its lease had ended";

/// Each master's answer to a release. It grants nothing.
fn released(votes: &Votes) -> String {
    let one = |vote: &NodeVote| match vote.verdict {
        Verdict::Granted => format!("{} released", vote.node),
        _ => vote.to_string(),
    };
    votes.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Why work that is to be done once, and was done, is not known to be done: see
/// [`OnceGuard::complete`](crate::OnceGuard::complete).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MarkError {
    /// The lock was lost before the work had ended. Nothing was marked.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// Too few masters have acknowledged that the work was done. Its lock is left to expire; the
    /// work may be done again then.
    #[error(
        "{resource} was done, but too few masters acknowledged its mark, so it may be done again: \
         {votes}"
    )]
    NoQuorum {
        /// The resource of the lock.
        resource: Resource,
        /// Each master's answer.
        votes: Votes,
    },
    /// No master could be asked.
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

/// Keys that may be left on masters after [`Redlock::shutdown`](crate::Redlock::shutdown).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} may be left on masters: {}", count(self.count()), list(self))]
pub struct Unreleased {
    pub(crate) keys: Vec<UnreleasedKey>,
    pub(crate) forgotten: Vec<ForgottenKeys>,
}

/// One key that may be left on one master.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnreleasedKey {
    /// The master.
    pub node: String,
    /// The resource of the lock.
    pub resource: Resource,
    /// How long it may stay: it expires by itself then.
    pub within: Duration,
    /// That time counts from when the master runs again: it has not answered since the key was
    /// set or extended, and may still have that request in its buffers.
    pub from_wake_up: bool,
}

/// Keys that may be left on one master, and are only counted: it left more than 10,000 releases
/// unacknowledged, and is not asked for the oldest of them any more.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForgottenKeys {
    /// The master.
    pub node: String,
    /// How many keys these are at most. Those that have expired count until all have.
    pub count: u64,
    /// How long the last of them may stay.
    pub within: Duration,
    /// As [`UnreleasedKey::from_wake_up`], for one of them at least.
    pub from_wake_up: bool,
}

impl Unreleased {
    /// The keys that may be left, and their masters.
    pub fn keys(&self) -> &[UnreleasedKey] {
        &self.keys
    }

    /// Further keys that may be left and are only counted, because there are many: an entry for
    /// each such master.
    pub fn forgotten(&self) -> &[ForgottenKeys] {
        &self.forgotten
    }

    /// The keys that are still left after `time`, without keys that have expired.
    pub(crate) fn after(&self, time: Duration) -> Self {
        let left = |within: Duration, from_wake_up| match from_wake_up {
            true => within,
            false => within.saturating_sub(time),
        };
        let Self { mut keys, mut forgotten } = self.clone();
        keys.iter_mut().for_each(|key| key.within = left(key.within, key.from_wake_up));
        keys.retain(|key| !key.within.is_zero());
        forgotten.iter_mut().for_each(|keys| keys.within = left(keys.within, keys.from_wake_up));
        forgotten.retain(|keys| !keys.within.is_zero());
        Self { keys, forgotten }
    }

    /// # Errors
    /// This, if something is left.
    pub(crate) fn into_result(self) -> Result<(), Self> {
        if self.count() == 0 { Ok(()) } else { Err(self) }
    }

    fn count(&self) -> u64 {
        let forgotten = self.forgotten.iter().map(|keys| keys.count);
        forgotten.fold(self.keys.len() as u64, u64::saturating_add)
    }
}

fn count(keys: u64) -> String {
    if keys == 1 { "1 key".into() } else { format!("{keys} keys") }
}

fn list(unreleased: &Unreleased) -> String {
    /// An error is one line: the rest is in [`Unreleased::keys`].
    const SHOWN: usize = 5;
    let Unreleased { keys, forgotten } = unreleased;
    let mut shown: Vec<String> = keys.iter().take(SHOWN).map(UnreleasedKey::to_string).collect();
    if keys.len() > SHOWN {
        shown.push(format!("{} more", keys.len() - SHOWN));
    }
    shown.extend(forgotten.iter().map(ForgottenKeys::to_string));
    shown.join(", ")
}

/// How long something may stay.
fn stay(f: &mut fmt::Formatter<'_>, within: Duration, from_wake_up: bool) -> fmt::Result {
    write!(f, "for up to {}", at_most(within))?;
    if from_wake_up { f.write_str(" from its wake-up") } else { Ok(()) }
}

impl fmt::Display for UnreleasedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, node, within, from_wake_up } = self;
        write!(f, "{resource} on {node} ")?;
        stay(f, *within, *from_wake_up)
    }
}

impl fmt::Display for ForgottenKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, count: keys, within, from_wake_up } = self;
        write!(f, "{} that are not listed on {node} ", count(*keys))?;
        stay(f, *within, *from_wake_up)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// *Not ours* beside five times *released* would contradict itself.
    #[test]
    fn a_release_that_came_too_late_is_not_called_not_ours() {
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
        let said = "k was not ours, or not any more: a released, b not ours, c not ours";
        assert_eq!(gone.to_string(), said);
    }
}
