//! A contender: its locks, each with the machine that ships, and what is on the way to masters.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use redlock_core::{Instant, Ttl};
use redlock_protocol::master_set::MasterSet;
use redlock_protocol::terms::{HoldOptions, Timing};
use redlock_protocol::token::lease::HeldLease;
use redlock_protocol::token::lifecycle::{Lifecycle, Stage};

use super::part::Part;
use super::queue::Leaving;
use super::wire::{Done, Kind, Number, Request, Token, Value};

/// The TTL, whatever its length in ticks.
const TTL: Duration = Duration::from_millis(10);
/// The time of all clocks at the start, because a clock that loses ticks cannot show a time before
/// its origin.
const EPOCH: u8 = 8;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Contender {
    /// How many ticks its clock has lost.
    pub(crate) lost: u8,
    /// How many attempts it has begun.
    pub(crate) begun: u8,
    /// The oldest first.
    pub(crate) locks: Vec<Lock>,
    /// The sent requests by master, the oldest first.
    pub(crate) links: Vec<Vec<Request>>,
    /// By master: the life in which it votes, as far as this contender knows.
    pub(crate) votes: Vec<Option<u8>>,
    /// For mutants that carry them over: which master has accepted which ballot; with ballot 0,
    /// which has extended the key since.
    pub(crate) accepted: Vec<(usize, Number)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lock {
    pub(crate) id: u8,
    pub(crate) value: Value,
    /// The largest token handed out before this one was requested.
    pub(crate) after: Token,
    /// Whether to propose another ballot.
    pub(crate) proposes: bool,
    /// Whether to query masters that refused again.
    pub(crate) takes: bool,
    /// The entries that its release leaves.
    pub(crate) leaving: Leaving,
    pub(crate) machine: Lifecycle,
}

/// The latencies in a machine tell no two states apart: nothing depends on them.
impl Hash for Lock {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.id, self.value, self.after, self.proposes).hash(state);
        (self.takes, self.leaving).hash(state);
        self.machine.hash(&mut WithoutLatencies(state));
    }
}

/// Leaves out numbers of 32 bits. Those are the nanoseconds of durations, which are latencies or
/// the same in all states, and the numbers of extensions and ballots, which follow from how many
/// are left.
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

impl Lock {
    pub(crate) fn new(id: u8, value: Value, after: Token, machine: Lifecycle) -> Self {
        let leaving = Leaving::Nothing;
        Self { id, value, after, proposes: false, takes: false, leaving, machine }
    }

    /// Returns the id of the lock with this number.
    pub(crate) fn id(own: usize, number: u8) -> u8 {
        number + 8 * own as u8
    }

    /// Whose lock it is.
    pub(crate) fn contender(id: u8) -> usize {
        usize::from(id / 8)
    }

    /// Whether it is wanted or held.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.machine.stage(), Stage::Attempt(_) | Stage::Lease(_))
    }

    pub(crate) fn is_attempt(&self) -> bool {
        self.machine.attempt().is_some()
    }
}

impl Contender {
    pub(crate) fn new(part: &Part) -> Self {
        Self {
            lost: 0,
            begun: 0,
            locks: Vec::new(),
            links: vec![Vec::new(); part.masters],
            votes: vec![Some(0); part.masters],
            accepted: Vec::new(),
        }
    }

    /// Returns the time of its clock.
    pub(crate) fn tick(&self, now: u8) -> u8 {
        EPOCH + now - self.lost
    }

    pub(crate) fn clock(&self, part: &Part, now: u8) -> Instant {
        at(part, self.tick(now))
    }

    /// The lock that is wanted or held: there is one at most.
    pub(crate) fn open(&self) -> Option<&Lock> {
        self.locks.iter().find(|lock| lock.is_open())
    }

    pub(crate) fn open_mut(&mut self) -> Option<&mut Lock> {
        self.locks.iter_mut().find(|lock| lock.is_open())
    }

    pub(crate) fn is_holder(&self, now: Instant) -> bool {
        let lease = self.open().and_then(|lock| lock.machine.lease());
        lease.and_then(HeldLease::deadline).is_some_and(|deadline| deadline > now)
    }

    pub(crate) fn lock(&mut self, id: u8) -> Option<&mut Lock> {
        self.locks.iter_mut().find(|lock| lock.id == id)
    }

    /// Returns the masters that are queried again for the key of this lock.
    pub(crate) fn taking(&self, lock: u8) -> impl Iterator<Item = usize> {
        let links = self.links.iter().enumerate();
        let is_asked =
            move |one: &Request| one.lock == lock && one.kind == Kind::Take && one.reply.is_none();
        links.filter(move |(_, link)| link.iter().any(is_asked)).map(|(master, _)| master)
    }

    /// Returns the request that carries another ballot of an attempt.
    pub(crate) fn further(&mut self, lock: u8, number: u32) -> Kind {
        let is_resumed = self.lock(lock).is_some_and(|lock| lock.machine.is_resumed());
        if is_resumed { Kind::Resume(number) } else { Kind::Ballot(number) }
    }

    /// One request goes to these masters.
    pub(crate) fn send(
        &mut self,
        lock: u8,
        kind: Kind,
        ballot: Number,
        masters: MasterSet,
        now: u8,
    ) {
        let sent = self.tick(now);
        let Some(value) = self.lock(lock).map(|lock| lock.value) else { return };
        for master in masters.iter() {
            let life = self.votes[master];
            let request = Request {
                lock,
                value,
                kind,
                // A master that does not vote gets a request only for the key.
                ballot: if life.is_some() { ballot } else { 0 },
                life: life.unwrap_or(u8::MAX),
                sent,
                counts: life.is_some(),
                done: Done::default(),
                reply: None,
                is_readable: false,
            };
            self.links[master].push(request);
        }
    }
}

pub(crate) fn at(part: &Part, tick: u8) -> Instant {
    let nanos = TTL.as_nanos() as u64 / u64::from(part.ttl);
    Instant::from_nanos(nanos * u64::from(tick))
}

/// Returns the time of all clocks at the start.
pub(crate) fn at_start(part: &Part) -> Instant {
    at(part, EPOCH)
}

pub(crate) fn timing() -> Timing {
    let ttl = Ttl::new(TTL, TTL).unwrap_or_else(|_| unreachable!("the shortest TTL that there is"));
    Timing { ttl, node_timeout: TTL / 10, px: ttl.px(Duration::ZERO) }
}

pub(crate) fn options() -> HoldOptions {
    HoldOptions { auto_extend: false, ..HoldOptions::default() }
}
