//! `Unacknowledged`: the releases that one master did not acknowledge, their repetition, and their
//! end if there are too many.

use std::collections::VecDeque;
use std::time::Duration;

use redlock_core::Instant;

use crate::abandoned::{Abandoned, Left};
use crate::client::draws::{Draw, Draws};
use crate::client::ids::LockId;

/// The largest number of unacknowledged releases per master. An unreachable master accumulates
/// them. The oldest are dropped first, because their keys are the likeliest to have expired.
const UNACKNOWLEDGED_MAX: usize = 10_000;
/// How many of them are sent to a master at a time.
const BATCH: usize = 1_000;
/// The average pause before unacknowledged releases are repeated. It doubles while the master
/// answers only errors.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// The pause after an acknowledged batch.
const NEXT_BATCH: Duration = Duration::from_millis(10);
/// How often the pause may double.
const DENIALS_MAX: u32 = 4;

/// The releases that one master was sent and has not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unacknowledged {
    master: usize,
    queue: VecDeque<LockId>,
    /// When the next batch is sent.
    scheduled: Option<Instant>,
    /// Batches in a row to which the master answered errors.
    denials: u32,
    is_denying: bool,
    /// Whether it has acknowledged releases, or left some unacknowledged, since the last batch.
    acknowledges: bool,
    leaves: bool,
    /// Releases abandoned since the last report.
    unreported: u64,
    /// Their keys, and all earlier abandoned keys.
    abandoned: Abandoned,
}

/// The events since the last batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Round {
    /// The number of abandoned releases.
    pub(super) given_up: u64,
    /// Whether the master acknowledges what it is sent.
    pub(super) keeps_up: bool,
}

impl Unacknowledged {
    /// Creates the state of a master that has acknowledged everything.
    pub fn new(master: usize) -> Self {
        Self {
            master,
            queue: VecDeque::new(),
            scheduled: None,
            denials: 0,
            is_denying: false,
            acknowledges: false,
            leaves: false,
            unreported: 0,
            abandoned: Abandoned::default(),
        }
    }

    /// Returns the number of releases.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns `true` if the master has acknowledged all releases.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Records that the master has answered an error that denies a release.
    pub fn denied(&mut self) {
        self.is_denying = true;
    }

    /// Records that the master has acknowledged a release.
    pub fn acknowledged(&mut self) {
        self.acknowledges = true;
    }

    /// Records that the buffers of the master have no request that was sent before.
    pub fn settle(&mut self, now: Instant) {
        self.abandoned.settle(now);
    }

    /// Adds a release that the master did not acknowledge. Returns the oldest one if there are too
    /// many: it is to be [given up](Self::give_up).
    pub fn left(&mut self, id: LockId) -> Option<LockId> {
        self.leaves = true;
        self.queue.push_back(id);
        let oldest = (self.queue.len() > UNACKNOWLEDGED_MAX).then(|| self.queue.pop_front());
        self.unreported += u64::from(oldest.is_some());
        oldest.flatten()
    }

    /// Abandons a release. Its key expires after `left`, or `expiry` after the master resumes.
    pub fn give_up(&mut self, left: Option<Duration>, expiry: Duration, now: Instant) {
        self.abandoned.add(left, expiry, now);
    }

    /// Returns the abandoned keys that may still exist.
    pub fn abandoned(&mut self, now: Instant) -> Option<Left> {
        self.abandoned.left(now)
    }

    /// Begins the next round, unless it is not due yet.
    pub(super) fn begin(&mut self, now: Instant) -> Option<Round> {
        self.scheduled.take_if(|at| *at <= now)?;
        let is_denying = std::mem::take(&mut self.is_denying);
        self.denials = if is_denying { self.denials + 1 } else { 0 };
        let leaves = std::mem::take(&mut self.leaves);
        let keeps_up = std::mem::take(&mut self.acknowledges) && !leaves && !is_denying;
        Some(Round { given_up: std::mem::take(&mut self.unreported), keeps_up })
    }

    /// Removes all releases, to [keep](Self::keep) those whose keys have not expired.
    pub fn take(&mut self) -> VecDeque<LockId> {
        std::mem::take(&mut self.queue)
    }

    /// Adds a release again.
    pub fn keep(&mut self, id: LockId) {
        self.queue.push_back(id);
    }

    /// Removes the releases that are sent together.
    pub fn batch(&mut self) -> Vec<LockId> {
        self.queue.drain(..self.queue.len().min(BATCH)).collect()
    }

