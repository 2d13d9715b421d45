//! `Timers`: all that is to happen later, in order, under one timer of the runtime.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use redlock_core::Instant;

use super::ticket::{InspectionId, LockId, RequestId, WaitingId};

/// What is to happen when its time has come. It points into the tables, and goes stale with what
/// it points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// The time for the answers to an attempt is over; stale if it was given more.
    Attempt(LockId, Instant),
    /// The grace for more copies is over.
    Grace(LockId),
    /// The wait of a request is over.
    Wait(RequestId),
    /// The head of those that wait has something to do; stale if it is scheduled otherwise.
    Waiting(WaitingId, Instant),
    /// The time for the answer to a look is over.
    Look(WaitingId, u32),
    /// A request has stood in line for too long.
    Turn(RequestId),
    /// The keeper of a lease has something to do; stale if the lease is scheduled otherwise.
    Keep(LockId, Instant),
    /// The node timeout of an extension that its holder waits for has passed.
    Extension(LockId, u32),
    /// The node timeout of a release has passed.
    Release(LockId),
    /// The node timeout of an inspection has passed.
    Inspection(InspectionId),
    /// This master is asked again for releases that it has not acknowledged.
    Unacknowledged(usize),
    /// The time of the first connections is over.
    Start,
    /// The time of connections that were being made again is over.
    Revived,
    /// The caller that closes the handle does not wait any longer.
    Close,
}

/// Ordered by time, and by the order of entry where that is the same.
///
/// Nearly everything that is entered is due a node timeout from now, and so after what was entered
/// before it: that stands in a lane, where nothing has to be sorted. The rest is in a heap.
#[derive(Default)]
pub(super) struct Timers {
    lane: VecDeque<Entry>,
    heap: BinaryHeap<Reverse<Entry>>,
    entered: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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

    /// Takes out what is stale from where it would be next: no alarm is set for it.
    pub(super) fn prune(&mut self, is_stale: impl Fn(Due) -> bool) {
        while self.lane.front().is_some_and(|first| is_stale(first.due)) {
            self.lane.pop_front();
        }
    }

    /// When the next thing is due.
    pub(super) fn next(&self) -> Option<Instant> {
        let first = self.lane.front().map(|entry| entry.at);
        let top = self.heap.peek().map(|Reverse(entry)| entry.at);
        first.into_iter().chain(top).min()
    }

    pub(super) fn clear(&mut self) {
        self.lane.clear();
        self.heap.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fired(timers: &mut Timers, now: u64) -> Vec<Due> {
        std::iter::from_fn(|| timers.pop(Instant::from_nanos(now))).collect()
    }

    #[test]
    fn things_fire_in_the_order_of_time_and_not_of_entry() {
        for order in [[1, 2, 3, 4], [4, 3, 2, 1], [2, 4, 1, 3], [3, 1, 4, 2]] {
            let mut timers = Timers::default();
            for at in order {
                timers.enter(Instant::from_nanos(at), Due::Unacknowledged(at as usize));
            }
            assert_eq!(timers.next(), Some(Instant::from_nanos(1)));
            assert_eq!(fired(&mut timers, 3), [1, 2, 3].map(Due::Unacknowledged), "{order:?}");
            assert_eq!(fired(&mut timers, 4), [Due::Unacknowledged(4)]);
            assert_eq!(timers.next(), None);
        }
    }

    #[test]
    fn what_is_due_at_the_same_time_fires_in_the_order_of_entry() {
        let mut timers = Timers::default();
        for (at, due) in [(5, Due::Start), (9, Due::Start), (5, Due::Close)] {
            timers.enter(Instant::from_nanos(at), due);
        }
        assert_eq!(fired(&mut timers, 5), [Due::Start, Due::Close]);
    }

    #[test]
    fn no_alarm_is_set_for_what_is_stale() {
        let mut timers = Timers::default();
        timers.enter(Instant::from_nanos(5), Due::Start);
        timers.enter(Instant::from_nanos(6), Due::Close);
        timers.prune(|due| due == Due::Start);
        assert_eq!(timers.next(), Some(Instant::from_nanos(6)));
    }
}
