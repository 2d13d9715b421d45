//! Attempts that wait for masters that may come to vote now.
//!
//! A short-lived command begins or ends a quarantine while its first attempt waits here. The same
//! applies to a program that runs the client only within its calls, on a new runtime for each call
//! or on a runtime that is idle between calls, because no step continues there. The gate closes
//! with the first request on a runtime, and with the first request after the client has not run for
//! a while. It stays closed while fewer than q masters vote and steps are running, for at most the
//! connect timeout. Releases, extensions and questions pass.

use redlock_core::Instant;

use super::Masters;

/// Whether attempts wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Gate {
    /// No request was made on this runtime.
    #[default]
    Unused,
    Open,
    /// Until this instant at most.
    Closed(Instant),
}

impl Masters {
    /// Records that a caller wants a lock. Its attempt waits if steps may be under way that no
    /// attempt has waited for. Returns until when at most, if the gate closes now:
    /// [`advance`](Self::advance) must follow.
    #[inline]
    pub fn close_gate(&mut self, was_idle: impl FnOnce() -> bool, now: Instant) -> Option<Instant> {
        let closes = match self.gate {
            Gate::Unused => true,
            Gate::Open => !self.has_votes() && was_idle(),
            Gate::Closed(_) => false,
        };
        closes.then(|| {
            let until = now.saturating_add(self.terms.connect_timeout);
            self.gate = Gate::Closed(until);
            until
        })
    }

    /// Returns `true` if attempts wait for masters that may come to vote now.
    #[inline]
    pub fn awaits_admission(&mut self, now: impl FnOnce() -> Instant) -> bool {
        let Gate::Closed(until) = self.gate else { return false };
        let is_under_way = self.admission.is_busy() || self.admission.awaits_connections();
        let waits = !self.has_votes() && is_under_way && now() < until;
        if !waits {
            self.gate = Gate::Open;
        }
        waits
    }
}
