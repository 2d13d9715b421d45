//! `Timers`: all that is to happen later, in order, under one timer of the runtime.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};
use std::sync::{Arc, Weak};

use redlock_core::Instant;

use super::Request;
use super::census::Census;
use crate::claim::Claim;
use crate::farewell::Farewell;
use crate::round::Round;

/// What is to happen when its time has come.
pub(super) enum Due {
    /// The node timeout of an attempt has passed; from here on its lease is kept. A lock that was
    /// released and answered for by then takes no memory any more: most are.
    Attempt(Weak<Claim>),
    /// The grace for more copies is over.
    Grace(Arc<Claim>),
    /// The pause before the next attempt is over.
    Retry(Box<Request>),
    /// The lease is to be extended.
    Keep(Arc<Claim>),
    /// The node timeout of an extension has passed.
    Round(Arc<Round>),
    /// The node timeout of a release has passed; one that all masters have acknowledged is gone.
    Farewell(Weak<Farewell>),
    /// The node timeout of a question to all masters has passed.
    Census(Arc<Census>),
    /// Masters that owe a release are asked again.
    Debts,
    /// The first connections have had their time.
    Start,
    /// Whoever closes the handle does not wait any longer.
    Close,
}

impl Due {
    /// Whether nobody is left to whom it could matter.
    fn is_moot(&self) -> bool {
        match self {
            Self::Attempt(claim) => claim.strong_count() == 0,
            Self::Farewell(farewell) => farewell.strong_count() == 0,
            _ => false,
        }
    }
}

/// Ordered by time, and by the order of entry where that is the same.
///
/// Nearly everything that is entered is due a node timeout from now, and so after whatever was
/// entered before it: that stands in a lane, where nothing has to be sorted. The rest is in a heap.
#[derive(Default)]
pub(super) struct Timers {
    lane: VecDeque<Entry>,
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
        let entry = Entry { at, nth: self.entered, due };
        if self.lane.back().is_none_or(|last| last.at <= at) {
            self.lane.push_back(entry);
        } else {
            self.heap.push(Reverse(entry));
        }
    }

    /// The next thing that is due at `now`.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Due> {
        if self.next()? > now {
            return None;
        }
        let is_in_lane = match (self.lane.front(), self.heap.peek()) {
            (Some(first), Some(Reverse(top))) => first < top,
            (first, _) => first.is_some(),
        };
        if is_in_lane {
            self.lane.pop_front().map(|entry| entry.due)
        } else {
            self.heap.pop().map(|Reverse(entry)| entry.due)
        }
    }

    /// Takes out what has become moot from where it would be next: no alarm is set for it.
    pub(super) fn prune(&mut self) {
        while self.lane.front().is_some_and(|first| first.due.is_moot()) {
            self.lane.pop_front();
        }
    }

    /// When the next thing is due.
    pub(super) fn next(&self) -> Option<Instant> {
        let first = self.lane.front().map(|entry| entry.at);
        let top = self.heap.peek().map(|Reverse(entry)| entry.at);
        first.into_iter().chain(top).min()
    }

    /// Everything that is still to come, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Due> {
        let heap = self.heap.iter().map(|Reverse(entry)| entry);
        self.lane.iter().chain(heap).map(|entry| &entry.due)
    }

    /// Takes out everything that is still to come.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Due> + '_ {
        let heap = self.heap.drain().map(|Reverse(entry)| entry);
        self.lane.drain(..).chain(heap).map(|entry| entry.due)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn fired(timers: &mut Timers, now: u64) -> Vec<bool> {
        let mut fired = Vec::new();
        while let Some(due) = timers.pop(Instant::from_nanos(now)) {
            fired.push(matches!(due, Due::Debts));
        }
        fired
    }

    #[test]
    fn whatever_the_order_of_entry_things_fire_in_the_order_of_time() {
        for order in [[1, 2, 3, 4], [4, 3, 2, 1], [2, 4, 1, 3], [3, 1, 4, 2]] {
            let mut timers = Timers::default();
            for at in order {
                let due = if at == 2 { Due::Debts } else { Due::Start };
                timers.enter(Instant::from_nanos(at), due);
            }
            assert_eq!(timers.next(), Some(Instant::from_nanos(1)));
            assert_eq!(fired(&mut timers, 3), [false, true, false], "{order:?}");
            assert_eq!(timers.iter().count(), 1);
            assert_eq!(fired(&mut timers, 4), [false]);
            assert_eq!(timers.next(), None);
        }
    }

    #[test]
    fn what_is_due_at_the_same_time_fires_in_the_order_of_entry() {
        let mut timers = Timers::default();
        for (at, due) in [(5, Due::Start), (9, Due::Start), (5, Due::Debts)] {
            timers.enter(Instant::from_nanos(at), due);
        }
        assert_eq!(fired(&mut timers, 5), [false, true]);
    }
}
