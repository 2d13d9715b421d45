//! `Masters`: the connection to each master, and what is known of it.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use futures::future::BoxFuture;
use redlock_core::{
    Answer, Cause, Events, Facts, Instant, Node, NodeEvent, NotAdmitted, Op, Verdict, Vote,
    VoteSlot, WhyNot,
};

use super::mailbox::Mailbox;
use super::observe::Observer;
use super::ticket::Ticket;
use crate::protocol::inspection::is_barring;
use crate::protocol::master_set::MasterSet;
use crate::protocol::standing::{Standing, Standings};
use crate::quorum::quorum;

/// All masters of a handle.
pub(super) struct Masters {
    nodes: Arc<[Arc<dyn Node>]>,
    names: Arc<[Arc<str>]>,
    mailbox: Arc<Mailbox>,
    links: Vec<Link>,
    standings: Standings,
    /// Until when first connections may be made.
    connecting_until: Instant,
    /// Some lease is held: it may lack a copy on each master that is down.
    is_holding: bool,
}

/// The connection to one master.
struct Link {
    state: State,
    /// What the node is to be handed with the rest of this turn.
    outbox: Vec<(Op, VoteSlot)>,
    /// The node's own input and output, with the waker that says it has something to do.
    drive: Option<(BoxFuture<'static, ()>, Waker)>,
    /// An earlier connection may still carry out requests: the server did not let us end it.
    is_unbarred: bool,
    /// Whether the server reports changes of keys; none before it was reached.
    tracks: Option<bool>,
    /// It answered the last attempt with what waiting does not cure.
    is_barred: bool,
    /// The node knows that a new connection is urgent.
    is_urgent: bool,
    /// It was slow or silent, and is no meeting point until then.
    suspect_until: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// The first connection is being made.
    Connecting,
    Up,
    Down(Cause),
    /// The connection broke, and another is being made since then.
    Reviving(Instant, Cause),
}

impl State {
    /// Why there is no connection.
    fn cause(&self) -> Option<&Cause> {
        match self {
            Self::Down(cause) | Self::Reviving(_, cause) => Some(cause),
            Self::Connecting | Self::Up => None,
        }
    }
}

/// What an event of a master means for what is held there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// Nothing.
    None,
    /// It can be reached, and the same process as before answers.
    Up,
    /// It can be reached, and another process answers: it may have forgotten every key.
    Restarted,
    /// No server listens there: the process has ended.
    Ended,
    /// There is no connection.
    Down,
    /// A key that was looked at has changed.
    KeyChanged(Arc<[u8]>),
    /// Its data may be gone.
    DataLost,
}

