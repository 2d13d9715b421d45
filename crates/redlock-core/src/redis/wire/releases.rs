//! Locks that the user of this connection cannot release: none of them is acquired.

use std::task::Waker;
use std::time::Duration;

use redis::Value;

use super::super::queues;
use super::{Pending, Settled, Wire};
use crate::{Answer, Cause, Instant, Op, Verb};

/// A missing right is tested again after this time, if a lock is wanted.
const TEST_AGAIN: Duration = Duration::from_secs(1);

/// Whether locks can be released.
#[derive(Default)]
pub(super) struct Releases {
    /// Why locks cannot be released. While this is set, no lock is acquired.
    denied: Option<String>,
    /// Time of the last test, or of the answer that showed the missing right.
    tested_at: Option<Instant>,
}

impl Releases {
    /// Creates the state of a new connection, which has just been tested.
    pub(super) fn new(denied: Option<String>) -> Self {
        Self { denied, tested_at: None }
    }
}

impl Wire {
    /// Returns why a request that leaves a key is not sent.
    pub(super) fn why_not_released(&self, op: &Op) -> Option<Cause> {
        let denied = self.releases.denied.as_ref().filter(|_| sets_key(op.verb()))?;
        Some(Cause::of_error_reply(denied.clone()))
    }

    /// Learns from the answer to a request that a right was taken away.
    pub(super) fn learn_of_releases(&mut self, op: &Op, answer: &Answer, sent_at: Instant) {
        if let Some(why) = queues::lost_release(op, answer) {
            self.releases = Releases { denied: Some(why), tested_at: Some(sent_at) };
        }
    }

    /// Tests a missing right again, at most once a second, after a request was refused because of
    /// it at `now`. Returns the waker of the connection.
    pub(in crate::redis) fn test_release(&mut self, now: Instant) -> Option<Waker> {
        let is_due = self.releases.tested_at.is_none_or(|at| now >= at.saturating_add(TEST_AGAIN));
        if self.releases.denied.is_none() || !is_due || self.obstacle().is_some() {
            return None;
        }
        self.releases.tested_at = Some(now);
        let probe = queues::release_probe(self.namespace.as_deref()?);
        self.out.extend_from_slice(&probe.get_packed_command());
        self.in_flight.push_back(Pending::Release(now));
        self.waker.take()
    }

    /// Handles the answer to that test.
    pub(super) fn settle_release_test(&mut self, reply: &Value) -> Settled {
        self.releases.denied = queues::no_release(reply);
        Settled::More
    }
}

/// Returns `true` if a request leaves a key that must be released.
fn sets_key(verb: Verb) -> bool {
    use Verb::{Acquire, Enter, GiveBack, Take};
    matches!(verb, Acquire { .. } | Enter { .. } | Take { .. } | GiveBack { .. })
}
