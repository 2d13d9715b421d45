//! Unacknowledged releases: their repetition, and their end if there are too many.

use std::collections::VecDeque;
use std::time::Duration;

use redlock_core::Instant;
use redlock_protocol::abandoned::{Abandoned, Left};
use redlock_protocol::token::lifecycle::Event;

use crate::driver::Driver;
use redlock_protocol::client::draws::Draw;
use redlock_protocol::client::ids::LockId;
use redlock_protocol::client::timers::Due;

/// The largest number of unacknowledged releases per master. An unreachable master accumulates
/// them. The oldest are dropped first, because their keys are the likeliest to have expired.
const UNACKNOWLEDGED_MAX: usize = 10_000;
/// How many of them are sent to a master at a time.
const BATCH: usize = 1_000;
/// How often an unacknowledged release is repeated, on average. The pause doubles while the master
/// answers only errors.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// The pause after an acknowledged batch.
const NEXT_BATCH: Duration = Duration::from_millis(10);
/// How often the pause may double.
const DENIALS_MAX: u32 = 4;

/// The releases that one master was sent and has not acknowledged.
#[derive(Default)]
pub(in crate::driver) struct Unacknowledged {
    queue: VecDeque<LockId>,
    /// When the next batch is sent.
    scheduled: Option<Instant>,
    /// Batches in a row to which the master answered errors.
    denials: u32,
    pub(in crate::driver) is_denying: bool,
    /// Whether it has acknowledged releases, or left some unacknowledged, since the last batch.
    pub(in crate::driver) acknowledges: bool,
    leaves: bool,
    /// Abandoned releases since the last line in the log.
    unreported: u64,
    /// Their keys, and all earlier abandoned keys.
    abandoned: Abandoned,
}

impl Unacknowledged {
    pub(in crate::driver) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Records that the master has none of the earlier requests in its buffers.
    pub(in crate::driver) fn settle(&mut self, now: Instant) {
        self.abandoned.settle(now);
    }

    /// Returns the abandoned keys that may still exist.
    pub(in crate::driver) fn abandoned(&mut self, now: Instant) -> Option<Left> {
        self.abandoned.left(now)
    }

    /// The releases themselves stay in the table.
    pub(in crate::driver) fn clear(&mut self) {
        self.queue.clear();
        self.scheduled = None;
    }
}

impl Driver {
    pub(in crate::driver) fn left_unacknowledged(
        &mut self,
        id: LockId,
        master: usize,
        now: Instant,
    ) {
        let unacknowledged = &mut self.unacknowledged[master];
        unacknowledged.leaves = true;
        unacknowledged.queue.push_back(id);
        if unacknowledged.queue.len() > UNACKNOWLEDGED_MAX
            && let Some(oldest) = unacknowledged.queue.pop_front()
        {
            unacknowledged.unreported += 1;
            self.give_up_release(oldest, master, now);
        }
        self.ask_again(master);
    }

    fn give_up_release(&mut self, id: LockId, master: usize, now: Instant) {
        if let Some(release) = self.locks.get(id).and_then(|lock| lock.machine.release()) {
            let (left, expiry) = (release.left(master, now), release.expiry());
            self.unacknowledged[master].abandoned.add(left, expiry, now);
            self.happens(id, Event::GivenUp(master), now);
        }
    }

    fn ask_again(&mut self, master: usize) {
        // A caller that closes the handle also waits for keys that expire during its wait.
        let is_awaited = self.closing.is_some();
        let denials = if is_awaited { 0 } else { self.unacknowledged[master].denials };
        self.schedule_batch(master, ASK_AGAIN * (1 << denials.min(DENIALS_MAX)));
    }

    /// The handle is being closed: no master that answers errors is left alone for longer.
    pub(in crate::driver) fn ask_all_again(&mut self) {
        for master in 0..self.masters.len() {
            if !self.unacknowledged[master].queue.is_empty() {
                self.schedule_batch(master, NEXT_BATCH);
            }
        }
    }

    /// One alarm for each master: an earlier one replaces a later one.
    fn schedule_batch(&mut self, master: usize, pause: Duration) {
        let now = self.now();
        let random = self.draws.unit(Draw::AskAgain(master), now);
        let at = now.saturating_add(pause.mul_f64(0.5 + random));
        let scheduled = &mut self.unacknowledged[master].scheduled;
        if scheduled.is_none_or(|scheduled| at < scheduled) {
            *scheduled = Some(at);
            self.timers.enter(at, Due::Unacknowledged(master));
        }
    }

    pub(in crate::driver) fn unacknowledged_due(&mut self, master: usize, now: Instant) {
        let unacknowledged = &mut self.unacknowledged[master];
        if unacknowledged.scheduled.is_none_or(|scheduled| scheduled > now) {
            return;
        }
        unacknowledged.scheduled = None;
        let is_denying = std::mem::take(&mut unacknowledged.is_denying);
        unacknowledged.denials = if is_denying { unacknowledged.denials + 1 } else { 0 };
        let leaves = std::mem::take(&mut unacknowledged.leaves);
        let acknowledges = std::mem::take(&mut unacknowledged.acknowledges);
        let keeps_up = acknowledges && !leaves && !is_denying;
        self.report_abandoned(master, now);
        self.expire_releases(master, now);
        if self.masters.is_up(master) {
            self.send_batch(master, now);
        }
        match self.unacknowledged[master].queue.is_empty() {
            true => {}
            false if keeps_up => self.schedule_batch(master, NEXT_BATCH),
            false => self.ask_again(master),
        }
    }

    fn report_abandoned(&mut self, master: usize, now: Instant) {
        let forgotten = std::mem::take(&mut self.unacknowledged[master].unreported);
        if forgotten > 0 {
            self.observer.abandoned(master, forgotten, now);
        }
    }

    /// Keys that have expired by themselves need no release.
    fn expire_releases(&mut self, master: usize, now: Instant) {
        let queue = std::mem::take(&mut self.unacknowledged[master].queue);
        for id in queue {
            let Some(step) = self.decide(id, Event::Expired, now) else { continue };
            let release = self.locks.get(id).and_then(|lock| lock.machine.release());
            if release.is_some_and(|release| release.has_failed(master)) {
                self.unacknowledged[master].queue.push_back(id);
            }
            self.carry_out(id, step, now);
        }
    }

    /// Repeats all unacknowledged releases at `master`, which is reachable again.
    pub(in crate::driver) fn reached(&mut self, master: usize, now: Instant) {
        self.unacknowledged[master].denials = 0;
        self.send_batch(master, now);
        if !self.unacknowledged[master].queue.is_empty() {
            self.schedule_batch(master, NEXT_BATCH);
        }
    }

    fn send_batch(&mut self, master: usize, now: Instant) {
        let queue = &mut self.unacknowledged[master].queue;
        let batch: Vec<LockId> = queue.drain(..queue.len().min(BATCH)).collect();
        for id in batch {
            self.happens(id, Event::Retry(master), now);
        }
    }
}
