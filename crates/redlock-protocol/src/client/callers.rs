//! `Caller`: the request of one caller, through all its attempts.

use std::time::Duration;

use redlock_core::{Instant, Key, Label, Resource, Token};

use super::ids::{RequestId, UseId};
use super::table::Table;
use crate::terms::{HoldOptions, Timing};
use crate::waiting::Ask;

/// The callers that want a lock and have no answer yet.
pub type Callers<R> = Table<RequestId, Caller<R>>;

/// A caller that wants a lock, or a lease proved. `R` is the shell's way to answer it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Caller<R> {
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
    /// The shell's way to answer.
    pub reply: R,
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

impl<R> Caller<R> {
    /// Its request has failed. No attempt is made for it from now on.
    pub fn set_failed(&mut self) {
        (self.is_attempted, self.has_failed) = (true, true);
    }

    /// Returns `true` if the caller wants one attempt, and does not wait. A caller whose wait ended
    /// before its request was read did wait: it shares attempts with other waiting callers.
    pub fn is_try(&self) -> bool {
        self.until.is_some_and(|until| until <= self.asked_at)
    }
}
