//! A lease that was given away, and is taken over: its first holder is not modelled, but what it
//! has left on the masters and on the way to them.

use redlock_protocol::token::attempt::{self, Attempt, Defeat, Origin};
use redlock_protocol::token::lifecycle::{Answered, Asked, Lifecycle};

use super::action::Action;
use super::broken::Broken;
use super::contender::{Lock, options, timing};
use super::driver::{ballot, token_of};
use super::master::{FORMER_VALUE, Master};
use super::part::Part;
use super::wire::{Kind, Number, Reply, Request};
use super::world::{Handed, World};

/// The first lock of a contender that resumes a lease.
const FIRST: u8 = 4;

impl World {
    pub(crate) fn resume_actions(&self, part: &Part, actions: &mut Vec<Action>) {
        if self.left.resumes > 0 {
            let open = self.contenders[0].open();
            // A contender that has the lease may have passed it on.
            if open.is_none_or(|lock| lock.machine.lease().is_some()) {
                let numbers = 1..=part.ballots;
                let is_allowed =
                    |number: &Number| part.numbers.first().is_none_or(|one| one == number);
                actions.extend(numbers.filter(is_allowed).map(|one| Action::Resume(0, one)));
            }
        }
        if self.left.plants > 0 {
            let free = (0..part.masters).filter(|master| self.masters[*master].keys[0].is_none());
            actions.extend(free.map(Action::Plant));
        }
    }

    pub(crate) fn resume(&mut self, part: &Part, own: usize, number: Number) {
        let (masters, after) = (self.asked(part, own), self.largest(part, 0));
        let clock = self.contenders[own].clock(part, self.now);
        let contender = &mut self.contenders[own];
        contender.locks.retain(|lock| lock.machine.lease().is_none());
        let id = FIRST + self.left.resumes;
        let attempt = Attempt::new(masters.len(), Origin::Resumed, timing(), options(), clock);
        let machine = Lifecycle::new(attempt.fenced(ballot(number)));
        contender.locks.push(Lock::new(id, FORMER_VALUE, after, machine));
        contender.send(id, Kind::Resume(1), number, masters, self.now);
        self.only_copies(part, own, id);
    }

    pub(crate) fn plant(&mut self, part: &Part, master: usize) {
        let until = self.now + self.masters[master].gained + part.ttl;
        self.masters[master].keys[0] = Some((FORMER_VALUE, until));
    }

    /// A mutant continues an attempt that was too late.
    pub(crate) fn is_revived(
        &mut self,
        part: &Part,
        own: usize,
        request: &Request,
        answered: Answered<'_>,
    ) -> bool {
        let clock = self.contenders[own].clock(part, self.now);
        if !(part.revives() && request.value == FORMER_VALUE) {
            return false;
        }
        let Some(lock) = self.contenders[own].lock(request.lock) else { return false };
        let Some(mut attempt) = lock.machine.attempt().cloned() else { return false };
        let Answered { to, master, judged, sent_at } = answered;
        let step = match to {
            Asked::First => attempt.vote(master, judged, sent_at, clock),
            Asked::Ballot(number) => attempt.ballot_vote(number, master, judged, sent_at, clock),
            Asked::Score => attempt.score_vote(master, judged, clock),
            _ => return false,
        };
        let is_late = step == attempt::Step::Lost(Defeat::TooLate);
        if is_late {
            (lock.machine, lock.proposes) = (Lifecycle::new(attempt), true);
        }
        is_late
    }

    /// A mutant hands out acceptances that are too old, once a quorum of those masters has extended
    /// the key.
    pub(crate) fn revive(&mut self, part: &Part, own: usize, master: usize, request: &Request) {
        let is_later = matches!(request.kind, Kind::Resume(2..) | Kind::Extend(_));
        let granted =
            matches!(request.reply, Some(Reply::Granted | Reply::Accepted | Reply::RefusedAt(_)));
        if !(part.revives() && request.value == FORMER_VALUE && is_later && granted) {
            return;
        }
        let resource = part.resource(own);
        let contender = &mut self.contenders[own];
        contender.accepted.push((master, 0));
        let extended = |master| contender.accepted.contains(&(master, 0));
        let accepted =
            contender.accepted.iter().filter(|(master, number)| *number > 0 && extended(*master));
        let numbers: Vec<Number> = accepted.map(|(_, number)| *number).collect();
        let Some(lock) = contender.open_mut() else { return };
        if let [number, other, ..] = &numbers[..]
            && lock.is_attempt()
            && number == other
        {
            let (token, ballot) = (token_of(*number), *number);
            let (handed, after) = (Handed { token, ballot, resource, lock: lock.id }, lock.after);
            contender.locks.retain(|lock| lock.id != handed.lock);
            self.hand_out(part, handed, after);
        }
    }
}

impl Part {
    /// Whether a mutant gives acceptances that are too old more time.
    pub(crate) fn revives(&self) -> bool {
        matches!(self.broken, Some(Broken::ResumedFromExtension | Broken::HoldsMerged))
    }
}

impl Master {
    /// The key was extended, so the ballot is proposed after that.
    pub(crate) fn resumed(&mut self, part: &Part, request: &Request) -> Reply {
        let accepted = request.done.ballot.unwrap_or_else(|| self.accept(part, request));
        match self.score_of(part, request) {
            None => Reply::NoMember,
            Some(_) if accepted => {
                if part.order {
                    self.past.push((request.lock, request.ballot));
                }
                Reply::Accepted
            }
            Some(score) => Reply::RefusedAt(score),
        }
    }

    /// Returns `true` if the ballot of this request is executed now, before the key is read.
    pub(crate) fn is_ahead(&self, part: &Part, request: &Request) -> bool {
        let is_resume = matches!(request.kind, Kind::Resume(_)) && request.ballot > 0;
        part.broken == Some(Broken::BallotAhead) && is_resume && request.done.ballot.is_none()
    }
}
