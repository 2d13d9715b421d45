//! Whose turn it is where no queue works.
//!
//! Each head watches the key, and one push wakes all of them. A holder that knows of nobody may take
//! the key again at once, so a head watches the key once more after a moment. If the key is still
//! free, the head asks for it after a pause, which ends if another takes the key meanwhile. The
//! longer a process has had no lease, the shorter is the pause. So processes take turns, although
//! none knows the others.

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
    /// The callers of this process let others go first for this time. Afterwards they watch the key
    /// as those that wait already. If it is free, they pause for as long again at most.
    pub fn stand_back_unqueued(
        &mut self,
        pause: Duration,
        fan_out: Duration,
        now: Instant,
    ) -> Step<Id> {
        self.tries = retry::tries_of(pause, fan_out);
        self.watches_then = true;
        self.stand_back(now.saturating_add(pause), now)
    }

    /// The key has changed, and no queue shows whose turn it is. Its holder may have taken it again
    /// at once: the head watches it a moment later. A process whose votes were slow once, and that
    /// has had none since, does not come later than others for it.
    pub(super) fn watch_later(&mut self, at: Moment) -> Step<Id> {
        let next = self.watched_at.saturating_add(WATCH_APART);
        self.step_aside(next.max(at.now.saturating_add(WATCH_APART.min(at.fan_out * 2))))
    }

    /// The head watches the key at this instant.
    pub(super) fn step_aside(&mut self, until: Instant) -> Step<Id> {
        self.head = Head::Aside { until };
        Step::Wait
    }

    /// The key is free at the master that the head watches, and others may see that at the same
    /// moment. It asks for the key after a pause, unless another takes the key meanwhile.
    pub(super) fn stay_apart(&mut self, master: usize, at: Moment) -> Step<Id> {
        self.tries = self.tries.saturating_add(1);
        let waited = at.now.saturating_since(self.waits_since);
        let pause = retry::apart(self.tries, waited, at.fan_out, at.random);
        let until = at.now.saturating_add(pause);
        self.head = Head::Asleep { at: master, until, ask: Ask::First };
        Step::Wait
    }
}
