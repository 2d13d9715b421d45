//! `Uses`: the keys that callers of this process request or hold, and the keys that they have left
//! a moment ago.

use std::time::Duration;

use redlock_core::{Instant, Key, SharedQueue};

use crate::client::derived::{Index, index};
use crate::client::ids::{LockId, RequestId, UseId};
use crate::client::table::Table;
use crate::waiting::run::Run;
use crate::waiting::untaken::Untaken;

/// Up to this many unused keys are not worth a search.
const LEFT_MIN: usize = 64;

/// The uses of all keys.
///
/// A request and its lock store the id of the key's use, so a key is hashed only once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Uses {
    uses: Table<UseId, Use>,
    by_key: Index<UseId>,
    /// How often keys were left since unused keys were removed.
    left: usize,
}

/// The use of one key by this process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Use {
    key: Key,
    /// The caller that requests the key first, before any other caller waits.
    pub(super) asker: Option<RequestId>,
    /// The lease of this process, and since when it has the lease. `None` if it was resumed.
    holder: Option<(LockId, Option<Instant>)>,
    /// A caller has left the key.
    was_left: bool,
    /// That was before unused keys were removed last.
    is_old: bool,
    /// The master that answered, when the key was left there, that no process waits, and when.
    unwanted: Option<(usize, Instant)>,
    /// How many others wait for the key, by the latest answer of a meeting point.
    pub(super) waiters: u32,
    /// How many wait at other masters, by their latest answers.
    pub(super) waiters_elsewhere: u32,
    /// An attempt was lost since the last lease.
    pub(super) was_refused: bool,
    /// The leases that no caller of this process took.
    pub(super) untaken: Untaken,
    /// The leases in a row, if no queue works.
    pub(super) run: Run,
    /// The shared queue, once the key was left there. A key that is locked again and again needs it
    /// each time.
    queue: Option<SharedQueue>,
}

impl Uses {
    pub(super) fn new(seed: u64) -> Self {
        Self { uses: Table::default(), by_key: index(seed), left: 0 }
    }

    #[inline]
    pub(super) fn get(&self, id: UseId) -> Option<&Use> {
        self.uses.get(id)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: UseId) -> Option<&mut Use> {
        self.uses.get_mut(id)
    }

    pub(super) fn of(&self, key: &[u8]) -> Option<&Use> {
        self.uses.get(*self.by_key.get(key)?)
    }

    pub(super) fn of_mut(&mut self, key: &[u8]) -> Option<&mut Use> {
        self.uses.get_mut(*self.by_key.get(key)?)
    }

    /// Returns `true` if a caller of this process has the key.
    pub(super) fn is_held(&self, key: &[u8]) -> bool {
        self.of(key).is_some_and(|one| one.holder.is_some())
    }

    /// Returns the use of a key, which is created if there is none. [`left`](Self::left) removes
    /// uses of keys that no caller requests or holds, from time to time.
    pub(super) fn enter(&mut self, key: &Key) -> UseId {
        let Self { uses, by_key, .. } = self;
        *by_key.entry(key.clone()).or_insert_with(|| uses.insert(Use::new(key.clone())))
    }

    /// Records that a caller does not request the key any longer, or waits for it from now on.
    pub(super) fn end_asking(&mut self, key: &[u8], asker: RequestId) {
        let Some(id) = self.by_key.get(key).copied() else { return };
        let Some(one) = self.uses.get_mut(id).filter(|one| one.asker == Some(asker)) else {
            return;
        };
        one.asker = None;
        if one.holder.is_none() && !one.was_left {
            self.by_key.remove(key);
            self.uses.remove(id);
        }
    }

    /// Records that a caller has the key. `id` is the use under which it requested the key, if any.
    /// Returns the use of the key, which stays while it is held.
    pub(super) fn won(
        &mut self,
        key: &Key,
        id: UseId,
        (asker, lock): (RequestId, LockId),
        since: Option<Instant>,
    ) -> UseId {
        let id = if self.uses.contains(id) { id } else { self.enter(key) };
        if let Some(one) = self.uses.get_mut(id) {
            one.asker = one.asker.filter(|other| *other != asker);
            let former = one.holder.filter(|(former, _)| *former == lock);
            one.holder = former.or(Some((lock, since)));
        }
        id
    }

