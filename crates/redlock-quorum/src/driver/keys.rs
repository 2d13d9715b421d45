//! `Keys`: what the callers of this process do with each key.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use redlock_core::{Instant, SharedQueue};
use redlock_protocol::client::table::Table;
use redlock_protocol::waiting::run::Run;
use redlock_protocol::waiting::untaken::Untaken;

use redlock_protocol::client::ids::{LockId, RequestId, UseId};

/// The keys that callers ask for or hold, and those that they have left a moment ago.
///
/// A request that asks for a key has the name of its entry, and so has the lock that it gets: a key
/// is hashed once for each lock.
#[derive(Default)]
pub(super) struct Keys {
    uses: Table<UseId, Entry>,
    by_key: HashMap<Arc<[u8]>, UseId>,
    /// How often keys were left since those that are of no use were taken out.
    left: usize,
}

/// The state of one key.
#[derive(Default)]
struct Entry {
    usage: Use,
    /// Its queue, once it was left there: a key that is locked again and again names it each time.
    queue: Option<SharedQueue>,
}

/// The use of one key by this process.
#[derive(Clone, Copy, Default)]
pub(super) struct Use {
    /// The caller that asks for it first, before any other waits.
    pub(super) asker: Option<RequestId>,
    /// The lease of this process, and since when it has the lease; `None` if it was resumed.
    holder: Option<(LockId, Option<Instant>)>,
    /// A caller has left it.
    was_left: bool,
    /// That was before keys of no use were taken out last.
    is_old: bool,
    /// The meeting point that answered, when the key was left there, that nobody waits; and when.
    unwanted: Option<(usize, Instant)>,
    /// By the latest answer of a meeting point, others wait for the key.
    others_wait: bool,
    /// The leases that no caller of this process took.
    untaken: Untaken,
    /// The leases in a row, where no queue works.
    run: Run,
}

/// Up to this many unused keys are not worth a search.
const LEFT_MIN: usize = 64;

impl Keys {
    pub(super) fn of(&self, key: &[u8]) -> Use {
        self.by_key.get(key).and_then(|id| self.get(*id)).unwrap_or_default()
    }

    /// The use of the key with this id; `None` if the entry was removed.
    pub(super) fn get(&self, id: UseId) -> Option<Use> {
        self.uses.get(id).map(|entry| entry.usage)
    }

    /// The entry of a key, which is made if there is none. [`left`](Self::left) removes entries of
    /// keys that no caller asks for or holds, from time to time.
    pub(super) fn enter(&mut self, key: &Arc<[u8]>) -> UseId {
        let Self { uses, by_key, .. } = self;
        *by_key.entry(key.clone()).or_insert_with(|| uses.insert(Entry::default()))
    }

    /// The queue of the key of this entry, which `make` makes if there is none.
    pub(super) fn queue(&mut self, id: UseId, make: impl FnOnce() -> SharedQueue) -> SharedQueue {
        match self.uses.get_mut(id) {
            Some(entry) => entry.queue.get_or_insert_with(make).clone(),
            None => make(),
        }
    }

    fn usage(&mut self, id: UseId) -> Option<&mut Use> {
        self.uses.get_mut(id).map(|entry| &mut entry.usage)
    }

    /// This caller asks first for the key of this entry.
    pub(super) fn ask(&mut self, id: UseId, asker: RequestId) {
        if let Some(one) = self.usage(id) {
            one.asker = Some(asker);
        }
    }

    /// It does so no longer, or stands in the queue from now on.
    pub(super) fn end_asking(&mut self, key: &[u8], asker: RequestId) {
        let Some(id) = self.by_key.get(key).copied() else { return };
        if let Some(one) = self.usage(id).filter(|one| one.asker == Some(asker)) {
            one.asker = None;
            if one.is_empty() {
                self.by_key.remove(key);
                self.uses.remove(id);
            }
        }
    }

    /// This caller has the key. `key_use` is the entry under which it
    /// asked for it, if it did; the one that has it now is returned, and stays while it is held.
    pub(super) fn won(
        &mut self,
        key: &Arc<[u8]>,
        key_use: UseId,
        (id, lock): (RequestId, LockId),
        since: Option<Instant>,
    ) -> UseId {
        let key_use = if self.uses.contains(key_use) { key_use } else { self.enter(key) };
        if let Some(one) = self.usage(key_use) {
            one.asker = one.asker.filter(|asker| *asker != id);
            let former = one.holder.filter(|(former, _)| *former == lock);
            one.holder = former.or(Some((lock, since)));
        }
        key_use
    }

