//! Admission: decides which masters vote, and how a master that lost its data comes to vote again.
//! Pure: events and `now` come in, and one step comes back by value. There is no clock and no
//! random source, and nothing to await. See section 9 of `docs/PROTOCOL.md`.
//!
//! # The states of a master, as one client sees it
//!
//! | state | evidence | next |
//! |---|---|---|
//! | away | no connection | nothing |
//! | in doubt | a null push came, or a script found a changed record | probe |
//! | not ours | a replica, loading, in cluster mode, rights denied, a duplicate address | probe every second |
//! | **voting** | `run` equals the identity, and its ballot set is complete or not yet counted | nothing, or probe every second if its set of masters does not fit the list (`sets.rs`) |
//! | to begin | no record, another identity, no `run`, an incomplete set, an end too far ahead | read the records of the others, then *begin* (`begin.rs`) |
//! | waiting | this identity is in quarantine, and its nonce is known | query the voting masters for TIME, *note*, probe every second |
//! | over | by one of the two ways of `over.rs` | read the floor, then *admit* |
//!
//! # The messages
//!
//! [`Step`] goes out, [`Event`] comes in. Each master has at most one step under way. Its answer,
//! [`Event::Failed`] or [`Event::Down`] ends the step. A null push may come at any time.
//!
//! # Effects of each failure
//!
//! - *The connection breaks*: the master is away. It may still execute a sent script, so each
//!   script compares first. The nonce is kept, because it names the quarantine and not the process.
//! - *The client dies*: the fields stay. Another client continues with the notes.
//! - *The data is lost* (restart, FLUSHALL, failover and back): the identity or the record differs
//!   from the admitted one, or a null push precedes any later answer. *Begin* makes a new nonce.
//! - *An old copy of the data is restored into the process*: the record is an older one. A client
//!   that has seen a later record, or none, knows this (`past.rs`) and begins a quarantine.
//! - *The record is removed again in quarantine*: its nonce is gone as well. The next quarantine
//!   has another nonce, and earlier knowledge and notes are not valid for it.
//! - *A clock is stepped or boots with a wrong time*: only the script compares `until`, and both
//!   ways require a second clock. An end too far ahead begins again. Nothing else moves it.
//! - *A noted process dies*: any client adds notes of others.

mod begin;
mod floor;
mod init;
mod messages;
mod over;
mod past;
mod peer;
mod quarantine;
mod sets;
mod settled;
mod twins;
mod view;
mod why;

#[cfg(test)]
mod tests;

pub use self::floor::{Floor, Scored};
pub use self::init::{InitInputs, InitOptions, InitPlan, NoPlan};
pub use self::messages::{Event, Step};
pub use self::sets::{Listed, Misfit};
pub use self::settled::{Settled, WritePass};
pub use self::view::{Incarnation, MasterKind, MasterTime, MasterView};
pub use self::why::Why;

use redlock_core::admission::{Identity, Millis, Nonce, Record, Remove, RunId};

use self::peer::{Doubt, Peer};
use self::twins::Twins;
use crate::quorum::quorum;

/// The state of all masters for one client, and the steps for the non-voting ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Admission {
    /// Our own `max_ttl`. It applies only while no record has one.
    max_ttl: Millis,
    /// An operator set our `max_ttl`, so it is not a default. It then also applies to the length of
    /// a quarantine if every record read may be older than the last change of `max_ttl`.
    is_given: bool,
    /// How often a master that does not vote is probed.
    probe_every: Millis,
    /// How long after sending a script may act, by the TIME of its master.
    act_within: Millis,
    /// Whether the handle has requested a lock. A handle that only reads writes nothing.
    asked: bool,
    /// If `false`, a master that may have lost its data still votes, and no record is kept.
    has_quarantine: bool,
    /// Whether the client shows masters that it has no quarantine. A client that sends ballots
    /// shows it by those.
    shows_use: bool,
    /// Whether the first connection to some master is being made, so that the `max_ttl` of its
    /// record may be known soon.
    is_connecting: bool,
    peers: Vec<Peer>,
    twins: Twins,
}

impl Admission {
    /// Creates the state of `masters` masters. Each script acts at most `act_within` after it was
    /// sent.
    pub fn new(masters: usize, max_ttl: Millis, probe_every: Millis, act_within: Millis) -> Self {
        let (peers, twins) = (vec![Peer::default(); masters], Twins::new(masters));
        let (asked, has_quarantine, is_connecting) = (false, true, false);
        let (is_given, shows_use) = (false, false);
        Self {
            max_ttl,
            is_given,
            probe_every,
            act_within,
            asked,
            has_quarantine,
            shows_use,
            is_connecting,
            peers,
            twins,
        }
    }

    /// Records that an operator set our own `max_ttl`.
    pub fn with_given_max_ttl(self) -> Self {
        Self { is_given: true, ..self }
    }

