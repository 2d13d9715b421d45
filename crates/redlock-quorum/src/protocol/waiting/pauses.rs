//! Pauses: for how long a head lets go by before it asks again, and what ends that sooner.
//!
//! | why the head pauses | for how long | what ends it |
//! |---|---|---|
//! | others want the key, too | a rest, of 40 ms at most | nothing |
//! | contenders have shared the masters among themselves | a few times what a vote takes | a master that comes to vote |
//! | nothing reports changes, or too few masters have answered | a pause that doubles, of about 200 ms at most | a master that comes to vote |
//! | fewer masters vote than a quorum, and some of those that do not are connected | about a second | a quorum that votes, or an error by which waiting may be in vain |
//!
//! The last pause is no matter of contention: no attempt can be won before it ends, and every
//! attempt costs the masters a request and a release while they are being admitted. When a quorum
//! votes, each head makes one attempt, at a random time within 40 ms. The attempt that a second
//! brings keeps the reasons true that a caller is told, and would find out what no event has said.
//!
//! Masters that are away, or are being looked at, may vote at any time: for them alone the pause
//! stays short.

use std::time::Duration;

use redlock_core::Instant;

use super::head::Head;
use super::step::{Ask, Step};
use super::{LOOK_AGAIN, Waiting};
use crate::protocol::retry::{self, REST_MAX};

impl<Id: Copy + Ord> Waiting<Id> {
    /// The connection to the master `at`, or its data, is lost.
    pub(crate) fn lost_sight(
        &mut self,
        at: usize,
        now: Instant,
        fan_out: Duration,
        random: f64,
    ) -> Step<Id> {
        if self.head.is_at(at) {
            let pause = REST_MAX.min(fan_out * 4).mul_f64(random);
            self.pause(now.saturating_add(pause), Ask::All)
        } else {
            Step::Wait
        }
    }

    /// The attempt of the head was lost, and none can be won before more masters vote. That tells
    /// nothing about contenders.
    pub(crate) fn lost_for_want_of_votes(&mut self, now: Instant, random: f64) -> Step<Id> {
        (self.free_looks, self.run) = (0, None);
        let pause = LOOK_AGAIN.mul_f64(0.75 + random / 4.0);
        self.pause(now.saturating_add(pause), Ask::All)
    }

    /// Some master votes that did not, and a quorum does: what failed for want of masters may
    /// succeed now. A pause that ends sooner stays as it is.
    pub(crate) fn votes_gained(
        &mut self,
        now: Instant,
        fan_out: Duration,
        random: f64,
    ) -> Step<Id> {
        match self.head {
            Head::Pausing { until, .. } => {
                let pause = REST_MAX.min(fan_out * 4).mul_f64(random);
                self.pause(until.min(now.saturating_add(pause)), Ask::All)
            }
            _ => Step::Wait,
        }
    }

    /// Others want the key, too: the meeting point is left alone for a while.
    pub(super) fn rest(&mut self, now: Instant, fan_out: Duration, random: f64) -> Step<Id> {
        let rest = retry::rest(self.refusals, fan_out, random);
        self.head = Head::Resting { until: now.saturating_add(rest) };
        Step::Wait
    }

    /// Nothing reports changes: it is tried again after a random pause.
    pub(super) fn pause_blindly(
        &mut self,
        now: Instant,
        fan_out: Duration,
        random: f64,
    ) -> Step<Id> {
        self.free_looks = 0;
        let pause = retry::pause(self.refusals.saturating_sub(1), fan_out, random);
        self.pause(now.saturating_add(pause), Ask::All)
    }

    pub(super) fn pause(&mut self, until: Instant, ask: Ask) -> Step<Id> {
        self.head = Head::Pausing { until, ask };
        Step::Wait
    }
}
