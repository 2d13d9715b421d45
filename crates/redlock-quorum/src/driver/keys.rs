//! `Keys`: what the callers of this process do with each key.

use std::collections::HashMap;
use std::sync::Arc;

use redlock_core::Instant;

use super::ticket::{LockId, RequestId};
use crate::protocol::run::Run;

/// The keys that callers ask for or hold, and those that they have left a moment ago.
#[derive(Default)]
pub(super) struct Keys {
    uses: HashMap<Arc<[u8]>, Use>,
    /// How often keys were left since those that are of no use were taken out.
    left: usize,
}

/// What is known of one key.
#[derive(Clone, Copy, Default)]
pub(super) struct Use {
    /// The caller that asks for it first, before any other waits.
    pub(super) asker: Option<RequestId>,
    /// The lease of this process.
    holder: Option<LockId>,
    run: Option<Run>,
}

/// So many keys that are of no use any more are not worth a search.
const LEFT_MIN: usize = 64;

impl Keys {
    pub(super) fn of(&self, key: &[u8]) -> Use {
        self.uses.get(key).copied().unwrap_or_default()
    }

    /// This caller asks for it first.
    pub(super) fn ask(&mut self, key: &Arc<[u8]>, asker: RequestId) {
        self.uses.entry(key.clone()).or_default().asker = Some(asker);
    }

    /// It does so no longer, or stands in the queue from now on.
    pub(super) fn end_asking(&mut self, key: &[u8], asker: RequestId) {
        if let Some(one) = self.uses.get_mut(key).filter(|one| one.asker == Some(asker)) {
            one.asker = None;
            if one.is_empty() {
                self.uses.remove(key);
            }
        }
    }

    /// This caller, which asked at `asked_at`, has it.
    pub(super) fn won(
        &mut self,
        key: &Arc<[u8]>,
        (id, lock): (RequestId, LockId),
        asked_at: Instant,
        now: Instant,
    ) {
        let one = self.uses.entry(key.clone()).or_default();
        one.asker = one.asker.filter(|asker| *asker != id);
        one.holder = Some(lock);
        one.run = Some(one.run.map_or_else(|| Run::begin(now), |run| run.won(asked_at, now)));
    }

    /// A caller does not hold it any longer. False where it did not.
    pub(super) fn left(&mut self, key: &[u8], lock: LockId, now: Instant) -> bool {
        let Some(one) = self.uses.get_mut(key).filter(|one| one.holder == Some(lock)) else {
            return false;
        };
        one.holder = None;
        if let Some(run) = &mut one.run {
            run.left(now);
        }
        self.left += 1;
        if self.left >= LEFT_MIN && self.left * 2 >= self.uses.len() {
            self.left = 0;
            self.uses.retain(|_, one| !one.is_useless(now));
        }
        true
    }

    /// Others have it, or get the chance to: another run begins with the next caller that wins.
    pub(super) fn end_run(&mut self, key: &[u8]) {
        if let Some(one) = self.uses.get_mut(key) {
            one.run = None;
        }
    }

    /// Nothing asks for any key any more.
    pub(super) fn clear_askers(&mut self) {
        self.uses.retain(|_, one| {
            one.asker = None;
            one.holder.is_some()
        });
    }
}

impl Use {
    pub(super) fn is_held(&self) -> bool {
        self.holder.is_some()
    }

    /// Whether this process has kept it for so long that it is the turn of others.
    pub(super) fn is_run_over(&self, is_contended: bool, now: Instant) -> bool {
        self.run.is_some_and(|run| run.is_over(is_contended, now))
    }

    fn is_empty(&self) -> bool {
        self.asker.is_none() && self.holder.is_none() && self.run.is_none()
    }

    fn is_useless(&self, now: Instant) -> bool {
        let is_remembered = self.run.is_some_and(|run| !run.is_forgotten(now));
        self.asker.is_none() && self.holder.is_none() && !is_remembered
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use slotmap::SlotMap;

    use super::*;

    #[test]
    fn keys_that_were_left_take_no_room() {
        let (mut keys, mut locks) = (Keys::default(), SlotMap::<LockId, ()>::with_key());
        for second in 0..10_000 {
            let now = Instant::ORIGIN.saturating_add(Duration::from_secs(second));
            let (key, lock) = (Arc::from(second.to_be_bytes()), locks.insert(()));
            keys.won(&key, (RequestId::default(), lock), now, now);
            assert!(keys.left(&key, lock, now) && !keys.left(&key, lock, now));
        }
        assert!(keys.uses.len() <= LEFT_MIN * 2, "{}", keys.uses.len());
    }

    #[test]
    fn what_another_lock_of_the_same_key_comes_to_leaves_its_holder() {
        let (mut keys, mut locks) = (Keys::default(), SlotMap::<LockId, ()>::with_key());
        let (key, now): (Arc<[u8]>, _) = (Arc::from(*b"key"), Instant::ORIGIN);
        let (holder, lost) = (locks.insert(()), locks.insert(()));
        keys.won(&key, (RequestId::default(), holder), now, now);
        assert!(!keys.left(&key, lost, now) && keys.of(&key).is_held());
    }

    #[test]
    fn a_caller_that_has_the_key_asks_for_it_no_longer() {
        let mut keys = Keys::default();
        let mut requests = SlotMap::<RequestId, ()>::with_key();
        let (asker, other) = (requests.insert(()), requests.insert(()));
        let (key, now): (Arc<[u8]>, _) = (Arc::from(*b"key"), Instant::ORIGIN);
        keys.ask(&key, asker);
        keys.won(&key, (other, LockId::default()), now, now);
        assert_eq!(keys.of(&key).asker, Some(asker));
        keys.won(&key, (asker, LockId::default()), now, now);
        assert_eq!(keys.of(&key).asker, None);
    }
}
