//! `Line`: the requests that wait for their turn to be sent, in order of arrival.

use std::collections::VecDeque;
use std::time::Duration;

use redlock_core::Instant;

use super::ids::{InspectionId, LockId, RequestId, WaitingId};

/// The largest number of entries in the line.
pub const WAITING_MAX: usize = 1_000_000;

/// Releases and marks, and then attempts and inspections, each in order of arrival. While attempts
/// are held back, inspections go with the releases.
///
/// A key is held until its release is sent, and a mark is requested while a key is held. After a
/// long line of attempts, the key would be held for longer than its TTL, and requests for that key
/// would be refused because of a caller that has returned it. There are at most as many releases as there were
/// attempts, so attempts also get their turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Line {
    first: VecDeque<Outgoing>,
    waiting: VecDeque<Outgoing>,
    /// No attempt is sent.
    is_held: bool,
    open: usize,
    window: Window,
}

/// An entry of the line, which is sent when its turn comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outgoing {
    /// An attempt for this caller.
    Attempt(RequestId),
    /// The release of this token.
    Release(LockId),
    /// A question about a key.
    Inspection(InspectionId),
    /// A request for a place in the queue of a key, after a release there.
    Place(WaitingId),
    /// A mark to read or raise while a lock is held.
    Mark(InspectionId),
}

impl Line {
    /// Appends an entry.
    pub fn push(&mut self, outgoing: Outgoing) {
        match outgoing {
            Outgoing::Release(_) | Outgoing::Mark(_) | Outgoing::Place(_) => {
                self.first.push_back(outgoing)
            }
            Outgoing::Inspection(_) if self.is_held => self.first.push_back(outgoing),
            Outgoing::Attempt(_) | Outgoing::Inspection(_) => self.waiting.push_back(outgoing),
        }
    }

    /// Removes the entry to be sent next, if there is room for it.
    pub fn pop(&mut self) -> Option<Outgoing> {
        if !self.can_advance() {
            return None;
        }
        let next = self.first.pop_front();
        if self.is_held { next } else { next.or_else(|| self.waiting.pop_front()) }
    }

    /// Returns `true` if an entry may be sent and there is room for it.
    pub fn can_advance(&self) -> bool {
        let may_pass = !self.first.is_empty() || !(self.is_held || self.waiting.is_empty());
        self.open < self.window.size && may_pass
    }

    /// Holds attempts back, or no longer does.
    pub fn hold(&mut self, is_held: bool) {
        if is_held && !self.is_held {
            let waiting = std::mem::take(&mut self.waiting).into_iter();
            let (attempts, others): (VecDeque<_>, VecDeque<_>) =
                waiting.partition(|outgoing| matches!(outgoing, Outgoing::Attempt(_)));
            self.waiting = attempts;
            self.first.extend(others);
        }
        self.is_held = is_held;
    }

    /// Records that a request was sent that a quorum has to answer.
    pub fn open(&mut self) {
        self.open += 1;
    }

    /// Records that a quorum has answered the request that was sent at `opened`, or that its
    /// `node_timeout` is over. Only the first call for a request has an effect.
    pub fn close(&mut self, opened: &mut Option<Instant>, now: Instant, node_timeout: Duration) {
        let Some(opened) = opened.take() else { return };
        self.window.learn(self.open, opened, now, node_timeout);
        self.open -= 1;
    }

    /// Returns `true` if more requests are without an answer than one or two callers cause.
    pub fn is_busy(&self) -> bool {
        self.open >= BUSY_MIN
    }

    /// Returns `true` if more entries wait than the smallest window admits at a time.
    pub fn is_long(&self) -> bool {
        self.len() > SIZE_MIN
    }

    /// Returns `true` if the line takes no further entries.
    pub fn is_full(&self) -> bool {
        self.len() >= WAITING_MAX
    }

    /// Returns `true` if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn len(&self) -> usize {
        self.first.len() + self.waiting.len()
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.first.clear();
        self.waiting.clear();
        self.is_held = false;
        self.open = 0;
    }
}

/// How many requests may be without the answer of a quorum at one time. Further requests wait in
/// line, because a burst that filled the masters' queues would time out there.
///
/// The window grows with every answer, so it doubles in the time of one answer. It is halved when
/// answers take a part of the node timeout that an empty queue would not cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Window {
    size: usize,
    /// The time that an answer takes without a queue of requests.
    least: Duration,
    /// When it was halved. Requests sent earlier do not reflect that yet.
    halved: Instant,
}

