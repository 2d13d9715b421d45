//! `World`: one master with all its connections, and what happens there when time passes.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redlock_core::{Answer, Cause, Clock, Instant, NodeState, VoteSlot};
use tokio::task::JoinHandle;

use super::link::{Changed, Link};
use super::master::Master;

/// What is told to others once the lock on the world is free again: they may look back at it.
#[derive(Default)]
pub(super) struct Outbox {
    pub(super) votes: Vec<(VoteSlot, Answer)>,
    pub(super) lost: Vec<VoteSlot>,
    pub(super) changed: Vec<Changed>,
}

impl Outbox {
    pub(super) fn deliver(self) {
        self.votes.into_iter().for_each(|(slot, answer)| slot.cast(answer));
        // A slot that is dropped casts *unknown*.
        drop(self.lost);
        self.changed.iter().for_each(|changed| changed());
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
    /// Somebody listens at the address.
    pub(super) listening: bool,
    pub(super) incarnation: u64,
    /// What wakes the world up next, and when.
    pub(super) timer: Option<(Instant, JoinHandle<()>)>,
}

impl World {
    pub(super) fn new(clock: Clock, seed: u64) -> Self {
        Self {
            rng: StdRng::seed_from_u64(seed),
            master: Master::new(clock.now()),
            clock,
            links: Vec::new(),
            held: false,
            listening: true,
            incarnation: 1,
            timer: None,
        }
    }

    /// A further connection; gives its number.
    pub(super) fn connect(&mut self) -> usize {
        self.links.push(Link::new(NodeState::Up { incarnation: self.incarnation }));
        self.links.len() - 1
    }

    pub(super) fn state(&self, link: usize) -> NodeState {
        match &self.links[link] {
            link if link.connected => NodeState::Up { incarnation: self.incarnation },
            _ if !self.listening => NodeState::Down(Cause::ConnectionRefused),
            link if link.partitioned => NodeState::Down(Cause::ConnectionClosed),
            _ => NodeState::Down(Cause::TimedOut),
        }
    }

    pub(super) fn cut(&mut self, link: usize, outbox: &mut Outbox) {
        outbox.lost.extend(self.links[link].cut(&mut self.rng));
    }

    pub(super) fn cut_all(&mut self, outbox: &mut Outbox) {
        (0..self.links.len()).for_each(|link| self.cut(link, outbox));
    }

    /// The process ends, and another takes its place.
    pub(super) fn restart(&mut self, keep_data: bool, outbox: &mut Outbox) {
        self.cut_all(outbox);
        // What the dead process had not read yet, nobody will ever read.
        self.links.iter_mut().for_each(|link| link.requests.clear());
        self.incarnation += 1;
        self.held = false;
        if !keep_data {
            self.master.flush();
        }
    }

    /// Does all that is due by now.
    pub(super) fn settle(&mut self, outbox: &mut Outbox) {
        let now = self.clock.now();
        self.reconnect(now);
        while let Some(link) = self.next_request().filter(|(due, _)| *due <= now) {
            self.carry_out(link.1, now);
        }
        for link in &mut self.links {
            while link.replies.front().is_some_and(|reply| reply.due <= now) {
                outbox
                    .votes
                    .extend(link.replies.pop_front().map(|reply| (reply.slot, reply.answer)));
            }
        }
        for at in 0..self.links.len() {
            let state = self.state(at);
            let link = &mut self.links[at];
            if link.told != state {
                link.told = state;
                outbox.changed.extend(link.listeners.iter().map(|(_, changed)| changed.clone()));
            }
        }
    }

    /// When there will be something to do again.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let request = self.next_request().map(|(due, _)| due);
        let reply = self.links.iter().filter_map(|link| Some(link.replies.front()?.due)).min();
        [request, reply].into_iter().flatten().min()
    }

    /// The request that arrives first, and its link; none while nobody reads.
    fn next_request(&self) -> Option<(Instant, usize)> {
        if self.held {
            return None;
        }
        let first = |(at, link): (usize, &Link)| Some((link.requests.front()?.due, at));
        self.links.iter().enumerate().filter_map(first).min()
    }

    fn carry_out(&mut self, at: usize, now: Instant) {
        let link = &mut self.links[at];
        let Some(request) = link.requests.pop_front() else { return };
        let answer = self.master.execute(now, &request.op);
        if let Some(slot) = request.slot {
            link.reply(slot, answer, now, &mut self.rng);
        }
    }

    /// Makes connections where that is possible. What is left of the one before arrives now or
    /// never: nothing of it may follow what is submitted on the new one.
    fn reconnect(&mut self, now: Instant) {
        if self.held || !self.listening {
            return;
        }
        for at in 0..self.links.len() {
            if !self.links[at].connected && self.links[at].passable() {
                for _ in 0..self.rng.random_range(0..=self.links[at].requests.len()) {
                    self.carry_out(at, now);
                }
                self.links[at].requests.clear();
                self.links[at].connected = true;
            }
        }
    }
}
