//! `World`: one master with all its connections, and what happens there when time passes.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redlock_core::{
    Answer, Balloted, Cause, Events, Facts, Instant, NodeEvent, Op, QueueTicket, Verb, VoteSlot,
};

use super::agenda::{Agenda, Audience};
use super::link::{Back, Link, Request, Set};
use super::master::Master;
use super::outbox::Outbox;

/// One simulated master with all its connections, without a runtime. Every call passes the time to
/// it, and [`World::settle`] does all work due by then.
///
/// A [`SimNode`](crate::SimNode) is a connection to such a master for a lock in tokio's time. A
/// program with its own events calls a world directly: after every change it settles the world and
/// delivers the outbox, and it settles the world again at [`World::next_due`].
#[derive(Debug)]
pub struct World {
    pub(super) rng: StdRng,
    pub(super) master: Master,
    pub(super) links: Vec<Link>,
    /// The process is stopped: what arrives waits.
    pub(super) held: bool,
    /// The server listens at the address.
    pub(super) listening: bool,
    /// The facts that the server process reports about itself.
    pub(super) facts: Facts,
    /// Connections with requests on their way, and those with replies.
    pub(super) arrivals: Agenda,
    returns: Agenda,
    /// Broken connections.
    pub(super) broken: BTreeSet<usize>,
    /// Which connections listen on the channel of a ticket.
    pub(super) callable: Audience<QueueTicket>,
    /// Requests of broken connections that arrive whatever happens to the connection, each at its
    /// time.
    pub(super) strays: BTreeMap<(Instant, u64), (usize, Request)>,
}

