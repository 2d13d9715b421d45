//! What the driver does for the locks of a contender.

use std::time::Duration;

use redlock_core::{Ballot, Cause, Instant, NotAdmitted, WhyNot};

use super::broken::Broken;
use super::contender::{Lock, Stage, at, options, timing};
use super::master::FORMER_VALUE;
use super::part::Part;
use super::wire::{Kind, Number, Reply, Request, Value};
use super::world::{FORMER, Handed, World, Wrong};
use crate::lost::LostReason;
use crate::protocol::attempt::{Attempt, Defeat, Origin, Step};
use crate::protocol::heard::{Heard, Standing};
use crate::protocol::lease::HeldLease;
use crate::protocol::ledger::Ledger;
use crate::protocol::master_set::MasterSet;
use crate::protocol::release::Release;

/// The first lock of the first contender.
pub(crate) const FIRST: u8 = 1;

impl World {
    /// An attempt begins, with this ballot where there is one.
    pub(crate) fn begin(&mut self, part: &Part, own: usize, number: Number) {
        let (masters, after) = (self.asked(part, own), self.largest(part, part.resource(own)));
        let clock = self.contenders[own].clock(part, self.now);
        let contender = &mut self.contenders[own];
        let id = FIRST + contender.begun + 8 * own as u8;
        contender.begun += 1;
        let value = if part.broken == Some(Broken::OneValue) { own as u8 } else { id };
        let attempt = Attempt::new(masters.len(), Origin::Acquired, timing(), options(), clock);
        let attempt = if number > 0 { attempt.fenced(ballot(number)) } else { attempt };
        let stage = Stage::Attempt(attempt);
        contender.locks.push(Lock { id, value, after, proposes: false, stage });
        contender.send(id, Kind::Acquire, number, masters, self.now);
        self.only_copies(part, own, id);
    }

