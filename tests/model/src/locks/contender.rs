//! A contender: its locks, each with the machine that ships, and what the driver does for them.
//! Here the mutants lie to the machines.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use redlock_core::{Instant, Ttl};

use super::broken::Broken;
use super::part::Part;
use super::wire::{Kind, Reply, Request, Value};
use super::world::{World, Wrong};
use crate::lost::LostReason;
use crate::protocol::attempt::{Attempt, Origin, Step};
use crate::protocol::lease::HeldLease;
use crate::protocol::ledger::Ledger;
use crate::protocol::master_set::MasterSet;
use crate::protocol::release::Release;
use crate::settings::{HoldOptions, Timing};

/// The TTL, whatever its length in ticks.
const TTL: Duration = Duration::from_millis(10);
/// What clocks show at the start: one that loses ticks shows nothing before its origin.
const EPOCH: u8 = 8;
/// The first lock of the first contender.
pub(crate) const FIRST: u8 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Contender {
    /// How many ticks its clock has lost.
    pub(crate) lost: u8,
    /// How many attempts it has begun.
    pub(crate) begun: u8,
    /// The oldest first.
    pub(crate) locks: Vec<Lock>,
    /// By master: what was sent, the oldest first.
    pub(crate) links: Vec<Vec<Request>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lock {
    pub(crate) id: u8,
    pub(crate) value: Value,
    pub(crate) stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    Attempt(Attempt),
    Lease(HeldLease),
    Release(Release),
}

/// The latencies in a machine tell no two states apart: nothing depends on them.
impl Hash for Lock {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
        self.value.hash(state);
        self.stage.hash(&mut WithoutLatencies(state));
    }
}

/// Leaves out numbers of 32 bits. Those are the nanoseconds of durations, which are latencies or
/// the same in all states, and the numbers of extensions, which follow from how many are left.
struct WithoutLatencies<'a, H>(&'a mut H);

impl<H: Hasher> Hasher for WithoutLatencies<'_, H> {
    fn finish(&self) -> u64 {
        self.0.finish()
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    fn write_u32(&mut self, _: u32) {}
}

impl Contender {
    pub(crate) fn new(part: &Part) -> Self {
        let links = vec![Vec::new(); part.masters];
        Self { lost: 0, begun: 0, locks: Vec::new(), links }
    }

    /// What its clock shows.
    fn tick(&self, now: u8) -> u8 {
        EPOCH + now - self.lost
    }

    pub(crate) fn clock(&self, part: &Part, now: u8) -> Instant {
        at(part, self.tick(now))
    }

    /// The lock that is wanted or held: there is one at most.
    pub(crate) fn open(&self) -> Option<&Lock> {
        self.locks.iter().find(|lock| !matches!(lock.stage, Stage::Release(_)))
    }

    pub(crate) fn is_holder(&self, now: Instant) -> bool {
        let is_valid = |lock: &Lock| match &lock.stage {
            Stage::Lease(lease) => lease.deadline().is_some_and(|deadline| deadline > now),
            _ => false,
        };
        self.locks.iter().any(is_valid)
    }

    fn send(&mut self, lock: u8, kind: Kind, masters: MasterSet, sent: u8) {
        let Some(value) = self.lock(lock).map(|lock| lock.value) else { return };
        for master in masters.iter() {
            let request = Request { lock, value, kind, sent, reply: None, is_readable: false };
            self.links[master].push(request);
        }
    }

    fn lock(&mut self, id: u8) -> Option<&mut Lock> {
        self.locks.iter_mut().find(|lock| lock.id == id)
    }
}

fn at(part: &Part, tick: u8) -> Instant {
    let nanos = TTL.as_nanos() as u64 / u64::from(part.ttl);
    Instant::from_nanos(nanos * u64::from(tick))
}

fn timing() -> Timing {
    let ttl = Ttl::new(TTL, TTL).unwrap_or_else(|_| unreachable!("the shortest TTL that there is"));
    Timing { ttl, node_timeout: TTL / 10, px: ttl.px(Duration::ZERO) }
}

fn options() -> HoldOptions {
    HoldOptions { auto_extend: false, ..HoldOptions::default() }
}

