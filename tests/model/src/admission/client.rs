//! A client: the machine that ships, and its connections. Here the mutants lie to it.

use redlock_core::admission::Nonce;
use redlock_protocol::admission::{Admission, Event, MasterTime, MasterView, Step};

use super::broken::Broken;
use super::part::{Part, TTL};
use super::wire::{First, FloorRead, Link, Request};
use super::world::World;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    /// `false` between the connections of a client that connects only briefly.
    pub(crate) alive: bool,
    pub(crate) machine: Admission,
    pub(crate) links: Vec<Link>,
    /// Until when it holds the lock, by master; 0 where it has not taken it.
    pub(crate) held: Vec<u64>,
    /// The masters to which a first connection was made.
    pub(crate) reached: Vec<bool>,
}

impl Client {
    pub(crate) fn new(part: &Part, alive: bool) -> Self {
        let mut machine = Admission::new(part.masters, part.own, part.probe_every, part.act_within);
        if part.given && part.broken != Some(Broken::GivenIgnored) {
            machine = machine.with_given_max_ttl();
        }
        machine.ask();
        let links = vec![Link::down(); part.masters];
        let reached = vec![false; part.masters];
        Self { alive, machine, links, held: vec![0; part.masters], reached }
    }
}

impl World {
    /// Returns `true` if a grant that the client got from the master now would be a vote.
    pub(crate) fn counts(&self, part: &Part, client: usize, master: usize) -> bool {
        let (server, own) = (&self.servers[master], &self.clients[client]);
        let link = &own.links[master];
        if !link.up || !server.up {
            return false;
        }
        let quiet = if part.tracking || client == 0 {
            !link.pushed || part.broken == Some(Broken::PushIgnored)
        } else {
            // It sends ballots, to the set of what it holds the master to be admitted as.
            let set = own.machine.admitted_as(master).and_then(|run| server.data.ballots(run));
            set.is_some_and(|set| set.members > 0)
        };
        quiet && own.machine.votes(master)
    }

    /// A new connection, and its handshake.
    pub(crate) fn connect(&mut self, part: &Part, client: usize, master: usize) {
        let (now, server) = (self.now, &self.servers[master]);
        let facts = server.facts(part, now);
        let link = &mut self.clients[client].links[master];
        *link = Link { up: true, ..Link::down() };
        if part.broken.is_some_and(Broken::looks_back) {
            let max_ttl = facts.record.max_ttl;
            link.first = Some(First { time: facts.time, now, max_ttl });
        }
        self.reach(part, client, master);
        self.tell(part, client, master, Event::Up(facts));
    }

    /// A connection was made for the first time, or not.
    fn reach(&mut self, part: &Part, client: usize, master: usize) {
        if !part.gradual {
            return;
        }
        let own = &mut self.clients[client];
        own.reached[master] = true;
        let mut masters = self.servers.iter().zip(&own.reached);
        let is_connecting = masters.any(|(server, reached)| server.up && !reached);
        let waits = part.broken != Some(Broken::BeginAtQuorum);
        own.machine.set_connecting(is_connecting && waits);
    }

    /// Passes an event to the machine. If a rule is broken, it may be a different event.
    pub(crate) fn tell(&mut self, part: &Part, client: usize, master: usize, event: Event) {
        let now = self.now;
        let own = &mut self.clients[client];
        let pushed = own.links[master].pushed;
        if pushed && !matches!(event, Event::Up(_) | Event::Down) {
            own.links[master].pushed = false;
            if part.broken != Some(Broken::PushIgnored) {
                own.machine.on(master, Event::Pushed, now);
            }
        }
        let first = own.links[master].first;
        let back = match part.broken {
            Some(Broken::TimeAlone) => TTL.min(now),
            Some(Broken::IdentityKnown) => first.map_or(0, |first| TTL.min(now - first.now)),
            _ => 0,
        };
        let event = lie(part.broken, event, first);
        if back > 0 {
            // The mutant takes the content of the event as older than it is.
            own.machine.on(master, event.clone(), now - back);
        }
        own.machine.on(master, event, now);
    }

