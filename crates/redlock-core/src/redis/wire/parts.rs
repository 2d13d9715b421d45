//! Requests with a ballot or a score: several commands, which are answered one by one and lead to
//! one vote, or one script.

use redis::Value;

use super::super::ballots;
use super::super::encode;
use super::super::reply::{self, Garbage};
use super::{Form, Pending, Settled, Wire};
use crate::{Answer, Balloted, Cause, Op, Verb};

impl Wire {
    /// Whether this request can be sent now.
    pub(in crate::redis) fn can_take(&self, op: &Op) -> bool {
        let is_about_set = matches!(op.verb(), Verb::Ballot | Verb::Score);
        self.is_open() && (self.set.is_some() || !is_about_set)
    }

    /// Why one that cannot be sent now cannot.
    pub(in crate::redis) fn why_refused(&self) -> Cause {
        self.obstacle().unwrap_or_else(ballots::too_early)
    }

    pub(super) fn write_balloted(&mut self, op: &Op) -> Form {
        if matches!(op.verb(), Verb::Resume { .. }) {
            return self.write_script(op);
        }
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

    fn write_script(&mut self, op: &Op) -> Form {
        let set = self.set.as_ref();
        let (packed, form) = match self.loaded.load(op, set) {
            Some(text) => (text, Form::Text),
            None => (encode::by_digest(op, set), Form::Short),
        };
        self.out.extend_from_slice(&packed);
        form
    }

    /// What one reply means as the answer to a request.
    pub(super) fn answer_of(&self, op: &Op, reply: Value) -> Result<Answer, Garbage> {
        match op.verb() {
            Verb::Resume { .. } => ballots::resumed(op, self.missing(), reply),
            verb => reply::answer(verb, reply),
        }
    }

    /// Whether the oldest request is one of several commands.
    pub(super) fn is_in_parts(&self) -> bool {
        let oldest = self.in_flight.front();
        matches!(oldest, Some(Pending::Request(_, _, Form::Parts | Form::Alone)))
    }

    pub(super) fn settle_part(&mut self, reply: Value) -> Settled {
        let Some(Pending::Request(op, slot, form)) = self.in_flight.pop_front() else {
            return Settled::Unasked(reply);
        };
        let is_alone = form == Form::Alone;
        match self.heard.take(&op, is_alone, self.missing(), reply) {
            Ok(Some(answer)) => Settled::vote(slot, answer),
            Ok(None) => {
                self.in_flight.push_front(Pending::Request(op, slot, form));
                Settled::More
            }
            Err(Garbage) => Settled::Garbage(slot),
        }
    }

    /// What a member that is not there means. Without quarantine nothing gives all members a score:
    /// one that is not there has accepted nothing so far.
    pub(super) fn missing(&self) -> Balloted {
        match &self.namespace {
            Some(namespace) if !namespace.quarantine => Balloted::Score(0),
            _ => Balloted::NoMember,
        }
    }
}
