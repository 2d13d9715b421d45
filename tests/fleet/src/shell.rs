//! `Shell`: one client, its callers and its connections. It sends, keeps one alarm and answers. All
//! rules of the protocol are in the client.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use redlock_core::admission::{Identity, Names};
use redlock_core::{Answer, Cause, Events, Instant, Key, Op, Resource, Sink, VoteSlot};
use redlock_protocol::LostReason;
use redlock_protocol::client::Client;
use redlock_protocol::client::callers::Caller;
use redlock_protocol::client::effects::{Effect, Effects, Failed, Fence};
use redlock_protocol::client::ids::{HoldId, RequestId, Ticket};
use redlock_protocol::client::input::{Input, Returned};
use redlock_protocol::client::moment::Acceptance;
use redlock_protocol::client::table::Table;
use redlock_protocol::client::terms::Terms;
use redlock_protocol::terms::{HoldOptions, Limits, Timing};
use redlock_protocol::token::lifecycle::Stage;
use redlock_protocol::waiting::Ask;
use redlock_testkit::{Outbox, World};

use crate::cell::{Cell, Ended, Entry, Present};
use crate::flaws::Broken;
use crate::mail::{Mail, Signal};
use crate::story::{Setup, TTL};
use crate::streams::{Of, Stream};

/// The longest sleep while a lock is held, because timers stop while the machine is suspended.
const NAP_MAX: Duration = Duration::from_secs(1);

/// What a caller is told.
#[derive(Debug)]
pub(crate) enum Told {
    Won { caller: usize, id: RequestId, hold: HoldId, fencing_token: Option<u64> },
    Failed { caller: usize, failed: Box<Failed> },
    Refused { caller: usize },
    Lost { caller: usize, reason: LostReason },
}

enum Outgoing {
    Request(usize, Op, Ticket, Instant),
    Admitted(usize, Option<Identity>),
}

/// A connection to one master, and the number of its listener there.
type Link = (usize, u64);

pub(crate) struct Shell {
    client: Client,
    effects: Effects,
    entries: Table<RequestId, Entry>,
    mail: Arc<Mail>,
    links: Vec<Link>,
    outgoing: Vec<Outgoing>,
    /// The masters to write to before the others, as bits.
    first: u32,
    tokens: Stream,
    nonces: Stream,
    timing: Timing,
    pub(crate) told: Vec<Told>,
    /// When to take a turn at the latest.
    pub(crate) alarm: Option<Instant>,
    pub(crate) broken: Option<Broken>,
}

/// The number of a process, and of the client that runs in it: a killed one is followed by another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number {
    pub(crate) process: usize,
    pub(crate) life: usize,
}

impl Shell {
    pub(crate) fn new(
        (seed, setup): (u64, &Setup),
        Number { process, life }: Number,
        names: Names,
        ready: Arc<AtomicU64>,
    ) -> Option<Self> {
        let own = life * 64 + process;
        let limits = Limits {
            ttl: Some(TTL),
            max_ttl: Some(TTL),
            node_timeout: setup.node_timeout,
            clock_guard: None,
            connect_timeout: TTL,
        };
        let terms = Terms {
            names,
            limits,
            prefix: Vec::new(),
            has_quarantine: setup.quarantine,
            fencing: setup.fencing,
            queue: setup.queue,
            hand_over: setup.hand_over,
            seed: Stream::new(seed, Of::Client(own)).number(),
        };
        Some(Self {
            client: Client::new(terms),
            effects: Effects::default(),
            entries: Table::default(),
            mail: Mail::new(process, ready),
            links: Vec::new(),
            outgoing: Vec::new(),
            first: 0,
            tokens: Stream::new(seed, Of::Tokens(own)),
            nonces: Stream::new(seed, Of::Nonces(own)),
            timing: limits.timing(None, TTL).ok()?,
            told: Vec::new(),
            alarm: None,
            broken: None,
        })
    }

    /// Opens the connections.
    pub(crate) fn connect(&mut self, links: &[usize], worlds: &mut [World], now: Instant) {
        let mut outbox = Outbox::default();
        for (master, (world, link)) in worlds.iter_mut().zip(links).enumerate() {
            let events = Events::new(self.mail.clone(), master);
            self.links.push((*link, world.listen(*link, events, now, &mut outbox)));
            world.settle(now, &mut outbox);
        }
        outbox.deliver();
        self.input(Input::Connect, now);
    }

    /// The process dies: its connections end, and nobody reads what comes from them.
    pub(crate) fn die(self, worlds: &mut [World], now: Instant) {
        let mut outbox = Outbox::default();
        for ((link, listener), world) in self.links.iter().zip(worlds) {
            world.leave(*link, *listener, now, &mut outbox);
            world.partition(*link, now, &mut outbox);
            world.settle(now, &mut outbox);
        }
        outbox.deliver();
        drop(self.mail.take());
    }

