//! Admission: it decides which masters vote, and how one that lost its data comes to vote again.
//! Pure: events and `now` come in, one step comes back by value. There is no clock, no random
//! source and nothing to await.
//!
//! # The states of a master, as one client sees it
//!
//! | state | what is known | next |
//! |---|---|---|
//! | away | no connection | nothing |
//! | in doubt | a null push came, or a script found another record than the one that was read | probe |
//! | not ours | a replica, loading, in cluster mode, rights denied, a twin | probe again each second |
//! | **voting** | `run` equals the identity, and its ballot set is complete or not yet counted | nothing, or probe again each second if its set of masters does not fit the list (`sets.rs`) |
//! | to begin | no record, another identity, no `run`, an incomplete set, an end too far ahead | read the records of the others, then *begin* (`begin.rs`) |
//! | waiting | a quarantine of this identity is under way, its nonce is known | ask the voting masters for TIME, *note*, probe again each second |
//! | over | by one of the two ways of `over.rs` | read the floor, then *admit* |
//!
//! # The messages
//!
//! [`Step`] goes out, [`Event`] comes in. For each master one step at a time is under way; its
//! answer, [`Event::Failed`] or [`Event::Down`] ends it. A null push may come at any time.
//!
//! # What each failure does
//!
//! - *The connection breaks*: the master is away. A script that was sent may still be carried out,
//!   so each script compares first. The nonce is kept: it names the quarantine and not the process.
//! - *The client dies*: the fields stay. Another client goes on with the notes.
//! - *The data is lost* (restart, FLUSHALL, failover and back): the identity or the record differs
//!   from the admitted one, or a null push comes before any later answer. *Begin* makes a new
//!   nonce.
//! - *A copy of the data is put back into the process*: the record is an older one. Where this client
//!   has seen a later one, or none, it knows (`past.rs`), and a quarantine is begun.
//! - *The record is removed once more in quarantine*: the nonce is gone with it. The quarantine
//!   that is begun then has another nonce, and nothing that was known or noted counts for it.
//! - *A clock is stepped or boots wrong*: `until` is compared by the script only, and with a second
//!   clock in both ways. An end too far ahead is begun anew; nothing else moves it.
//! - *A noted process dies*: any client adds notes of others.

mod begin;
mod floor;
mod init;
mod over;
mod past;
mod peer;
mod sets;
mod settled;
mod twins;
mod view;
mod why;

#[cfg(test)]
mod tests;

pub use self::floor::{Floor, Scored};
pub use self::init::{InitOptions, InitPlan, NoPlan};
pub use self::sets::{Listed, Misfit};
pub use self::settled::{Settled, WritePass};
pub use self::view::{Incarnation, MasterKind, MasterTime, MasterView};
pub use self::why::Why;

use redlock_core::admission::{
    Admit, Begin, Identity, Millis, Nonce, Note, Record, Remove, Reply, RunId,
};

use self::peer::{Doubt, Peer, Stuck};
use self::twins::Twins;
use crate::quorum::quorum;

/// The state of all masters for one client, and its steps for those that do not vote.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Admission {
    /// Our own `max_ttl`: it counts only while no record has one.
    max_ttl: Millis,
    /// A person gave our `max_ttl`, so it is not a default. It then also counts for the length of a
    /// quarantine, if every record that was read may be older than the last change of `max_ttl`.
    is_given: bool,
    /// How often a master that does not vote is probed.
    probe_every: Millis,
    /// How long a script may act, from when it is sent, by the TIME of its master.
    act_within: Millis,
    /// Whether the handle was asked for a lock. One that only reads writes nothing.
    asked: bool,
    /// Without a quarantine a master that may have lost its data votes all the same, and no record
    /// is kept.
    has_quarantine: bool,
    /// Whether it shows masters that it has no quarantine. One that sends ballots shows it by those.
    shows_use: bool,
    /// Whether the first connection to some master is being made: what its record holds as
    /// `max_ttl` may be known in a moment.
    is_connecting: bool,
    peers: Vec<Peer>,
    twins: Twins,
}

