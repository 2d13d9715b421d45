//! What questions see of masters.

use redlock_core::admission::{Millis, Nonce, RecordedSet};
use redlock_core::{Cause, Facts, Instant};

use super::Masters;
use super::millis::floor_millis;
use crate::admission::{Incarnation, InitOptions, InitPlan, Listed, MasterView, NoPlan, Scored};
use crate::client::view::View;

impl View for Masters {
    fn count(&self) -> usize {
        self.len()
    }

    fn is_connected(&self, master: usize) -> bool {
        self.is_up(master)
    }

    fn reachable(&self) -> Vec<(usize, Incarnation)> {
        self.admission.reachable()
    }

    fn view(&self, master: usize, facts: &Facts, now: Instant) -> MasterView {
        self.viewed(master, facts, None, now)
    }

    fn facts_of(&self, master: usize) -> Option<&Facts> {
        self.links[master].facts.as_ref()
    }

    fn max_ttl_of(&self, master: usize) -> Option<Millis> {
        self.admission.max_ttl_of(master)
    }

    fn set_of(&self, master: usize) -> Option<&RecordedSet> {
        self.admission.set_of(master)
    }

    fn why_not(&self, master: usize, now: Instant) -> Option<Cause> {
        (!self.votes(master)).then(|| self.cause(master, now))
    }

    fn why_no_locks(&self, master: usize) -> Option<Cause> {
        self.misfit(master)
    }

    fn agreed_set(&self) -> Option<RecordedSet> {
        self.admission.common_set().cloned()
    }

    fn plan_init(
        &mut self,
        options: InitOptions,
        listed: &Listed,
        answers: &[Scored],
        nonces: &[Nonce],
        ours: &[Nonce],
        now: Instant,
    ) -> Result<InitPlan, NoPlan> {
        let now = floor_millis(now);
        self.admission.plan_init(options, listed, answers, nonces, ours, now)
    }
}
