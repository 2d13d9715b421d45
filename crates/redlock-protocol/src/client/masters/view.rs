//! Views of the masters, for questions and keys.

use redlock_core::admission::RecordedSet;
use redlock_core::{Facts, Instant};

use super::Masters;
use super::millis::floor_millis;
use crate::admission::{Incarnation, InitInputs, InitPlan, MasterView, NoPlan};
use crate::client::view::{Seen, View, Voters as _};
use crate::master_set::MasterSet;

impl View for Masters {
    fn count(&self) -> usize {
        self.len()
    }

    fn connected(&self) -> MasterSet {
        (0..self.len()).filter(|master| self.links.is_up(*master)).collect()
    }

    fn seen(&self, master: usize, now: Instant) -> Seen<'_> {
        Seen {
            facts: self.links.0[master].facts.as_ref(),
            max_ttl: self.admission.max_ttl_of(master),
            set: self.admission.set_of(master),
            why_not: (!self.votes(master)).then(|| self.cause(master, now)),
            why_no_locks: self.misfit(master),
        }
    }

    fn reachable(&self) -> Vec<(usize, Incarnation)> {
        self.admission.reachable()
    }

    fn view(&self, master: usize, facts: &Facts, now: Instant) -> MasterView {
        self.viewed(master, facts, None, now)
    }

    fn agreed_set(&self) -> Option<RecordedSet> {
        self.admission.common_set().cloned()
    }

    fn plan_init(&mut self, inputs: InitInputs<'_>, now: Instant) -> Result<InitPlan, NoPlan> {
        self.admission.plan_init(inputs, floor_millis(now))
    }
}
