//! The driver: the only shell around the protocol. It sends, keeps time, and answers callers.
//!
//! It is a separate task. It reads commands and signals from the mailbox, passes each of them to its
//! machine, and executes the resulting step. In reading order: `mailbox` (its input), `command`;
//! `lock` (one token, its machine and its caller), `due`; `runtimes` (the runtime that runs it) and
//! `task`; `acquire` (from a request to a lease, with its attempts and ballots), `hold` (extensions),
//! `release`, `inspect`; `keys`, `masters` and `questions` (inputs of the parts, and their
//! consequences), `nodes` (requests to masters), `close` (shutdown).

mod acquire;
mod close;
pub(crate) mod command;
mod doorbell;
mod due;
pub(crate) mod hold;
mod inspect;
mod keys;
mod lock;
mod locks;
mod looks;
pub(crate) mod mailbox;
mod masters;
mod nodes;
mod observe;
pub(crate) mod observing;
mod questions;
mod release;
pub(crate) mod reply;
pub(crate) mod runtimes;
pub(crate) mod slot;
mod task;

/// The primitives of the doorbell. Its model compiles it with other types of the same names.
mod sync {
    pub(super) use std::sync::atomic::{AtomicBool, Ordering};

    pub(super) use futures_util::task::AtomicWaker;
}

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use redlock_core::admission::Names;
use redlock_core::{Answer, Clock, Instant, Node, Op, Vote};
use redlock_protocol::client::callers::Callers;
use redlock_protocol::client::table::Table;

use self::acquire::Start;
use self::close::Closing;
use self::command::{AcquireReply, Command, MarkRequest};
use self::inspect::Inspecting;
use self::locks::Locks;
use self::mailbox::{Mailbox, Signal, Signals};
use self::nodes::Nodes;
use self::observe::Observer;
use self::observing::Observers;
use self::questions::Askers;
use self::slot::Slot;
use crate::counters::Counters;
use crate::settings::Settings;
use redlock_protocol::client::draws::Draws;
use redlock_protocol::client::ids::Ticket;
use redlock_protocol::client::key::Keys;
use redlock_protocol::client::line::Line;
use redlock_protocol::client::locks::unacknowledged::Unacknowledged;
use redlock_protocol::client::masters::{Masters, News};
use redlock_protocol::client::questions::{About, Questions};
use redlock_protocol::client::timers::Timers;
use redlock_protocol::master_set::MasterSet;
use redlock_protocol::token::lifecycle::{Answered, Asked, Event};
use redlock_protocol::votes::answer::{Counts, Judged};

/// The complete state of the driver. It outlives the task that works on it: if a runtime goes away,
/// the next use of the handle continues it on another one.
///
/// Each table is bounded by the callers' requests and locks, by the line (1,000,000 entries), and
/// by the releases that a master may leave unacknowledged (10,000).
pub(crate) struct Driver {
    clock: Clock,
    mailbox: Arc<Mailbox>,
    slot: Weak<Slot>,
    settings: Settings,
    draws: Draws,
    nodes: Nodes,
    masters: Masters,
    requests: Callers<AcquireReply>,
    locks: Locks,
    line: Line,
    keys: Keys,
    observers: Observers,
    /// The links, as bits, that write what they have before the others: a master that calls the
    /// next holder does so while the others are still written to.
    driven_first: u32,
    /// How long a vote takes at present.
    fan_out: Duration,
    timers: Timers,
    unacknowledged: Vec<Unacknowledged>,
    observer: Observer,
    start: Start,
    questions: Questions,
    askers: Askers,
    closing: Option<Closing>,
    /// The last commands were several at a time.
    had_several: bool,
    /// Extensions that wait for the first connections.
    early: Vec<Command>,
    // Buffers that are used again.
    commands: Vec<Command>,
    signals: Signals,
    news: Vec<News>,
    /// Votes that are known without a request, until the present input is handled.
    known: VecDeque<Vote>,
}

/// The assumed duration of a vote before one was measured.
const FAN_OUT: Duration = Duration::from_micros(500);

/// The parameters of a driver.
pub(crate) struct Setup {
    pub(crate) clock: Clock,
    pub(crate) nodes: Arc<[Arc<dyn Node>]>,
    pub(crate) settings: Settings,
    /// Draws the random pauses.
    pub(crate) seed: u64,
    pub(crate) counters: Arc<Counters>,
}

