//! A master: its keys, its scores, and what it does with a request.

use super::broken::Broken;
use super::part::Part;
use super::wire::{Done, Kind, Number, Reply, Request, Value};

/// The value of a lease that is taken over.
pub(crate) const FORMER_VALUE: Value = u8::MAX;

/// How many resources there are at most. All have the same member.
pub(crate) const RESOURCES: usize = 2;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Master {
    /// By resource: whose key is there, and until when by the clock of the master.
    pub(crate) keys: [Option<(Value, u8)>; RESOURCES],
    /// How many ticks its clock has gained.
    pub(crate) gained: u8,
    /// The score of the member. `None` without one.
    pub(crate) score: Option<Number>,
    /// How often it has lost its data.
    pub(crate) life: u8,
    /// How it comes to vote again after that.
    pub(crate) quarantine: Option<Quarantine>,
    /// The former holders of the key in order, with the ballots accepted for it, if the order is
    /// checked.
    pub(crate) past: Vec<(u8, Number)>,
}

/// A master that has lost its data.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Quarantine {
    pub(crate) until: u8,
    /// The others whose scores were read, and the largest of those.
    pub(crate) read: Vec<usize>,
    pub(crate) floor: Number,
}

impl Master {
    pub(crate) fn new(part: &Part, own: usize) -> Self {
        let mut keys = [None; RESOURCES];
        keys[0] = Some((FORMER_VALUE, part.planted[own])).filter(|(_, until)| *until > 0);
        Self {
            keys,
            gained: 0,
            score: Some(part.scores[own]),
            life: 0,
            quarantine: None,
            past: Vec::new(),
        }
    }

    /// Removes keys that have expired.
    pub(crate) fn expire(&mut self, now: u8) {
        let clock = now + self.gained;
        self.keys = self.keys.map(|key| key.filter(|(_, until)| *until > clock));
    }

    pub(crate) fn holds(&self, resource: usize, value: Value) -> bool {
        self.keys[resource].is_some_and(|(own, _)| own == value)
    }

    /// Whether it would grant such a request now.
    pub(crate) fn grants(&self, part: &Part, resource: usize, request: &Request) -> bool {
        match request.kind {
            kind if kind.is_acquire() => {
                request.done.set.is_some() || self.is_free(part, resource, request)
            }
            Kind::Readd => self.keys[resource].is_none(),
            _ => self.holds(resource, request.value),
        }
    }

    /// Carries out a request, or its next command. None where more of its commands follow.
    pub(crate) fn execute(
        &mut self,
        part: &Part,
        resource: usize,
        request: &mut Request,
        now: u8,
    ) -> Option<Reply> {
        if self.is_ahead(part, request) {
            request.done.ballot = Some(self.accept(part, request));
            return None;
        }
        if !request.kind.is_acquire() || request.ballot == 0 {
            return Some(self.execute_one(part, resource, request, now));
        }
        loop {
            let reply = self.next_of_acquire(part, resource, request, now);
            if reply.is_some() || part.apart {
                return reply;
            }
        }
    }

