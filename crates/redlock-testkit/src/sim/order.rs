//! What a simulated master does with an order.

use redlock_core::admission::{Ballots, Order, Said};
use redlock_core::{Cause, Facts, Instant, Role};

use super::master::READONLY;
use super::world::World;

impl World {
    /// What the server says about itself at `now`.
    pub(super) fn read(&self, now: Instant) -> Facts {
        let mut facts = self.facts.clone();
        facts.time_us = u64::try_from(self.master.clock.micros(now)).ok();
        facts.record = Ok(Box::new(self.master.data.record.clone()));
        facts
    }

    /// Carries out an order that came over this link.
    pub(super) fn order(&mut self, at: usize, order: &Order, now: Instant) -> Result<Said, Cause> {
        if let Some(error) = &self.master.error {
            return Err(Cause::of_error_reply(error.clone()));
        }
        self.said(at, order, now)
    }

    /// What a client counts behind a record; none where it asks for nothing.
    pub(super) fn members(&self, at: usize) -> Option<u32> {
        let data = &self.master.data;
        match data.record.run {
            Some(_) => Some(data.members()),
            None if self.links[at].has_quarantine => {
                Some(data.off.as_ref().map_or(0, |off| off.members))
            }
            None => None,
        }
    }

    fn said(&mut self, at: usize, order: &Order, now: Instant) -> Result<Said, Cause> {
        let facts = self.read(now);
        let time = facts.time_us.unwrap_or(0) / 1_000;
        let is_master = facts.role == Role::Master;
        let data = &mut self.master.data;
        let reply = match order {
            Order::Look => {
                let members = self.members(at).or(Some(0));
                return Ok(Said::Looked { facts, members });
            }
            Order::Time => {
                let nameless = || Cause::Unusable("its run_id has not 40 digits".into());
                let process = facts.identity.ok_or_else(nameless)?.run;
                return Ok(Said::Time { process, time });
            }
            Order::Scores(set) => {
                let found = match set {
                    Some(set) => data.ballots(*set),
                    None => data.off.as_ref(),
                };
                let highest = found.map(Ballots::highest);
                return Ok(Said::Scores { highest, facts });
            }
            Order::Members(set) => {
                let members = data.ballots(*set).map_or(0, |found| found.members);
                return Ok(Said::Members(members));
            }
            _ if !is_master => return Err(Cause::Demoted(READONLY.into())),
            Order::ShowUse => {
                data.show_use();
                return Ok(Said::Shown);
            }
            Order::Begin(order) => data.begin(time, order),
            Order::Note(order) => data.note(time, order),
            Order::Admit(order) => data.admit(time, order),
            Order::Init(order) => data.init(time, order),
            Order::Remove(order) => data.remove(time, order),
        };
        Ok(Said::Script(reply))
    }
}
