//! Freshness: masters that are connected are looked at about once a minute.
//!
//! A connection that stays reports a loss of data, and nothing else: not that another `init` wrote
//! another `max_ttl` or converted the namespace, nor that a ballot set was deleted. One look shows
//! all of it, and the TIME of the master, which ballots go by. It is sent alone: it is four short
//! commands, and a handle that sends nothing else is the one that knows least.
//!
//! *A look that fails* says nothing; the next one follows a minute later. *A null push that comes
//! before its answer* has the machine look again: it does not believe this answer.

use std::time::Duration;

use redlock_core::Instant;
use redlock_core::admission::AdmissionOp;

use super::Driver;
use super::ticket::Asker;
use super::timers::Due;

/// What was read so long ago is read again.
const FRESH_FOR: Duration = Duration::from_secs(60);

impl Driver {
    /// Connections are made from now on.
    pub(super) fn keep_fresh(&mut self, now: Instant) {
        self.timers.enter(now.saturating_add(FRESH_FOR), Due::Fresh);
    }

    /// Masters that were looked at a moment ago, such as on a new connection, are left alone; so
    /// are those that do not vote, which their steps look at every second.
    pub(super) fn fresh_due(&mut self, now: Instant) {
        for master in 0..self.masters.len() {
            let is_old = self.masters.read_at(master).saturating_add(FRESH_FOR / 2) <= now;
            if is_old {
                self.masters.ask(master, AdmissionOp::ReadFacts, Asker::Fresh, now);
            }
        }
        // Handles that were made together do not stay together.
        let next = FRESH_FOR.mul_f64(0.75 + self.random() / 2.0);
        self.timers.enter(now.saturating_add(next), Due::Fresh);
    }
}
