//! The driver's part in the locks of a contender.

use redlock_core::{Ballot, Cause, NotAdmitted, WhyNot};
use redlock_protocol::ballot::proposals::Proof;
use redlock_protocol::master_set::MasterSet;
use redlock_protocol::token::attempt::{Attempt, Origin};
use redlock_protocol::token::lifecycle::{Answered, Event, Lifecycle, Stage, Step};
use redlock_protocol::votes::answer::{Counts, Judged};

use super::broken::Broken;
use super::contender::{Lock, at, options, timing};
use super::master::FORMER_VALUE;
use super::part::Part;
use super::queue::MEETING_POINT;
use super::wire::{Kind, Number, Reply, Request, Token, Value};
use super::world::{FORMER, Handed, World, Wrong};

/// The first lock of the first contender.
pub(crate) const FIRST: u8 = 1;

impl World {
    /// An attempt begins, with this ballot where there is one.
    pub(crate) fn begin(&mut self, part: &Part, own: usize, number: Number) {
        let (masters, after) = (self.asked(part, own), self.largest(part, part.resource(own)));
        let clock = self.contenders[own].clock(part, self.now);
        let contender = &mut self.contenders[own];
        let id = Lock::id(own, FIRST + contender.begun);
        contender.begun += 1;
        let is_one = matches!(part.broken, Some(Broken::OneValue | Broken::TakenTwice));
        let value = if is_one { own as u8 } else { id };
        let attempt = Attempt::new(masters.len(), Origin::Acquired, timing(), options(), clock);
        let attempt = if number > 0 { attempt.fenced(ballot(number)) } else { attempt };
        let enters = part.enters(own);
        let attempt = if enters { attempt.entering(MEETING_POINT) } else { attempt };
        contender.locks.push(Lock::new(id, value, after, Lifecycle::new(attempt)));
        self.send_attempt(part, own, id, number, masters);
        self.only_copies(part, own, id);
    }

    /// Requests a copy from masters that do not vote.
    pub(crate) fn only_copies(&mut self, part: &Part, own: usize, id: u8) {
        for master in 0..part.masters {
            if self.contenders[own].votes[master].is_none() {
                self.happens(part, own, id, Event::OnlyCopies(vec![(master, why())]));
            }
        }
    }

    /// The masters that a contender knows of.
    pub(crate) fn asked(&self, part: &Part, own: usize) -> MasterSet {
        match part.broken {
            Some(Broken::MajorityOfReachable) => MasterSet::from_iter([own]),
            _ => MasterSet::all(part.masters),
        }
    }

    /// Passes an event to the machine of a lock, and executes its decision.
    pub(crate) fn happens(&mut self, part: &Part, own: usize, id: u8, event: Event<'_>) {
        let clock = self.contenders[own].clock(part, self.now);
        let Some(lock) = self.contenders[own].lock(id) else { return };
        let step = lock.machine.on(event, clock);
        self.carry_out(part, own, id, step);
    }

    fn carry_out(&mut self, part: &Part, own: usize, id: u8, step: Step) {
        let now = self.now;
        let contender = &mut self.contenders[own];
        match step {
            Step::NeedBallot { .. } => {
                contender.lock(id).into_iter().for_each(|lock| lock.proposes = true);
            }
            Step::SendBallot { number, ballot, masters } => {
                let kind = contender.further(id, number);
                contender.send(id, kind, ballot.number() as Number, masters, now);
            }
            Step::Won(won) => self.won(part, own, id, won.proof),
            Step::Lost(_) | Step::Release => self.happens(part, own, id, Event::Turn),
            Step::Hold(step) => {
                contender.send(id, Kind::Readd, 0, step.readd, now);
                if let Some(extend) = step.extend {
                    contender.send(id, Kind::Extend(extend.number), 0, extend.masters, now);
                }
            }
            Step::SendRelease(places) => {
                let masters = places.iter().map(|place| part.master(own, place)).collect();
                self.send_releases(part, own, id, masters);
            }
            Step::TakeAgain => {
                contender.lock(id).into_iter().for_each(|lock| lock.takes = true);
            }
            Step::AskAgain { masters, ballot } => {
                let number = ballot.map_or(0, |ballot| ballot.number() as Number);
                self.note_again(part, own, masters);
                self.send_attempt(part, own, id, number, masters);
            }
            Step::Wait
            | Step::AskOthers { .. }
            | Step::AwaitCopies(_)
            | Step::HandedOn(_)
            | Step::Released
            | Step::Gone => {}
        }
    }

