//! `Waiters`: the callers of this process that wait, by key and by the id that alarms and votes use.

use redlock_core::{Instant, Key};

use crate::client::callers::Caller;
use crate::client::derived::{Index, index};
use crate::client::ids::{InspectionId, RequestId, WaitingId};
use crate::client::table::Table;
use crate::waiting::Waiting;

/// The queues of all keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Waiters {
    pub(super) queues: Table<WaitingId, Queue>,
    by_key: Index<WaitingId>,
}

/// The callers that wait for one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Queue {
    pub(super) key: Key,
    pub(super) waiting: Waiting<RequestId>,
    /// When its head is scheduled next.
    pub(super) scheduled: Option<Instant>,
    /// The number of its last request to the meeting point, and the master that it was sent to.
    pub(super) watch: u32,
    pub(super) watch_at: usize,
    /// The last caller that made its last attempt here.
    pub(super) last: Option<RequestId>,
    /// When an attempt for this key was lost last.
    pub(super) lost_at: Option<Instant>,
    /// The last question for callers whose wait was over.
    pub(super) explanation: Option<InspectionId>,
}

impl Queue {
    /// Returns `true` if an attempt for the key was lost after the wait of this caller was over: its
    /// own attempt would show nothing more. A client that is late would make one attempt after the
    /// other, because the end of a wait is noticed only after the runtime has checked its sockets.
    pub(super) fn is_lost_since(&self, caller: Option<&Caller>) -> bool {
        let until = caller.and_then(|caller| caller.until);
        until.zip(self.lost_at).is_some_and(|(until, lost_at)| until <= lost_at)
    }
}

impl Waiters {
    pub(super) fn new(seed: u64) -> Self {
        Self { queues: Table::default(), by_key: index(seed) }
    }

    #[inline]
    pub(super) fn of(&self, key: &[u8]) -> Option<WaitingId> {
        if self.by_key.is_empty() { None } else { self.by_key.get(key).copied() }
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&Queue> {
        self.queues.get(self.of(key)?)
    }

    /// Returns the queue of a key, which is created if there is none.
    pub(super) fn enter(&mut self, key: &Key) -> WaitingId {
        if let Some(id) = self.of(key) {
            return id;
        }
        let id = self.queues.insert(Queue {
            key: key.clone(),
            waiting: Waiting::default(),
            scheduled: None,
            watch: 0,
            watch_at: 0,
            last: None,
            lost_at: None,
            explanation: None,
        });
        self.by_key.insert(key.clone(), id);
        id
    }

    pub(super) fn remove(&mut self, id: WaitingId) {
        if let Some(queue) = self.queues.remove(id) {
            self.by_key.remove(&queue.key);
        }
    }

    /// Returns the master at which this process has a place in the queue of the key, or may have.
    pub(super) fn place(&self, key: &[u8]) -> Option<usize> {
        self.get(key)?.waiting.place()
    }

    /// Removes all queues, with their record of contention.
    pub(super) fn clear(&mut self) {
        self.queues.clear();
        self.by_key.clear();
    }
}
