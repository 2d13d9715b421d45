//! The keys that may remain after a shutdown.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redlock_core::Resource;
use redlock_core::duration::at_most;
use redlock_protocol::abandoned::Left;
use redlock_protocol::client::{KeyLeft, Remains};

/// Keys that may remain on masters after [`Redlock::shutdown`](crate::Redlock::shutdown).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} may be left on masters: {}", count(self.count()), list(self))]
pub struct Unreleased {
    pub(crate) keys: Vec<UnreleasedKey>,
    pub(crate) forgotten: Vec<ForgottenKeys>,
}

/// One key that may remain on one master.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnreleasedKey {
    /// The master.
    pub node: String,
    /// The resource of the lock.
    pub resource: Resource,
    /// The longest time for which the key may stay before it expires.
    pub within: Duration,
    /// `true` if `within` starts when the master resumes, because it has been silent since the key
    /// was written and may still have the request buffered.
    pub from_wake_up: bool,
}

/// A number of keys that may remain on one master. It left more than 10,000 releases
/// unacknowledged, so the oldest are no longer repeated or listed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForgottenKeys {
    /// The master.
    pub node: String,
    /// The largest possible number of these keys. Expired keys are included until all have expired.
    pub count: u64,
    /// The longest time for which the last of the keys may stay.
    pub within: Duration,
    /// `true` if `within` starts when the master resumes, for at least one of the keys. See
    /// [`UnreleasedKey::from_wake_up`].
    pub from_wake_up: bool,
}

impl Unreleased {
    /// Returns the keys that a client may leave on masters with these names.
    pub(crate) fn of(remains: Remains, names: &[Arc<str>]) -> Self {
        let key = |left: KeyLeft| UnreleasedKey {
            node: names[left.master].to_string(),
            resource: left.resource,
            within: left.within,
            from_wake_up: left.from_wake_up,
        };
        let forgotten = |(master, left): (usize, Left)| {
            let Left { count, within, from_wake_up } = left;
            ForgottenKeys { node: names[master].to_string(), count, within, from_wake_up }
        };
        Self {
            keys: remains.keys.into_iter().map(key).collect(),
            forgotten: remains.abandoned.into_iter().map(forgotten).collect(),
        }
    }

    /// Returns the keys that may remain, and their masters.
    pub fn keys(&self) -> &[UnreleasedKey] {
        &self.keys
    }

    /// Returns how many further keys may remain, one entry per master. They are too many to be
    /// listed.
    pub fn forgotten(&self) -> &[ForgottenKeys] {
        &self.forgotten
    }

    /// Returns the keys that remain after `time`, without expired ones.
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
    /// Returns `self` if something remains.
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
    /// An error is one line. The rest is in [`Unreleased::keys`].
    const SHOWN: usize = 5;
    let Unreleased { keys, forgotten } = unreleased;
    let mut shown: Vec<String> = keys.iter().take(SHOWN).map(UnreleasedKey::to_string).collect();
    if keys.len() > SHOWN {
        shown.push(format!("{} more", keys.len() - SHOWN));
    }
    shown.extend(forgotten.iter().map(ForgottenKeys::to_string));
    shown.join(", ")
}

/// Describes how long something may stay.
fn stay(f: &mut fmt::Formatter<'_>, within: Duration, from_wake_up: bool) -> fmt::Result {
    write!(f, "for up to {}", at_most(within))?;
    if from_wake_up { f.write_str(" after it resumes") } else { Ok(()) }
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