    // Requests of callers.

    pub(crate) fn acquire(
        &mut self,
        caller: usize,
        (resource, key): (Resource, Key),
        until: Option<Instant>,
        options: HoldOptions,
        now: Instant,
    ) -> RequestId {
        let id = self.entries.insert(Entry { caller, ..Entry::default() });
        let request = Caller {
            resource,
            key,
            ttl: None,
            timing: self.timing,
            options,
            label: None,
            asked_at: now,
            until,
            resume: None,
            key_use: Default::default(),
            is_attempted: false,
            is_gone: false,
            has_failed: false,
            ask: Ask::All,
        };
        self.input(Input::Acquire(id, request), now);
        id
    }

    /// The caller stops waiting.
    pub(crate) fn withdraw(&mut self, id: RequestId, now: Instant) {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.is_gone = true;
            self.input(Input::Withdrawn(id), now);
        }
    }

    /// The caller takes the lock that it has won. `None` if it comes too late.
    pub(crate) fn accept(&mut self, id: RequestId, hold: HoldId, now: Instant) -> Option<Instant> {
        let cell = self.entries.get_mut(id)?.cell.as_mut()?;
        let (before, deadline) = (cell.accept(now), cell.deadline);
        if before == Acceptance::Awaited {
            self.input(Input::Accepted(hold), now);
        }
        (before != Acceptance::Withdrawn).then_some(deadline)
    }

    /// Until when the lock is held, or how it ended.
    pub(crate) fn check(
        &mut self,
        id: RequestId,
        now: Instant,
    ) -> Result<Instant, Option<LostReason>> {
        let broken = self.broken.as_ref();
        let cell = self.entries.get_mut(id).and_then(|entry| entry.cell.as_mut()).ok_or(None)?;
        if !cell.is_held(now) && broken.is_some_and(Broken::revives) {
            (cell.ended, cell.deadline) = (None, now.saturating_add(TTL));
        }
        match cell.ended {
            None => Ok(cell.deadline),
            Some(Ended::Lost(reason)) => Err(Some(reason)),
            Some(Ended::Released) => Err(None),
        }
    }

    pub(crate) fn extend(&mut self, hold: HoldId, caller: usize, now: Instant) {
        let reply = self.entries.insert(Entry { caller, ..Entry::default() });
        self.input(Input::Extend(hold, TTL, reply), now);
    }

    /// The holder is done. It may wait for the release.
    pub(crate) fn give_back(
        &mut self,
        (id, hold): (RequestId, HoldId),
        (is_token_known, waits): (bool, bool),
        now: Instant,
    ) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        let caller = entry.caller;
        let ended = entry.cell.as_mut().map(|cell| *cell.ended.get_or_insert(Ended::Released));
        let lost = match ended {
            Some(Ended::Lost(reason)) => Some(reason),
            _ => None,
        };
        let reply = waits.then(|| self.entries.insert(Entry { caller, ..Entry::default() }));
        self.input(Input::Returned(Returned { hold, lost, is_token_known, reply }), now);
        self.entries[id].is_gone = true;
        self.forget(id);
    }

    fn forget(&mut self, id: RequestId) {
        if self.entries.get(id).is_some_and(|entry| entry.is_gone && entry.is_over) {
            self.entries.remove(id);
        }
    }

    // The client, and what follows from its inputs.

    fn input(&mut self, input: Input<'_>, now: Instant) {
        let Self { client, effects, entries, tokens, nonces, broken, .. } = self;
        let mut present = Present { now, entries, tokens, nonces, broken: broken.as_ref() };
        client.handle(input, &mut present, effects);
        let mut untaken = Vec::new();
        let mut list = mem::take(&mut self.effects.list);
        list.drain(..).for_each(|effect| untaken.extend(self.carry_out(effect)));
        self.effects.list = list;
        self.effects.counts.clear();
        untaken.into_iter().for_each(|hold| self.input(Input::Untaken(hold), now));
    }

    /// Carries out one effect. Returns a lock whose caller is gone.
    fn carry_out(&mut self, effect: Effect) -> Option<HoldId> {
        match effect {
            Effect::Send { masters, op, ticket, at } => {
                let send = |master| Outgoing::Request(master, op.clone(), ticket, at);
                self.outgoing.extend(masters.iter().map(send));
            }
            Effect::Admitted(master, run) => {
                self.outgoing.push(Outgoing::Admitted(master, run.map(|run| *run)));
            }
            Effect::First(master) => self.first |= 1 << master,
            Effect::Won { caller: id, hold, fence, .. } => return self.won(id, hold, fence),
            Effect::Failed(id, failed) => {
                let caller = self.entries.remove(id).filter(|entry| !entry.is_gone)?.caller;
                self.told.push(Told::Failed { caller, failed });
            }
            Effect::Refused(id, _) => {
                let caller = self.entries.remove(id).filter(|entry| !entry.is_gone)?.caller;
                self.told.push(Told::Refused { caller });
            }
            Effect::Lost(id, reason) => {
                let caller = self.entries.get(id)?.caller;
                self.told.push(Told::Lost { caller, reason });
            }
            Effect::Show(id, lock, None) => {
                let Stage::Lease(lease) = self.client.locks().get(lock)?.machine().stage() else {
                    return None;
                };
                self.entries.get_mut(id)?.cell.as_mut()?.lapse = lease.reason();
            }
            Effect::Over(id) => {
                self.entries.get_mut(id)?.is_over = true;
                self.forget(id);
            }
            Effect::Forgotten(id) | Effect::Released(id, _) | Effect::Prolonged(id, ..) => {
                self.entries.remove(id);
            }
            _ => {}
        }
        None
    }

    fn won(&mut self, id: RequestId, hold: HoldId, fence: Fence) -> Option<HoldId> {
        let Some(entry) = self.entries.get_mut(id).filter(|entry| !entry.is_gone) else {
            return Some(hold);
        };
        let deadline = match self.client.locks().get(hold.lock)?.machine().stage() {
            Stage::Lease(lease) => lease.deadline()?,
            _ => return Some(hold),
        };
        let deadline = self.broken.as_ref().map_or(deadline, |broken| broken.deadline(deadline));
        entry.cell = Some(Cell {
            deadline,
            proven_until: fence.until,
            ended: None,
            lapse: LostReason::NotExtended,
            acceptance: Acceptance::Offered,
        });
        let fencing_token = fence.token.map(|token| token.get());
        self.told.push(Told::Won { caller: entry.caller, id, hold, fencing_token });
        None
    }

    // Turns.

    /// Does what is to be done now. Returns `false` if that does not come to an end.
    pub(crate) fn turn(&mut self, worlds: &mut [World], now: Instant) -> bool {
        for _ in 0..1_000 {
            self.read(now);
            self.input(Input::Turn, now);
            self.send(worlds, now);
            self.read(now);
            self.input(Input::Alarms { seen: now }, now);
            self.send(worlds, now);
            if !mem::take(&mut self.effects.wants_turn) && self.mail.is_empty() {
                let nap = Some(now.saturating_add(NAP_MAX));
                let nap = nap.filter(|_| self.client.locks().valid_leases() > 0);
                self.alarm = [self.client.next_due(), nap].into_iter().flatten().min();
                return true;
            }
        }
        false
    }

    fn read(&mut self, now: Instant) {
        for signal in self.mail.take() {
            match signal {
                Signal::Vote(mut vote) => {
                    let broken = self.broken.as_mut();
                    if broken.is_none_or(|broken| broken.read(&mut vote, now)) {
                        self.input(Input::Vote(&vote), now);
                    }
                }
                Signal::Event(master, event) => self.input(Input::Event(master, *event), now),
            }
        }
        let assumed = self.broken.as_mut().map(|broken| broken.assume(now));
        assumed.into_iter().flatten().for_each(|vote| self.input(Input::Vote(&vote), now));
    }

    /// Hands the requests to the masters: first to those that are to be written to before the
    /// others.
    fn send(&mut self, worlds: &mut [World], now: Instant) {
        let (mut outbox, mut touched) = (Outbox::default(), 0_u32);
        let (first, mut outgoing) = (mem::take(&mut self.first), mem::take(&mut self.outgoing));
        outgoing.sort_by_key(|out| first & 1 << out.master() == 0);
        for out in outgoing.drain(..) {
            let master = out.master();
            let (link, _) = self.links[master];
            touched |= 1 << master;
            match out {
                Outgoing::Admitted(_, run) => worlds[master].set_admitted(link, run),
                Outgoing::Request(_, op, ticket, at) => {
                    let mut op = Some(op);
                    if let Some(broken) = &mut self.broken {
                        op = op.and_then(|op| broken.send(op, ticket, master, worlds, now));
                    }
                    let sink: Arc<dyn Sink> = self.mail.clone();
                    let slot = VoteSlot::new(sink, master, ticket.pack(), at);
                    match op {
                        Some(op) => worlds[master].submit(link, (op, slot), now, &mut outbox),
                        None => slot.cast(Answer::unknown(Cause::TimedOut)),
                    }
                }
            }
        }
        self.outgoing = outgoing;
        for (master, world) in worlds.iter_mut().enumerate() {
            if touched & 1 << master != 0 {
                world.settle(now, &mut outbox);
            }
        }
        outbox.deliver();
    }
}

impl Outgoing {
    fn master(&self) -> usize {
        match self {
            Self::Request(master, ..) | Self::Admitted(master, _) => *master,
        }
    }
}
