//! The possible next actions and their effects.

use redlock_core::Member;
use redlock_protocol::admission::{Event, MasterView, Scored};

use super::broken::Broken;
use super::client::Client;
use super::part::{Loss, Part, TTL};
use super::person::highest;
use super::wire::{FloorRead, Half, Link, Request};
use super::world::{Attempt, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Tick,
    Visit(usize),
    Die(usize),
    Connect(usize, usize),
    Drop(usize, usize),
    Push(usize, usize),
    Arrive(usize, usize),
    Stray(usize),
    Order(usize),
    Lose(usize, Loss),
    Save(usize),
    Step(usize, i64),
    Flip(usize),
    Stop(usize),
    Init,
    Raise,
    Grab(usize, usize),
    Ballot(usize),
}

impl World {
    /// All that may happen next, with the clients' own steps taken as soon as they can be.
    pub(crate) fn actions(&self, part: &Part, actions: &mut Vec<Action>) {
        if self.now < part.horizon {
            actions.push(Action::Tick);
        }
        for client in 0..part.clients {
            self.client_actions(part, client, actions);
        }
        actions.extend((0..self.strays.len()).map(Action::Stray));
        actions.extend((0..self.orders.len()).map(Action::Order));
        if self.may_init(part) {
            actions.push(Action::Init);
        }
        if self.may_raise() {
            actions.push(Action::Raise);
        }
        for master in 0..part.masters {
            self.faults(part, master, actions);
        }
    }

    fn client_actions(&self, part: &Part, client: usize, actions: &mut Vec<Action>) {
        let own = &self.clients[client];
        if !own.alive {
            if self.left.visits > 0 {
                actions.push(Action::Visit(client));
            }
            return;
        }
        if client > 0 {
            actions.push(Action::Die(client));
        }
        for (master, link) in own.links.iter().enumerate() {
            if !self.servers[master].up {
                continue;
            }
            if !link.up {
                actions.push(Action::Connect(client, master));
                continue;
            }
            if link.wire.is_some() {
                actions.push(Action::Arrive(client, master));
            } else if link.pushed && part.broken != Some(Broken::PushIgnored) {
                actions.push(Action::Push(client, master));
            }
            let may_break = part.gradual || link.wire.as_ref().is_some_and(Request::is_script);
            if self.left.drops > 0 && may_break {
                actions.push(Action::Drop(client, master));
            }
            let votes = (part.locks || self.left.ballots > 0 || self.attempt.is_some())
                && self.counts(part, client, master);
            if votes && part.locks && self.may_grab(client, master) {
                actions.push(Action::Grab(client, master));
            }
            if votes && client == 0 && self.may_ballot(master) {
                actions.push(Action::Ballot(master));
            }
        }
    }

    fn may_grab(&self, client: usize, master: usize) -> bool {
        self.clients[client].held[master] == 0 && self.servers[master].key.is_none()
    }

    fn may_ballot(&self, master: usize) -> bool {
        match &self.attempt {
            None => self.left.ballots > 0,
            Some(attempt) => attempt.accepted[master].is_none(),
        }
    }

    /// Returns the world after an action that was offered.
    pub(crate) fn take(&mut self, part: &Part, action: Action) {
        match action {
            Action::Tick => self.tick(part),
            Action::Visit(client) => {
                self.left.visits -= 1;
                self.clients[client] = Client::new(part, true).into();
                if !part.gradual {
                    self.connect_all(part, client);
                }
            }
            Action::Die(client) => {
                for master in 0..part.masters {
                    self.cut(part, client, master);
                }
                self.clients[client] = Client::new(part, false).into();
            }
            Action::Connect(client, master) => {
                if part.broken == Some(Broken::LengthForgotten) {
                    self.forget(part, client);
                }
                self.connect(part, client, master);
                self.pump(part, client);
            }
            Action::Drop(client, master) => {
                self.left.drops -= 1;
                self.cut(part, client, master);
                self.tell(part, client, master, Event::Down);
            }
            Action::Push(client, master) => {
                self.clients[client].links[master].pushed = false;
                self.clients[client].machine.on(master, Event::Pushed, self.now);
                self.pump(part, client);
            }
            Action::Arrive(client, master) => self.arrive(part, client, master),
            Action::Stray(index) => {
                let (master, request) = self.strays.remove(index);
                self.run(part, master, request);
            }
            Action::Order(index) => {
                let (master, request) = self.orders.remove(index);
                self.run(part, master, request);
            }
            Action::Init => self.init(part),
            Action::Raise => self.raise(),
            Action::Grab(client, master) => {
                let until = self.now + TTL;
                self.clients[client].held[master] = until;
                self.servers[master].key = Some((client, until));
            }
            Action::Ballot(master) => self.ballot(part, master),
            fault => self.fault(part, fault),
        }
        self.tidy();
    }

