//! The gate: attempts that wait for masters that may come to vote now.
//!
//! A short-lived command begins or ends a quarantine while its first attempt waits here. So does a
//! program that runs the driver only within its calls: on a new runtime for each, or on one that is
//! idle in between, where no step goes on. The gate closes with the first request on a runtime, and
//! with one behind a time in which the driver was not run. It stays closed while fewer than q
//! masters vote and steps are under way, and no longer than the connect timeout. Releases,
//! extensions and inspections pass.

use std::time::Duration;

use redlock_core::Instant;

use crate::driver::Driver;
use crate::driver::timers::Due;

/// A driver that does by so much too late what was due was not run.
const IDLE_MIN: Duration = Duration::from_millis(500);

/// Whether attempts wait.
#[derive(Clone, Copy, Default)]
pub(super) enum Gate {
    /// No request was made on this runtime.
    #[default]
    Unused,
    Open,
    /// Until this instant at most.
    Closed(Instant),
}

impl Driver {
    /// A caller wants a lock. Its attempt waits where steps may be under way that no attempt has
    /// waited for.
    pub(in crate::driver) fn await_steps(&mut self, now: Instant) {
        let is_new = match self.steps.gate {
            Gate::Unused => true,
            Gate::Open => !self.masters.has_votes() && self.timers.is_late(now, IDLE_MIN),
            Gate::Closed(_) => false,
        };
        if is_new {
            let until = now.saturating_add(self.settings.connect_timeout);
            self.steps.gate = Gate::Closed(until);
            self.timers.enter(until, Due::Wake);
            self.advance_admission(now);
        }
    }

    /// Whether attempts wait for masters that may come to vote now.
    pub(in crate::driver) fn awaits_admission(&mut self) -> bool {
        let Gate::Closed(until) = self.steps.gate else { return false };
        let admission = &self.masters.admission;
        let is_under_way = admission.is_busy() || admission.awaits_connections();
        let waits = !self.masters.has_votes() && is_under_way && self.now() < until;
        if !waits {
            self.steps.gate = Gate::Open;
        }
        waits
    }
}
