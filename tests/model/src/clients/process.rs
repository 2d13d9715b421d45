//! A process: one client as it ships, its callers and its connections. The rest of it does what any
//! shell does.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use redlock_core::admission::Names;
use redlock_core::{Facts, Instant, Key, NodeEvent, Op, QueueTicket};
use redlock_protocol::LostReason;
use redlock_protocol::client::Client;
use redlock_protocol::client::callers::Caller as Request;
use redlock_protocol::client::draws::{Draw, Draws};
use redlock_protocol::client::effects::{Effect, Effects};
use redlock_protocol::client::ids::{HoldId, RequestId, UseId};
use redlock_protocol::client::input::{Input, Returned};
use redlock_protocol::client::table::Table;
use redlock_protocol::client::terms::Terms;
use redlock_protocol::terms::{HoldOptions, Limits};
use redlock_protocol::token::lifecycle::Stage;
use redlock_protocol::waiting::Ask;

use super::broken::Broken;
use super::moment::{Cell, Entry, Present};
use super::part::Part;

/// The key that all callers want.
pub(crate) const KEY: &[u8] = b"k";

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    number: usize,
    client: Client,
    entries: Table<RequestId, Entry>,
    /// In order of arrival.
    pub(crate) callers: Vec<Caller>,
    pub(crate) links: Vec<Link>,
    /// How many tokens were drawn.
    drawn: u64,
    /// When there is something to do without a message.
    pub(crate) due: Option<Instant>,
    /// How many leases of others have passed it since it has a place.
    pub(crate) passed: usize,
    pub(crate) is_stopped: bool,
    pub(crate) is_closed: bool,
    /// Names the alarms of the client, which it does not hash.
    alarms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Caller {
    Waits(RequestId),
    Holds(RequestId, HoldId),
    Done,
}

/// A connection to one master.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Link {
    pub(crate) requests: VecDeque<Sent>,
    pub(crate) pushes: VecDeque<Push>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Push {
    Changed,
    Called(redlock_core::Call),
}

/// A request on its way.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) op: Op,
    pub(crate) ticket: u128,
    pub(crate) at: Instant,
    /// Names all of it.
    name: u64,
}

impl Sent {
    fn new(op: Op, ticket: u128, at: Instant) -> Self {
        let mut hasher = DefaultHasher::new();
        format!("{:?}", op.verb()).hash(&mut hasher);
        (op.token(), op.entry(), op.exit(), ticket, at).hash(&mut hasher);
        Self { op, ticket, at, name: hasher.finish() }
    }
}

impl PartialEq for Sent {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Sent {}

impl Hash for Sent {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.name.hash(hasher);
    }
}

impl Push {
    pub(crate) fn event(self) -> NodeEvent {
        match self {
            Self::Changed => NodeEvent::KeyChanged(KEY.into()),
            Self::Called(call) => NodeEvent::Called(call, KEY.into()),
        }
    }
}

impl Process {
    pub(crate) fn new(part: &Part, number: usize, now: Instant) -> Self {
        let terms = Terms {
            names: Names::new((0..part.masters).map(|master| format!("m{master}"))),
            limits: limits(part),
            prefix: Vec::new(),
            has_quarantine: false,
            fencing: false,
            queue: true,
            hand_over: part.hand_over,
            seed: number as u64,
        };
        let mut process = Self {
            number,
            client: Client::new(terms),
            entries: Table::default(),
            callers: Vec::new(),
            links: vec![Link::default(); part.masters],
            drawn: 0,
            due: None,
            passed: 0,
            is_stopped: false,
            is_closed: false,
            alarms: 0,
        };
        process.input(part, Input::Connect, now);
        for master in 0..part.masters {
            process.connected(part, master, now);
        }
        process
    }

    pub(crate) fn connected(&mut self, part: &Part, master: usize, now: Instant) {
        let mut facts = Facts::master(format!("{master:040x}"));
        (facts.tracks, facts.no_queue) = (true, None);
        facts.record = Ok(Box::default());
        facts.time_us = Some(now.as_nanos() / 1_000);
        self.input(part, Input::Event(master, NodeEvent::Up(facts)), now);
    }