    /// The first reply on a connection is read.
    pub(crate) fn deliver(&mut self, part: &Part, own: usize, master: usize) {
        let request = self.contenders[own].links[master].remove(0);
        self.answered(part, own, master, &request);
    }

    /// Breaks a connection. None of the requests on their way is executed any longer.
    pub(crate) fn cut(&mut self, part: &Part, own: usize, master: usize) {
        let requests = std::mem::take(&mut self.contenders[own].links[master]);
        for request in requests {
            if let Some(again) = self.resent(part, &request) {
                self.contenders[own].links[master].push(again);
            } else {
                let lost = Request { reply: Some(Reply::Unknown), ..request };
                self.answered(part, own, master, &lost);
            }
        }
    }

    fn answered(&mut self, part: &Part, own: usize, master: usize, request: &Request) {
        if matches!(request.kind, Kind::Exit(_)) {
            return;
        }
        let sent_at = at(part, self.counted_from(part, own, request));
        let answer = self.told(part, own, master, request);
        let counts = if request.counts { Counts::Yes } else { Counts::Not(why()) };
        let judged = Judged { answer: &answer, counts: &counts };
        let (to, master_at) = (request.kind.asked(), part.place(own, master));
        let answered = Answered { to, master: master_at, judged, sent_at };
        if !self.is_revived(part, own, request, answered) {
            self.happens(part, own, request.lock, Event::Answered(answered));
        }
        self.ask_scores(own);
        self.revive(part, own, master, request);
        self.sweep(part, own);
    }

    /// Queries the scores of masters that refused a ballot.
    fn ask_scores(&mut self, own: usize) {
        let now = self.now;
        let Some(lock) = self.contenders[own].open_mut() else { return };
        let (id, masters) = (lock.id, lock.machine.ask_scores());
        self.contenders[own].send(id, Kind::Score, 0, masters, now);
    }

    fn won(&mut self, part: &Part, own: usize, id: u8, proof: Option<Proof>) {
        let (Some(proof), Some(lock)) = (proof, self.contenders[own].lock(id)) else { return };
        let (token, ballot) = match part.broken {
            Some(Broken::FormerToken) if lock.value == FORMER_VALUE => {
                (FORMER.token, FORMER.ballot)
            }
            _ => (proof.ballot.token().get(), proof.ballot.number() as Number),
        };
        let after = lock.after;
        let resource = part.resource(own);
        self.hand_out(part, Handed { token, ballot, resource, lock: id }, after);
    }

    /// A ballot is proposed once more.
    pub(crate) fn propose(&mut self, part: &Part, own: usize, number: Number) {
        let (clock, now) = (self.contenders[own].clock(part, self.now), self.now);
        let Some(lock) = self.contenders[own].open_mut() else { return };
        let id = lock.id;
        lock.proposes = false;
        let step = lock.machine.on(Event::Drawn(ballot(number)), clock);
        let Step::SendBallot { number: round, masters, .. } = step else { return };
        let contender = &mut self.contenders[own];
        let (kind, number) = match part.broken {
            Some(Broken::ResumedFromExtension) => (Kind::Extend(0), 0),
            _ => (contender.further(id, round), number),
        };
        contender.send(id, kind, number, masters, now);
        self.proposed(part, own, id, round);
    }

    /// The node timeout of the attempt has passed.
    pub(crate) fn time_out(&mut self, part: &Part, own: usize) {
        let Some(id) = self.contenders[own].open().map(|lock| lock.id) else { return };
        self.happens(part, own, id, Event::AttemptTimedOut);
        self.sweep(part, own);
    }

