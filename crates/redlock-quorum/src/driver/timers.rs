//! `Timers`: all that is to happen later, in one heap under one timer of the runtime.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::Arc;

use redlock_core::Instant;

use super::Request;
use super::census::Census;
use crate::claim::Claim;
use crate::farewell::Farewell;
use crate::round::Round;

/// What is to happen when its time has come.
pub(super) enum Due {
    /// The node timeout of an attempt has passed; from here on its lease is kept.
    Attempt(Arc<Claim>),
    /// The grace for more copies is over.
    Grace(Arc<Claim>),
    /// The pause before the next attempt is over.
    Retry(Box<Request>),
    /// The lease is to be extended.
    Keep(Arc<Claim>),
    /// The node timeout of an extension has passed.
    Round(Arc<Round>),
    /// The node timeout of a release has passed.
    Farewell(Arc<Farewell>),
    /// The node timeout of a question to all masters has passed.
    Census(Arc<Census>),
    /// Masters that owe a release are asked again.
    Debts,
    /// The first connections have had their time.
    Start,
    /// Whoever closes the handle does not wait any longer.
    Close,
}

/// Ordered by time, and by the order of entry where that is the same.
#[derive(Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<Entry>>,
    entered: u64,
}

struct Entry {
    at: Instant,
    nth: u64,
    due: Due,
}

impl Timers {
    pub(super) fn enter(&mut self, at: Instant, due: Due) {
        self.entered += 1;
        self.heap.push(Reverse(Entry { at, nth: self.entered, due }));
    }

    /// The next thing that is due at `now`.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Due> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry.due)
    }

    /// When the next thing is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    /// Everything that is still to come, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Due> {
        self.heap.iter().map(|Reverse(entry)| &entry.due)
    }

    /// Takes out everything that is still to come.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Due> + '_ {
        self.heap.drain().map(|Reverse(entry)| entry.due)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.nth).cmp(&(other.at, other.nth))
    }
}
