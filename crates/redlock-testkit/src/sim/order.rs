//! What a simulated master does with an order, and with the look behind an acquire.

use redlock_core::admission::{Identity, Order, Said};
use redlock_core::{Answer, Cause, Facts, Instant, NodeEvent, NotAdmitted, Op, Role, Verb, WhyNot};

use super::link::Back;
use super::master::READONLY;
use super::world::World;

/// What a client without tracking compares behind each acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    role: Role,
    identity: Option<Identity>,
    run: Option<Identity>,
}

impl Known {
    pub(super) fn of(facts: &Facts) -> Self {
        let run = facts.record.as_ref().ok().and_then(|record| record.run);
        Self { role: facts.role, identity: facts.identity, run }
    }
}

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
        let said = self.said(order, now)?;
        match &said {
            Said::Looked { facts, .. } | Said::Scores { facts, .. } => {
                self.links[at].known = Some(Known::of(facts));
            }
            Said::Script(reply) => {
                if let Some(known) = &mut self.links[at].known {
                    known.run = reply.record.run;
                }
            }
            Said::Time { .. } | Said::Members(_) => {}
        }
        Ok(said)
    }

    fn said(&mut self, order: &Order, now: Instant) -> Result<Said, Cause> {
        let facts = self.read(now);
        let time = facts.time_us.unwrap_or(0) / 1_000;
        let is_master = facts.role == Role::Master;
        let data = &mut self.master.data;
        let reply = match order {
            Order::Look => return Ok(Said::Looked { facts, members: Some(data.members()) }),
            Order::Time => {
                let nameless = || Cause::Unusable("its run_id has not 40 digits".into());
                let process = facts.identity.ok_or_else(nameless)?.run;
                return Ok(Said::Time { process, time });
            }
            Order::Scores(set) => {
                let found = set.map_or(data.off, |set| data.ballots(set));
                let highest = found.map(|found| found.highest);
                return Ok(Said::Scores { highest, facts });
            }
            Order::Members(set) => {
                let members = data.ballots(*set).map_or(0, |found| found.members);
                return Ok(Said::Members(members));
            }
            _ if !is_master => return Err(Cause::Demoted(READONLY.into())),
            Order::Begin(order) => data.begin(time, order),
            Order::Note(order) => data.note(time, order),
            Order::Admit(order) => data.admit(time, order),
            Order::Init(order) => data.init(time, order),
            Order::Remove(order) => data.remove(time, order),
        };
        Ok(Said::Script(reply))
    }

    /// What a client that is told of no changes makes of the answer to an acquire, from a look that
    /// was sent with it.
    pub(super) fn looked_behind(
        &mut self,
        at: usize,
        op: &Op,
        answer: Answer,
        now: Instant,
    ) -> Answer {
        let is_asked = !self.facts.tracks && matches!(op.verb(), Verb::Acquire { .. });
        let present = Known::of(&self.read(now));
        let link = &mut self.links[at];
        if !is_asked || link.known.is_none_or(|known| known == present) {
            return answer;
        }
        link.reply(Back::Push(NodeEvent::DataLost), now, &mut self.rng);
        match answer.verdict.is_clear() {
            true => Answer::unknown(Cause::NotAdmitted(NotAdmitted::new(WhyNot::Checked).into())),
            false => answer,
        }
    }
}
