//! `Line`: what waits for its turn to be sent, first come, first served.

use std::collections::VecDeque;

use super::ticket::{InspectionId, LockId, RequestId};

/// Requests to all masters that may be without an answer of a quorum at one time. Those beyond
/// wait in line, so that a burst cannot fill the masters' queues with requests that time out there.
const OPEN_MAX: usize = 4_096;
/// What may wait in line.
pub(super) const WAITING_MAX: usize = 1_000_000;

/// Attempts, releases and inspections in the order in which they were asked for, so that nothing
/// overtakes what concerns the same key.
#[derive(Default)]
pub(super) struct Line {
    waiting: VecDeque<Turn>,
    open: usize,
}

/// What is sent when its turn comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Attempt(RequestId),
    Release(LockId),
    Inspection(InspectionId),
}

impl Line {
    pub(super) fn push(&mut self, turn: Turn) {
        self.waiting.push_back(turn);
    }

    /// What is to be sent next, if there is room for it.
    pub(super) fn pop(&mut self) -> Option<Turn> {
        if self.open < OPEN_MAX { self.waiting.pop_front() } else { None }
    }

    /// A request was sent that a quorum has to answer.
    pub(super) fn open(&mut self) {
        self.open += 1;
    }

    /// A quorum has answered it, or its time is up.
    pub(super) fn close(&mut self) {
        self.open -= 1;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= WAITING_MAX
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.open = 0;
    }
}

#[cfg(test)]
mod tests {
    use slotmap::SlotMap;

    use super::*;

    #[test]
    fn beyond_the_window_all_wait_in_order() {
        let mut locks: SlotMap<LockId, ()> = SlotMap::with_key();
        let locks: Vec<LockId> = (0..OPEN_MAX + 2).map(|_| locks.insert(())).collect();
        let mut line = Line::default();
        locks.iter().for_each(|lock| line.push(Turn::Release(*lock)));
        for lock in &locks[..OPEN_MAX] {
            assert_eq!(line.pop(), Some(Turn::Release(*lock)));
            line.open();
        }
        assert_eq!(line.pop(), None);
        line.close();
        assert_eq!(line.pop(), Some(Turn::Release(locks[OPEN_MAX])));
        assert!(!line.is_empty());
    }
}
