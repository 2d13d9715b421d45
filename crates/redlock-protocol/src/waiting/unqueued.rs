//! Whose turn it is where no queue works.
//!
//! Each head watches the key, and one push wakes all heads. A holder without knowledge of waiters
//! may acquire the key again immediately, so a head watches the key once more after a moment. If
//! the key is still free, the head pauses and then requests it. If another process acquires the key
//! during the pause, the head watches again. The longer a process has had no lease, the shorter its
//! pause is. As a result, processes take turns although they do not know each other.

use std::time::Duration;

use redlock_core::Instant;

use super::Waiting;
use super::head::Head;
use super::step::{Ask, Moment, Step};
use crate::retry;

/// The key is watched again after this time at the earliest: a key that is held for short times
/// changes more often.
const WATCH_APART: Duration = Duration::from_millis(5);

impl<Id: Copy + Ord> Waiting<Id> {
    /// Lets other processes go first for this time. Afterwards the callers of this process watch
    /// the key like other waiters. If it is free, they pause for at most the same time again.
    pub fn stand_back_unqueued(
        &mut self,
        pause: Duration,
        fan_out: Duration,
        now: Instant,
    ) -> Step<Id> {
        self.tries = retry::tries_of(pause, fan_out);
        self.watches_then = true;
        self.stand_back(now.saturating_add(pause))
    }

    /// Watches the key a moment after it has changed, because its holder may have acquired it again
    /// immediately, and no queue shows whose turn it is. The moment has an upper limit, so that one
    /// slow fan-out in the past does not put the process behind others.
    pub(super) fn watch_later(&mut self, at: Moment) -> Step<Id> {
        let next = self.watched_at.saturating_add(WATCH_APART);
        self.step_aside(next.max(at.now.saturating_add(WATCH_APART.min(at.fan_out * 2))))
    }

    /// Lets the head watch the key at this instant.
    pub(super) fn step_aside(&mut self, until: Instant) -> Step<Id> {
        self.head = Head::Aside { until };
        Step::Wait
    }

    /// Pauses before requesting a key that is free at the watched master, because other processes
    /// may see the same at the same moment. If another process acquires the key, the pause ends.
    pub(super) fn stay_apart(&mut self, master: usize, at: Moment) -> Step<Id> {
        self.tries = self.tries.saturating_add(1);
        let waited = at.now.saturating_since(self.waits_since);
        let pause = retry::apart(self.tries, waited, at.fan_out, at.random);
        let until = at.now.saturating_add(pause);
        self.head = Head::Asleep { at: master, until, ask: Ask::First };
        Step::Wait
    }
}
