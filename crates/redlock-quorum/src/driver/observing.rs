//! Observers: streams that read who holds a key and wait for a report of its next change.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::reply::{Awaited, Reply, reply};
use crate::status::Status;

/// A request to read who holds a key, and to have the next change reported.
#[derive(Clone)]
pub(crate) struct Observation {
    pub(crate) key: Arc<[u8]>,
    pub(crate) node_timeout: Duration,
    /// Only the meeting point is read, if there is one.
    pub(crate) is_look: bool,
}

/// The answer to an [`Observation`].
pub(crate) struct Observed {
    pub(crate) status: Status,
    /// The meeting point, if it was read. The others were read unless this was a look.
    pub(crate) at: Option<usize>,
    /// Resolves when the key may have changed, or the meeting point no longer reports its changes.
    pub(crate) changed: Awaited<'static, ()>,
}

pub(crate) type ObservedReply = Reply<Observed>;

/// One observation that is under way.
pub(super) struct Observing {
    key: Arc<[u8]>,
    reply: ObservedReply,
    at: Option<usize>,
    changed: Option<Awaited<'static, ()>>,
}

/// The observers that wait for a change, by key.
#[derive(Default)]
pub(super) struct Observers {
    by_key: HashMap<Arc<[u8]>, Vec<Expecting>>,
    /// How many have entered since observers of dropped streams were last removed.
    fresh: usize,
}

/// An observer that expects the next report of the master `at`.
struct Expecting {
    at: usize,
    changed: Reply<()>,
}

impl Observers {
    /// Returns what resolves with the next report of the master `at` about the key.
    fn enter(&mut self, key: &Arc<[u8]>, at: usize) -> Awaited<'static, ()> {
        if self.fresh > self.by_key.len() {
            self.remove(|observer| observer.changed.is_closed());
            self.fresh = 0;
        }
        self.fresh += 1;
        let (changed, awaited) = reply(None);
        self.by_key.entry(key.clone()).or_default().push(Expecting { at, changed });
        awaited
    }

    /// Removes these observers. Each of them that still waits reads again.
    fn remove(&mut self, is_removed: impl Fn(&Expecting) -> bool) {
        self.by_key.retain(|_, observers| {
            observers.retain(|observer| !is_removed(observer));
            !observers.is_empty()
        });
    }

    /// A master has reported that the key has changed.
    pub(super) fn key_changed(&mut self, key: &[u8]) {
        if !self.by_key.is_empty() {
            self.by_key.remove(key);
        }
    }

    /// The connection to `master`, or its data, is lost.
    pub(super) fn lost_sight(&mut self, master: usize) {
        self.remove(|observer| observer.at == master);
    }

    /// Ends all reports.
    pub(super) fn clear(&mut self) {
        self.by_key.clear();
    }
}

impl Observing {
    pub(super) fn new(key: Arc<[u8]>, reply: ObservedReply) -> Self {
        Self { key, reply, at: None, changed: None }
    }

    /// The master `at` reports the next change of the key.
    pub(super) fn enter(&mut self, at: usize, observers: &mut Observers) {
        self.changed = Some(observers.enter(&self.key, at));
        self.at = Some(at);
    }

    /// Answers. Without a meeting point no change is reported before the next read.
    pub(super) fn answer(self, status: Status) {
        let Self { reply: to, at, changed, .. } = self;
        let unreported = || {
            let (never, awaited) = reply(None);
            drop(never);
            awaited
        };
        let changed = changed.unwrap_or_else(unreported);
        // A dropped stream does not need to know.
        let _ = to.send(Observed { status, at, changed });
    }
}
