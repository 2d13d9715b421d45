//! The inputs of the machines in the mutants.

use redlock_core::Answer;
use redlock_protocol::token::lifecycle::{Answered, Asked, Event};
use redlock_protocol::votes::answer::{Counts, Judged};

use super::broken::Broken;
use super::part::Part;
use super::wire::{Kind, Reply, Request};
use super::world::World;

impl World {
    /// Returns the time from which an answer is valid: when its request was sent.
    pub(crate) fn counted_from(&self, part: &Part, own: usize, request: &Request) -> u8 {
        match part.broken {
            Some(Broken::ResumedUnheld) if matches!(request.kind, Kind::Resume(_)) => {
                self.contenders[own].tick(self.now)
            }
            Some(Broken::FromReply | Broken::HandedOutLate) => self.contenders[own].tick(self.now),
            _ => request.sent,
        }
    }

    /// Returns the request to repeat when a connection breaks: none.
    pub(crate) fn resent(&self, part: &Part, request: &Request) -> Option<Request> {
        let again = part.broken == Some(Broken::SentTwice) && request.kind == Kind::Acquire;
        again.then(|| Request { reply: None, ..request.clone() })
    }

    /// Returns the answer that the machine gets for a reply: the master's own.
    pub(crate) fn told(
        &mut self,
        part: &Part,
        own: usize,
        master: usize,
        request: &Request,
    ) -> Answer {
        let reply = request.reply.unwrap_or(Reply::Unknown);
        let said = (master, request.ballot);
        let reply = match part.broken {
            Some(Broken::ReservationGrants) => self.reservation_granted(master, reply),
            _ => reply,
        };
        let accepted = &mut self.contenders[own].accepted;
        let reply = match (part.broken, reply) {
            (Some(Broken::AnswerIgnored), Reply::Refused) => Reply::Accepted,
            (Some(Broken::TooFewBallots), Reply::Refused) if !accepted.is_empty() => {
                Reply::Accepted
            }
            (Some(Broken::CarriedOver), Reply::Refused | Reply::RefusedAt(_))
                if accepted.contains(&said) =>
            {
                Reply::Accepted
            }
            (Some(Broken::ResumedByTooFew), Reply::RefusedAt(_)) if !accepted.is_empty() => {
                Reply::Accepted
            }
            (Some(Broken::RefusedCounts), Reply::Refused) => Reply::Score(0),
            _ => reply,
        };
        let remembers = matches!(
            part.broken,
            Some(
                Broken::TooFewBallots
                    | Broken::CarriedOver
                    | Broken::BallotsAddUp
                    | Broken::ResumedAddsUp
                    | Broken::ResumedByTooFew
                    | Broken::ResumedFromExtension
                    | Broken::HoldsMerged
            )
        );
        if remembers && reply == Reply::Accepted && !accepted.contains(&said) {
            accepted.push(said);
        }
        reply.answer()
    }

    /// Another ballot was proposed, so acceptances of the previous one are no longer valid.
    pub(crate) fn proposed(&mut self, part: &Part, own: usize, id: u8, round: u32) {
        if !matches!(part.broken, Some(Broken::BallotsAddUp | Broken::ResumedAddsUp)) {
            return;
        }
        let clock = self.contenders[own].clock(part, self.now);
        let accepted = std::mem::take(&mut self.contenders[own].accepted);
        for (master, _) in accepted {
            let (answer, counts) = (Reply::Accepted.answer(), Counts::Yes);
            let judged = Judged { answer: &answer, counts: &counts };
            let to = Asked::Ballot(round);
            let answered = Answered { to, master, judged, sent_at: clock };
            self.contenders[own].lock(id).into_iter().for_each(|lock| {
                lock.machine.on(Event::Answered(answered), clock);
            });
        }
    }

    /// A contender extends a key whose reply it has not read yet, and takes its validity from now.
    pub(crate) fn renew(&mut self, part: &Part, own: usize, master: usize) {
        let (now, resource) = (self.now, part.resource(own));
        let sent = self.contenders[own].tick(now);
        let Some(first) = self.contenders[own].links[master].first().cloned() else { return };
        let kind = match part.broken {
            Some(Broken::ReaddedCounts) => Kind::Readd,
            _ => Kind::Extend(0),
        };
        // A renewal carries no ballot: only the SET did.
        let mut renewal = Request { kind, ballot: 0, ..first };
        let reply = self.masters[master].execute(part, resource, &mut renewal, now);
        if matches!(reply, Some(Reply::Granted | Reply::Score(_))) {
            self.contenders[own].links[master][0].sent = sent;
        }
    }

    /// Whether it can.
    pub(crate) fn may_renew(&self, part: &Part, own: usize, master: usize) -> bool {
        let renews = matches!(part.broken, Some(Broken::ReaddedCounts | Broken::FromExtension));
        let contender = &self.contenders[own];
        let is_old = |request: &Request| {
            let is_accepted = request.reply == Some(Reply::Accepted);
            is_accepted && request.sent < contender.tick(self.now)
        };
        let link = &contender.links[master];
        renews && link.len() == 1 && link.first().is_some_and(is_old)
    }
}