/// The number of requests that are not yet a burst, so that their answers show how long masters
/// take.
const SIZE_MIN: usize = 128;
/// The number of unanswered requests from which the next one probably comes together with others.
const BUSY_MIN: usize = 4;
/// More at a time make nothing faster.
const SIZE_MAX: usize = 1_024;

impl Default for Window {
    fn default() -> Self {
        Self { size: SIZE_MIN, least: Duration::MAX, halved: Instant::ORIGIN }
    }
}

impl Window {
    /// A request that was sent at `opened`, when `open` requests were without an answer, is
    /// answered.
    fn learn(&mut self, open: usize, opened: Instant, now: Instant, node_timeout: Duration) {
        let took = now.saturating_since(opened);
        self.least = self.least.min(took);
        let queued = took - self.least;
        if queued <= node_timeout.saturating_sub(self.least) / 4 {
            // A window that is not used up does not show that a larger one is needed.
            self.size = if open * 2 > self.size { SIZE_MAX.min(self.size + 1) } else { self.size };
        } else if opened >= self.halved {
            // There is no queue to speak of in the smallest window: masters take so long.
            self.least = if self.size == SIZE_MIN { took } else { self.least };
            (self.size, self.halved) = (SIZE_MIN.max(self.size / 2), now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::Table;
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    const NODE_TIMEOUT: Duration = ms(50);

    #[test]
    fn requests_beyond_the_window_wait_in_order() {
        let mut locks: Table<LockId, ()> = Table::default();
        let locks: Vec<LockId> = (0..SIZE_MIN + 2).map(|_| locks.insert(())).collect();
        let mut line = Line::default();
        locks.iter().for_each(|lock| line.push(Outgoing::Release(*lock)));
        for lock in &locks[..SIZE_MIN] {
            assert_eq!(line.pop(), Some(Outgoing::Release(*lock)));
            line.open();
        }
        assert_eq!(line.pop(), None);
        line.close(&mut Some(Instant::ORIGIN), Instant::ORIGIN, NODE_TIMEOUT);
        assert_eq!(line.pop(), Some(Outgoing::Release(locks[SIZE_MIN])));
        assert!(line.can_advance());
    }

    #[test]
    fn releases_precede_queued_attempts() {
        let mut requests: Table<RequestId, ()> = Table::default();
        let mut locks: Table<LockId, ()> = Table::default();
        let attempts = [0; 2].map(|_| Outgoing::Attempt(requests.insert(())));
        let releases = [0; 2].map(|_| Outgoing::Release(locks.insert(())));
        let mut line = Line::default();
        for outgoing in [attempts[0], releases[0], attempts[1], releases[1]] {
            line.push(outgoing);
        }
        let order: Vec<Outgoing> = std::iter::from_fn(|| line.pop()).collect();
        assert_eq!(order, [releases[0], releases[1], attempts[0], attempts[1]]);
    }

    #[test]
    fn line_is_busy_with_a_few_unanswered_requests() {
        let mut line = Line::default();
        (1..BUSY_MIN).for_each(|_| line.open());
        assert!(!line.is_busy(), "one or two callers are written immediately");
        line.open();
        assert!(line.is_busy());
        line.close(&mut Some(Instant::ORIGIN), Instant::ORIGIN, NODE_TIMEOUT);
        assert!(!line.is_busy());
    }

    /// Simulates masters that answer a request in `each`, one after the other, `away` from us. As
    /// many requests are under way as the window allows. Returns its largest size, and the longest
    /// time of a request, after it had time to adapt.
    fn served(each: Duration, away: Duration) -> (usize, Duration) {
        let (mut window, mut now, mut worst, mut size) =
            (Window::default(), Instant::ORIGIN, ms(0), 0);
        for round in 0..60 {
            let (sent, open) = (now, window.size);
            for nth in 1..=open {
                now = sent.saturating_add(away + each * u32::try_from(nth).unwrap());
                window.learn(open, sent, now, NODE_TIMEOUT);
            }
            if round > 20 {
                worst = worst.max(now.saturating_since(sent));
                size = size.max(open);
            }
        }
        (size, worst)
    }

    #[test]
    fn burst_never_waits_at_masters_for_a_node_timeout() {
        for each in [1, 5, 20, 50, 100, 200].map(Duration::from_micros) {
            let (size, worst) = served(each, Duration::from_micros(100));
            assert!(worst < NODE_TIMEOUT, "{each:?}: {worst:?} in a window of {size}");
        }
    }

    #[test]
    fn fast_or_distant_masters_get_the_largest_window() {
        assert_eq!(served(Duration::from_nanos(100), ms(0)).0, SIZE_MAX);
        assert_eq!(served(Duration::from_nanos(100), ms(40)).0, SIZE_MAX);
    }
}