    /// Records that the master can be reached.
    pub fn reached(&mut self) {
        self.denials = 0;
    }

    /// Returns when the next batch is sent, if that is earlier than the present alarm. `is_soon`:
    /// the master keeps up, or is reachable again. `is_awaited`: a caller waits for the releases,
    /// including those of a master that answers errors.
    pub fn alarm(
        &mut self,
        is_soon: bool,
        is_awaited: bool,
        draws: Draws,
        now: Instant,
    ) -> Option<Instant> {
        if self.queue.is_empty() {
            return None;
        }
        let denials = if is_awaited { 0 } else { self.denials.min(DENIALS_MAX) };
        let pause = if is_soon { NEXT_BATCH } else { ASK_AGAIN * (1 << denials) };
        let random = draws.unit(Draw::AskAgain(self.master), now);
        let at = now.saturating_add(pause.mul_f64(0.5 + random));
        if self.scheduled.is_some_and(|scheduled| scheduled <= at) {
            return None;
        }
        self.scheduled = Some(at);
        self.scheduled
    }

    /// Forgets the queue and the alarm. The releases themselves are continued otherwise.
    pub fn clear(&mut self) {
        self.queue.clear();
        self.scheduled = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::table::Table;
    use crate::lab::{at, ms};

    fn ids(count: usize) -> Vec<LockId> {
        let mut locks = Table::<LockId, ()>::default();
        (0..count).map(|_| locks.insert(())).collect()
    }

    /// Returns how many milliseconds after `now` the next batch is sent.
    fn pause(master: &mut Unacknowledged, is_soon: bool, now: u64) -> u128 {
        let due = master.alarm(is_soon, false, Draws::new(1), at(now)).unwrap();
        due.saturating_since(at(now)).as_millis()
    }

    #[test]
    fn oldest_of_too_many_releases_is_given_up_and_reported_once() {
        let (mut master, ids) = (Unacknowledged::new(0), ids(UNACKNOWLEDGED_MAX + 1));
        let given_up: Vec<_> = ids.iter().filter_map(|id| master.left(*id)).collect();
        assert_eq!((given_up, master.len()), (vec![ids[0]], UNACKNOWLEDGED_MAX));
        master.give_up(Some(ms(5)), ms(9), at(0));
        assert_eq!(master.abandoned(at(4)).map(|left| left.count), Some(1));
        assert_eq!(master.abandoned(at(6)), None);
        for given_up in [1, 0] {
            master.alarm(true, false, Draws::new(1), at(0)).unwrap();
            assert_eq!(master.begin(at(100)), Some(Round { given_up, keeps_up: false }));
        }
    }

    #[test]
    fn pauses_grow_for_a_master_that_answers_errors() {
        let mut master = Unacknowledged::new(0);
        master.left(ids(1)[0]);
        for (round, longest) in [750, 1_500, 3_000, 6_000, 12_000, 12_000].into_iter().enumerate() {
            let now = round as u64 * 100_000;
            let pause = pause(&mut master, false, now);
            assert!((longest / 3..=longest).contains(&pause), "{pause} ms in round {round}");
            assert_eq!(master.begin(at(now)), None, "it is not due yet");
            master.denied();
            assert!(master.begin(at(now + 50_000)).is_some_and(|round| !round.keeps_up));
        }
        master.reached();
        assert!(pause(&mut master, false, 1_000_000) <= 750);
    }

    #[test]
    fn responsive_master_gets_the_next_batch_soon() {
        let (mut master, ids) = (Unacknowledged::new(0), ids(BATCH + 2));
        assert!(ids.iter().all(|id| master.left(*id).is_none()));
        assert!(pause(&mut master, true, 0) <= 15);
        assert!(master.begin(at(50)).is_some_and(|round| !round.keeps_up), "it leaves some");
        assert_eq!((master.batch().len(), master.len()), (BATCH, 2));
        assert_eq!(master.alarm(true, false, Draws::new(1), at(50)).map(|_| ()), Some(()));
        assert_eq!(master.alarm(false, false, Draws::new(1), at(50)), None, "an alarm is set");
        master.acknowledged();
        assert!(master.begin(at(100)).is_some_and(|round| round.keeps_up));
        assert_eq!((master.batch(), master.is_empty()), (ids[BATCH..].to_vec(), true));
        assert_eq!(master.alarm(true, false, Draws::new(1), at(100)), None);
    }
}
