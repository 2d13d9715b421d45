//! `World`: one master with all its connections, and what happens there when time passes.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redlock_core::admission::{Identity, ReplId};
use redlock_core::{
    Answer, Balloted, Cause, Clock, Events, Facts, Instant, NodeEvent, Op, Role, Verb, VoteSlot,
};
use tokio::task::JoinHandle;

use super::link::{Back, Link, Request, Set};
use super::master::Master;

/// Votes and events to pass on, in this order, once the lock on the world is free again: their
/// receiver may lock the world.
#[derive(Default)]
pub(super) struct Outbox(Vec<Message>);

enum Message {
    Vote(VoteSlot, Answer),
    /// A slot to drop, which reports that there was no answer.
    Unanswered(VoteSlot),
    Event(Events, NodeEvent),
}

impl Outbox {
    pub(super) fn vote(&mut self, slot: VoteSlot, answer: Answer) {
        self.0.push(Message::Vote(slot, answer));
    }

    pub(super) fn event(&mut self, (events, event): (Events, NodeEvent)) {
        self.0.push(Message::Event(events, event));
    }

    pub(super) fn deliver(self) {
        for message in self.0 {
            match message {
                Message::Vote(slot, answer) => slot.cast(answer),
                Message::Unanswered(slot) => drop(slot),
                Message::Event(events, event) => events.report(event),
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) clock: Clock,
    pub(super) rng: StdRng,
    pub(super) master: Master,
    pub(super) links: Vec<Link>,
    /// The process is stopped: what arrives waits.
    pub(super) held: bool,
    /// The server listens at the address.
    pub(super) listening: bool,
    /// The facts that the server process reports about itself.
    pub(super) facts: Facts,
    /// The task that wakes the world up next, and when.
    pub(super) timer: Option<(Instant, JoinHandle<()>)>,
}

impl World {
    pub(super) fn new(clock: Clock, seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut facts = process(&mut rng);
        (facts.tracks, facts.no_queue) = (true, None);
        Self {
            facts,
            rng,
            master: Master::new(clock.now()),
            clock,
            links: Vec::new(),
            held: false,
            listening: true,
            timer: None,
        }
    }

    /// Creates another connection, and returns its number.
    pub(super) fn connect(&mut self) -> usize {
        self.links.push(Link::new());
        self.links.len() - 1
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

    /// Why this request cannot be sent, though there is a connection.
    pub(super) fn obstacle_to(&self, link: usize, op: &Op) -> Option<Cause> {
        let no_queue = self.facts.no_queue.as_ref().filter(|_| op.entry().is_some());
        let no_queue = no_queue.map(|why| Cause::NotSent(format!("no queue: {why}").into()));
        no_queue.or_else(|| self.links[link].obstacle_to(op))
    }

    /// The events that describe the present connection.
    pub(super) fn present(&mut self, link: usize) -> Vec<NodeEvent> {
        match self.obstacle(link) {
            None => {
                let facts = self.read(self.clock.now());
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

    /// Ends a connection. Unanswered requests become *unknown* before the end is reported.
    pub(super) fn cut(&mut self, at: usize, outbox: &mut Outbox) {
        let was_connected = self.links[at].connected;
        let unanswered = self.links[at].cut(&mut self.rng);
        outbox.0.extend(unanswered.into_iter().map(Message::Unanswered));
        if was_connected {
            self.report(at, outbox);
        }
    }

    fn report(&mut self, at: usize, outbox: &mut Outbox) {
        self.links[at].reported = self.obstacle(at);
        for event in self.present(at) {
            self.links[at].report(&event).for_each(|event| outbox.event(event));
        }
    }

    pub(super) fn cut_all(&mut self, outbox: &mut Outbox) {
        (0..self.links.len()).for_each(|link| self.cut(link, outbox));
    }

    /// Replaces the process with a new one.
    pub(super) fn restart(&mut self, keep_data: bool, outbox: &mut Outbox) {
        self.held = false;
        self.cut_all(outbox);
        // Requests that the dead process has not read are never read.
        self.links.iter_mut().for_each(|link| link.requests.clear());
        let before = std::mem::replace(&mut self.facts, process(&mut self.rng));
        (self.facts.role, self.facts.tracks) = (before.role, before.tracks);
        (self.facts.no_ballots, self.facts.no_queue) = (before.no_ballots, before.no_queue);
        if !keep_data {
            self.master.flush();
        }
        self.master.changes.clear();
    }

    /// Does all that is due by now.
    pub(super) fn settle(&mut self, outbox: &mut Outbox) {
        let now = self.clock.now();
        self.push_changes(now);
        self.reconnect(now, outbox);
        while let Some(link) = self.next_request().filter(|(due, _)| *due <= now) {
            self.carry_out(link.1, now);
        }
        for link in &mut self.links {
            while link.replies.front().is_some_and(|reply| reply.due <= now) {
                match link.replies.pop_front().map(|reply| reply.back) {
                    Some(Back::Answer(slot, answer)) => outbox.vote(slot, answer),
                    Some(Back::Push(event)) => {
                        link.report(&event).for_each(|event| outbox.event(event));
                    }
                    None => {}
                }
            }
        }
        for at in 0..self.links.len() {
            if self.links[at].reported != self.obstacle(at) {
                self.report(at, outbox);
            }
        }
    }

    /// When there will be something to do again.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let request = self.next_request().map(|(due, _)| due);
        let reply = self.links.iter().filter_map(|link| Some(link.replies.front()?.due)).min();
        [request, reply].into_iter().flatten().min()
    }

    /// The request that arrives first, and its link; `None` while the server does not read.
    fn next_request(&self) -> Option<(Instant, usize)> {
        if self.held {
            return None;
        }
        let first = |(at, link): (usize, &Link)| Some((link.requests.front()?.due, at));
        self.links.iter().enumerate().filter_map(first).min()
    }

    fn carry_out(&mut self, at: usize, now: Instant) {
        let Some(request) = self.links[at].requests.pop_front() else { return };
        let Request { op, set, slot, .. } = request;
        match op.admission_op() {
            None => self.carry_out_op(at, &op, set, slot, now),
            Some(op) => {
                let answer = self.admission(at, op, now);
                if let Some(slot) = slot {
                    self.links[at].reply(Back::Answer(slot, answer), now, &mut self.rng);
                }
            }
        }
        self.push_changes(now);
    }

    fn carry_out_op(&mut self, at: usize, op: &Op, set: Set, slot: Option<VoteSlot>, now: Instant) {
        // A late request arrives over a closed connection, so its ticket has no listener.
        if let Some(entry) = op.entry().filter(|_| slot.is_some()) {
            self.links[at].listens_for = Some(entry.queue.ticket());
        }
        let listening: Vec<_> = self.links.iter().filter_map(|link| link.listens_for).collect();
        let answer = self.master.execute(now, op, set, self.facts.role, &listening);
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
            for link in self.links.iter_mut().filter(|link| link.listens_for == Some(ticket)) {
                let event = NodeEvent::Called(call, key.clone().into());
                link.reply(Back::Push(event), now, &mut self.rng);
            }
        }
    }

    fn answer(&mut self, at: usize, op: &Op, slot: VoteSlot, answer: Answer, now: Instant) {
        if op.verb() == Verb::Watch && self.facts.tracks {
            self.links[at].watched.insert(op.key().to_vec());
        }
        let link = &mut self.links[at];
        if answer.balloted == Some(Balloted::NoMember) {
            link.reply(Back::Push(NodeEvent::DataLost), now, &mut self.rng);
        }
        link.reply(Back::Answer(slot, answer), now, &mut self.rng);
    }

    /// Another role. A replica that becomes a master keeps its process, and its data has another
    /// history than before.
    pub(super) fn set_role(&mut self, role: Role, outbox: &mut Outbox) {
        let was = std::mem::replace(&mut self.facts.role, role);
        if was == Role::Replica && role == Role::Master {
            let history = ReplId::new(self.rng.random());
            self.facts.identity = self
                .facts
                .identity
                .map(|Identity { run, .. }| Identity { run, replid: Some(history) });
        }
        self.cut_all(outbox);
    }

    /// Pushes changes after the reply to the request that caused them. A stopped process pushes
    /// them later.
    fn push_changes(&mut self, now: Instant) {
        if self.held {
            return;
        }
        for change in self.master.changes.drain(..).filter(|_| self.facts.tracks) {
            for link in &mut self.links {
                link.push(change.as_deref(), now, &mut self.rng);
            }
        }
    }

    /// Returns `true` if a missing connection is made immediately.
    fn connects(&self, at: usize) -> bool {
        !self.held && self.listening && self.links[at].passable()
    }

    /// Makes connections if possible. Messages of the previous connection arrive now or never,
    /// because none of them may follow a request that is submitted on the new connection.
    fn reconnect(&mut self, now: Instant, outbox: &mut Outbox) {
        for at in 0..self.links.len() {
            if !self.links[at].connected && self.connects(at) {
                for _ in 0..self.rng.random_range(0..=self.links[at].requests.len()) {
                    self.carry_out(at, now);
                }
                self.links[at].requests.clear();
                self.links[at].connected = true;
                self.report(at, outbox);
            }
        }
    }
}

/// A new server process.
fn process(rng: &mut StdRng) -> Facts {
    Facts::master((0..5).map(|_| format!("{:08x}", rng.random::<u32>())).collect::<String>())
}
