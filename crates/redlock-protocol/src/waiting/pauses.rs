//! Pauses and sleeps: how long a head waits before it asks again.
//!
//! The pause for want of votes is no matter of contention: no attempt can be won before it ends,
//! and every attempt costs the masters a request and a release while they are being admitted. When
//! a quorum votes, each head makes one attempt, at a random time within 40 ms. One attempt a second
//! keeps the reasons in a caller's error up to date, and finds changes that no event has reported.
//! Masters that are away, or are being checked, may vote at any time: for them alone the pause
//! stays short.

use std::time::Duration;

use redlock_core::Instant;

use super::head::Head;
use super::step::{Ask, Moment, QueueAnswer, Step};
use super::{WATCH_AGAIN, Waiting};
use crate::retry::{self, APART_MAX};

/// For how long the first in a queue sleeps first; each sleep is twice as long, up to a second.
const SLEEP_MIN: Duration = Duration::from_millis(100);
/// For how long the second in a queue sleeps, what each further one sleeps more, and the longest
/// sleep but for one millisecond for each before it. A quarter of it is random. The first in the
/// queue may have stopped, with all that stand before this one, so it must ask in time.
const PLACE_AGAIN: [Duration; 3] =
    [Duration::from_millis(310), Duration::from_millis(100), Duration::from_millis(800)];
/// How long after a reservation for another one asks again, what each place further back adds, and
/// how much that is at most: the next in the queue comes first, and the others find the key taken
/// or reserved again.
const AFTER_ANOTHER: [Duration; 3] =
    [Duration::from_millis(10), Duration::from_millis(5), Duration::from_millis(100)];
/// No sleep of one that waits is longer, with its random part.
pub(super) const SLEEP_MAX: Duration = Duration::from_millis(1_250);
/// Redis keeps a key through the whole millisecond in which it expires.
const BEHIND_EXPIRY: Duration = Duration::from_millis(2);

impl<Id: Copy + Ord> Waiting<Id> {
    /// The connection to the master `at`, or its data, is lost.
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

    /// The attempt of the head was lost, and none can be won before more masters vote. That shows
    /// nothing about contenders.
    pub fn lost_for_want_of_votes(&mut self, at: Moment) -> Step<Id> {
        self.place = None;
        let pause = WATCH_AGAIN.mul_f64(0.75 + at.random / 4.0);
        self.pause(at.now.saturating_add(pause), Ask::All)
    }

    /// Handles a lost attempt of the head to which no quorum answered. The head has left the queue:
    /// no process calls it, and it calls no process. Its next attempts go to all masters without
    /// the queue, and only a vote that is gained makes them earlier. The start of its wait is kept,
    /// so that processes have their former order when a quorum votes again.
    pub(super) fn lost_without_quorum(
        &mut self,
        answer: Option<QueueAnswer>,
        at: Moment,
    ) -> Step<Id> {
        if !std::mem::replace(&mut self.is_without_quorum, true) {
            self.tries = 0;
        }
        self.place = None;
        let pause = retry::without_quorum(self.tries, at.fan_out, at.random);
        self.tries = self.tries.saturating_add(1);
        self.pause(at.now.saturating_add(pause), Ask::All);
        answer.map_or(Step::Wait, |answer| Step::Leave(answer.at))
    }

    /// Some master votes that did not, and a quorum does: what failed for want of masters may
    /// succeed now. A pause that ends sooner stays as it is.
    pub fn votes_gained(&mut self, at: Moment) -> Step<Id> {
        match self.head {
            Head::Pausing { until, ask } => {
                let pause = APART_MAX.min(at.fan_out * 4).mul_f64(at.random);
                self.pause(until.min(at.now.saturating_add(pause)), ask)
            }
            _ => Step::Wait,
        }
    }

    /// Others stand before the head, `rank` of them. It is called when it is its turn, unless those
    /// before it have stopped.
    pub(super) fn sleep_behind(&mut self, rank: u32, answer: QueueAnswer, at: Moment) -> Step<Id> {
        let sleep = match answer.reserved_for {
            Some(left) => left.saturating_add(after_another(rank, at.random)),
            None => place_again(rank).mul_f64(0.75 + at.random / 2.0),
        };
        let until = at.now.saturating_add(sleep);
        self.head = Head::Asleep { at: answer.at, until, ask: Ask::First };
        Step::Wait
    }

    /// The key is watched at this master, and this is the time that its holder has left.
    pub(super) fn watch(&mut self, master: usize, ttl: Option<Duration>, at: Moment) -> Step<Id> {
        let again = SLEEP_MIN.saturating_mul(1 << self.tries.min(16)).min(WATCH_AGAIN);
        let again = again.mul_f64(0.75 + at.random / 2.0);
        let expires = ttl.map_or(again, |ttl| ttl.saturating_add(BEHIND_EXPIRY));
        let until = at.now.saturating_add(expires.min(again));
        self.head = Head::Asleep { at: master, until, ask: Ask::All };
        Step::Wait
    }

    /// No master reports changes, or too few have answered: the head tries again after a random
    /// pause.
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

/// How long one sleeps that has so many before it.
fn place_again(rank: u32) -> Duration {
    let [second, further, longest] = PLACE_AGAIN;
    let sleep = second.saturating_add(further.saturating_mul(rank.saturating_sub(1)));
    sleep.min(longest).max(Duration::from_millis(rank.into()))
}

/// How long after the end of a reservation for another.
fn after_another(rank: u32, random: f64) -> Duration {
    let [least, further, most] = AFTER_ANOTHER;
    let further = further.saturating_mul(rank).min(most);
    least.saturating_add(further).mul_f64(0.8 + random / 5.0)
}