    /// Makes this the admission of a client without a quarantine.
    pub fn without_quarantine(self) -> Self {
        Self { has_quarantine: false, ..self }
    }

    /// Makes this the admission of a client without a quarantine and without ballots.
    pub fn without_ballots(self) -> Self {
        Self { shows_use: !self.has_quarantine, ..self }
    }

    /// Records that the handle has requested a lock. From now on it begins, notes and admits.
    pub fn ask(&mut self) {
        self.asked = true;
    }

    /// Sets whether the first connection to some master is being made.
    pub fn set_connecting(&mut self, is_connecting: bool) {
        self.is_connecting = is_connecting;
    }

    /// Returns `true` if grants, extensions and refusals of this master are valid.
    pub fn votes(&self, master: usize) -> bool {
        let peer = &self.peers[master];
        let Some(facts) = peer.undoubted() else { return false };
        let is_admitted = match self.has_quarantine {
            true => facts.is_admitted() && !peer.is_outdated(),
            // Clients with and without a quarantine do not exclude each other.
            false => !self.is_in_use(),
        };
        is_admitted && self.twins.twin_of(master).is_none()
    }

    /// Returns the process that last answered at this address, whether or not it is reachable.
    pub fn process(&self, master: usize) -> Option<RunId> {
        self.twins.shown(master)
    }

    /// Returns `true` if the server is reachable and cannot keep locks of this prefix: a duplicate
    /// address, a replica, a node of a cluster. Nothing is sent there.
    pub fn is_foreign(&self, master: usize) -> bool {
        let Some(facts) = &self.peers[master].facts else { return false };
        self.twins.twin_of(master).is_some()
            || matches!(
                facts.role,
                MasterKind::Replica | MasterKind::NotMaster | MasterKind::Cluster
            )
    }

    /// Returns `true` if nothing is known about it at present: it is away or being checked.
    pub fn is_open(&self, master: usize) -> bool {
        let peer = &self.peers[master];
        peer.facts.is_none() || peer.doubt != Doubt::None
    }

    /// Returns the identity with which this master was admitted, by the latest facts, even while
    /// the master is in doubt. Its ballot set is named after this identity.
    pub fn admitted_as(&self, master: usize) -> Option<Identity> {
        let facts = self.peers[master].present()?;
        facts.record.run.filter(|run| run.covers(facts.identity))
    }

    /// Returns `true` if the floor that was read for this master rests on clocks.
    pub fn is_floor_by_clock(&self, master: usize) -> bool {
        self.peers[master].floor.is_some_and(|floor| floor.by_clock)
    }

    /// Returns `true` if a step is under way at any master.
    pub fn is_busy(&self) -> bool {
        self.peers.iter().any(|peer| peer.under_way)
    }

    /// Returns TIME of a master at `now` according to its last report, or slightly less.
    pub fn time(&self, master: usize, now: Millis) -> Millis {
        self.peers[master].time(now)
    }

    /// Returns the TIME of a master until which a script sent now may act.
    fn until(&self, master: usize, now: Millis) -> Millis {
        self.time(master, now).saturating_add(self.act_within)
    }

    /// Returns the incarnation of a voting master. Copies there are disowned if, after a null push
    /// or on a new connection, it is another or none, because the key belonged to the incarnation.
    /// `run` is not enough, because a flushed master may be admitted with its former identity. For
    /// a client without a quarantine the record proves nothing about the data, so its incarnation
    /// is only the process.
    pub fn incarnation(&self, master: usize) -> Option<Incarnation> {
        let incarnation = self.present_incarnation(master).filter(|_| self.votes(master))?;
        Some(if self.has_quarantine { incarnation } else { incarnation.without_record() })
    }

    fn present_incarnation(&self, master: usize) -> Option<Incarnation> {
        Some(Incarnation::of(self.peers[master].master()?))
    }

    /// Returns the longest usable TTL: the smallest `max_ttl` of the records, or our own if no
    /// record has one. `None` while no record was read, because no master grants anything until
    /// then.
    pub fn max_ttl(&self) -> Option<Millis> {
        if !self.has_quarantine {
            return Some(self.max_ttl);
        }
        let held = self.records().filter_map(|record| record.max_ttl).min();
        held.or_else(|| self.records().next().map(|_| self.max_ttl))
    }

    /// Returns the `max_ttl` in the record of a master.
    pub fn max_ttl_of(&self, master: usize) -> Option<Millis> {
        self.peers[master].master()?.record.max_ttl
    }

