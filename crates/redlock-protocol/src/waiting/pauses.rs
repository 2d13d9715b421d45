//! Pauses and sleeps: how long a head waits before its next request.
//!
//! The pause for lack of votes has nothing to do with contention. No attempt can be won before it
//! ends, and every attempt costs the masters a request and a release while they are being admitted.
//! When a quorum votes, each head makes one attempt, at a random time within 40 ms. One attempt per
//! second keeps the reasons in a caller's error up to date, and finds changes that no event has
//! reported. Unreachable masters and masters in a check may vote at any time, so if only they
//! are missing, the pause stays short.

use std::time::Duration;

use redlock_core::Instant;

use super::head::Head;
use super::step::{Ask, Moment, QueueAnswer, Step};
use super::{WATCH_AGAIN, Waiting};
use crate::retry::{self, APART_MAX};

/// The first sleep of the first in a queue. Each further sleep is twice as long, up to a second.
const SLEEP_MIN: Duration = Duration::from_millis(100);
/// The sleep of the second in a queue, the additional sleep per further place, and the longest
/// sleep, unless one millisecond per ticket ahead is longer. It varies by a quarter at random. The
/// first in the queue and all others ahead may have stopped, so each place must send a request in
/// time.
const PLACE_AGAIN: [Duration; 3] =
    [Duration::from_millis(310), Duration::from_millis(100), Duration::from_millis(800)];
/// The time after a reservation for another ticket until the next request, the addition per further
/// place, and the largest addition. The next in the queue comes first, and the others find the key
/// taken or reserved again.
const AFTER_ANOTHER: [Duration; 3] =
    [Duration::from_millis(10), Duration::from_millis(5), Duration::from_millis(100)];
/// The longest sleep of a waiter, including its random part.
pub(super) const SLEEP_MAX: Duration = Duration::from_millis(1_250);
/// How many fan-outs a process takes at most for the other masters after M has let it in, and the
/// least time to assume. A key that stays at M for longer is a lease, or is left over.
const ATTEMPT: u32 = 6;
const ATTEMPT_MIN: Duration = Duration::from_millis(25);
/// Redis keeps a key through the whole millisecond in which it expires.
const BEHIND_EXPIRY: Duration = Duration::from_millis(2);

impl<Id: Copy + Ord> Waiting<Id> {
    /// Handles the loss of the connection to the master `at`, or of its data.
    pub fn lost_sight(&mut self, master: usize, at: Moment) -> Step<Id> {
        if self.place == Some(master) {
            self.place = None;
        }
        if !self.head.is_at(master) {
            return Step::Wait;
        }
        let pause = APART_MAX.min(at.fan_out * 4).mul_f64(at.random);
        self.pause(at.now.saturating_add(pause), Ask::First)
    }

    /// Handles a lost attempt of the head if none can be won before more masters vote. Such a loss
    /// shows nothing about contenders.
    pub fn lost_for_want_of_votes(&mut self, answer: Option<QueueAnswer>, at: Moment) -> Step<Id> {
        let pause = WATCH_AGAIN.mul_f64(0.75 + at.random / 4.0);
        self.pause(at.now.saturating_add(pause), Ask::All);
        self.leave_place(answer)
    }

    /// Leaves the queue after a lost attempt, because the place must not hold up processes that can
    /// get the key in the meantime. If M did not answer with a place, the release of the attempt
    /// leaves the queue.
    pub(super) fn leave_place(&mut self, answer: Option<QueueAnswer>) -> Step<Id> {
        self.place = None;
        answer.map_or(Step::Wait, |answer| Step::Leave(answer.at))
    }

    /// Handles a lost attempt of the head to which no quorum answered. The head has left the queue:
    /// no process calls it, and it calls no process. Its next attempts go to all masters without
    /// the queue, and only a gained vote makes them earlier. The start of its wait is kept,
    /// so that processes have their former order when a quorum votes again.
    pub(super) fn lost_without_quorum(
        &mut self,
        answer: Option<QueueAnswer>,
        at: Moment,
    ) -> Step<Id> {
        if !std::mem::replace(&mut self.is_without_quorum, true) {
            self.tries = 0;
        }
        let pause = retry::without_quorum(self.tries, at.fan_out, at.random);
        self.tries = self.tries.saturating_add(1);
        self.pause(at.now.saturating_add(pause), Ask::All);
        self.leave_place(answer)
    }

    /// Handles a master that starts to vote when that completes a quorum. Attempts that failed for
    /// lack of masters may now succeed. A pause that ends sooner is kept.
    pub fn votes_gained(&mut self, at: Moment) -> Step<Id> {
        match self.head {
            Head::Pausing { until, ask } => {
                let pause = APART_MAX.min(at.fan_out * 4).mul_f64(at.random);
                self.pause(until.min(at.now.saturating_add(pause)), ask)
            }
            _ => Step::Wait,
        }
    }

    /// Sleeps while `rank` others are ahead in the queue. The head is called when it is its turn, unless the
    /// others have stopped.
    pub(super) fn sleep_behind(&mut self, rank: u32, answer: QueueAnswer, at: Moment) -> Step<Id> {
        let sleep = match answer.reserved_for {
            Some(left) => left.saturating_add(after_another(rank, at.random)),
            None => place_again(rank).mul_f64(0.75 + at.random / 2.0),
        };
        let until = at.now.saturating_add(sleep);
        self.head = Head::Asleep { at: answer.at, until, ask: Ask::First };
        Step::Wait
    }

    /// Sleeps until a change of the key at this master, whose holder has this time left.
    pub(super) fn watch(&mut self, master: usize, ttl: Option<Duration>, at: Moment) -> Step<Id> {
        let again = SLEEP_MIN.saturating_mul(1 << self.tries.min(16)).min(WATCH_AGAIN);
        let again = again.mul_f64(0.75 + at.random / 2.0);
        let expires = ttl.map_or(again, |ttl| ttl.saturating_add(BEHIND_EXPIRY));
        let until = at.now.saturating_add(expires.min(again));
        self.head = if std::mem::take(&mut self.is_tried) {
            let is_left = self.seen.1.saturating_add(ATTEMPT_MIN.max(at.fan_out * ATTEMPT));
            Head::Asleep { at: master, until: until.min(is_left.max(at.now)), ask: Ask::Called }
        } else {
            Head::Asleep { at: master, until, ask: Ask::All }
        };
        Step::Wait
    }

    /// Pauses at random, because no master reports changes, or too few have answered.
    pub(super) fn pause_blindly(&mut self, at: Moment) -> Step<Id> {
        let pause = retry::pause(self.tries, at.fan_out, at.random);
        self.tries = self.tries.saturating_add(1);
        self.pause(at.now.saturating_add(pause), Ask::First)
    }

    pub(super) fn pause(&mut self, until: Instant, ask: Ask) -> Step<Id> {
        self.head = Head::Pausing { until, ask };
        Step::Wait
    }
}

/// Returns how long a head with this rank sleeps.
fn place_again(rank: u32) -> Duration {
    let [second, further, longest] = PLACE_AGAIN;
    let sleep = second.saturating_add(further.saturating_mul(rank.saturating_sub(1)));
    sleep.min(longest).max(Duration::from_millis(rank.into()))
}

/// Returns how long after the end of a reservation for a different ticket the head sleeps.
fn after_another(rank: u32, random: f64) -> Duration {
    let [least, further, most] = AFTER_ANOTHER;
    let further = further.saturating_mul(rank).min(most);
    least.saturating_add(further).mul_f64(0.8 + random / 5.0)
}
