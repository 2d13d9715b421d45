//! `Timers`: everything that happens later, in order, for one timer of the runtime.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::hash::{Hash, Hasher};
use std::time::Duration;

use redlock_core::Instant;

use super::ids::{InspectionId, LockId, RequestId, WaitingId};

/// An action that is due at some instant. It refers to an entry of a table, and is stale when that
/// entry is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Due {
    /// The time for the answers to an attempt is over; stale if it was given more.
    Attempt(LockId, Instant),
    /// The time for a ballot to be accepted is over. Stale without a quorum.
    Ballots(LockId),
    /// Masters that refused an attempt are queried again.
    TakeAgain(LockId),
    /// The grace for more copies is over.
    Grace(LockId),
    /// The wait of a request is over.
    Wait(RequestId),
    /// The head of a queue has something to do. Stale if it is scheduled differently.
    Waiting(WaitingId, Instant),
    /// The time for the answer to a watch is over.
    Watch(WaitingId, u32),
    /// A request has waited in line for too long.
    Unsent(RequestId),
    /// The keeper of a lease has something to do; stale if the lease is scheduled otherwise.
    Keep(LockId, Instant),
    /// The node timeout of an extension that its holder waits for has passed.
    Extension(LockId, u32),
    /// The node timeout of a release has passed.
    Release(LockId),
    /// The node timeout of an inspection has passed.
    Inspection(InspectionId),
    /// Unacknowledged releases at this master are repeated.
    Unacknowledged(usize),
    /// The time of the first connections is over.
    Start,
    /// There is something to do about a master.
    Master(usize),
    /// A timeout is over, and the turn finds out which.
    Wake,
    /// The time of a call of `init`, or of its next read, is over.
    Init,
    /// Connected masters are probed again.
    Fresh,
    /// The time for the answers to a report is over.
    Report(u32),
    /// The caller that closes the handle does not wait any longer.
    Close,
}

/// Actions ordered by time, and by order of entry at the same time.
///
/// Nearly every action is due after one of a few delays: a node timeout, a third of a TTL. Actions
/// with the same delay are in one lane, which needs no sorting. The others are in a heap. Only the
/// order is compared and hashed, not the place of an action.
#[derive(Clone, Debug)]
pub struct Timers {
    lanes: [VecDeque<Entry>; LANES],
    heap: BinaryHeap<Reverse<Entry>>,
    entered: u64,
    /// No entry is due before this. It is [`NEVER`] without entries.
    soonest: Instant,
    /// With so many entries the stale ones are taken out.
    full: usize,
}

/// A client that is late by so much was not run.
pub const IDLE_MIN: Duration = Duration::from_millis(500);

/// No action is due.
const NEVER: Instant = Instant::from_nanos(u64::MAX);
/// The number of delays in use at one time: attempts and releases, keepers, requests in line.
const LANES: usize = 4;
/// Up to this many entries are never worth a search.
const FULL_MIN: usize = 1_024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    at: Instant,
    nth: u64,
    due: Due,
}

impl Default for Timers {
    fn default() -> Self {
        let lanes = [const { VecDeque::new() }; LANES];
        Self {
            lanes,
            heap: BinaryHeap::new(),
            entered: 0,
            soonest: Instant::ORIGIN,
            full: FULL_MIN,
        }
    }
}

impl Timers {
    /// Adds an action to the end of the lane that grows the least, so that a long delay and a short
    /// one do not share a lane, in which the long one would send all others to the heap.
    pub fn enter(&mut self, at: Instant, due: Due) {
        self.entered += 1;
        self.soonest = self.soonest.min(at);
        let entry = Entry { at, nth: self.entered, due };
        let (mut place, mut latest) = (None, Instant::ORIGIN);
        for (nth, lane) in self.lanes.iter().enumerate() {
            // An empty lane is used if no other fits.
            let end = lane.back().map_or(Instant::ORIGIN, |last| last.at);
            if end <= at && (place.is_none() || end >= latest) {
                (place, latest) = (Some(nth), end);
            }
        }
        match place {
            Some(nth) => self.lanes[nth].push_back(entry),
            None => self.heap.push(Reverse(entry)),
        }
    }

    /// Removes the next action that is due at `now`.
    pub fn pop(&mut self, now: Instant) -> Option<Due> {
        if self.soonest > now {
            return None;
        }
        let (entry, place) = self.first()?;
        if entry.at > now {
            return None;
        }
        match place {
            Some(lane) => drop(self.lanes[lane].pop_front()),
            None => drop(self.heap.pop()),
        }
        Some(entry.due)
    }

    /// The entry that is due first, and its lane; in the heap it has none.
    fn first(&self) -> Option<(Entry, Option<usize>)> {
        let lanes = self.lanes.iter().enumerate();
        let lanes = lanes.filter_map(|(at, lane)| Some((*lane.front()?, Some(at))));
        let top = self.heap.peek().map(|Reverse(entry)| (*entry, None));
        lanes.chain(top).min_by_key(|(entry, _)| (entry.at, entry.nth))
    }