impl Masters {
    pub(super) fn new(nodes: Arc<[Arc<dyn Node>]>, mailbox: Arc<Mailbox>) -> Self {
        let names: Arc<[Arc<str>]> = nodes.iter().map(|node| node.name().into()).collect();
        let link = || Link {
            state: State::Connecting,
            outbox: Vec::new(),
            drive: None,
            is_unbarred: false,
            tracks: None,
            is_barred: false,
            is_urgent: false,
            suspect_until: Instant::ORIGIN,
        };
        Self {
            links: nodes.iter().map(|_| link()).collect(),
            standings: Standings::new(nodes.len()),
            nodes,
            names,
            mailbox,
            connecting_until: Instant::ORIGIN,
            is_holding: false,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn names(&self) -> &Arc<[Arc<str>]> {
        &self.names
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
    pub(super) fn disconnect(&mut self) {
        for link in &mut self.links {
            link.outbox.clear();
            link.drive = None;
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
    /// turn. Those that do not count are not asked: their votes come back, to be counted like the
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
        for master in masters.iter() {
            match self.obstacle(master).or_else(|| self.overdue(master, now)) {
                None => {
                    let slot = VoteSlot::new(self.mailbox.clone(), master, packed, now);
                    self.links[master].outbox.push((op.clone(), slot));
                }
                Some(cause) => unsent.push((master, cause)),
            }
        }
        unsent.into_iter().map(|(master, cause)| unsent_vote(master, packed, now, cause)).collect()
    }

    /// Hands over what is to be sent. A node wakes its link for it, or answers.
    pub(super) fn hand_over(&mut self) {
        for (node, link) in self.nodes.iter().zip(&mut self.links) {
            if !link.outbox.is_empty() {
                node.submit_all(&mut link.outbox);
            }
        }
    }

    /// Why `master` is not asked; none where its node answers, also when it is not connected.
    fn obstacle(&self, master: usize) -> Option<Cause> {
        let not_admitted = |why| Some(Cause::NotAdmitted(NotAdmitted::new(why).into()));
        match self.standings.of(master) {
            Standing::Counts => None,
            Standing::TwinOf(other) => Some(Cause::TwinOf(self.names[other].to_string())),
            Standing::Replica => not_admitted(WhyNot::Replica),
            Standing::NotMaster => not_admitted(WhyNot::NotMaster),
            Standing::Cluster => not_admitted(WhyNot::Cluster),
        }
    }

    /// A first connection that is not made when its time is over has timed out, whether or not its
    /// node has got to report that.
    fn overdue(&self, master: usize, now: Instant) -> Option<Cause> {
        let is_connecting = self.links[master].state == State::Connecting;
        (is_connecting && now >= self.connecting_until).then_some(Cause::TimedOut)
    }

    /// Takes in what happened to the connection of `master`.
    pub(super) fn event(
        &mut self,
        master: usize,
        event: NodeEvent,
        now: Instant,
        observer: &mut Observer,
    ) -> News {
        let news = match event {
            NodeEvent::Up(facts) => self.up(master, &facts, now, observer),
            NodeEvent::Down { cause, retries_now } => {
                observer.down(
                    master,
                    &cause,
                    self.links[master].state.cause() != Some(&cause),
                    now,
                );
                self.down(master, cause, retries_now, now)
            }
            NodeEvent::KeyChanged(key) => {
                observer.counters.pushes.add(1);
                News::KeyChanged(key)
            }
            NodeEvent::DataLost => {
                observer.counters.pushes.add(1);
                News::DataLost
            }
            _ => News::None,
        };
        self.urge(master);
        news
    }

    fn up(&mut self, master: usize, facts: &Facts, now: Instant, observer: &mut Observer) -> News {
        observer.up(master);
        let link = &mut self.links[master];
        link.state = State::Up;
        link.is_barred = false;
        if link.tracks.replace(facts.tracks) != Some(false) && !facts.tracks {
            observer.no_pushes(master, now);
        }
        let was_unbarred = std::mem::replace(&mut link.is_unbarred, !facts.is_barred);
        if !facts.is_barred && !was_unbarred {
            observer.unbarred(master, now);
        }
        let is_new = self.standings.up(master, facts);
        if let Some(cause) = self.obstacle(master) {
            observer.not_counting(master, &cause, now);
        }
        if is_new { News::Restarted } else { News::Up }
    }

    fn down(&mut self, master: usize, cause: Cause, retries_now: bool, now: Instant) -> News {
        let has_ended = cause == Cause::ConnectionRefused;
        self.links[master].state =
            if retries_now { State::Reviving(now, cause) } else { State::Down(cause) };
        if has_ended { News::Ended } else { News::Down }
    }

    /// Some lease is held from now on, or none is.
    pub(super) fn set_holding(&mut self, is_holding: bool) {
        if std::mem::replace(&mut self.is_holding, is_holding) != is_holding {
            (0..self.len()).for_each(|master| self.urge(master));
        }
    }

    /// The meeting point of a key: of the masters that are connected, count, report changes and
    /// were not slow a moment ago, that with the largest hash. Contenders that see other masters
    /// choose another one, which costs them time and nothing else.
    pub(super) fn meeting_point(&self, key: &[u8], now: Instant) -> Option<usize> {
        let suits = |master: &usize| {
            let link = &self.links[*master];
            link.state == State::Up
                && link.tracks == Some(true)
                && link.suspect_until <= now
                && self.standings.of(*master) == Standing::Counts
        };
        (0..self.len()).filter(suits).max_by_key(|master| self.standings.weight(*master, key))
    }

    /// `master` was slow to answer: for a moment it is no meeting point.
    pub(super) fn suspect(&mut self, master: usize, until: Instant) {
        self.links[master].suspect_until = until;
    }

    /// Whether `master` reports changes of keys; none where it is not connected.
    pub(super) fn tracks(&self, master: usize) -> Option<bool> {
        let link = &self.links[master];
        link.tracks.filter(|_| link.state == State::Up)
    }

    /// What `master` has answered to an attempt.
    pub(super) fn answered(&mut self, master: usize, verdict: &Verdict) {
        self.links[master].is_barred = is_barring(verdict);
    }

    /// The masters that answered the last attempt with what waiting does not cure.
    pub(super) fn barred(&self) -> MasterSet {
        (0..self.len()).filter(|master| self.links[*master].is_barred).collect()
    }

    fn urge(&mut self, master: usize) {
        let link = &mut self.links[master];
        let is_urgent = self.is_holding && link.state != State::Up;
        if std::mem::replace(&mut link.is_urgent, is_urgent) != is_urgent {
            self.nodes[master].set_urgent(is_urgent);
        }
    }

    /// Whether what `master` holds counts: it may have become a replica of another server.
    pub(super) fn counts(&self, master: usize) -> bool {
        self.standings.of(master) == Standing::Counts
    }

    pub(super) fn is_up(&self, master: usize) -> bool {
        self.links[master].state == State::Up
    }

    /// Whether a late SET may still arrive over an earlier connection to `master`.
    pub(super) fn is_unbarred(&self, master: usize) -> bool {
        self.links[master].is_unbarred
    }

    /// Whether some master was never reached yet, and still may be.
    pub(super) fn is_connecting(&self) -> bool {
        self.links.iter().any(|link| link.state == State::Connecting)
    }

    /// Whether a quorum of masters is connected.
    pub(super) fn has_quorum(&self) -> bool {
        self.up_count() >= quorum(self.len())
    }

    /// Since when connections that make up a quorum are being made again; none where there is a
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

fn unsent_vote(master: usize, ticket: u128, now: Instant, cause: Cause) -> Vote {
    Vote::new(master, ticket, now, Answer::unsent(cause))
}

/// How long requests wait for connections that broke and are being made again.
pub(super) const REVIVAL: Duration = Duration::from_millis(50);