    /// Masters that do not vote are asked for a copy.
    pub(crate) fn only_copies(&mut self, part: &Part, own: usize, id: u8) {
        let clock = self.contenders[own].clock(part, self.now);
        for master in 0..part.masters {
            if self.contenders[own].votes[master].is_none() {
                self.attempt(part, own, id, |attempt| {
                    attempt.only_copies(vec![(master, why())], clock)
                });
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

    /// Lets the machine of an attempt take one step.
    fn attempt(&mut self, part: &Part, own: usize, id: u8, event: impl Fn(&mut Attempt) -> Step) {
        let Some(lock) = self.contenders[own].lock(id) else { return };
        if let Stage::Attempt(attempt) = &mut lock.stage {
            let step = event(attempt);
            self.decide(part, own, id, step);
        }
    }

    /// The first reply on a connection is read.
    pub(crate) fn deliver(&mut self, part: &Part, own: usize, master: usize) {
        let request = self.contenders[own].links[master].remove(0);
        self.answered(part, own, master, &request);
    }

    /// A connection breaks: of what was on its way, nothing is carried out any more.
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
        let place = part.place(own, master);
        let now = self.contenders[own].clock(part, self.now);
        let sent = at(part, self.counted_from(part, own, request));
        let answer = self.told(part, own, master, request);
        let Some(lock) = self.contenders[own].lock(request.lock) else { return };
        let standing = if request.counts { Standing::Counts } else { Standing::Not(why()) };
        let heard = Heard { answer: &answer, standing: &standing };
        let vote = Vote { request, place, heard, sent, now };
        match &mut lock.stage {
            Stage::Attempt(attempt) => {
                let step = vote.attempt(attempt);
                self.decide(part, own, request.lock, step);
            }
            Stage::Lease(lease) => {
                let readd = vote.lease(lease);
                let now = self.now;
                self.contenders[own].send(request.lock, Kind::Readd, 0, readd, now);
            }
            Stage::Release(release) => vote.release(release),
        }
        self.ask_scores(own);
        self.revive(part, own, master, request);
        self.sweep(part, own);
    }

    /// Masters that refused a ballot are asked for their scores.
    fn ask_scores(&mut self, own: usize) {
        let now = self.now;
        let Some(lock) = self.contenders[own].open_mut() else { return };
        let id = lock.id;
        let masters = match &mut lock.stage {
            Stage::Attempt(attempt) => attempt.ask_scores(),
            Stage::Lease(lease) => lease.ask_scores(),
            Stage::Release(_) => return,
        };
        self.contenders[own].send(id, Kind::Score, 0, masters, now);
    }

    fn decide(&mut self, part: &Part, own: usize, id: u8, step: Step) {
        let (clock, now) = (self.contenders[own].clock(part, self.now), self.now);
        let Some(lock) = self.contenders[own].lock(id) else { return };
        let Stage::Attempt(attempt) = &mut lock.stage else { return };
        match step {
            Step::Won => {
                let proof = attempt.is_fenced().then(|| attempt.proof()).flatten();
                let after = lock.after;
                lock.stage = Stage::Lease(attempt.clone().into_lease(clock));
                if let Some(proof) = proof {
                    let number = match part.broken {
                        Some(Broken::FormerToken) if lock.value == FORMER_VALUE => FORMER.number,
                        _ => proof.ballot.number() as Number,
                    };
                    let handed = Handed { number, resource: part.resource(own), lock: id };
                    self.hand_out(part, handed, after);
                }
            }
            Step::Lost(Defeat::TooLate) if lock.value == FORMER_VALUE && part.revives() => {
                lock.proposes = true;
            }
            Step::Lost(_) => self.give_up(part, own),
            Step::Propose => lock.proposes = true,
            Step::Join(masters) => {
                if let Some((round, ballot)) = attempt.join(masters) {
                    let number = ballot.number() as Number;
                    let kind = further(attempt, round);
                    self.contenders[own].send(id, kind, number, masters, now);
                }
            }
            Step::Wait | Step::AskOthers | Step::AwaitCopies => {}
        }
    }

    /// A ballot is proposed once more.
    pub(crate) fn propose(&mut self, part: &Part, own: usize, number: Number) {
        let now = self.now;
        let Some(lock) = self.contenders[own].open_mut() else { return };
        let id = lock.id;
        lock.proposes = false;
        let Stage::Attempt(attempt) = &mut lock.stage else { return };
        let Some((round, masters)) = ballot(number).and_then(|ballot| attempt.propose(ballot))
        else {
            return;
        };
        let (kind, number) = match part.broken {
            Some(Broken::ResumedFromExtension) => (Kind::Extend(0), 0),
            _ => (further(attempt, round), number),
        };
        self.contenders[own].send(id, kind, number, masters, now);
        self.proposed(part, own, id, round);
    }

    /// The node timeout of the attempt has passed.
    pub(crate) fn time_out(&mut self, part: &Part, own: usize) {
        let clock = self.contenders[own].clock(part, self.now);
        let Some(id) = self.contenders[own].open().map(|lock| lock.id) else { return };
        self.attempt(part, own, id, |attempt| attempt.time_out(clock));
        self.sweep(part, own);
    }

    /// The lock that is wanted or held is given back.
    pub(crate) fn give_up(&mut self, part: &Part, own: usize) {
        let (clock, now) = (self.contenders[own].clock(part, self.now), self.now);
        let Some(lock) = self.contenders[own].open_mut() else { return };
        let id = lock.id;
        let mut release = match &lock.stage {
            // It is left to its holder.
            Stage::Attempt(attempt) if attempt.origin() == Origin::Resumed => {
                return self.contenders[own].locks.retain(|lock| lock.id != id);
            }
            Stage::Attempt(attempt) => {
                let ledger = attempt.clone().into_ledger();
                released(ledger.pending(), ledger, false, clock)
            }
            Stage::Lease(lease) => {
                let was_lost = lease.deadline().is_none_or(|deadline| deadline <= clock);
                let mut lease = lease.clone();
                lease.end(LostReason::Released);
                released(lease.unanswered(), lease.into_ledger(), was_lost, clock)
            }
            Stage::Release(_) => return,
        };
        let places = release.send();
        if places.is_empty() {
            release.time_out();
        }
        lock.stage = Stage::Release(release);
        let masters = places.iter().map(|place| part.master(own, place)).collect();
        self.contenders[own].send(id, Kind::Release, 0, masters, now);
        self.sweep(part, own);
    }

    /// The holder wants more time.
    pub(crate) fn extend(&mut self, own: usize) {
        let now = self.now;
        let Some(lock) = self.contenders[own].open_mut() else { return };
        let (id, Stage::Lease(lease)) = (lock.id, &mut lock.stage) else { return };
        let extend = lease.extend(timing());
        self.contenders[own].send(id, Kind::Extend(extend.number), 0, extend.masters, now);
    }

    /// A release that was not acknowledged is sent again.
    pub(crate) fn release_again(&mut self, part: &Part, own: usize, id: u8, master: usize) {
        let (place, now) = (part.place(own, master), self.now);
        if let Some(Lock { stage: Stage::Release(release), .. }) = self.contenders[own].lock(id)
            && release.send_again(place)
        {
            let master = MasterSet::from_iter([master]);
            self.contenders[own].send(id, Kind::Release, 0, master, now);
        }
    }

    /// Whether a release can be sent again.
    pub(crate) fn has_failed(&self, part: &Part, own: usize, lock: &Lock, master: usize) -> bool {
        let is_asked = self.asked(part, own).contains(master);
        match &lock.stage {
            Stage::Release(release) => is_asked && release.has_failed(part.place(own, master)),
            _ => false,
        }
    }

    /// A contender learns that a master has lost its data.
    pub(crate) fn learn(&mut self, part: &Part, own: usize, master: usize) {
        let clock = self.contenders[own].clock(part, self.now);
        self.contenders[own].votes[master] = None;
        for request in &mut self.contenders[own].links[master] {
            request.counts = false;
        }
        let Some(lock) = self.contenders[own].open_mut() else { return };
        let id = lock.id;
        match &mut lock.stage {
            Stage::Attempt(_) => {
                self.attempt(part, own, id, |attempt| {
                    attempt.disown(master, Cause::NotConnected("".into()), clock)
                });
            }
            Stage::Lease(lease) => lease.disown(master, clock),
            Stage::Release(_) => {}
        }
        self.sweep(part, own);
    }

    /// Removes locks of which nothing is left to do: none of their keys may be there any more.
    fn sweep(&mut self, part: &Part, own: usize) {
        let is_over = |lock: &&Lock| matches!(&lock.stage, Stage::Release(one) if one.is_over());
        let over = self.contenders[own].locks.iter().filter(is_over);
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

    /// Whether a key is on a master, or comes to be, and no release is on its way behind it.
    fn is_left(&self, part: &Part, own: usize, master: usize, id: u8, value: Value) -> bool {
        let link = &self.contenders[own].links[master];
        let coming = link.iter().rfind(|one| one.lock == id && one.reply.is_none());
        match coming.map(|request| request.kind) {
            Some(kind) => !matches!(kind, Kind::Release | Kind::Score | Kind::Ballot(_)),
            None => self.masters[master].holds(part.resource(own), value),
        }
    }
}

/// An answer on its way into a machine.
struct Vote<'a> {
    request: &'a Request,
    place: usize,
    heard: Heard<'a>,
    sent: Instant,
    now: Instant,
}

impl Vote<'_> {
    fn attempt(&self, attempt: &mut Attempt) -> Step {
        let Self { request, place, heard, sent, now } = *self;
        match request.kind {
            Kind::Acquire | Kind::Resume(1) => attempt.vote(place, heard, sent, now),
            Kind::Ballot(round) | Kind::Resume(round) => {
                attempt.ballot_vote(round, place, heard, sent, now)
            }
            Kind::Score => attempt.score_vote(place, heard, now),
            _ => Step::Wait,
        }
    }

    /// Returns the masters that are given the key again.
    fn lease(&self, lease: &mut HeldLease) -> MasterSet {
        let Self { request, place, heard, sent, now } = *self;
        match request.kind {
            Kind::Acquire | Kind::Resume(1) => lease.acquired(place, heard, sent, now),
            Kind::Extend(number) => return lease.extended(number, place, heard, sent, now).readd,
            Kind::Readd => lease.readded(place, heard, sent, now),
            Kind::Ballot(_) | Kind::Resume(_) | Kind::Score => {
                lease.balloted(place, heard, sent, now)
            }
            Kind::Release => {}
        }
        MasterSet::EMPTY
    }

    fn release(&self, release: &mut Release) {
        let _ = match self.request.kind {
            Kind::Acquire | Kind::Resume(1) => release.acquired(self.place, self.heard.answer),
            Kind::Release => release.vote(self.place, self.heard.answer, Duration::ZERO, self.now),
            _ => None,
        };
    }
}

fn released(unanswered: MasterSet, ledger: Ledger, was_lost: bool, now: Instant) -> Release {
    let life = Duration::from_millis(timing().px);
    Release::new(ledger, unanswered, life, was_lost, now)
}

/// What carries a further ballot of an attempt.
fn further(attempt: &Attempt, round: u32) -> Kind {
    match attempt.origin() {
        Origin::Acquired => Kind::Ballot(round),
        Origin::Resumed => Kind::Resume(round),
    }
}

pub(crate) fn ballot(number: Number) -> Option<Ballot> {
    Ballot::new(u64::from(number))
}

fn why() -> Cause {
    Cause::NotAdmitted(NotAdmitted::new(WhyNot::Restarted).into())
}
