//! `Remains`: the keys that a client may leave on masters.

use redlock_core::Resource;

use super::*;
use crate::abandoned;

/// The keys that may be left on masters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remains {
    /// The keys of leases whose guards still exist, and of unacknowledged releases.
    pub keys: Vec<KeyLeft>,
    /// Abandoned releases, each with its master.
    pub abandoned: Vec<(usize, abandoned::Left)>,
}

/// A key that may be left on a master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLeft {
    /// The master.
    pub master: usize,
    /// The resource.
    pub resource: Resource,
    /// How long it stays at most.
    pub within: Duration,
    /// That time runs from when the master resumes.
    pub from_wake_up: bool,
}

impl Locks {
    /// Returns the keys that may be left on masters. `lacks_barrier`: a request of before may still
    /// arrive there.
    pub fn remains(&mut self, lacks_barrier: impl Fn(usize) -> bool, now: Instant) -> Remains {
        let key = |lock: &Lock, master: usize, left: Option<Duration>| KeyLeft {
            master,
            resource: lock.claim.resource.clone(),
            within: left.unwrap_or_else(|| lock.machine.expiry()),
            from_wake_up: left.is_none() || lacks_barrier(master),
        };
        let of = |lock: &Lock| {
            let left = lock.machine.left(now).into_iter();
            left.map(|(master, left)| key(lock, master, left)).collect::<Vec<_>>()
        };
        let keys = self.table.values().flat_map(of).collect();
        let masters = self.unacknowledged.iter_mut().enumerate();
        let abandoned = masters.filter_map(|(master, unacknowledged)| {
            let mut left = unacknowledged.abandoned(now)?;
            left.from_wake_up |= lacks_barrier(master);
            Some((master, left))
        });
        Remains { keys, abandoned: abandoned.collect() }
    }
}
