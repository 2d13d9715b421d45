//! Requests of several commands, which are answered one by one and lead to one vote.

use redis::Value;

use super::super::ballots;
use super::super::reply::Garbage;
use super::{Form, Pending, Settled, Wire};
use crate::{Balloted, Cause, Op, Verb};

impl Wire {
    /// Why this request cannot be sent now; none when it can.
    pub(in crate::redis) fn obstacle_to(&self, op: &Op) -> Option<Cause> {
        let is_about_set = matches!(op.verb(), Verb::Ballot | Verb::Score);
        let is_too_early = is_about_set && self.set.is_none();
        self.obstacle().or_else(|| is_too_early.then(ballots::too_early))
    }

    pub(super) fn write_parts(&mut self, op: &Op) -> Form {
        match &self.set {
            Some(set) => {
                set.write(op, &mut self.out);
                Form::Parts
            }
            None => {
                self.out.extend_from_slice(ballots::alone(op));
                Form::Alone
            }
        }
    }

    /// Whether the oldest request is one of these.
    pub(super) fn is_in_parts(&self) -> bool {
        let oldest = self.in_flight.front();
        matches!(oldest, Some(Pending::Request(_, _, Form::Parts | Form::Alone)))
    }

    pub(super) fn settle_part(&mut self, reply: Value) -> Settled {
        let Some(Pending::Request(op, slot, form)) = self.in_flight.pop_front() else {
            return Settled::Unasked(reply);
        };
        let is_alone = form == Form::Alone;
        // Without quarantine nothing gives all members a score: one that is not there has accepted
        // nothing so far.
        let missing = match &self.namespace {
            Some(namespace) if !namespace.quarantine => Balloted::Score(0),
            _ => Balloted::NoMember,
        };
        match self.heard.take(&op, is_alone, missing, reply) {
            Ok(Some(answer)) => self.answered(slot, answer),
            Ok(None) => {
                self.in_flight.push_front(Pending::Request(op, slot, form));
                Settled::More
            }
            Err(Garbage) => Settled::Garbage(slot),
        }
    }
}