    /// A caller does not hold the key of this entry any longer. False where it did not.
    pub(super) fn left(&mut self, id: UseId, lock: LockId) -> bool {
        let Some(one) = self.usage(id).filter(|one| one.is_held_by(lock)) else {
            return false;
        };
        one.holder = None;
        (one.was_left, one.is_old) = (true, false);
        self.left += 1;
        if self.left >= LEFT_MIN && self.left * 2 >= self.uses.len() {
            self.left = 0;
            self.retain(Use::stays);
        }
        true
    }

    /// How long this process has had the lease, with all callers to whom it was handed on. `None` if
    /// it was resumed: another process may have had it for a long time.
    pub(super) fn held_for(&self, id: UseId, lock: LockId, now: Instant) -> Option<Duration> {
        let (_, since) = self.get(id)?.holder.filter(|(holder, _)| *holder == lock)?;
        since.map(|since| now.saturating_since(since))
    }

    /// The lease of this entry ends. Returns for how long the callers of this process stand back if
    /// its holder did not take it.
    pub(super) fn lease_ends(
        &mut self,
        id: UseId,
        is_taken: bool,
        held_for: Duration,
        reservation: Duration,
    ) -> Option<Duration> {
        let untaken = &mut self.usage(id)?.untaken;
        if is_taken {
            untaken.taken();
            return None;
        }
        untaken.untaken(held_for, reservation)
    }

    /// Whether a caller of this process had the key of this entry before the one that has it. That is
    /// remembered until many other keys were left, and not for a time. A pause of any length may be
    /// short for a process that is far away.
    pub(super) fn was_held_before(&self, id: UseId) -> bool {
        self.get(id).is_some_and(|one| one.was_left)
    }

    /// The key of this entry was left at `master`, where nobody waits for it.
    pub(super) fn left_unwanted(&mut self, id: UseId, master: usize, now: Instant) {
        if let Some(one) = self.usage(id) {
            (one.unwanted, one.others_wait) = (Some((master, now)), false);
        }
    }

    /// A meeting point has answered whether others wait for the key.
    pub(super) fn others_wait(&mut self, key: &[u8], others_wait: bool) {
        let id = self.by_key.get(key).copied();
        if let Some(one) = id.and_then(|id| self.usage(id)) {
            one.others_wait = others_wait;
        }
    }

    /// Whether others wait for the key of this entry, by the latest answer of a meeting point.
    pub(super) fn is_waited_for(&self, id: UseId) -> bool {
        self.get(id).is_some_and(|one| one.others_wait)
    }

    /// Others want the key, or have it.
    pub(super) fn wanted(&mut self, key: &[u8]) {
        let id = self.by_key.get(key).copied();
        if let Some(one) = id.and_then(|id| self.usage(id)) {
            one.unwanted = None;
            one.run.others_came();
        }
    }

    /// The run of leases of this entry, where no queue works.
    pub(super) fn run(&mut self, id: UseId) -> Option<&mut Run> {
        self.usage(id).map(|one| &mut one.run)
    }

    /// The master that has answered, at most `fresh` ago, that nobody waits for the key of this entry.
    pub(super) fn unwanted_at(&self, id: UseId, fresh: Duration, now: Instant) -> Option<usize> {
        let (master, at) = self.get(id)?.unwanted?;
        (now.saturating_since(at) < fresh).then_some(master)
    }

    /// No caller asks for any key any more.
    pub(super) fn clear_askers(&mut self) {
        self.retain(|one| {
            one.asker = None;
            one.holder.is_some()
        });
    }

    fn retain(&mut self, stays: impl Fn(&mut Use) -> bool) {
        let uses = &mut self.uses;
        self.by_key.retain(|_, id| {
            let stays = uses.get_mut(*id).is_some_and(|entry| stays(&mut entry.usage));
            if !stays {
                uses.remove(*id);
            }
            stays
        });
    }
}

impl Use {
    pub(super) fn is_held(&self) -> bool {
        self.holder.is_some()
    }

    /// The lease of this process on the key.
    pub(super) fn lease(&self) -> Option<LockId> {
        self.holder.map(|(lock, _)| lock)
    }

