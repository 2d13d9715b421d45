//! The answers of a simulated master about its admission.

use redlock_core::admission::{AdmissionOp, AdmissionReply};
use redlock_core::{Answer, Cause, Facts, Instant, Role};

use super::ballot_set::Ballots;
use super::master::READONLY;
use super::world::World;

impl World {
    /// Returns the facts that the server reports at `now`.
    pub(super) fn read(&self, now: Instant) -> Facts {
        let mut facts = self.facts.clone();
        facts.time_us = u64::try_from(self.master.clock.micros(now)).ok();
        facts.record = Ok(Box::new(self.master.data.record.clone()));
        facts
    }

    /// Carries out a request about admission that came over this link.
    pub(super) fn admission(&mut self, at: usize, op: &AdmissionOp, now: Instant) -> Answer {
        if let Some(error) = &self.master.error {
            return Answer::unknown(Cause::of_error_reply(error.clone()));
        }
        Answer::of_admission(self.said(at, op, now))
    }

    /// Returns the number of members that a client counts after reading a record. `None` if it does
    /// not count them.
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

    fn said(&mut self, at: usize, op: &AdmissionOp, now: Instant) -> Result<AdmissionReply, Cause> {
        let facts = self.read(now);
        let time = facts.time_us.unwrap_or(0) / 1_000;
        let is_master = facts.role == Role::Master;
        let data = &mut self.master.data;
        let reply = match op {
            AdmissionOp::ReadFacts => {
                let members = self.members(at).or(Some(0));
                return Ok(AdmissionReply::Facts { facts, members });
            }
            AdmissionOp::ReadTime => {
                let nameless = || Cause::Unusable("its run_id has not 40 digits".into());
                let process = facts.identity.ok_or_else(nameless)?.run;
                return Ok(AdmissionReply::Time { process, time });
            }
            AdmissionOp::ReadScores(set) => {
                let found = match set {
                    Some(set) => data.ballots(*set),
                    None => data.off.as_ref(),
                };
                let highest = found.map(Ballots::highest);
                return Ok(AdmissionReply::Scores { highest, facts });
            }
            _ if !is_master => return Err(Cause::Demoted(READONLY.into())),
            AdmissionOp::ShowUse => {
                data.show_use();
                return Ok(AdmissionReply::Shown);
            }
            AdmissionOp::Begin(order) => data.begin(time, order),
            AdmissionOp::Note(order) => data.note(time, order),
            AdmissionOp::Admit(order) => data.admit(time, order),
            AdmissionOp::Init(order) => data.init(time, order),
            AdmissionOp::Remove(order) => data.remove(time, order),
        };
        Ok(AdmissionReply::Script(reply))
    }
}