    fn tick(&mut self, part: &Part) {
        self.now += 1;
        for client in 0..part.clients {
            self.pump(part, client);
        }
    }

    /// Ends a connection. A script that was already sent may still be executed.
    fn cut(&mut self, part: &Part, client: usize, master: usize) {
        let link = std::mem::replace(&mut self.clients[client].links[master], Link::down());
        if let Some(request) = link.wire.filter(Request::is_script)
            && self.strays.len() < part.strays
            && !self.strays.contains(&(master, request.clone()))
        {
            self.strays.push((master, request));
        }
    }

    fn arrive(&mut self, part: &Part, client: usize, master: usize) {
        let Some(request) = self.clients[client].links[master].wire.take() else { return };
        let event = match request {
            Request::Probe => {
                let server = &self.servers[master];
                let members = Some(server.data.members());
                Event::Probed(MasterView { members, ..server.facts(part, self.now) })
            }
            Request::Floor(mut read) => {
                let before = read.done.len();
                self.read_floor(part, client, &mut read);
                for found in read.done[before..].iter().cloned() {
                    let facts = MasterView { members: None, ..found.facts };
                    self.tell(part, client, found.master, Event::Read(facts));
                }
                if !read.todo.is_empty() {
                    self.clients[client].links[master].wire = Some(Request::Floor(read));
                    return;
                }
                Event::Floors(read.nonce, read.done)
            }
            script => {
                let begin = matches!(script, Request::Begin(_));
                let reply = self.run(part, master, script);
                if begin && part.broken == Some(Broken::FloorEarly) {
                    let all = (0..part.masters).map(|other| self.scored(part, other)).collect();
                    self.clients[client].links[master].early = Some(all);
                }
                Event::Script(reply)
            }
        };
        self.tell(part, client, master, event);
        self.pump(part, client);
    }

    /// Reads one half of one answer, or all of them at once if no ballot is tested.
    fn read_floor(&self, part: &Part, client: usize, read: &mut FloorRead) {
        while let Some(&(other, _)) = read.todo.first() {
            if !self.clients[client].links[other].up {
                read.todo.remove(0);
                read.half = None;
                continue;
            }
            self.read_half(part, other, read);
            if part.ballots > 0 {
                return;
            }
        }
    }

    fn read_half(&self, part: &Part, other: usize, read: &mut FloorRead) {
        let asked = read.todo[0].1;
        let now = self.scored(part, other);
        let highest = highest(&self.servers[other].data, asked);
        let proof_first = part.broken == Some(Broken::FloorProvenBefore);
        match read.half.take() {
            None if proof_first => read.half = Some(Half::Proof(Scored { asked, ..now }.into())),
            None => read.half = Some(Half::Scores(highest)),
            Some(Half::Proof(proof)) => read.done.push(Scored { highest, ..*proof }),
            Some(Half::Scores(highest)) if part.broken == Some(Broken::ProofOfAnotherLife) => {
                read.done.push(Scored { highest, ..now });
            }
            Some(Half::Scores(highest)) => read.done.push(Scored { asked, highest, ..now }),
        }
        if read.half.is_none() {
            read.todo.remove(0);
        }
        if part.broken == Some(Broken::FloorFromTooFew) {
            one_for_all(part, read);
        }
    }

    /// The client that stays tries one ballot, one master at a time.
    fn ballot(&mut self, part: &Part, master: usize) {
        let ballot = 31 + 32 * u64::from(part.ballots - self.left.ballots + 1);
        let until = self.now + TTL;
        let run =
            self.clients[0].machine.incarnation(master).and_then(|incarnation| incarnation.run);
        if self.attempt.is_none() {
            self.left.ballots -= 1;
            let accepted = vec![None; part.masters];
            self.attempt = Some(Attempt { ballot, accepted });
        }
        let Some(attempt) = &mut self.attempt else { return };
        let server = &mut self.servers[master];
        if run.is_some_and(|run| server.data.accept(run, Member::of(b"k"), attempt.ballot)) {
            attempt.accepted[master] = Some((server.losses, until));
        }
        if attempt.accepted.iter().flatten().count() > part.masters / 2 {
            for (server, accepted) in self.servers.iter_mut().zip(&attempt.accepted) {
                match accepted {
                    Some((losses, _)) if *losses == server.losses => {
                        server.accepted = server.accepted.max(attempt.ballot);
                    }
                    Some(_) => server.owed = server.owed.max(attempt.ballot),
                    None => {}
                }
            }
            self.attempt = None;
        }
    }
}

/// The mutant: the first answer with a score is taken as the answer of all masters.
fn one_for_all(part: &Part, read: &mut FloorRead) {
    if let Some(found) = read.done.iter().find(|answer| answer.highest.is_some()).cloned() {
        let all = 0..part.masters;
        read.done = all.map(|master| Scored { master, ..found.clone() }).collect();
        read.todo.clear();
    }
}