    fn is_held_by(&self, lock: LockId) -> bool {
        self.holder.is_some_and(|(holder, _)| holder == lock)
    }

    fn is_empty(&self) -> bool {
        self.asker.is_none() && self.holder.is_none() && !self.was_left
    }

    /// Whether the entry is kept when those of no use are taken out. One that was left since the
    /// last time is.
    fn stays(&mut self) -> bool {
        let was_left_since = self.was_left && !self.is_old;
        self.is_old = true;
        self.asker.is_some() || self.holder.is_some() || was_left_since
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redlock_protocol::client::table::Table;

    use super::*;

    #[test]
    fn keys_that_were_left_take_no_room() {
        let (mut keys, mut locks) = (Keys::default(), Table::<LockId, ()>::default());
        for second in 0..10_000 {
            let now = Instant::ORIGIN.saturating_add(Duration::from_secs(second));
            let (key, lock) = (Arc::from(second.to_be_bytes()), locks.insert(()));
            let id = keys.won(&key, UseId::default(), (RequestId::default(), lock), Some(now));
            assert!(keys.left(id, lock) && !keys.left(id, lock));
            assert_eq!(keys.uses.len(), keys.by_key.len());
        }
        assert!(keys.uses.len() <= LEFT_MIN * 2, "{}", keys.uses.len());
    }

    #[test]
    fn a_key_that_is_used_again_and_again_is_remembered_between_many_others() {
        let (mut keys, mut locks) = (Keys::default(), Table::<LockId, ()>::default());
        let mut use_once = |key: usize| {
            let (key, lock) = (Arc::from(key.to_be_bytes()), locks.insert(()));
            let by = (RequestId::default(), lock);
            let id = keys.won(&key, UseId::default(), by, Some(Instant::ORIGIN));
            let was_held = keys.was_held_before(id);
            keys.left(id, lock);
            was_held
        };
        assert!(!use_once(0));
        for others in 1..100 {
            (0..LEFT_MIN / 2).for_each(|other| assert!(!use_once(others * LEFT_MIN + other)));
            assert!(use_once(0), "after {others} times as many");
        }
    }

    #[test]
    fn what_another_lock_of_the_same_key_comes_to_leaves_its_holder() {
        let (mut keys, mut locks) = (Keys::default(), Table::<LockId, ()>::default());
        let (key, now): (Arc<[u8]>, _) = (Arc::from(*b"key"), Instant::ORIGIN);
        let (holder, lost) = (locks.insert(()), locks.insert(()));
        let id = keys.won(&key, UseId::default(), (RequestId::default(), holder), Some(now));
        assert!(!keys.left(id, lost) && keys.of(&key).is_held());
    }

    #[test]
    fn a_caller_that_has_the_key_asks_for_it_no_longer() {
        let mut keys = Keys::default();
        let mut requests = Table::<RequestId, ()>::default();
        let (asker, other) = (requests.insert(()), requests.insert(()));
        let (key, now): (Arc<[u8]>, _) = (Arc::from(*b"key"), Instant::ORIGIN);
        let id = keys.enter(&key);
        keys.ask(id, asker);
        assert_eq!(keys.won(&key, UseId::default(), (other, LockId::default()), Some(now)), id);
        assert_eq!(keys.of(&key).asker, Some(asker));
        assert_eq!(keys.won(&key, id, (asker, LockId::default()), Some(now)), id);
        assert_eq!(keys.of(&key).asker, None);
    }

    /// A caller that asks first becomes the head of a queue when another comes, and the entry under
    /// which it asked may be taken out before it wins.
    #[test]
    fn a_caller_whose_entry_is_gone_has_the_key_under_another() {
        let (mut keys, mut locks) = (Keys::default(), Table::<LockId, ()>::default());
        let (key, now): (Arc<[u8]>, _) = (Arc::from(*b"key"), Instant::ORIGIN);
        let (asker, lock) = (RequestId::default(), locks.insert(()));
        let gone = keys.enter(&key);
        keys.ask(gone, asker);
        keys.end_asking(&key, asker);
        assert_eq!((keys.uses.len(), keys.by_key.len()), (0, 0));
        let id = keys.won(&key, gone, (asker, lock), Some(now));
        assert!(keys.of(&key).is_held() && !keys.left(gone, lock));
        assert!(keys.left(id, lock) && !keys.of(&key).is_held());
    }
}