    /// Releases the requested or held lock.
    pub(crate) fn give_up(&mut self, part: &Part, own: usize) {
        let clock = self.contenders[own].clock(part, self.now);
        let Some(lock) = self.contenders[own].open() else { return };
        let id = lock.id;
        let deadline = lock.machine.lease().map(|lease| lease.deadline());
        self.leave_place(part, own, id);
        self.refused_before(part, own, id);
        let event = match deadline {
            Some(deadline) => {
                Event::Returned { was_lost: deadline.is_none_or(|deadline| deadline <= clock) }
            }
            None => Event::Cancelled,
        };
        self.happens(part, own, id, event);
        self.sweep(part, own);
    }

    /// The holder wants more time.
    pub(crate) fn extend(&mut self, part: &Part, own: usize) {
        if let Some(id) = self.contenders[own].open().map(|lock| lock.id) {
            self.happens(part, own, id, Event::Extend(timing()));
        }
    }

    /// Repeats a release that was not acknowledged.
    pub(crate) fn release_again(&mut self, part: &Part, own: usize, id: u8, master: usize) {
        self.happens(part, own, id, Event::Retry(part.place(own, master)));
    }

    /// Whether a release can be sent again.
    pub(crate) fn has_failed(&self, part: &Part, own: usize, lock: &Lock, master: usize) -> bool {
        let is_asked = self.asked(part, own).contains(master);
        match lock.machine.stage() {
            Stage::Release(release) => is_asked && release.has_failed(part.place(own, master)),
            _ => false,
        }
    }

    /// A contender learns that a master has lost its data.
    pub(crate) fn learn(&mut self, part: &Part, own: usize, master: usize) {
        self.contenders[own].votes[master] = None;
        for request in &mut self.contenders[own].links[master] {
            request.counts = false;
        }
        let Some(id) = self.contenders[own].open().map(|lock| lock.id) else { return };
        self.happens(part, own, id, Event::Disowned(master, Cause::NotConnected("".into())));
        self.sweep(part, own);
    }

    /// Removes finished locks, of which no key may exist any longer.
    fn sweep(&mut self, part: &Part, own: usize) {
        let over = self.contenders[own].locks.iter().filter(|lock| lock.machine.is_over());
        let over: Vec<(u8, Value)> = over.map(|lock| (lock.id, lock.value)).collect();
        for (id, value) in over {
            self.contenders[own].locks.retain(|lock| lock.id != id);
            let is_used = self.contenders[own].locks.iter().any(|lock| lock.value == value);
            let mut masters = 0..part.masters;
            // Requests of a first holder may set its key later.
            let is_used = is_used || value == FORMER_VALUE;
            if !is_used && masters.any(|master| self.is_left(part, own, master, id, value)) {
                self.wrong = Some(Wrong::KeyLeft);
            }
        }
    }

    /// Returns `true` if a key exists on a master or will exist there, and no release follows it.
    fn is_left(&self, part: &Part, own: usize, master: usize, id: u8, value: Value) -> bool {
        let link = &self.contenders[own].links[master];
        // Extending a key sets none.
        let is_about_it = |kind| !matches!(kind, Kind::Exit(_) | Kind::Extend(_));
        let is_coming =
            |one: &&Request| one.lock == id && one.reply.is_none() && is_about_it(one.kind);
        let coming = link.iter().rfind(is_coming);
        match coming.map(|request| request.kind) {
            Some(kind) => !kind.is_release() && !matches!(kind, Kind::Score | Kind::Ballot(_)),
            None => self.masters[master].holds(part.resource(own), value),
        }
    }
}

pub(crate) fn ballot(number: Number) -> Option<Ballot> {
    Ballot::new(u64::from(number))
}

/// The token of a ballot.
pub(crate) fn token_of(number: Number) -> Token {
    ballot(number).map_or(0, |ballot| ballot.token().get())
}

fn why() -> Cause {
    Cause::NotAdmitted(NotAdmitted::new(WhyNot::Restarted).into())
}