    /// Handles an event of a master.
    pub fn on(&mut self, master: usize, event: Event, now: Millis) {
        let peer = &mut self.peers[master];
        match event {
            Event::Up(facts) => {
                self.twins.show(master, facts.identity.run);
                peer.reset();
                peer.learn(facts, now);
            }
            Event::Down => peer.reset(),
            Event::Pushed => peer.doubt = Doubt::Unasked,
            Event::Probed(facts) => peer.probed(facts, now),
            Event::Read(facts) => peer.read(facts, now),
            Event::Members(members) => peer.count(members),
            Event::Script(reply) => peer.replied(reply, now),
            Event::Records(answers) => self.on_records(master, &answers, now),
            Event::Times(nonce, times) => peer.learn_times(nonce, times),
            Event::Floors(nonce, answers) => self.on_floors(master, nonce, &answers, now),
            Event::Shown => peer.under_way = false,
            Event::Failed => peer.fail(now),
        }
        if !self.has_quarantine {
            self.peers[master].notice_use();
        }
    }

    /// Returns the next step for a master. A step other than `Nothing` or `Wait` is under way from
    /// now on. `fresh` is a random nonce for a new quarantine.
    pub fn step(&mut self, master: usize, now: Millis, fresh: Nonce) -> Step {
        let step = self.decide(master, now, fresh);
        let peer = &mut self.peers[master];
        if step == Step::Probe {
            peer.doubt = if peer.doubt == Doubt::None { Doubt::None } else { Doubt::Asked };
        }
        peer.shows_use |= step == Step::ShowUse;
        peer.under_way |= !matches!(step, Step::Nothing | Step::Wait(_));
        step
    }

    fn decide(&self, master: usize, now: Millis, fresh: Nonce) -> Step {
        let peer = &self.peers[master];
        let Some(facts) = &peer.facts else { return Step::Nothing };
        let probe_at = peer.paced + self.probe_every;
        if !peer.under_way && self.is_to_be_shown(master) {
            Step::ShowUse
        } else if peer.under_way || (self.is_at_rest(master) && !self.removes(master)) {
            Step::Nothing
        } else if now >= probe_at || (peer.doubt != Doubt::None && peer.stuck.is_none()) {
            Step::Probe
        } else if !self.asked || self.is_out(master) || self.refuses(master) || self.is_elsewhere()
        {
            Step::Wait(probe_at)
        } else if self.removes(master) {
            let (expect, until) = (facts.record.seen(), self.until(master, now));
            Step::Remove(Remove { expect, start: None, until })
        } else if !self.has_quarantine {
            Step::Wait(probe_at)
        } else if peer.wants_quarantine() || self.is_too_short(master) {
            self.begin(master, facts, now, fresh).unwrap_or(Step::Wait(probe_at))
        } else {
            self.in_quarantine(master, now).unwrap_or_else(|| self.wait(master, now))
        }
    }

    /// Returns `true` if the master votes, and its set allows new locks there.
    fn is_at_rest(&self, master: usize) -> bool {
        self.votes(master) && !self.refuses(master)
    }

    /// Returns `true` if the master votes but receives no requests for new locks. It is probed,
    /// because its set may change.
    fn refuses(&self, master: usize) -> bool {
        self.misfit(master).is_some() && self.votes(master)
    }

    /// Returns `true` if a client without a quarantine removes the quarantine that another client
    /// has begun there. It does not vote at a master whose record was admitted.
    fn removes(&self, master: usize) -> bool {
        let record = self.peers[master].master().map(|facts| &facts.record);
        let has_record = record.is_some_and(|record| *record != Record::default());
        self.asked && !self.has_quarantine && has_record && !self.is_in_use()
    }

    /// Returns `true` if this connection must show that a client without a quarantine uses the
    /// prefix. Waits until a quorum votes, because at least one admitted master of a quorum would
    /// have refused the client.
    fn is_to_be_shown(&self, master: usize) -> bool {
        self.asked
            && self.shows_use
            && !self.peers[master].shows_use
            && self.votes(master)
            && self.voting().count() >= quorum(self.peers.len())
    }

    /// Returns `true` if the record of some master shows a client without a quarantine that others
    /// use one.
    fn is_in_use(&self) -> bool {
        self.peers.iter().any(|peer| peer.in_use)
    }

    /// Returns `true` if the master cannot be admitted at present, or rests until the next probe.
    fn is_out(&self, master: usize) -> bool {
        let peer = &self.peers[master];
        peer.master().is_none() || peer.stuck.is_some() || self.twins.twin_of(master).is_some()
    }

    /// Returns `true` if the score is from an admitted master and its present data.
    fn is_proven(&self, answer: &Scored) -> bool {
        answer.is_proven() && !self.peers[answer.master].is_over(&answer.facts.record)
    }

    /// Returns the voting masters that report their TIME for a note.
    fn voting(&self) -> impl Iterator<Item = usize> {
        (0..self.peers.len()).filter(|&master| self.votes(master))
    }

    /// Returns the masters that may be queried for a floor, with their sets, including the
    /// requesting master.
    pub fn reachable(&self) -> Vec<(usize, Incarnation)> {
        let masters = 0..self.peers.len();
        masters.filter_map(|master| Some((master, self.present_incarnation(master)?))).collect()
    }
}
