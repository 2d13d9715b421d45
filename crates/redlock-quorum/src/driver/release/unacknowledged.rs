//! Sends releases again that masters did not acknowledge, and gives some up.

use redlock_core::Instant;
use redlock_protocol::client::ids::LockId;
use redlock_protocol::client::timers::Due;
use redlock_protocol::token::lifecycle::Event;

use crate::driver::Driver;

impl Driver {
    pub(in crate::driver) fn left_unacknowledged(
        &mut self,
        id: LockId,
        master: usize,
        now: Instant,
    ) {
        if let Some(oldest) = self.unacknowledged[master].left(id)
            && let Some(release) = self.locks.get(oldest).and_then(|lock| lock.machine.release())
        {
            let (left, expiry) = (release.left(master, now), release.expiry());
            self.unacknowledged[master].give_up(left, expiry, now);
            self.happens(oldest, Event::GivenUp(master), now);
        }
        self.ask_again(master, false);
    }

    /// Sets the alarm for the next batch. The caller that closes the handle also waits for keys that
    /// expire in the meantime.
    pub(in crate::driver) fn ask_again(&mut self, master: usize, is_soon: bool) {
        let (is_awaited, now) = (self.closing.is_some(), self.now());
        let unacknowledged = &mut self.unacknowledged[master];
        if let Some(at) = unacknowledged.alarm(is_soon, is_awaited, self.draws, now) {
            self.timers.enter(at, Due::Unacknowledged(master));
        }
    }

    pub(in crate::driver) fn unacknowledged_due(&mut self, master: usize, now: Instant) {
        let Some(round) = self.unacknowledged[master].begin(now) else { return };
        if round.given_up > 0 {
            self.observer.abandoned(master, round.given_up, now);
        }
        self.expire_releases(master, now);
        if self.masters.links().is_up(master) {
            self.send_batch(master, now);
        }
        self.ask_again(master, round.keeps_up);
    }

    /// Removes releases whose keys have expired.
    fn expire_releases(&mut self, master: usize, now: Instant) {
        for id in self.unacknowledged[master].take() {
            let Some(step) = self.locks.decide(id, Event::Expired, &mut self.timers, now) else {
                continue;
            };
            let release = self.locks.get(id).and_then(|lock| lock.machine.release());
            if release.is_some_and(|release| release.has_failed(master)) {
                self.unacknowledged[master].keep(id);
            }
            self.carry_out(id, step, now);
        }
    }

    /// Repeats a batch of unacknowledged releases at `master`.
    pub(in crate::driver) fn send_batch(&mut self, master: usize, now: Instant) {
        for id in self.unacknowledged[master].batch() {
            self.happens(id, Event::Retry(master), now);
        }
    }
}