    /// Removes stale entries at the front, so that no alarm is set for them. If more and more
    /// entries remain after a live one, all entries are searched.
    pub fn prune(&mut self, is_stale: impl Fn(Due) -> bool) {
        for lane in &mut self.lanes {
            while lane.front().is_some_and(|first| is_stale(first.due)) {
                lane.pop_front();
            }
        }
        if self.len() > self.full {
            self.lanes.iter_mut().for_each(|lane| lane.retain(|entry| !is_stale(entry.due)));
            self.heap.retain(|Reverse(entry)| !is_stale(entry.due));
            self.full = FULL_MIN.max(self.len() * 2);
        }
        // Which entry is next matters only when it is due.
        let firsts = self.lanes.iter().filter_map(|lane| lane.front().map(|entry| entry.at));
        let next = firsts.chain(self.heap.peek().map(|Reverse(entry)| entry.at)).min();
        self.soonest = next.unwrap_or(NEVER);
    }

    fn len(&self) -> usize {
        self.lanes.iter().map(VecDeque::len).sum::<usize>() + self.heap.len()
    }

    /// Returns `true` if an action was due so long ago.
    pub fn is_late(&self, now: Instant, by: Duration) -> bool {
        self.soonest.saturating_add(by) < now
    }

    /// Returns when the next action is due: at the end of the last [`prune`](Self::prune), and before
    /// that as soon as possible.
    pub fn next_at(&self) -> Option<Instant> {
        (self.soonest < NEVER).then_some(self.soonest)
    }

    /// All actions in order.
    fn in_order(&self) -> impl Iterator<Item = (Instant, Due)> {
        let heap = self.heap.iter().map(|Reverse(entry)| *entry);
        let mut all: Vec<Entry> = self.lanes.iter().flatten().copied().chain(heap).collect();
        all.sort_unstable();
        all.into_iter().map(|entry| (entry.at, entry.due))
    }

    /// Removes all actions.
    pub fn clear(&mut self) {
        self.lanes.iter_mut().for_each(VecDeque::clear);
        self.heap.clear();
    }
}

impl PartialEq for Timers {
    fn eq(&self, other: &Self) -> bool {
        self.soonest == other.soonest && self.in_order().eq(other.in_order())
    }
}

impl Eq for Timers {}

impl Hash for Timers {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.soonest.hash(state);
        self.in_order().for_each(|action| action.hash(state));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns when the next action is due.
    fn next_at(timers: &mut Timers) -> Option<Instant> {
        timers.prune(|_| false);
        timers.next_at()
    }

    fn fired(timers: &mut Timers, now: u64) -> Vec<Due> {
        std::iter::from_fn(|| timers.pop(Instant::from_nanos(now))).collect()
    }

    #[test]
    fn timers_fire_in_order_of_time() {
        for order in [[1, 2, 3, 4], [4, 3, 2, 1], [2, 4, 1, 3], [3, 1, 4, 2]] {
            let mut timers = Timers::default();
            for at in order {
                timers.enter(Instant::from_nanos(at), Due::Unacknowledged(at as usize));
            }
            assert_eq!(next_at(&mut timers), Some(Instant::from_nanos(1)));
            assert_eq!(fired(&mut timers, 3), [1, 2, 3].map(Due::Unacknowledged), "{order:?}");
            assert_eq!(fired(&mut timers, 4), [Due::Unacknowledged(4)]);
            assert_eq!(next_at(&mut timers), None);
        }
    }

    #[test]
    fn simultaneous_timers_fire_in_order_of_entry() {
        let mut timers = Timers::default();
        for (at, due) in [(5, Due::Start), (9, Due::Start), (5, Due::Close)] {
            timers.enter(Instant::from_nanos(at), due);
        }
        assert_eq!(fired(&mut timers, 5), [Due::Start, Due::Close]);
    }

    #[test]
    fn stale_timers_set_no_alarm() {
        let mut timers = Timers::default();
        timers.enter(Instant::from_nanos(5), Due::Start);
        timers.enter(Instant::from_nanos(6), Due::Close);
        timers.prune(|due| due == Due::Start);
        assert_eq!(timers.next_at(), Some(Instant::from_nanos(6)));
    }

    #[test]
    fn actions_are_compared_by_time_and_not_by_place() {
        let timers = |order: [u64; 3]| {
            let mut timers = Timers::default();
            for at in order {
                timers.enter(Instant::from_nanos(at), Due::Master(at as usize));
            }
            next_at(&mut timers);
            timers
        };
        assert_eq!(timers([1, 2, 3]), timers([3, 2, 1]));
        assert_ne!(timers([1, 2, 3]), timers([1, 2, 4]));
    }

    /// Entries that are due after one of a few delays need no sorting, in any order of the delays.
    #[test]
    fn timers_of_a_few_delays_need_no_heap() {
        let mut timers = Timers::default();
        for begun in 0..1_000 {
            for delay in [12_000, 50, 3_300] {
                timers.enter(Instant::from_nanos(begun + delay), Due::Start);
            }
        }
        assert_eq!((timers.heap.len(), timers.len()), (0, 3_000));
        assert_eq!(fired(&mut timers, 5_000).len(), 2_000);
    }

    /// A long-held lock must not keep later, finished entries in memory.
    #[test]
    fn stale_timers_after_a_live_one_take_little_memory() {
        let mut timers = Timers::default();
        timers.enter(Instant::from_nanos(1_000_000), Due::Close);
        for at in 1_000_000..1_100_000 {
            timers.enter(Instant::from_nanos(at), Due::Start);
            timers.prune(|due| due == Due::Start);
            assert!(timers.len() <= FULL_MIN + 1);
        }
        assert_eq!(fired(&mut timers, 1_000_000)[0], Due::Close);
    }
}