    /// The ticket of the process in the queue.
    pub(crate) fn ticket(&self) -> QueueTicket {
        let draws = Draws::new(self.number as u64);
        QueueTicket::new(draws.number(Draw::QueueTicket, Instant::ORIGIN))
    }

    pub(crate) fn waits(&self) -> bool {
        !self.is_stopped && self.callers.iter().any(|one| matches!(one, Caller::Waits(_)))
    }

    pub(crate) fn open(&self) -> usize {
        self.callers.iter().filter(|one| **one != Caller::Done).count()
    }

    pub(crate) fn holder(&self) -> Option<usize> {
        self.callers.iter().position(|one| matches!(one, Caller::Holds(..)))
    }

    /// Whether a caller has a valid lock.
    pub(crate) fn is_held(&self, now: Instant) -> bool {
        let held = self.callers.iter().filter_map(|caller| match caller {
            Caller::Holds(id, _) => self.entries.get(*id)?.cell,
            _ => None,
        });
        !self.is_stopped && held.into_iter().any(|cell| cell.ended.is_none() && cell.deadline > now)
    }

    pub(crate) fn ask(&mut self, part: &Part, now: Instant) {
        let caller = self.callers.len();
        let id = self.entries.insert(Entry { caller, cell: None, is_gone: false });
        self.callers.push(Caller::Waits(id));
        let Ok(timing) = limits(part).timing(None, Duration::from_secs(60)) else { return };
        let request = Request {
            resource: KEY.into(),
            key: Key::from(KEY),
            ttl: None,
            timing,
            options: HoldOptions { auto_extend: false, ..HoldOptions::default() },
            label: None,
            asked_at: now,
            until: part.wait.map(|wait| now.saturating_add(Duration::from_millis(wait))),
            resume: None,
            key_use: UseId::default(),
            is_attempted: false,
            is_gone: false,
            has_failed: false,
            ask: Ask::All,
        };
        self.input(part, Input::Acquire(id, request), now);
        self.settle(part, now);
    }

    pub(crate) fn cancel(&mut self, part: &Part, caller: usize, now: Instant) {
        let Caller::Waits(id) = self.callers[caller] else { return };
        self.callers[caller] = Caller::Done;
        if let Some(entry) = self.entries.get_mut(id) {
            entry.is_gone = true;
        }
        if part.broken != Some(Broken::CancelIgnored) {
            self.input(part, Input::Withdrawn(id), now);
        }
        self.settle(part, now);
    }

    pub(crate) fn give_back(&mut self, part: &Part, caller: usize, now: Instant) {
        let Caller::Holds(id, hold) = self.callers[caller] else { return };
        self.callers[caller] = Caller::Done;
        let cell = self.entries.get_mut(id).and_then(|entry| entry.cell.as_mut());
        let lost = cell.and_then(|cell| {
            if cell.deadline <= now {
                cell.ended.get_or_insert(Some(LostReason::NotExtended));
            }
            *cell.ended.get_or_insert(None)
        });
        let returned = Returned { hold, lost, is_token_known: false, reply: None };
        self.input(part, Input::Returned(returned), now);
        self.settle(part, now);
    }

    pub(crate) fn close(&mut self, part: &Part, now: Instant) {
        self.is_closed = true;
        self.input(part, Input::Close(Duration::from_secs(5), None), now);
        for caller in &mut self.callers {
            *caller = Caller::Done;
        }
        self.settle(part, now);
    }

    /// Passes one input to the client, and carries out what follows.
    pub(crate) fn input(&mut self, part: &Part, input: Input<'_>, now: Instant) {
        let mut effects = Effects::default();
        self.handle(input, now, &mut effects);
        for effect in effects.list {
            self.carry_out(part, effect, now);
        }
    }