impl Driver {
    fn new(setup: Setup, mailbox: Arc<Mailbox>, slot: Weak<Slot>) -> Self {
        let nodes = Nodes::new(setup.nodes, mailbox.clone());
        let names = Names::new(nodes.names.iter().cloned());
        let questions = questions::terms(&setup.settings, names.clone());
        let masters = Masters::new(masters::terms(&setup.settings, names));
        let draws = Draws::new(setup.seed);
        let keys = keys::terms(&setup.settings, draws);
        Self {
            driven_first: 0,
            draws,
            clock: setup.clock,
            mailbox,
            slot,
            settings: setup.settings,
            questions: Questions::new(questions),
            askers: Askers::default(),
            unacknowledged: (0..masters.len()).map(Unacknowledged::new).collect(),
            observer: Observer::new(setup.counters, nodes.names.clone()),
            nodes,
            masters,
            requests: Table::default(),
            locks: Locks::default(),
            line: Line::default(),
            keys: Keys::new(keys),
            observers: Observers::default(),
            fan_out: FAN_OUT,
            timers: Timers::default(),
            start: Start::Parked,
            closing: None,
            had_several: false,
            early: Vec::new(),
            commands: Vec::new(),
            signals: Signals::default(),
            news: Vec::new(),
            known: VecDeque::new(),
        }
    }

    /// Does all pending work, once. Ready when the handle is closed and nothing is left to do.
    ///
    /// Input that arrives during the turn is left for the next turn, after the other tasks of the
    /// runtime ran, so that requests of many tasks are written together. This is also necessary
    /// because a socket that has used up its share of the runtime answers "pending, but poll
    /// again", and would be polled without end.
    ///
    /// Replies received before `seen` are read in this turn, so timers fire only up to `seen`.
    fn turn(&mut self, waker: &Waker, seen: Instant) -> Poll<()> {
        self.mailbox.begin(waker);
        self.observer.begin();
        self.read_commands();
        self.read_signals();
        // Only what the links write in this turn leaves the line: its node timeout runs from here.
        self.advance_line();
        self.drive_links();
        self.read_commands();
        self.read_signals();
        self.fire_timers(seen);
        self.nodes.hand_over();
        self.publish_numbers();
        if self.is_closed() {
            return Poll::Ready(());
        }
        if self.may_send() || !self.mailbox.may_sleep() {
            waker.wake_by_ref();
        }
        Poll::Pending
    }

    /// Returns `true` if callers come several at a time. Requests in flight show that as well: if
    /// each caller wakes the driver before the next one runs, commands come one by one, however
    /// many there are.
    fn is_busy(&self) -> bool {
        self.had_several || self.line.is_busy()
    }

    /// Whether a lease is valid, by the latest answers.
    fn holds(&self) -> bool {
        self.locks.valid_leases() > 0
    }

    /// Leaves a runtime that is going away, after doing everything that needs no waiting. Requested
    /// releases are handed to the sockets, which write as much as they can without waiting.
    fn leave(&mut self) {
        self.mailbox.begin(Waker::noop());
        self.observer.begin();
        self.read_commands();
        if self.start == Start::Done {
            self.advance_line();
            self.drive_links();
        }
        self.park();
    }

    fn read_commands(&mut self) {
        if !self.mailbox.has_commands() {
            return;
        }
        let mut commands = std::mem::take(&mut self.commands);
        self.mailbox.take_commands(&mut commands);
        if !commands.is_empty() {
            self.had_several = commands.len() > 1;
            // Read once for all of them, after the last one.
            let now = self.now();
            for command in commands.drain(..) {
                self.command(command, now);
                self.settle();
            }
        }
        self.commands = commands;
    }

    fn command(&mut self, command: Command, now: Instant) {
        match command {
            Command::Extend { .. } | Command::Report(_) if self.start != Start::Done => {
                self.early.push(command);
            }
            Command::Init(options, reply) => self.init(options, reply, now),
            Command::Report(reply) => self.report(reply, now),
            Command::Acquire(request) => self.request(request, now),
            Command::Extend { hold, ttl, reply } => self.extend(hold, ttl, reply, now),
            Command::Release { hold, reply } => self.release(hold, reply, now),
            Command::Keep { hold } => self.holder_wants(hold, Event::Kept, now),
            Command::Forget { hold } => self.holder_wants(hold, Event::GivenAway, now),
            Command::Accepted { hold } => {
                if let Some(id) = self.locks.held_by(hold) {
                    self.locks.schedule(id, &mut self.timers);
                }
            }
            Command::ReleaseLease(lease) => self.release_lease(*lease, now),
            Command::Status { key, node_timeout, reply } => {
                let (about, all) = (About::Status(key.into()), self.masters.all());
                self.inspect(about, all, node_timeout, Inspecting::Status(reply));
            }
            Command::Waiters { queue, node_timeout, reply } => {
                let (about, all) = (About::Waiters(queue.into(), 0), self.masters.all());
                self.inspect(about, all, node_timeout, Inspecting::Waiters(reply));
            }
            Command::Mark(request, reply) => {
                let MarkRequest { key, node_timeout, raise, masters } = request;
                let about = About::Mark(key.into(), raise, Vec::new());
                self.inspect(about, masters, node_timeout, Inspecting::Mark(reply));
            }
            Command::Observe(wanted, reply) => self.observe(wanted, reply, now),
            Command::Withdrawn { entry } => {
                self.with_keys(now, |keys, cx| keys.withdrawn(entry.get(), cx));
            }
            Command::Close { within, reply } => self.close(within, reply),
        }
    }

