//! Queues that do not work: the script on them has failed, for example because the key of the queue
//! has another type, or because the user has lost a right.

use std::collections::BTreeMap;
use std::time::Duration;

use redlock_core::{Instant, Key};

use crate::master_set::MasterSet;

/// For how long a queue is not used after its script has failed. The time doubles with each failure
/// in a row.
const BROKEN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// The largest number of remembered queues.
const QUEUES_MAX: usize = 1_000;

/// The queues whose script has failed, by key and master.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct BrokenQueues(BTreeMap<(Key, usize), Broken>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Broken {
    failures: u32,
    until: Instant,
}

impl BrokenQueues {
    /// Records that the script on the queue of `key` has failed at `master`.
    pub(super) fn failed(&mut self, key: &Key, master: usize, now: Instant) {
        let [least, most] = BROKEN;
        if self.0.len() >= QUEUES_MAX {
            self.0.clear();
        }
        let broken = self.0.entry((key.clone(), master));
        let broken = broken.or_insert(Broken { failures: 0, until: now });
        let lasts = least.saturating_mul(1 << broken.failures.min(16)).min(most);
        broken.failures = broken.failures.saturating_add(1);
        broken.until = now.saturating_add(lasts);
    }

    /// Records that the script on the queue of `key` works at `master`.
    pub(super) fn works(&mut self, key: &Key, master: usize) {
        if !self.0.is_empty() {
            self.0.remove(&(key.clone(), master));
        }
    }

    /// Returns `true` if the queue of `key` is not used at `master`.
    pub(super) fn has(&self, key: &Key, master: usize, now: Instant) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let broken = self.0.get(&(key.clone(), master));
        broken.is_some_and(|broken| now < broken.until)
    }

    /// Returns the masters at which the queue of `key` is not used.
    pub(super) fn avoided(&self, key: &Key, masters: usize, now: Instant) -> MasterSet {
        if self.0.is_empty() {
            return MasterSet::EMPTY;
        }
        (0..masters).filter(|master| self.has(key, *master, now)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_queue_is_avoided_for_longer_each_time() {
        let (mut queues, key) = (BrokenQueues::default(), Key::from(&b"key"[..]));
        let mut now = Instant::ORIGIN;
        for lasts in [1, 2, 4, 8, 16, 32, 60, 60] {
            queues.failed(&key, 2, now);
            assert!(queues.has(&key, 2, now) && !queues.has(&key, 1, now));
            assert_eq!(queues.avoided(&key, 5, now), MasterSet::from_iter([2]));
            now = now.saturating_add(Duration::from_secs(lasts));
            assert!(!queues.has(&key, 2, now), "after {lasts} s");
        }
        queues.works(&key, 2);
        queues.failed(&key, 2, now);
        now = now.saturating_add(Duration::from_secs(1));
        assert!(queues.avoided(&key, 5, now).is_empty(), "consecutive failures are counted");
    }
}