/// An event of one master.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A new connection has finished its handshake.
    Up(MasterView),
    /// The connection is gone.
    Down,
    /// `invalidate null`.
    Pushed,
    /// The answer to [`Step::Probe`], `ZCARD` included.
    Probed(MasterView),
    /// A master has reported facts about itself, for whichever request. The machine gets them
    /// before the caller that asked: if a caller learned of a loss of data first, the machine would
    /// compare the new state with itself.
    Read(MasterView),
    /// `ZCARD` of the set that [`MasterView::members`] describes, by the latest facts.
    Members(u32),
    /// The reply of *begin*, *note*, *admit*, *init* or *remove*.
    Script(Reply),
    /// The answers to [`Step::ReadRecords`], once all have answered or their time is up.
    Records(Vec<(usize, MasterView)>),
    /// The answers to [`Step::AskTimes`], once all have answered or their time is up.
    Times(Nonce, Vec<MasterTime>),
    /// The answers to [`Step::ReadFloor`], once all have answered or their time is up.
    Floors(Nonce, Vec<Scored>),
    /// [`Step::ShowUse`] has ended, with success or not. A client without the right to it works all
    /// the same.
    Shown,
    /// The request that was under way failed: an error, or no answer in time.
    Failed,
}

/// The next step for one master.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// It votes, is away, or owes an answer.
    Nothing,
    /// Read INFO and the record again, behind everything sent so far, and `ZCARD`.
    Probe,
    /// Look at these masters, for what their records hold as `max_ttl`.
    ReadRecords(Vec<usize>),
    /// Its quarantine begins.
    Begin(Begin),
    /// Ask these masters for TIME, for this quarantine.
    AskTimes(Nonce, Vec<usize>),
    /// The members of this namespace are written down on it.
    Note(Note),
    /// Ask these masters for the highest score of the set of their incarnation, then for their identity,
    /// record and TIME, for this quarantine.
    ReadFloor(Nonce, Vec<(usize, Incarnation)>),
    /// It is admitted: its record names all members.
    Admit(Admit),
    /// Remove a record that was never admitted, for a client without quarantine.
    Remove(Remove),
    /// Make the ballot set of clients without quarantine, for one that sends no ballots: those that
    /// have a quarantine would not see it otherwise.
    ShowUse,
    /// No step before this instant of our own clock, unless an event comes.
    Wait(Millis),
}

impl Admission {
    /// Each script acts no later than `act_within` behind its sending.
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

    /// Notes that a person gave our own `max_ttl`.
    pub fn with_given_max_ttl(self) -> Self {
        Self { is_given: true, ..self }
    }

    /// Makes this the admission of a client without quarantine.
    pub fn without_quarantine(self) -> Self {
        Self { has_quarantine: false, ..self }
    }

    /// Makes this the admission of a client without quarantine and without ballots.
    pub fn without_ballots(self) -> Self {
        Self { shows_use: !self.has_quarantine, ..self }
    }

    /// The handle was asked for a lock: from now on it begins, notes and admits.
    pub fn ask(&mut self) {
        self.asked = true;
    }

    /// Whether the first connection to some master is being made.
    pub fn set_connecting(&mut self, is_connecting: bool) {
        self.is_connecting = is_connecting;
    }

    /// Whether grants, extensions and refusals of this master count.
    pub fn votes(&self, master: usize) -> bool {
        let peer = &self.peers[master];
        let Some(facts) = peer.undoubted() else { return false };
        let is_admitted = match self.has_quarantine {
            true => facts.is_admitted() && !peer.is_outdated(),
            // A client with quarantine and one without do not exclude each other.
            false => !self.is_in_use(),
        };
        is_admitted && self.twins.twin_of(master).is_none()
    }

    /// The process that answered at this address last, whether or not it can be reached.
    pub fn process(&self, master: usize) -> Option<RunId> {
        self.twins.shown(master)
    }

    /// Whether it can be reached, and is nothing that keeps locks of this namespace: another
    /// address of a master, a replica, a node of a cluster. Nothing is sent there.
    pub fn is_foreign(&self, master: usize) -> bool {
        let Some(facts) = &self.peers[master].facts else { return false };
        self.twins.twin_of(master).is_some()
            || matches!(
                facts.role,
                MasterKind::Replica | MasterKind::NotMaster | MasterKind::Cluster
            )
    }