impl World {
    /// An attempt begins.
    pub(crate) fn begin(&mut self, part: &Part, own: usize) {
        let now = self.contenders[own].tick(self.now);
        let masters = self.asked(part, own);
        let contender = &mut self.contenders[own];
        let id = FIRST + contender.begun + 8 * own as u8;
        contender.begun += 1;
        let value = if part.broken == Some(Broken::OneValue) { own as u8 } else { id };
        let attempt =
            Attempt::new(masters.len(), Origin::Acquired, timing(), options(), at(part, now));
        contender.locks.push(Lock { id, value, stage: Stage::Attempt(attempt) });
        contender.send(id, Kind::Acquire, masters, now);
    }

    /// The masters that a contender knows of.
    fn asked(&self, part: &Part, own: usize) -> MasterSet {
        match part.broken {
            Some(Broken::MajorityOfReachable) => MasterSet::from_iter([own]),
            _ => MasterSet::all(part.masters),
        }
    }

    /// Which of the masters that a contender knows of this one is.
    fn place(&self, part: &Part, own: usize, master: usize) -> usize {
        master - if part.broken == Some(Broken::MajorityOfReachable) { own } else { 0 }
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
            let again = part.broken == Some(Broken::SentTwice) && request.kind == Kind::Acquire;
            if again {
                let again = Request { reply: None, ..request };
                self.contenders[own].links[master].push(again);
            } else {
                let lost = Request { reply: Some(Reply::Unknown), ..request };
                self.answered(part, own, master, &lost);
            }
        }
    }

    fn answered(&mut self, part: &Part, own: usize, master: usize, request: &Request) {
        let place = self.place(part, own, master);
        let now = self.contenders[own].tick(self.now);
        let from_reply = part.broken == Some(Broken::FromReply);
        let (sent, now) = (at(part, if from_reply { now } else { request.sent }), at(part, now));
        let answer = request.reply.unwrap_or(Reply::Unknown).answer();
        let Some(lock) = self.contenders[own].lock(request.lock) else { return };
        match (&mut lock.stage, request.kind) {
            (Stage::Attempt(attempt), Kind::Acquire) => {
                let step = attempt.vote(place, &answer, sent, now);
                self.decide(part, own, request.lock, step);
            }
            (Stage::Lease(lease), Kind::Acquire) => lease.acquired(place, &answer, sent, now),
            (Stage::Lease(lease), Kind::Extend(number)) => {
                let step = lease.extended(number, place, &answer, sent, now);
                let sent = self.contenders[own].tick(self.now);
                self.contenders[own].send(request.lock, Kind::Readd, step.readd, sent);
            }
            (Stage::Lease(lease), Kind::Readd) => lease.readded(place, &answer, sent, now),
            (Stage::Release(release), Kind::Acquire) => {
                release.acquired(place, &answer);
            }
            (Stage::Release(release), Kind::Release) => {
                release.vote(place, &answer, Duration::ZERO, now);
            }
            (Stage::Release(_) | Stage::Attempt(_), _) => {}
            (Stage::Lease(_), Kind::Release) => unreachable!("a lease was not released yet"),
        }
        self.sweep(own);
    }

    fn decide(&mut self, part: &Part, own: usize, id: u8, step: Step) {
        let now = self.contenders[own].clock(part, self.now);
        let Some(lock) = self.contenders[own].lock(id) else { return };
        let Stage::Attempt(attempt) = &lock.stage else { return };
        match step {
            Step::Won => lock.stage = Stage::Lease(attempt.clone().into_lease(now)),
            Step::Lost(_) => self.give_up(part, own),
            _ => {}
        }
    }

    /// The node timeout of the attempt has passed.
    pub(crate) fn time_out(&mut self, part: &Part, own: usize) {
        let now = self.contenders[own].clock(part, self.now);
        let Some(lock) = self.contenders[own].open() else { return };
        let id = lock.id;
        let Some(Lock { stage: Stage::Attempt(attempt), .. }) = self.contenders[own].lock(id)
        else {
            return;
        };
        let step = attempt.time_out(now);
        self.decide(part, own, id, step);
        self.sweep(own);
    }

    /// The lock that is wanted or held is given back.
    pub(crate) fn give_up(&mut self, part: &Part, own: usize) {
        let sent = self.contenders[own].tick(self.now);
        let now = at(part, sent);
        let Some(id) = self.contenders[own].open().map(|lock| lock.id) else { return };
        let Some(lock) = self.contenders[own].lock(id) else { return };
        let mut release = match &lock.stage {
            Stage::Attempt(attempt) => {
                let ledger = attempt.clone().into_ledger();
                released(ledger.pending(), ledger, false, now)
            }
            Stage::Lease(lease) => {
                let was_lost = lease.deadline().is_none_or(|deadline| deadline <= now);
                let mut lease = lease.clone();
                lease.end(LostReason::Released);
                released(lease.unanswered(), lease.into_ledger(), was_lost, now)
            }
            Stage::Release(_) => return,
        };
        let places = release.send();
        if places.is_empty() {
            release.time_out();
        }
        lock.stage = Stage::Release(release);
        let shift = if part.broken == Some(Broken::MajorityOfReachable) { own } else { 0 };
        let masters = places.iter().map(|place| place + shift).collect();
        self.contenders[own].send(id, Kind::Release, masters, sent);
        self.sweep(own);
    }

    /// The holder wants more time.
    pub(crate) fn extend(&mut self, own: usize) {
        let sent = self.contenders[own].tick(self.now);
        let Some(id) = self.contenders[own].open().map(|lock| lock.id) else { return };
        let Some(Lock { stage: Stage::Lease(lease), .. }) = self.contenders[own].lock(id) else {
            return;
        };
        let extend = lease.extend(timing());
        self.contenders[own].send(id, Kind::Extend(extend.number), extend.masters, sent);
    }

    /// A release that was not acknowledged is sent again.
    pub(crate) fn release_again(&mut self, part: &Part, own: usize, id: u8, master: usize) {
        let place = self.place(part, own, master);
        let sent = self.contenders[own].tick(self.now);
        if let Some(Lock { stage: Stage::Release(release), .. }) = self.contenders[own].lock(id)
            && release.send_again(place)
        {
            let master = MasterSet::from_iter([master]);
            self.contenders[own].send(id, Kind::Release, master, sent);
        }
    }

    /// Whether a release can be sent again.
    pub(crate) fn has_failed(&self, part: &Part, own: usize, lock: &Lock, master: usize) -> bool {
        match &lock.stage {
            Stage::Release(release) => {
                self.asked(part, own).contains(master)
                    && release.has_failed(self.place(part, own, master))
            }
            _ => false,
        }
    }

    /// Removes locks of which nothing is left to do: none of their keys may be there any more.
    fn sweep(&mut self, own: usize) {
        let is_over = |lock: &Lock| matches!(&lock.stage, Stage::Release(one) if one.is_over());
        let contender = &self.contenders[own];
        let over: Vec<(u8, Value)> = contender
            .locks
            .iter()
            .filter(|lock| is_over(lock))
            .map(|lock| (lock.id, lock.value))
            .collect();
        for (id, value) in over {
            self.contenders[own].locks.retain(|lock| lock.id != id);
            let is_used = self.contenders[own].locks.iter().any(|lock| lock.value == value);
            let is_left =
                (0..self.masters.len()).any(|master| self.is_left(own, master, id, value));
            if is_left && !is_used {
                self.wrong = Some(Wrong::KeyLeft);
            }
        }
    }

    /// Whether a key is on a master, or comes to be, and no release is on its way behind it.
    fn is_left(&self, own: usize, master: usize, id: u8, value: Value) -> bool {
        let link = &self.contenders[own].links[master];
        let coming = link.iter().rfind(|one| one.lock == id && one.reply.is_none());
        match coming.map(|request| request.kind) {
            Some(kind) => kind != Kind::Release,
            None => self.masters[master].holds(value),
        }
    }
}

fn released(unanswered: MasterSet, ledger: Ledger, was_lost: bool, now: Instant) -> Release {
    let life = Duration::from_millis(timing().px);
    Release::new(ledger, unanswered, life, was_lost, now)
}
