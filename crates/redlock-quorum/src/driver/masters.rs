//! `Masters`: the connection to each master, and its state.

mod link;

use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use redlock_core::admission::AdmissionOp;
use redlock_core::{
    Answer, Cause, Events, Facts, Instant, Node, NodeEvent, Op, Verdict, Vote, VoteSlot,
};
use redlock_protocol::admission::{Admission, Event};
use redlock_protocol::incarnations::Incarnations;
use redlock_protocol::inspection::is_incurable;
use redlock_protocol::master_set::MasterSet;
use redlock_protocol::meeting_point::Weight;
use redlock_protocol::quorum::quorum;

use self::link::unmet;
pub(super) use self::link::{Changed, Link, News, State, StepFailure};
use super::convert::{ceil_millis, to_millis, view_of};
use super::mailbox::Mailbox;
use super::observe::{LACKS_BARRIER, NO_PUSHES, Observer};
use crate::settings::{Quarantine, Settings};
use redlock_protocol::client::ids::{Asker, Ticket};

/// All masters of a handle.
pub(super) struct Masters {
    pub(super) nodes: Arc<[Arc<dyn Node>]>,
    pub(super) names: Arc<[Arc<str>]>,
    mailbox: Arc<Mailbox>,
    pub(super) links: Vec<Link>,
    /// The machine of admission: it decides which masters vote.
    pub(super) admission: Admission,
    pub(super) incarnations: Incarnations,
    /// What the two yield: the masters that vote.
    pub(super) voting: MasterSet,
    /// The masters that get no requests for new locks, because their recorded set does not fit the
    /// list of this client.
    pub(super) misfits: MasterSet,
    /// The first master whose recorded set shows that a change of the list may be under way.
    pub(super) changing: Option<usize>,
    /// The longest TTL that may be used: the smallest that masters have, ours where none has one.
    /// Only the general limit applies before a record was read.
    pub(super) max_ttl: Duration,
    /// Until when first connections may be made.
    connecting_until: Instant,
    /// Some lease is held: it may lack a copy on each master that is down.
    is_holding: bool,
    /// Locks are to have fencing tokens.
    fencing: bool,
    quarantine: Quarantine,
    /// Callers that wait are to use shared queues.
    wants_queue: bool,
}

/// How often a master that does not vote is probed.
const PROBE_EVERY: Duration = Duration::from_secs(1);