    /// Lets a client do all that it can do now: what it sends is on the way.
    pub(crate) fn pump(&mut self, part: &Part, client: usize) {
        for master in 0..part.masters {
            while let Some(request) = self.next(part, client, master) {
                self.clients[client].links[master].wire = Some(request);
            }
        }
    }

    fn next(&mut self, part: &Part, client: usize, master: usize) -> Option<Request> {
        let own = &mut self.clients[client];
        if !own.alive || !own.links[master].up || own.links[master].wire.is_some() {
            return None;
        }
        loop {
            // The nonce is chosen when the script runs, so no client has seen it before.
            let step = self.clients[client].machine.step(master, self.now, Nonce(0));
            return Some(match step {
                Step::Nothing | Step::Wait(_) => return None,
                Step::AskTimes(nonce, masters) => {
                    let told = self.times(part, client, master, &masters);
                    self.tell(part, client, master, Event::Times(nonce, told));
                    continue;
                }
                Step::Probe => Request::Probe,
                Step::ReadRecords(masters) => {
                    let records = self.records(part, client, &masters);
                    for (other, facts) in records.clone() {
                        self.tell(part, client, other, Event::Read(facts));
                    }
                    self.tell(part, client, master, Event::Records(records));
                    continue;
                }
                Step::Begin(_) if self.appears_new(part) => {
                    return self.init_unasked(part, client, master);
                }
                Step::Begin(begin) => Request::Begin(begin),
                Step::Note(note) => Request::Note(note),
                Step::Remove(_) | Step::ShowUse => {
                    unreachable!("all clients here have a quarantine")
                }
                Step::Admit(admit) => Request::Admit(admit),
                Step::ReadFloor(nonce, todo) => {
                    let early = self.clients[client].links[master].early.take();
                    let (todo, done) = early.map_or((todo, Vec::new()), |done| (Vec::new(), done));
                    Request::Floor(FloorRead { nonce, todo, half: None, done })
                }
            });
        }
    }

    /// Returns the answers of the masters whose records are queried. They arrive immediately,
    /// because a later answer could only allow more.
    fn records(&self, part: &Part, client: usize, asked: &[usize]) -> Vec<(usize, MasterView)> {
        let links = &self.clients[client].links;
        let reached = asked.iter().filter(|&&other| links[other].up);
        let facts = reached.map(|&other| {
            let mut facts = self.servers[other].facts(part, self.now);
            if let (Some(Broken::LengthFromBefore), Some(first)) = (part.broken, links[other].first)
            {
                facts.record.max_ttl = first.max_ttl;
            }
            (other, facts)
        });
        facts.collect()
    }

    /// Returns the answers of the masters whose TIME is queried.
    fn times(&self, part: &Part, client: usize, master: usize, asked: &[usize]) -> Vec<MasterTime> {
        let own = &self.clients[client];
        let reached = asked.iter().filter(|&&other| own.links[other].up);
        let told = reached.map(|&other| {
            let server = &self.servers[other];
            let process = server.identity.run;
            let quarantine = self.servers[master].data.record.quarantine.as_ref();
            let noted = quarantine.is_some_and(|found| found.note(process).is_some());
            let first = own.links[other].first.map(|first| first.time);
            let before = part.broken == Some(Broken::TimesBeforeNonce) && !noted;
            let time = first.filter(|_| before).unwrap_or_else(|| server.time(self.now));
            MasterTime { master: other, process, time }
        });
        told.collect()
    }
}

/// Returns the event that a mutant passes on: another TIME, or another identity.
fn lie(broken: Option<Broken>, event: Event, first: Option<First>) -> Event {
    let facts = |mut facts: MasterView| {
        if let (Some(Broken::UntilByClient), Some(first)) = (broken, first) {
            facts.time = first.time;
        }
        if broken == Some(Broken::WithoutReplid) {
            facts.identity.replid = None;
        }
        facts
    };
    match event {
        Event::Up(found) => Event::Up(facts(found)),
        Event::Probed(found) => Event::Probed(facts(found)),
        Event::Read(found) => Event::Read(facts(found)),
        Event::Script(mut reply) => {
            if let (Some(Broken::UntilByClient), Some(first)) = (broken, first) {
                reply.time = first.time;
            }
            Event::Script(reply)
        }
        other => other,
    }
}