    /// Whether nothing is known of it at present: it is away, or is being checked.
    pub fn is_open(&self, master: usize) -> bool {
        let peer = &self.peers[master];
        peer.facts.is_none() || peer.doubt != Doubt::None
    }

    /// The identity with which this master was admitted, by the facts that the machine got last,
    /// also while the master is in doubt. Its ballot set is named after this identity and after no
    /// other read.
    pub fn admitted_as(&self, master: usize) -> Option<Identity> {
        let facts = self.peers[master].present()?;
        facts.record.run.filter(|run| run.covers(facts.identity))
    }

    /// Whether the floor that was read for this master rests on clocks.
    pub fn is_floor_by_clock(&self, master: usize) -> bool {
        self.peers[master].floor.is_some_and(|floor| floor.by_clock)
    }

    /// Whether a step is under way anywhere.
    pub fn is_busy(&self) -> bool {
        self.peers.iter().any(|peer| peer.under_way)
    }

    /// TIME of a master at `now`, by its last report, or a little less.
    pub fn time(&self, master: usize, now: Millis) -> Millis {
        self.peers[master].time(now)
    }

    /// TIME of a master until which a script that is sent now may act.
    fn until(&self, master: usize, now: Millis) -> Millis {
        self.time(master, now).saturating_add(self.act_within)
    }

    /// The incarnation of a voting master. Copies there are disowned when it is another, or none,
    /// after a null push or on a new connection: the key went with the incarnation. `run` alone
    /// does not show that, because a flushed master may be admitted with its former identity. For a
    /// client without quarantine the record proves nothing about the data: its incarnation is the
    /// process alone.
    pub fn incarnation(&self, master: usize) -> Option<Incarnation> {
        let incarnation = self.present_incarnation(master).filter(|_| self.votes(master))?;
        Some(if self.has_quarantine { incarnation } else { incarnation.without_record() })
    }

    fn present_incarnation(&self, master: usize) -> Option<Incarnation> {
        Some(Incarnation::of(self.peers[master].master()?))
    }

    /// The longest TTL that may be used: the smallest that records hold, our own where none does.
    /// `None` while no record was read: then no master grants anything either.
    pub fn max_ttl(&self) -> Option<Millis> {
        if !self.has_quarantine {
            return Some(self.max_ttl);
        }
        let held = self.records().filter_map(|record| record.max_ttl).min();
        held.or_else(|| self.records().next().map(|_| self.max_ttl))
    }

    /// The `max_ttl` in the record of a master.
    pub fn max_ttl_of(&self, master: usize) -> Option<Millis> {
        self.peers[master].master()?.record.max_ttl
    }

    /// Takes in what happened at a master.
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