    /// Called after each link and usually finds nothing, so the slow path is a separate function.
    #[inline]
    fn read_signals(&mut self) {
        if self.mailbox.has_signals() {
            self.take_signals();
        }
    }

    #[inline(never)]
    fn take_signals(&mut self) {
        let mut signals = std::mem::take(&mut self.signals);
        self.mailbox.take_signals(&mut signals);
        let mut votes = signals.votes.iter();
        for signal in signals.order.drain(..) {
            match signal {
                Signal::Votes(count) => {
                    for vote in votes.by_ref().take(count) {
                        self.vote(vote);
                        self.settle();
                    }
                }
                Signal::Event(master, event) => {
                    self.event(master, *event);
                    self.settle();
                }
            }
        }
        signals.votes.clear();
        self.signals = signals;
    }

    /// Sends the same request to each of `masters`, also to masters that do not vote, together with
    /// all other requests of this turn. Masters that cannot hold a key of ours receive nothing.
    /// Their votes are known, and are handled after the present input.
    fn send(&mut self, op: &Op, masters: MasterSet, ticket: Ticket, now: Instant) {
        // A held lease is extended and released whatever the recorded sets are.
        let is_attempt = matches!(ticket, Ticket::Attempt(_));
        let open = if is_attempt { self.masters.open() } else { self.masters.voting() };
        let packed = ticket.pack();
        for master in masters.iter() {
            if !open.contains(master)
                && let Some(cause) = self.masters.obstacle(master, is_attempt, now)
            {
                self.known.push_back(Vote::new(master, packed, now, Answer::unsent(cause)));
                continue;
            }
            self.nodes.submit(master, op, packed, now);
        }
    }

    /// Counts the votes that are known without a request. It ends each input, so that no machine
    /// is entered while it waits for another.
    #[inline]
    fn settle(&mut self) {
        while let Some(vote) = self.known.pop_front() {
            self.vote(&vote);
        }
    }

    fn vote(&mut self, vote: &Vote) {
        let now = vote.read_at.unwrap_or_else(|| self.now());
        let ticket = Ticket::unpack(vote.ticket);
        if let Ticket::Admission(asker) = ticket {
            return self.admission_vote(asker, vote, now);
        }
        let counts = self.masters.counts(vote, now);
        self.observer.counters.vote(vote.master, &counts.apply(&vote.answer.verdict));
        self.say_vote(vote, now);
        if counts == Counts::Yes {
            self.learn_score(vote);
        }
        let judged = Judged { answer: &vote.answer, counts: &counts };
        let of = |asked| Answered::of(asked, vote, judged);
        match ticket {
            Ticket::Admission(_) => {}
            Ticket::Attempt(lock) => self.attempt_vote(lock, vote, &counts, now),
            Ticket::Ballot(lock, number) => self.answered(lock, of(Asked::Ballot(number)), now),
            Ticket::Score(lock) => self.answered(lock, of(Asked::Score), now),
            Ticket::Extension(lock, number) => {
                self.extension_vote(lock, number, vote, judged, now);
            }
            Ticket::Readd(lock) => self.answered(lock, of(Asked::Readd), now),
            Ticket::Release(lock) => self.release_vote(lock, vote, judged, now),
            Ticket::Inspection(id) => self.inspection_vote(id, vote, &counts, now),
            Ticket::Watch(waiting, number) => {
                self.with_keys(now, |keys, cx| keys.watched((waiting, number), vote, cx));
            }
            Ticket::Place(waiting, number) => {
                self.with_keys(now, |keys, cx| keys.placed((waiting, number), vote, cx));
            }
            Ticket::Exit(lock) => self.left_queue(lock, vote, now),
        }
    }

    /// Polls only the woken links. The votes read by each link are processed before the next, so
    /// that a caller is woken as soon as its deciding reply has arrived.
    fn drive_links(&mut self) {
        self.nodes.hand_over();
        let woken = self.mailbox.take_links();
        let first = std::mem::take(&mut self.driven_first);
        for links in [woken & first, woken & !first] {
            for master in (0..self.masters.len()).filter(|master| links & 1 << master != 0) {
                self.nodes.drive(master);
                self.read_signals();
            }
        }
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }
}
