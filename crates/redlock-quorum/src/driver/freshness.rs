//! Freshness: connected masters are probed about once a minute.
//!
//! An open connection reports a loss of data, but not that another `init` wrote another `max_ttl`
//! or converted the namespace, nor that a ballot set was deleted. One probe shows all of that, and
//! the TIME of the master, on which ballots are based. The probe is sent for its own sake, and not
//! with other requests: it is four short commands, and an idle handle has the oldest facts.
//!
//! *A probe that fails* changes nothing; the next one follows a minute later. *A null push that
//! comes before its answer* makes the machine probe again: it ignores this answer.

use std::time::Duration;

use redlock_core::Instant;
use redlock_core::admission::AdmissionOp;

use super::Driver;
use super::draws::Draw;
use super::timers::Due;
use redlock_protocol::client::ids::Asker;

/// Facts of this age are read again.
const FRESH_FOR: Duration = Duration::from_secs(60);

impl Driver {
    /// Connections are made from now on.
    pub(super) fn keep_fresh(&mut self, now: Instant) {
        self.timers.enter(now.saturating_add(FRESH_FOR), Due::Fresh);
    }

    /// Masters that were probed a moment ago, such as on a new connection, are skipped; so are
    /// masters that do not vote, which are probed every second by their steps.
    pub(super) fn fresh_due(&mut self, now: Instant) {
        for master in 0..self.masters.len() {
            let is_old = self.masters.links[master].read_at.saturating_add(FRESH_FOR / 2) <= now;
            if is_old {
                self.masters.ask(master, AdmissionOp::ReadFacts, Asker::Fresh, now);
            }
        }
        // Handles that were made together do not stay together.
        let next = FRESH_FOR.mul_f64(0.75 + self.draws.unit(Draw::Fresh, now) / 2.0);
        self.timers.enter(now.saturating_add(next), Due::Fresh);
    }
}