    /// Records that a caller does not hold the key any longer. Returns `false` if it did not.
    pub(super) fn left(&mut self, id: UseId, lock: LockId) -> bool {
        let Some(one) = self.uses.get_mut(id).filter(|one| one.lease() == Some(lock)) else {
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

    /// Records that no caller requests any key any longer.
    pub(super) fn clear_askers(&mut self) {
        self.retain(|one| {
            one.asker = None;
            one.holder.is_some()
        });
    }

    /// Records that others want the key, or have it.
    pub(super) fn wanted(&mut self, key: &[u8]) {
        if let Some(one) = self.of_mut(key) {
            one.wanted();
        }
    }

    fn retain(&mut self, stays: impl Fn(&mut Use) -> bool) {
        let mut gone: Vec<UseId> = self.uses.ids().collect();
        gone.retain(|id| self.uses.get_mut(*id).is_some_and(|one| !stays(one)));
        for id in gone {
            if let Some(one) = self.uses.remove(id) {
                self.by_key.remove(&one.key);
            }
        }
    }
}

impl Use {
    fn new(key: Key) -> Self {
        Self {
            key,
            asker: None,
            holder: None,
            was_left: false,
            is_old: false,
            unwanted: None,
            waiters: 0,
            waiters_elsewhere: 0,
            was_refused: false,
            untaken: Untaken::default(),
            run: Run::default(),
            queue: None,
        }
    }

    /// Returns the lease of this process on the key.
    pub(super) fn lease(&self) -> Option<LockId> {
        self.holder.map(|(lock, _)| lock)
    }

    /// Returns how long this process has had the lease, including all callers that received it.
    /// `None` if the lease was resumed, because another process may have had it for a long time.
    pub(super) fn held_for(&self, lock: LockId, now: Instant) -> Option<Duration> {
        let (_, since) = self.holder.filter(|(holder, _)| *holder == lock)?;
        since.map(|since| now.saturating_since(since))
    }

    /// Returns `true` if a caller of this process had the key before its holder. That is remembered
    /// until many other keys were left, and not for a time: a pause of any length may be short for
    /// a process that is far away.
    pub(super) fn was_held_before(&self) -> bool {
        self.was_left
    }

    /// Records that the key was left at `master`, and that no process waits for it there.
    pub(super) fn left_unwanted(&mut self, master: usize, now: Instant) {
        (self.unwanted, self.waiters) = (Some((master, now)), 0);
    }

    /// Records that others want the key, or have it.
    pub(super) fn wanted(&mut self) {
        self.unwanted = None;
        self.run.others_came();
    }

    /// Returns `true` if others wait at other masters, or seem to: another process had the key, and
    /// the meeting point knows of none.
    pub(super) fn wait_elsewhere(&self) -> bool {
        self.waiters_elsewhere > 0 || self.was_refused && self.waiters == 0
    }

    /// Returns the master that answered, at most `fresh` ago, that no process waits for the key.
    pub(super) fn unwanted_at(&self, fresh: Duration, now: Instant) -> Option<usize> {
        let (master, at) = self.unwanted?;
        (now.saturating_since(at) < fresh).then_some(master)
    }

    /// Returns the shared queue of the key.
    pub(super) fn queue(&mut self, make: impl FnOnce() -> SharedQueue) -> SharedQueue {
        self.queue.get_or_insert_with(make).clone()
    }

    /// Returns `true` if the use is kept when unused keys are removed. A key that was left since
    /// the last time is.
    fn stays(&mut self) -> bool {
        let was_left_since = self.was_left && !self.is_old;
        self.is_old = true;
        self.asker.is_some() || self.holder.is_some() || was_left_since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> Key {
        Key::from(&number.to_be_bytes()[..])
    }

    #[test]
    fn unused_keys_are_forgotten() {
        let (mut uses, mut locks) = (Uses::new(0), Table::<LockId, ()>::default());
        for second in 0..10_000 {
            let now = Instant::ORIGIN.saturating_add(Duration::from_secs(second as u64));
            let lock = locks.insert(());
            let by = (RequestId::default(), lock);
            let id = uses.won(&key(second), UseId::default(), by, Some(now));
            assert!(uses.left(id, lock) && !uses.left(id, lock));
            assert_eq!(uses.uses.len(), uses.by_key.len());
        }
        assert!(uses.uses.len() <= LEFT_MIN * 2, "{}", uses.uses.len());
    }

    #[test]
    fn frequently_used_key_is_remembered_among_many_others() {
        let (mut uses, mut locks) = (Uses::new(0), Table::<LockId, ()>::default());
        let mut use_once = |number: usize| {
            let lock = locks.insert(());
            let by = (RequestId::default(), lock);
            let id = uses.won(&key(number), UseId::default(), by, Some(Instant::ORIGIN));
            let was_held = uses.get(id).unwrap().was_held_before();
            uses.left(id, lock);
            was_held
        };
        assert!(!use_once(0));
        for others in 1..100 {
            (0..LEFT_MIN / 2).for_each(|other| assert!(!use_once(others * LEFT_MIN + other)));
            assert!(use_once(0), "after {others} times as many");
        }
    }

    #[test]
    fn end_of_another_lock_does_not_remove_the_keys_holder() {
        let (mut uses, mut locks) = (Uses::new(0), Table::<LockId, ()>::default());
        let (holder, lost) = (locks.insert(()), locks.insert(()));
        let by = (RequestId::default(), holder);
        let id = uses.won(&key(0), UseId::default(), by, Some(Instant::ORIGIN));
        assert!(!uses.left(id, lost) && uses.is_held(&key(0)));
    }

    #[test]
    fn caller_that_has_the_key_is_no_longer_its_requester() {
        let (mut uses, mut requests) = (Uses::new(0), Table::<RequestId, ()>::default());
        let (asker, other) = (requests.insert(()), requests.insert(()));
        let now = Some(Instant::ORIGIN);
        let id = uses.enter(&key(0));
        uses.get_mut(id).unwrap().asker = Some(asker);
        let by = |caller| (caller, LockId::default());
        assert_eq!(uses.won(&key(0), UseId::default(), by(other), now), id);
        assert_eq!(uses.of(&key(0)).unwrap().asker, Some(asker));
        assert_eq!(uses.won(&key(0), id, by(asker), now), id);
        assert_eq!(uses.of(&key(0)).unwrap().asker, None);
    }

    /// The first caller becomes the head of a queue when another caller comes, and the use under
    /// which it made its request may be removed before it wins.
    #[test]
    fn caller_whose_use_was_removed_gets_a_new_use() {
        let (mut uses, mut locks) = (Uses::new(0), Table::<LockId, ()>::default());
        let (asker, lock) = (RequestId::default(), locks.insert(()));
        let gone = uses.enter(&key(0));
        uses.get_mut(gone).unwrap().asker = Some(asker);
        uses.end_asking(&key(0), asker);
        assert_eq!((uses.uses.len(), uses.by_key.len()), (0, 0));
        let id = uses.won(&key(0), gone, (asker, lock), Some(Instant::ORIGIN));
        assert!(uses.is_held(&key(0)) && !uses.left(gone, lock));
        assert!(uses.left(id, lock) && !uses.is_held(&key(0)));
    }
}
