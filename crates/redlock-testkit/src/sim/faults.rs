//! The faults of a `World`, one switch each. [`World::settle`] carries out the consequences.

use std::ops::RangeInclusive;
use std::time::Duration;

use rand::RngExt;
use redlock_core::admission::{
    Identity, Init, Names, Nonce, Outcome, RecordedSet, SetChange, SetId,
};
use redlock_core::{Facts, Instant, Role};

use super::log::{Executed, Log};
use super::master::Snapshot;
use super::outbox::Outbox;
use super::world::{World, process};

/// The data that a new server process has.
#[derive(Clone, Debug)]
pub enum Restart {
    /// That of the old one: it syncs every write.
    Keeping,
    /// None.
    Empty,
    /// Old data, such as the last copy on disk.
    From(Box<Snapshot>),
}

/// The fate of the requests that are on their way when a connection breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InFlight {
    /// The seed decides how many of the first ones arrive. None of them follows a request of the
    /// next connection.
    Barrier,
    /// So many of the first ones arrive so much later, whatever happens to the connection in the
    /// meantime: the client could not close it on the server.
    Late(usize, Duration),
}

/// Faults of one connection.
impl World {
    /// Ends a connection. Unanswered requests become *unknown* before the end is reported.
    pub fn cut(&mut self, link: usize, now: Instant, outbox: &mut Outbox) {
        self.cut_with(link, InFlight::Barrier, now, outbox);
    }

    /// Ends a connection, and decides about the requests on their way.
    pub fn cut_with(&mut self, at: usize, rest: InFlight, now: Instant, outbox: &mut Outbox) {
        self.forget(at);
        let link = &mut self.links[at];
        let was_connected = link.connected;
        outbox.unanswered(link.cut());
        match rest {
            InFlight::Barrier if link.requests.is_empty() => {}
            InFlight::Barrier => {
                let arriving = self.rng.random_range(0..=link.requests.len());
                link.requests.truncate(arriving);
            }
            InFlight::Late(arriving, after) => {
                link.lacks_barrier = true;
                for request in link.requests.drain(..).take(arriving) {
                    let due = request.due.max(now.saturating_add(after));
                    let next = self.strays.last_key_value().map_or(0, |((_, last), _)| last + 1);
                    self.strays.insert((due, next), (at, request));
                }
            }
        }
        if was_connected {
            self.broken.insert(at);
            self.report(at, now, outbox);
        }
    }

    /// Forgets a connection, with everything that the server knows of it.
    fn forget(&mut self, at: usize) {
        let link = &mut self.links[at];
        for key in link.watched.drain() {
            self.master.watchers.remove(key.as_slice(), at);
        }
        if let Some(ticket) = link.listens_for.take() {
            self.callable.remove(&ticket, at);
        }
    }

    fn cut_all(&mut self, now: Instant, outbox: &mut Outbox) {
        (0..self.links.len()).for_each(|link| self.cut(link, now, outbox));
    }

    /// Sets how long requests and replies take on this connection from now on.
    pub fn delay(
        &mut self,
        link: usize,
        requests: RangeInclusive<Duration>,
        replies: RangeInclusive<Duration>,
    ) {
        self.links[link].request_delay = requests;
        self.links[link].reply_delay = replies;
    }

    /// Sets whether requests are lost. Setting it back makes a new connection.
    pub fn lose_requests(&mut self, at: usize, lose: bool, now: Instant, outbox: &mut Outbox) {
        if std::mem::replace(&mut self.links[at].lose_requests, lose) && !lose {
            self.cut(at, now, outbox);
        }
    }

    /// Sets whether replies are lost. Setting it back makes a new connection.
    pub fn lose_replies(&mut self, at: usize, lose: bool, now: Instant, outbox: &mut Outbox) {
        if std::mem::replace(&mut self.links[at].lose_replies, lose) && !lose {
            self.cut(at, now, outbox);
        }
    }

    /// Breaks a connection. There is no new one before [`World::heal`].
    pub fn partition(&mut self, link: usize, now: Instant, outbox: &mut Outbox) {
        self.links[link].partitioned = true;
        self.cut(link, now, outbox);
    }

    /// Lets a client reach the master again.
    pub fn heal(&mut self, link: usize) {
        self.links[link].partitioned = false;
    }

    /// Sets the identity with which the client knows the master as admitted.
    pub fn set_admitted(&mut self, link: usize, run: Option<Identity>) {
        self.links[link].admitted = run;
    }

    /// Sets whether the client has a quarantine, as it does by default.
    pub fn set_quarantine(&mut self, link: usize, on: bool) {
        self.links[link].has_quarantine = on;
    }
}

/// Faults of the server.
impl World {
    /// Stops the process (requests wait, and its clock continues), or continues it.
    pub fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// Stops listening: connections break, and new ones are refused. The keys remain.
    pub fn down(&mut self, now: Instant, outbox: &mut Outbox) {
        self.listening = false;
        self.cut_all(now, outbox);
    }

    /// Listens again.
    pub fn up(&mut self) {
        self.listening = true;
    }

