//! Requests with a ballot or a score: several commands, which are answered one by one and lead to
//! one vote, or one script.

use redis::Value;

use super::super::ballots;
use super::super::encode;
use super::super::reply;
use super::super::resp::Garbage;
use super::{Form, Pending, Settled, Wire};
use crate::{Answer, Balloted, Cause, Op, Verb, Verdict, VoteSlot};

impl Wire {
    /// Returns why this request cannot be sent now, or `None` if it can.
    pub(in crate::redis) fn why_refused(&self, op: &Op) -> Option<Cause> {
        let no_queue = self.no_queue.as_ref().filter(|_| op.entry().is_some());
        let no_queue = no_queue.map(|why| Cause::NotSent(format!("no queue: {why}").into()));
        let no_release = self.why_not_released(op);
        let is_about_set = matches!(op.verb(), Verb::Ballot | Verb::Score);
        let no_set = (is_about_set && self.set.is_none()).then(ballots::too_early);
        self.obstacle().or(no_release).or(no_queue).or_else(|| self.lacks_namespace(op)).or(no_set)
    }

    pub(super) fn write_balloted(&mut self, op: &Op) -> Form {
        if matches!(op.verb(), Verb::Resume { .. }) {
            return self.write_script(op);
        }
        let text = self.loaded.load(op, self.set.as_ref());
        self.write_parts(op, text.as_deref())
    }

    fn write_parts(&mut self, op: &Op, text: Option<&[u8]>) -> Form {
        match &self.set {
            Some(set) => {
                ballots::write(set, op, text, &mut self.out);
                Form::Parts
            }
            None => {
                self.out.extend_from_slice(text.unwrap_or_else(|| ballots::alone(op)));
                Form::Alone
            }
        }
    }

    pub(super) fn write_script(&mut self, op: &Op) -> Form {
        let set = self.set.as_ref();
        match self.loaded.load(op, set) {
            Some(text) => {
                self.out.extend_from_slice(&text);
                Form::Text
            }
            None => {
                encode::write(op, set, &mut self.out);
                Form::Short
            }
        }
    }

    /// Interprets one reply as the answer to a request.
    pub(super) fn answer_of(&self, op: &Op, reply: Value) -> Result<Answer, Garbage> {
        match op.verb() {
            Verb::Resume { .. } => ballots::resumed(op, self.missing(), reply),
            verb => reply::answer(verb, reply),
        }
    }

    /// Handles a reply to the oldest request, which has several commands.
    pub(super) fn settle_part(
        &mut self,
        op: Op,
        slot: VoteSlot,
        form: Form,
        reply: Value,
    ) -> Settled {
        let is_alone = form == Form::Alone;
        match self.replies.take(&op, is_alone, self.missing(), reply) {
            Ok(Some(answer))
                if form == Form::Parts
                    && self.set.is_some()
                    && self.is_script_refused(&answer)
                    && self.may_repeat(&op) =>
            {
                let text = encode::by_text(&op, None);
                self.write_parts(&op, text.as_deref());
                self.in_flight.push_back(Pending::Request(op, slot, Form::PartsAgain));
                Settled::More
            }
            Ok(Some(answer)) => self.vote(&op, slot, answer),
            Ok(None) => {
                self.in_flight.push_front(Pending::Request(op, slot, form));
                Settled::More
            }
            Err(Garbage) => Settled::Garbage(slot),
        }
    }

    /// Returns `true` if the server did not run the script by its digest, and so did nothing.
    fn is_script_refused(&mut self, answer: &Answer) -> bool {
        let Verdict::Unknown(Cause::ErrorReply(text)) = &answer.verdict else { return false };
        self.loaded.is_refused(text)
    }

    /// Returns `true` if a request that the server has not carried out can be sent again, after
    /// later requests. A request that sets a key must not follow the release of its token.
    pub(super) fn may_repeat(&self, op: &Op) -> bool {
        let sets = matches!(op.verb(), Verb::Enter { .. } | Verb::Take { .. });
        let gives_up = |later: &Op| {
            let verb = later.verb();
            matches!(verb, Verb::Release | Verb::Leave { .. } | Verb::Reserve { .. })
                && later.token() == op.token()
                && later.key() == op.key()
        };
        let is_given_up = |pending: &Pending| match pending {
            Pending::Request(later, ..) => gives_up(later),
            _ => false,
        };
        !(sets && self.in_flight.iter().any(is_given_up))
    }

    /// Returns the meaning of a missing member. Without a quarantine, nothing gives all members a
    /// score, so a missing one has accepted nothing so far.
    pub(super) fn missing(&self) -> Balloted {
        match &self.namespace {
            Some(namespace) if !namespace.quarantine => Balloted::Score(0),
            _ => Balloted::NoMember,
        }
    }
}
