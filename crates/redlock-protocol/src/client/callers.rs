//! `Caller`: the request of one caller, through all its attempts.

use std::time::Duration;

use redlock_core::{Instant, Key, Label, Resource, Token};

use super::ids::{RequestId, UseId};
use super::table::Named;
use crate::terms::{HoldOptions, InvalidTiming, Limits, Timing};
use crate::waiting::Ask;

/// The callers that want a lock and have no answer yet.
pub type Callers = Named<RequestId, Caller>;

/// A caller that wants a lock, or a lease proved.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    /// The resource.
    pub resource: Resource,
    /// The key of the resource.
    pub key: Key,
    /// The TTL that the caller set.
    pub ttl: Option<Duration>,
    /// The durations that follow from the TTL, since the start of the latest attempt.
    pub timing: Timing,
    /// The options of the lease.
    pub options: HoldOptions,
    /// The label of the lock.
    pub label: Option<Label>,
    /// When the caller made the request.
    pub asked_at: Instant,
    /// When to stop trying. `None` for never.
    pub until: Option<Instant>,
    /// The token of a lease to take over in place of a new one.
    pub resume: Option<Token>,
    /// The use of the key. The default before the use was looked up.
    pub key_use: UseId,
    /// Whether an attempt is under way.
    pub is_attempted: bool,
    /// Whether the caller has stopped waiting while an attempt was under way.
    pub is_gone: bool,
    /// Whether its request has failed, and waits for the answers that its error reports.
    pub has_failed: bool,
    /// The masters that the next attempt requests the key from.
    pub ask: Ask,
}

impl Caller {
    /// Records that the request of the caller has failed, so no further attempt is made for it.
    pub fn set_failed(&mut self) {
        (self.is_attempted, self.has_failed) = (true, true);
    }

    /// Begins an attempt: sets the length of its lease.
    ///
    /// # Errors
    /// Returns why the TTL is not allowed.
    pub fn prepare(&mut self, limits: &Limits, max_ttl: Duration) -> Result<(), InvalidTiming> {
        let timing = limits.timing(self.ttl, max_ttl)?;
        timing.check_margin(self.options.stop_margin)?;
        (self.timing, self.is_attempted) = (timing, true);
        Ok(())
    }

    /// Returns `true` if the caller wants one attempt, and does not wait. A caller whose wait ended
    /// before its request was read did wait: it shares attempts with other waiting callers.
    pub fn is_try(&self) -> bool {
        self.until.is_some_and(|until| until <= self.asked_at)
    }
}