    /// Replaces the process with a new one. A master that is down stays down.
    pub fn restart(&mut self, with: Restart, now: Instant, outbox: &mut Outbox) {
        self.held = false;
        self.cut_all(now, outbox);
        // Requests that the dead process has not read are never read.
        self.links.iter_mut().for_each(|link| {
            link.requests.clear();
            link.lacks_barrier = false;
        });
        self.strays.clear();
        let before = std::mem::replace(&mut self.facts, process(&mut self.rng));
        (self.facts.role, self.facts.tracks) = (before.role, before.tracks);
        (self.facts.no_ballots, self.facts.no_queue) = (before.no_ballots, before.no_queue);
        match with {
            Restart::Keeping => {}
            Restart::Empty => self.master.flush(),
            Restart::From(snapshot) => self.master.restore(*snapshot),
        }
        self.master.changes.clear();
    }

    /// Returns a copy of its present data.
    pub fn snapshot(&self) -> Snapshot {
        self.master.snapshot()
    }

    /// Sets the master's clock by so many milliseconds, forward or back.
    pub fn step_clock(&mut self, millis: i64) {
        self.master.clock.step(millis);
    }

    /// Sets whether the server reports changes. See
    /// [`SimNode::set_tracking`](crate::SimNode::set_tracking).
    pub(super) fn set_tracking(&mut self, tracks: bool, now: Instant, outbox: &mut Outbox) {
        self.facts.tracks = tracks;
        self.facts.no_queue = (!tracks).then(|| Facts::PUSHES_NOTHING.into());
        self.cut_all(now, outbox);
    }

    pub(super) fn refuse_ballots(&mut self, error: Option<&str>, now: Instant, out: &mut Outbox) {
        self.master.ballot_error = error.map(str::to_owned);
        self.facts.no_ballots = error.map(str::to_owned);
        self.cut_all(now, out);
    }

    pub(super) fn refuse_queues(&mut self, error: Option<&str>, now: Instant, out: &mut Outbox) {
        self.master.queue_error = error.map(str::to_owned);
        self.facts.no_queue = error.map(str::to_owned);
        self.cut_all(now, out);
    }

    /// Another role. A replica that becomes a master keeps its process, and its data has another
    /// history than before.
    pub(super) fn set_role(&mut self, role: Role, now: Instant, outbox: &mut Outbox) {
        let was = std::mem::replace(&mut self.facts.role, role);
        if was == Role::Replica && role == Role::Master {
            let history = redlock_core::admission::ReplId::new(self.rng.random());
            self.facts.identity = self
                .facts
                .identity
                .map(|Identity { run, .. }| Identity { run, replid: Some(history) });
        }
        self.cut_all(now, outbox);
    }
}

/// The view that a test has of the master.
impl World {
    /// Keeps a log of the requests that the master carries out from now on: the last million.
    pub fn keep_log(&mut self) {
        self.master.log = Some(Log::default());
    }

    /// Returns what the master has carried out, in order, for all clients.
    pub fn log(&self) -> Vec<Executed> {
        self.master.log.as_ref().map_or_else(Vec::new, Log::all)
    }

    /// Returns the value of a key as text, unless it has expired by the master's own clock.
    pub fn holder(&self, key: &[u8], now: Instant) -> Option<String> {
        let value = self.master.holder(now, key)?;
        Some(String::from_utf8_lossy(value).into_owned())
    }

    /// Returns the number of keys that have not expired by the master's own clock.
    pub fn keys(&self, now: Instant) -> usize {
        self.master.count(now)
    }

    /// Returns its TIME, in microseconds since 1970.
    pub fn time_us(&self, now: Instant) -> u64 {
        u64::try_from(self.master.clock.micros(now)).unwrap_or(0)
    }

    /// Admits the master as `redlock init` does, whatever its data, and records the set of masters
    /// that it belongs to. The score of all its members is 31.
    ///
    /// # Panics
    /// Panics if clients without a quarantine have written to it.
    pub fn init(&mut self, max_ttl: Duration, set: Option<RecordedSet>, now: Instant) {
        let facts = self.read(now);
        let data = &mut self.master.data;
        // A simulated process has 40 digits.
        let Some(identity) = facts.identity else { return };
        let (expect, nonce) = (data.record.seen(), Nonce(self.rng.random()));
        let max_ttl = u64::try_from(max_ttl.as_millis()).unwrap_or(u64::MAX);
        let (floor, level) = (31, 0);
        let from = data.record.set.clone();
        let set = set.map(|to| SetChange { from, to });
        let order = Init {
            expect,
            identity,
            nonce,
            max_ttl,
            lower: true,
            floor,
            level,
            converts: false,
            set,
            until: u64::MAX,
        };
        let reply = data.init(facts.time_us.unwrap_or(0) / 1_000, &order);
        assert_eq!(reply.outcome, Outcome::Done, "{reply:?}");
    }
}

/// The set of these masters, as `redlock init` records it first.
pub(super) fn set_of(names: Names) -> RecordedSet {
    let size = u8::try_from(names.len()).unwrap_or(u8::MAX);
    RecordedSet { id: SetId(1), size, names }
}