    fn execute_one(&mut self, part: &Part, resource: usize, request: &Request, now: u8) -> Reply {
        let until = now + self.gained + part.ttl;
        if request.kind.is_acquire() {
            let is_free = self.is_free(part, resource, request);
            if is_free {
                self.set(part, resource, request, until);
            }
            return if is_free { Reply::Granted } else { Reply::Held };
        }
        let is_ours = self.holds(resource, request.value);
        let compares = part.broken != Some(Broken::ReleaseWithoutCompare);
        let key = &mut self.keys[resource];
        match (request.kind, *key) {
            (Kind::Readd, None) => {
                self.set(part, resource, request, until);
                self.score_of(part, request).map_or(Reply::NoMember, Reply::Score)
            }
            (Kind::Readd, Some(_)) => Reply::Held,
            (Kind::Extend(_) | Kind::Resume(_), Some((_, before))) if is_ours => {
                *key = Some((request.value, until.max(before)));
                if request.ballot > 0 { self.resumed(part, request) } else { Reply::Granted }
            }
            (Kind::Release, Some(_)) if is_ours || !compares => {
                *key = None;
                Reply::Granted
            }
            (Kind::Extend(_) | Kind::Resume(_), Some(_)) => Reply::Held,
            (Kind::Reserve | Kind::Leave(_) | Kind::Exit(_), _) => {
                self.reserve(part, resource, request)
            }
            (Kind::Extend(_) | Kind::Resume(_) | Kind::Release, _) => Reply::NotOurs,
            (Kind::Acquire | Kind::Enter | Kind::Take, _) => unreachable!("answered above"),
            (Kind::Ballot(_), _) => self.second(part, resource, request),
            (Kind::Score, _) => self.score_of(part, request).map_or(Reply::NoMember, Reply::Score),
        }
    }

    fn set(&mut self, part: &Part, resource: usize, request: &Request, until: u8) {
        self.keys[resource] = Some((request.value, until));
        if part.order {
            self.past.push((request.lock, 0));
        }
    }

    /// Executes the next of `SET`, `ZADD` and `GET`. The commands after a refusal have no effect on
    /// the result, so they are executed together with it.
    fn next_of_acquire(
        &mut self,
        part: &Part,
        resource: usize,
        request: &mut Request,
        now: u8,
    ) -> Option<Reply> {
        let ballot_first = part.broken == Some(Broken::SetBehindBallot);
        let Done { set, ballot } = request.done;
        if ballot.is_none() && (ballot_first || set.is_some()) {
            request.done.ballot = Some(self.accept(part, request));
            return None;
        }
        if set.is_none() {
            let is_free = self.is_free(part, resource, request);
            request.done.set = Some(is_free);
            if !is_free {
                self.accept(part, request);
                return Some(Reply::Held);
            }
            self.set(part, resource, request, now + self.gained + part.ttl);
            return None;
        }
        let reads = part.broken != Some(Broken::KeyNotRead);
        Some(match (self.holds(resource, request.value) || !reads, ballot) {
            (false, _) => Reply::NotOurs,
            (true, Some(true)) => {
                self.note(request);
                Reply::Accepted
            }
            (true, _) => Reply::Refused,
        })
    }

    /// `ZADD XX GT CH`.
    pub(crate) fn accept(&mut self, part: &Part, request: &Request) -> bool {
        let lacks = self.score_of(part, request).is_none();
        if lacks && part.broken != Some(Broken::MembersAreMade) {
            return false;
        }
        let score = self.score.unwrap_or(0);
        let accepts = match part.broken {
            Some(Broken::ScoresFall) => request.ballot != score,
            _ => request.ballot > score,
        };
        if accepts {
            self.score = Some(request.ballot);
        }
        accepts
    }

    /// Records an accepted ballot whose key existed afterwards.
    fn note(&mut self, request: &Request) {
        if let Some(past) = self.past.iter_mut().rfind(|(lock, _)| *lock == request.lock) {
            past.1 = request.ballot;
        }
    }

    /// The score in the set that a request names.
    pub(crate) fn score_of(&self, part: &Part, request: &Request) -> Option<Number> {
        let is_named = request.life == self.life || part.broken == Some(Broken::MembersAreMade);
        self.score.filter(|_| is_named)
    }

    fn second(&mut self, part: &Part, resource: usize, request: &Request) -> Reply {
        let accepted = self.accept(part, request);
        let Some(score) = self.score_of(part, request) else { return Reply::NoMember };
        match (self.holds(resource, request.value), accepted) {
            (false, _) => Reply::NotOurs,
            (true, true) => {
                self.note(request);
                Reply::Accepted
            }
            (true, false) => Reply::RefusedAt(score),
        }
    }
}