    fn handle(&mut self, input: Input<'_>, now: Instant, effects: &mut Effects) {
        let Self { client, entries, drawn, number, .. } = self;
        client.handle(input, &mut Present { now, entries, drawn, number: *number }, effects);
    }

    /// Takes turns until nothing is left to do now.
    pub(crate) fn settle(&mut self, part: &Part, now: Instant) {
        for _ in 0..100 {
            self.input(part, Input::Turn, now);
            let mut effects = Effects::default();
            // For a client that sees no time, no alarm is due.
            let is_deaf = part.broken == Some(Broken::AlarmsIgnored);
            let seen = if is_deaf { Instant::ORIGIN } else { now };
            self.handle(Input::Alarms { seen }, now, &mut effects);
            let wants_turn = effects.wants_turn;
            for effect in effects.list {
                self.carry_out(part, effect, now);
            }
            if !wants_turn {
                break;
            }
        }
        self.due = self.client.next_due();
        let mut hasher = DefaultHasher::new();
        format!("{:?}", self.client).hash(&mut hasher);
        self.alarms = hasher.finish();
    }

    fn carry_out(&mut self, part: &Part, effect: Effect, now: Instant) {
        match effect {
            Effect::Send { masters, op, ticket, at } => {
                for master in masters.iter() {
                    if let Some(op) = self.bend(part, &op) {
                        let sent = Sent::new(op, ticket.pack(), at);
                        self.links[master].requests.push_back(sent);
                    }
                }
            }
            Effect::Won { caller, hold, .. } => self.won(part, caller, hold, now),
            Effect::Failed(id, _) | Effect::Refused(id, _) => {
                if let Some(entry) = self.entries.remove(id) {
                    self.callers[entry.caller] = Caller::Done;
                }
            }
            Effect::Forgotten(id) => drop(self.entries.remove(id)),
            Effect::Over(id) => {
                if let Some(entry) = self.entries.remove(id)
                    && matches!(self.callers[entry.caller], Caller::Holds(..))
                {
                    self.callers[entry.caller] = Caller::Done;
                }
            }
            _ => {}
        }
    }

    fn won(&mut self, part: &Part, id: RequestId, hold: HoldId, now: Instant) {
        let stage = self.client.locks().get(hold.lock).map(|lock| lock.machine().stage());
        let deadline = match stage {
            Some(Stage::Lease(lease)) => lease.deadline(),
            _ => None,
        };
        let entry = self.entries.get_mut(id).filter(|entry| !entry.is_gone);
        let Some((entry, deadline)) = entry.zip(deadline) else {
            if part.broken != Some(Broken::UntakenKept) {
                self.input(part, Input::Untaken(hold), now);
            }
            return;
        };
        entry.cell = Some(Cell { deadline, ended: None });
        let caller = entry.caller;
        let caller = match part.broken {
            Some(Broken::LastFirst) => self.callers.len() - 1,
            _ => caller,
        };
        self.callers[caller] = Caller::Holds(id, hold);
    }

    /// Returns the request that a mutant sends instead.
    fn bend(&self, part: &Part, op: &Op) -> Option<Op> {
        let exit = op.exit();
        match part.broken {
            Some(Broken::PlaceKept) if exit.is_some_and(|exit| exit.token.is_none()) => None,
            Some(Broken::CallKept)
                if exit.is_some_and(|exit| exit.token.is_none()) && !self.waits() =>
            {
                None
            }
            Some(Broken::ShutdownKeepsPlace)
                if self.is_closed && exit.is_some_and(|exit| exit.gives_up_place) =>
            {
                Some(op.without_exit())
            }
            Some(Broken::CallsNone) if exit.is_some_and(|exit| exit.token.is_some()) => {
                Some(op.without_exit())
            }
            _ => Some(op.clone()),
        }
    }
}

fn limits(part: &Part) -> Limits {
    Limits {
        ttl: Some(Duration::from_millis(part.ttl)),
        max_ttl: None,
        node_timeout: None,
        clock_guard: None,
        connect_timeout: Duration::from_secs(1),
    }
}