    /// The next step for a master. A step that is not `Nothing` or `Wait` is under way from now
    /// on. `fresh` is a random nonce, used where a quarantine is begun.
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
        } else if !self.asked || self.is_out(master) || self.refuses(master) {
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

    /// Whether the master votes, and its set shows nothing against new locks there.
    fn is_at_rest(&self, master: usize) -> bool {
        self.votes(master) && !self.refuses(master)
    }

    /// Whether the master votes and gets no requests for new locks. It is probed, because its set
    /// may change.
    fn refuses(&self, master: usize) -> bool {
        self.misfit(master).is_some() && self.votes(master)
    }

    /// Whether a client without quarantine removes what another has begun there. A record that was
    /// admitted is refused instead.
    fn removes(&self, master: usize) -> bool {
        let record = self.peers[master].master().map(|facts| &facts.record);
        let has_record = record.is_some_and(|record| *record != Record::default());
        self.asked && !self.has_quarantine && has_record && !self.is_in_use()
    }

    /// Whether this connection is to show that a client without quarantine uses the namespace. Not
    /// before a quorum votes: of those that were admitted one at least would have refused it.
    fn is_to_be_shown(&self, master: usize) -> bool {
        self.asked
            && self.shows_use
            && !self.peers[master].shows_use
            && self.votes(master)
            && self.voting().count() >= quorum(self.peers.len())
    }

    /// Whether the record of some master shows a client without quarantine that others have one.
    fn is_in_use(&self) -> bool {
        self.peers.iter().any(|peer| peer.in_use)
    }

    /// Whether the master cannot be admitted at present, or rests until the next probe.
    fn is_out(&self, master: usize) -> bool {
        let peer = &self.peers[master];
        peer.master().is_none() || peer.stuck.is_some() || self.twins.twin_of(master).is_some()
    }

    fn in_quarantine(&self, master: usize, now: Millis) -> Option<Step> {
        let peer = &self.peers[master];
        let (nonce, _) = peer.nonce_since?;
        let identity = peer.facts.as_ref()?.identity;
        if let Some(way) = over::over(peer, self.length(), now, |one| self.votes_as(one)) {
            return Some(match peer.floor {
                None => Step::ReadFloor(nonce, self.reachable()),
                Some(Floor { score: floor, .. }) => {
                    let (until, set) = (self.until(master, now), self.set_of_voting());
                    Step::Admit(Admit { nonce, identity, way, floor, set, until })
                }
            });
        }
        if peer.times.is_none() {
            let voting: Vec<_> = self.voting().collect();
            return (!voting.is_empty()).then_some(Step::AskTimes(nonce, voting));
        }
        let times = self.worth_noting(master);
        let until = self.until(master, now);
        (!times.is_empty()).then_some(Step::Note(Note { nonce, times, until }))
    }

    fn worth_noting(&self, master: usize) -> Vec<(RunId, Millis)> {
        let peer = &self.peers[master];
        let Some(quarantine) = peer.quarantine() else { return Vec::new() };
        let times = peer.times.iter().flatten().filter(|one| self.votes_as(one));
        let wanted = times.filter(|one| quarantine.wants(one.process, one.time));
        wanted.map(|one| (one.process, one.time)).collect()
    }

    fn wait(&self, master: usize, now: Millis) -> Step {
        let peer = &self.peers[master];
        let probe_at = peer.paced + self.probe_every;
        let over_at = over::over_at(peer, self.length(), now);
        Step::Wait(over_at.map_or(probe_at, |over| over.min(probe_at)))
    }

    fn on_floors(&mut self, master: usize, nonce: Nonce, answers: &[Scored], now: Millis) {
        let masters = self.peers.len();
        self.peers[master].under_way = false;
        let peer = &self.peers[master];
        let Some(quarantine) = peer.quarantine() else { return };
        if peer.nonce_since.is_none_or(|(known, _)| known != nonce) {
            return;
        }
        let is_proven = |answer: &Scored| self.is_proven(answer);
        let floor = floor::floor(masters, master, quarantine.ballot, answers, is_proven);
        let peer = &mut self.peers[master];
        if !answers.iter().any(|answer| answer.master == master) {
            return peer.rest(Stuck::Failed, now);
        }
        peer.floor = floor;
        if peer.floor.is_none() {
            peer.rest(Stuck::TooLarge, now);
        }
    }

    /// Whether the score is that of an admitted master, of its present data.
    fn is_proven(&self, answer: &Scored) -> bool {
        answer.is_proven() && !self.peers[answer.master].is_over(&answer.facts.record)
    }

    /// The voting masters that report their TIME for a note.
    fn voting(&self) -> impl Iterator<Item = usize> {
        (0..self.peers.len()).filter(|&master| self.votes(master))
    }

    /// Whether the process that reported its TIME votes now.
    fn votes_as(&self, one: &MasterTime) -> bool {
        let process = self.peers[one.master].facts.as_ref().map(|facts| facts.identity.run);
        process == Some(one.process) && self.votes(one.master)
    }

    /// The masters that may be asked for a floor, and whose sets. The one that asks is among them.
    pub fn reachable(&self) -> Vec<(usize, Incarnation)> {
        let masters = 0..self.peers.len();
        masters.filter_map(|master| Some((master, self.present_incarnation(master)?))).collect()
    }
}
