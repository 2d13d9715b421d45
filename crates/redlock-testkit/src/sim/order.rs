//! What a simulated master does with an order, and with the look behind an acquire.

use redlock_core::admission::{Ballots, Identity, Order, Said};
use redlock_core::{
    Answer, Balloted, Cause, Facts, Instant, NodeEvent, NotAdmitted, Op, Role, Verb, Verdict,
    WhyNot,
};

use super::ballots::Set;
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

    /// What the ballot set is named after, where it was admitted as what it is.
    pub(super) fn admitted(self) -> Option<Identity> {
        let present = self.identity?;
        self.run.filter(|run| run.covers(present))
    }

    /// The same but for `run`, which a request with a ballot or a score need not ask for.
    fn without_run(self) -> Self {
        Self { run: None, ..self }
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
        let said = self.said(at, order, now)?;
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
            Order::Begin(order) => data.begin(time, order),
            Order::Note(order) => data.note(time, order),
            Order::Admit(order) => data.admit(time, order),
            Order::Init(order) => data.init(time, order),
            Order::Remove(order) => data.remove(time, order),
        };
        Ok(Said::Script(reply))
    }

    /// What a client makes of an answer that shows a change of the master: the answer itself, or,
    /// where it is told of no changes, a look that was sent with an acquire.
    pub(super) fn looked_behind(
        &mut self,
        at: usize,
        op: &Op,
        set: Set,
        answer: Answer,
        now: Instant,
    ) -> Answer {
        let is_set = matches!(op.verb(), Verb::Acquire { .. } | Verb::GiveBack { .. });
        let present = Known::of(&self.read(now));
        let link = &mut self.links[at];
        let is_changed = link.known.is_some_and(|known| match (op.member(), set) {
            (Some(_), Set::Of(_)) => known.without_run() != present.without_run(),
            _ => known != present,
        });
        let is_asked = !self.facts.tracks && is_set && link.has_quarantine;
        if is_asked && is_changed {
            link.reply(Back::Push(NodeEvent::DataLost), now, &mut self.rng);
            return unless_clear(answer);
        }
        if answer.balloted == Some(Balloted::NoMember) {
            link.reply(Back::Push(NodeEvent::DataLost), now, &mut self.rng);
        }
        answer
    }
}

/// What is left of a clear answer of a master that may have changed.
fn unless_clear(answer: Answer) -> Answer {
    if !answer.verdict.is_clear() {
        return answer;
    }
    let checked = NotAdmitted::new(WhyNot::Checked);
    let unknown = Answer::unknown(Cause::NotAdmitted(checked.into()));
    match answer.verdict {
        Verdict::Granted | Verdict::BallotRefused => unknown.with_key_set(),
        _ => unknown,
    }
}