impl World {
    /// Creates an empty master that makes its random choices from `seed`.
    pub fn new(seed: u64, now: Instant) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut facts = process(&mut rng);
        (facts.tracks, facts.no_queue) = (true, None);
        Self {
            facts,
            rng,
            master: Master::new(now),
            links: Vec::new(),
            held: false,
            listening: true,
            arrivals: Agenda::default(),
            returns: Agenda::default(),
            broken: BTreeSet::new(),
            callable: Audience::default(),
            strays: BTreeMap::new(),
        }
    }

    /// Creates another connection, and returns its number. Its delays follow from `seed`, or from
    /// the seed of the master.
    pub fn connect(&mut self, seed: Option<u64>) -> usize {
        self.links.push(Link::new(seed.map(StdRng::seed_from_u64)));
        self.links.len() - 1
    }

    /// Sends a request over a connection.
    pub fn submit(
        &mut self,
        link: usize,
        (op, slot): (Op, VoteSlot),
        now: Instant,
        outbox: &mut Outbox,
    ) {
        if let Some(cause) = self.obstacle(link).or_else(|| self.obstacle_to(link, &op)) {
            return outbox.vote(slot, Answer::unsent(cause));
        }
        let is_first = self.links[link].requests.is_empty();
        self.links[link].send(op, slot, now, &mut self.rng);
        if is_first {
            self.expect_request(link);
        }
    }

    /// Reports the events of a connection to `events` too, beginning with its present state.
    /// Returns the number of the listener.
    pub fn listen(
        &mut self,
        link: usize,
        events: Events,
        now: Instant,
        outbox: &mut Outbox,
    ) -> u64 {
        let present = self.present(link, now).into_iter();
        present.for_each(|event| outbox.event((events.clone(), event)));
        let listeners = &mut self.links[link].listeners;
        let number = listeners.last().map_or(0, |(last, _)| last + 1);
        listeners.push((number, events));
        number
    }

    /// Ends a connection from the side of its client, for this listener. The next use makes a new
    /// one.
    pub fn leave(&mut self, link: usize, listener: u64, now: Instant, outbox: &mut Outbox) {
        let listeners = &mut self.links[link].listeners;
        let ended: Vec<_> = listeners.extract_if(.., |(number, _)| *number == listener).collect();
        self.cut(link, now, outbox);
        let cause = Cause::NotConnected("it is not driven any more".into());
        let down = NodeEvent::Down { cause, retries_now: false };
        ended.into_iter().for_each(|(_, events)| outbox.event((events, down.clone())));
    }

    /// Returns the reason for a missing connection. `None` if there is one.
    pub(super) fn obstacle(&self, link: usize) -> Option<Cause> {
        match &self.links[link] {
            link if link.connected => None,
            _ if !self.listening => Some(Cause::ConnectionRefused),
            link if link.partitioned => Some(Cause::ConnectionClosed),
            _ => Some(Cause::TimedOut),
        }
    }

    /// Returns why this request cannot be sent, though there is a connection.
    fn obstacle_to(&self, link: usize, op: &Op) -> Option<Cause> {
        let no_queue = self.facts.no_queue.as_ref().filter(|_| op.entry().is_some());
        let no_queue = no_queue.map(|why| Cause::NotSent(format!("no queue: {why}").into()));
        no_queue.or_else(|| self.links[link].obstacle_to(op))
    }

    /// The events that describe the present connection.
    fn present(&mut self, link: usize, now: Instant) -> Vec<NodeEvent> {
        match self.obstacle(link) {
            None => {
                let mut facts = self.read(now);
                facts.has_barrier = !std::mem::take(&mut self.links[link].lacks_barrier);
                let has_run = self.master.data.record.run.is_some();
                let members = self.members(link).filter(|members| has_run || *members > 0);
                [Some(NodeEvent::Up(facts)), members.map(NodeEvent::Members)]
                    .into_iter()
                    .flatten()
                    .collect()
            }
            Some(cause) => vec![NodeEvent::Down { cause, retries_now: self.connects(link) }],
        }
    }

    pub(super) fn report(&mut self, at: usize, now: Instant, outbox: &mut Outbox) {
        self.links[at].reported = self.obstacle(at);
        for event in self.present(at, now) {
            self.links[at].report(&event).for_each(|event| outbox.event(event));
        }
    }

    /// Does all that is due by `now`.
    pub fn settle(&mut self, now: Instant, outbox: &mut Outbox) {
        self.push_changes(now);
        self.reconnect(now, outbox);
        self.carry_out_strays(now);
        while let Some((_, link)) = self.next_request().filter(|(due, _)| *due <= now) {
            self.carry_out(link, now);
        }
        self.bring_back(now, outbox);
        let mut changed = self.broken.clone();
        changed.retain(|at| self.links[*at].reported != self.obstacle(*at));
        for at in changed {
            self.report(at, now, outbox);
        }
    }

    /// Returns when there will be something to do again.
    pub fn next_due(&mut self) -> Option<Instant> {
        let request = self.next_request().map(|(due, _)| due);
        let first = |at: usize| Some(self.links[at].replies.front()?.due);
        let reply = self.returns.first(first).map(|(due, _)| due);
        let stray = self.strays.keys().next().map(|(due, _)| *due).filter(|_| !self.held);
        [request, reply, stray].into_iter().flatten().min()
    }

    /// The request that arrives first, and its link; `None` while the server does not read.
    fn next_request(&mut self) -> Option<(Instant, usize)> {
        if self.held {
            return None;
        }
        self.arrivals.first(|at| Some(self.links[at].requests.front()?.due))
    }

    fn expect_request(&mut self, at: usize) {
        if let Some(first) = self.links[at].requests.front() {
            self.arrivals.add(first.due, at);
        }
    }

    /// Sends something to a client.
    pub(super) fn send_back(&mut self, at: usize, back: Back, now: Instant) {
        let is_first = self.links[at].replies.is_empty();
        self.links[at].reply(back, now, &mut self.rng);
        if let Some(first) = self.links[at].replies.front().filter(|_| is_first) {
            self.returns.add(first.due, at);
        }
    }

    /// Brings the arrived messages to the clients, in the order of the connections.
    fn bring_back(&mut self, now: Instant, outbox: &mut Outbox) {
        for at in self.returns.take_due(now) {
            let link = &mut self.links[at];
            let mut brought = false;
            while link.replies.front().is_some_and(|reply| reply.due <= now) {
                brought = true;
                match link.replies.pop_front().map(|reply| reply.back) {
                    Some(Back::Answer(slot, answer)) => outbox.vote(slot, answer),
                    Some(Back::Push(event)) => {
                        link.report(&event).for_each(|event| outbox.event(event));
                    }
                    None => {}
                }
            }
            if let Some(first) = link.replies.front().filter(|_| brought) {
                self.returns.add(first.due, at);
            }
        }
    }

    fn carry_out_strays(&mut self, now: Instant) {
        while !self.held
            && let Some(first) = self.strays.first_entry().filter(|first| first.key().0 <= now)
        {
            let (at, request) = first.remove();
            self.carry_out_request(at, request, now);
        }
    }

    fn carry_out(&mut self, at: usize, now: Instant) {
        let Some(request) = self.links[at].requests.pop_front() else { return };
        self.expect_request(at);
        self.carry_out_request(at, request, now);
    }

    fn carry_out_request(&mut self, at: usize, request: Request, now: Instant) {
        let Request { op, set, slot, .. } = request;
        match op.admission_op() {
            None => self.carry_out_op(at, &op, set, slot, now),
            Some(op) => {
                let answer = self.admission(at, op, now);
                if let Some(slot) = slot {
                    self.send_back(at, Back::Answer(slot, answer), now);
                }
            }
        }
        self.push_changes(now);
    }

    fn carry_out_op(&mut self, at: usize, op: &Op, set: Set, slot: Option<VoteSlot>, now: Instant) {
        // A late request arrives over a closed connection, so its ticket has no listener.
        if let Some(entry) = op.entry().filter(|_| slot.is_some()) {
            let ticket = entry.queue.ticket();
            if let Some(former) = self.links[at].listens_for.replace(ticket) {
                self.callable.remove(&former, at);
            }
            self.callable.add(ticket, at);
        }
        let answer = self.master.execute(now, op, set, self.facts.role, &self.callable);
        // Servers differ in whether a client that notifies itself receives the notification before
        // or after the reply.
        if !self.master.calls.is_empty() && self.rng.random() {
            self.call(now);
        }
        if let Some(slot) = slot {
            self.answer(at, op, slot, answer, now);
        }
        self.call(now);
    }

    /// Passes on what was published.
    fn call(&mut self, now: Instant) {
        for (ticket, call, key) in std::mem::take(&mut self.master.calls) {
            for at in self.callable.of(&ticket).to_vec() {
                self.send_back(at, Back::Push(NodeEvent::Called(call, key.clone().into())), now);
            }
        }
    }

    fn answer(&mut self, at: usize, op: &Op, slot: VoteSlot, answer: Answer, now: Instant) {
        if op.verb() == Verb::Watch && self.facts.tracks {
            self.links[at].watched.insert(op.key().to_vec());
            self.master.watchers.add(op.key().to_vec(), at);
        }
        if answer.balloted == Some(Balloted::NoMember) {
            self.send_back(at, Back::Push(NodeEvent::DataLost), now);
        }
        self.send_back(at, Back::Answer(slot, answer), now);
    }

    /// Pushes changes after the reply to the request that caused them. A stopped process pushes
    /// them later.
    fn push_changes(&mut self, now: Instant) {
        if self.held || self.master.changes.is_empty() {
            return;
        }
        for change in std::mem::take(&mut self.master.changes) {
            match change.filter(|_| self.facts.tracks) {
                None if self.facts.tracks => {
                    for at in 0..self.links.len() {
                        self.push(at, NodeEvent::DataLost, now);
                    }
                }
                None => {}
                Some(key) => {
                    for at in self.master.watchers.take(key.as_slice()) {
                        self.links[at].watched.remove(&key);
                        self.push(at, NodeEvent::KeyChanged(key.as_slice().into()), now);
                    }
                }
            }
        }
    }

    fn push(&mut self, at: usize, event: NodeEvent, now: Instant) {
        if self.links[at].connected {
            self.send_back(at, Back::Push(event), now);
        }
    }

    /// Returns `true` if a missing connection is made immediately.
    fn connects(&self, at: usize) -> bool {
        !self.held && self.listening && self.links[at].passable()
    }

    /// Makes connections if possible. Messages of the previous connection arrive now or never,
    /// because none of them may follow a request that is submitted on the new connection. Strays
    /// are the exception.
    fn reconnect(&mut self, now: Instant, outbox: &mut Outbox) {
        let broken: Vec<_> = self.broken.iter().copied().filter(|at| self.connects(*at)).collect();
        for at in broken {
            for _ in 0..self.rng.random_range(0..=self.links[at].requests.len()) {
                self.carry_out(at, now);
            }
            self.links[at].requests.clear();
            self.links[at].connected = true;
            self.broken.remove(&at);
            self.report(at, now, outbox);
        }
    }
}

/// A new server process.
pub(super) fn process(rng: &mut StdRng) -> Facts {
    Facts::master((0..5).map(|_| format!("{:08x}", rng.random::<u32>())).collect::<String>())
}