impl Masters {
    pub(super) fn new(
        nodes: Arc<[Arc<dyn Node>]>,
        settings: &Settings,
        mailbox: Arc<Mailbox>,
    ) -> Self {
        let names: Arc<[Arc<str>]> = nodes.iter().map(|node| node.name().into()).collect();
        let link = || Link {
            state: State::Connecting,
            outbox: Vec::new(),
            drive: None,
            lacks_barrier: false,
            is_known_mute: false,
            is_unqueued: false,
            is_incurable: false,
            is_urgent: false,
            facts: None,
            weight: Weight::default(),
            read_at: Instant::ORIGIN,
            alive_since: Instant::ORIGIN,
            admitted_as: None,
            unfit: None,
            step_failure: None,
            suspect_until: Instant::ORIGIN,
        };
        Self {
            links: nodes.iter().map(|_| link()).collect(),
            admission: admission(nodes.len(), settings),
            incarnations: Incarnations::new(nodes.len()),
            voting: MasterSet::EMPTY,
            misfits: MasterSet::EMPTY,
            changing: None,
            max_ttl: settings.unread_max_ttl(),
            nodes,
            names,
            mailbox,
            connecting_until: Instant::ORIGIN,
            is_holding: false,
            fencing: settings.fencing,
            quarantine: settings.quarantine,
            wants_queue: settings.queue,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Opens the links, which have until then. Their first poll is due at once.
    pub(super) fn connect(&mut self, until: Instant) {
        self.connecting_until = until;
        for (master, link) in self.links.iter_mut().enumerate() {
            link.state = State::Connecting;
            let events = Events::new(self.mailbox.clone(), master);
            let waker = self.mailbox.link_waker(master);
            link.drive = self.nodes[master].clone().drive(events).map(|drive| {
                waker.wake_by_ref();
                (drive, waker)
            });
        }
    }

    /// Closes the links. All that is unanswered becomes *unknown*.
    pub(super) fn disconnect(&mut self, now: Instant) {
        for master in 0..self.len() {
            self.links[master].outbox.clear();
            self.links[master].drive = None;
            self.admit(master, Event::Down, now);
        }
    }

    /// Polls the link of `master`.
    pub(super) fn drive(&mut self, master: usize) {
        let Some((drive, waker)) = &mut self.links[master].drive else { return };
        if drive.as_mut().poll(&mut Context::from_waker(waker)).is_ready() {
            self.links[master].drive = None;
        }
    }

    /// Has the same request handed to every master of `masters`, with all that is sent to it in one
    /// turn, also to those that do not vote. Those that keep no lock of ours are not asked: their
    /// votes come back, to be counted like the
    /// others'.
    pub(super) fn send(
        &mut self,
        op: &Op,
        masters: MasterSet,
        ticket: Ticket,
        now: Instant,
    ) -> Vec<Vote> {
        let packed = ticket.pack();
        let mut unsent = Vec::new();
        let open = match ticket {
            Ticket::Attempt(_) => self.open(),
            // A held lease is extended and released whatever the recorded sets are.
            _ => self.voting,
        };
        for master in masters.iter() {
            if !open.contains(master)
                && let Some(cause) = self.obstacle(master, ticket, now)
            {
                unsent.push(Vote::new(master, packed, now, Answer::unsent(cause)));
                continue;
            }
            let slot = VoteSlot::new(self.mailbox.clone(), master, packed, now);
            self.links[master].outbox.push((op.clone(), slot));
        }
        unsent
    }

    /// Hands over what is to be sent. A node wakes its link for it, or answers.
    pub(super) fn hand_over(&mut self) {
        for (node, link) in self.nodes.iter().zip(&mut self.links) {
            if !link.outbox.is_empty() {
                node.submit_all(&mut link.outbox);
            }
        }
    }

    /// Why `master` is not asked; `None` if its node answers, also when it is not connected.
    fn obstacle(&self, master: usize, ticket: Ticket, now: Instant) -> Option<Cause> {
        if let (Ticket::Attempt(_), Some(cause)) = (ticket, self.misfit(master)) {
            return Some(cause);
        }
        if self.admission.is_foreign(master) {
            return Some(self.cause(master, now));
        }
        // A first connection that is not made when its time is over has timed out, whether or not
        // its node has got to report that.
        let is_connecting = self.links[master].state == State::Connecting;
        (is_connecting && now >= self.connecting_until).then_some(Cause::TimedOut)
    }

    /// Has a request about its admission handed to `master`.
    pub(super) fn ask(&mut self, master: usize, op: AdmissionOp, asker: Asker, now: Instant) {
        let ticket = Ticket::Admission(asker).pack();
        let slot = VoteSlot::new(self.mailbox.clone(), master, ticket, now);
        self.links[master].outbox.push((Op::admission(op), slot));
    }

    /// Takes in what happened to the connection of `master`.
    pub(super) fn event(
        &mut self,
        master: usize,
        event: NodeEvent,
        now: Instant,
        observer: &mut Observer,
    ) -> (News, Changed) {
        let news = match event {
            NodeEvent::Up(facts) => self.up(master, facts, now, observer),
            NodeEvent::Down { cause, retries_now } => {
                let is_news = self.links[master].state.cause() != Some(&cause);
                observer.down(master, &cause, is_news, now);
                self.down(master, cause, retries_now, now)
            }
            NodeEvent::KeyChanged(key) => {
                observer.counters.pushes.add(1);
                (News::KeyChanged(key), Changed::default())
            }
            NodeEvent::Called(call, key) => (News::Called(call, key), Changed::default()),
            NodeEvent::NoQueue(why) => {
                self.forbid_queue(master, why, now, observer);
                (News::NoQueue, Changed::default())
            }
            NodeEvent::DataLost => {
                observer.counters.pushes.add(1);
                (News::DataLost, self.admit(master, Event::Pushed, now))
            }
            NodeEvent::Members(members) => {
                (News::None, self.admit(master, Event::Members(members), now))
            }
            _ => (News::None, Changed::default()),
        };
        self.urge(master);
        news
    }

    fn up(
        &mut self,
        master: usize,
        facts: Facts,
        now: Instant,
        observer: &mut Observer,
    ) -> (News, Changed) {
        observer.up(master);
        self.warn(master, &facts, now, observer);
        let link = &mut self.links[master];
        link.state = State::Up;
        link.is_incurable = false;
        link.step_failure = StepFailure::of(&facts, now);
        link.unfit = unmet(self.fencing, self.quarantine, &facts);
        // All state of the connection before this one is reset.
        link.admitted_as = None;
        let before = self.admission.process(master);
        let view = view_of(&facts, None, self.admission.time(master, ceil_millis(now)));
        let changed = self.admit(master, Event::Up(view), now);
        self.links[master].weight = Weight::of(&facts.run_id);
        self.links[master].facts = Some(facts);
        self.links[master].read_at = now;
        if !self.votes(master) {
            observer.not_counting(master, &self.cause(master, now), now);
        }
        let is_new = before.is_some() && before != self.admission.process(master);
        (if is_new { News::Restarted } else { News::Up }, changed)
    }

    /// Warns of features that a server lacks.
    fn warn(&mut self, master: usize, facts: &Facts, now: Instant, observer: &mut Observer) {
        let link = &mut self.links[master];
        if !std::mem::replace(&mut link.is_known_mute, !facts.tracks) && !facts.tracks {
            observer.weakness(master, NO_PUSHES, now);
        }
        let had_queue = !std::mem::replace(&mut link.is_unqueued, facts.no_queue.is_some());
        let is_news = had_queue && facts.tracks && self.wants_queue;
        if let Some(why) = facts.no_queue.as_ref().filter(|_| is_news) {
            observer.no_queue(master, why, now);
        }
        let lacked_barrier = std::mem::replace(&mut link.lacks_barrier, !facts.has_barrier);
        if !facts.has_barrier && !lacked_barrier {
            observer.weakness(master, LACKS_BARRIER, now);
        }
    }

    fn down(
        &mut self,
        master: usize,
        cause: Cause,
        retries_now: bool,
        now: Instant,
    ) -> (News, Changed) {
        let has_ended = cause == Cause::ConnectionRefused;
        let changed = self.admit(master, Event::Down, now);
        self.links[master].facts = None;
        self.links[master].state =
            if retries_now { State::Reviving(now, cause) } else { State::Down(cause) };
        (if has_ended { News::Ended } else { News::Down }, changed)
    }

    /// Some lease is held from now on, or none is.
    pub(super) fn set_holding(&mut self, is_holding: bool) {
        if std::mem::replace(&mut self.is_holding, is_holding) != is_holding {
            (0..self.len()).for_each(|master| self.urge(master));
        }
    }

    /// The meeting point of a key: of the masters that are connected, vote, report changes and
    /// were not slow a moment ago, that with the largest hash, and one of the `avoided` only if there
    /// is no other. Contenders that see other masters choose another one, which costs them time and
    /// nothing else.
    pub(super) fn meeting_point(
        &self,
        key: &[u8],
        avoided: MasterSet,
        now: Instant,
    ) -> Option<usize> {
        let weight = |master: usize| self.links[master].weight.of_key(key);
        let preferred = |master: &usize| (!avoided.contains(*master), weight(*master));
        (0..self.len()).filter(|master| self.may_meet(*master, now)).max_by_key(preferred)
    }

    /// Whether contenders may meet at `master`.
    pub(super) fn may_meet(&self, master: usize, now: Instant) -> bool {
        let link = &self.links[master];
        link.state == State::Up
            && link.facts.as_ref().is_some_and(|facts| facts.tracks)
            && link.suspect_until <= now
            && self.open().contains(master)
    }

    /// Whether those that wait at `master` do so in a queue.
    pub(super) fn has_queue(&self, master: usize) -> bool {
        self.wants_queue && self.facts(master).is_some_and(|facts| facts.no_queue.is_none())
    }

    /// The server denies something that a queue needs: no queue is used there.
    fn forbid_queue(&mut self, master: usize, why: String, now: Instant, observer: &mut Observer) {
        if let Some(facts) = &mut self.links[master].facts {
            observer.no_queue(master, &why, now);
            facts.no_queue = Some(why);
        }
    }

    /// `master` was slow to answer: for a moment it is no meeting point.
    pub(super) fn suspect(&mut self, master: usize, until: Instant) {
        self.links[master].suspect_until = until;
    }

    /// Whether `master` reports changes of keys; `None` if it is not connected.
    pub(super) fn tracks(&self, master: usize) -> Option<bool> {
        let link = &self.links[master];
        let facts = link.facts.as_ref().filter(|_| link.state == State::Up);
        facts.map(|facts| facts.tracks)
    }

    /// Takes in the answer of `master` to an attempt.
    pub(super) fn answered(&mut self, master: usize, verdict: &Verdict) {
        self.links[master].is_incurable = is_incurable(verdict);
    }

    /// The masters that answered the last attempt with what waiting does not cure.
    pub(super) fn incurable(&self) -> MasterSet {
        (0..self.len()).filter(|master| self.links[*master].is_incurable).collect()
    }

    fn urge(&mut self, master: usize) {
        let link = &mut self.links[master];
        let is_urgent = self.is_holding && link.state != State::Up;
        if std::mem::replace(&mut link.is_urgent, is_urgent) != is_urgent {
            self.nodes[master].set_urgent(is_urgent);
        }
    }

    pub(super) fn is_up(&self, master: usize) -> bool {
        self.links[master].state == State::Up
    }

    /// Whether a late SET may still arrive over an earlier connection to `master`.
    pub(super) fn lacks_barrier(&self, master: usize) -> bool {
        self.links[master].lacks_barrier
    }

    /// Whether some master was never reached yet, and still may be.
    pub(super) fn is_connecting(&self) -> bool {
        self.links.iter().any(|link| link.state == State::Connecting)
    }

    /// Whether masters may still connect within the time for it: a node that never reports is not
    /// waited for.
    pub(super) fn may_connect(&self, now: Instant) -> bool {
        self.is_connecting() && now < self.connecting_until
    }

    /// Whether a quorum of masters is connected.
    pub(super) fn has_quorum(&self) -> bool {
        self.up_count() >= quorum(self.len())
    }

    /// Since when connections that make up a quorum are being made again; `None` if there is a
    /// quorum, or where they would not make one.
    pub(super) fn reviving_since(&self) -> Option<Instant> {
        let since = self.links.iter().filter_map(|link| match link.state {
            State::Reviving(since, _) => Some(since),
            _ => None,
        });
        let reviving = since.clone().count();
        let suffices = self.up_count() + reviving >= quorum(self.len());
        if self.has_quorum() || !suffices { None } else { since.max() }
    }

    fn up_count(&self) -> usize {
        self.links.iter().filter(|link| link.state == State::Up).count()
    }
}

fn admission(masters: usize, settings: &Settings) -> Admission {
    let (max_ttl, probe_every) = (to_millis(settings.max_ttl()), to_millis(PROBE_EVERY));
    let act_within = to_millis(settings.act_within());
    let mut admission = Admission::new(masters, max_ttl, probe_every, act_within);
    if settings.max_ttl.is_some() {
        admission = admission.with_given_max_ttl();
    }
    match settings.quarantine {
        Quarantine::On => admission,
        Quarantine::Off if settings.fencing => admission.without_quarantine(),
        Quarantine::Off => admission.without_quarantine().without_ballots(),
    }
}

/// How long requests wait for connections that broke and are being made again.
pub(super) const REVIVAL: Duration = Duration::from_millis(50);
