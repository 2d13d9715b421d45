//! The driver: the only shell around the client of `redlock-protocol`.
//!
//! It is a separate task. It reads commands and signals from the mailbox, passes each of them to
//! the client, and carries the effects out. It has no rule of the protocol. In reading order:
//! `mailbox` (its input), `command`; `entries` (callers and cells), `present` (clock, random
//! source, cells), `effects` (the consequences), `nodes` (requests to masters), `observing`,
//! `observe` (numbers and log); `runtimes` (the runtime that runs it), `slot` and `task`.

pub(crate) mod command;
mod doorbell;
mod effects;
mod entries;
pub(crate) mod held_lock;
pub(crate) mod mailbox;
mod nodes;
mod observe;
pub(crate) mod observing;
mod present;
#[cfg(feature = "recording")]
pub mod recording;
pub(crate) mod reply;
pub(crate) mod runtimes;
pub(crate) mod slot;
mod task;

/// The primitives of the doorbell. Its model compiles it with other types of the same names.
mod sync {
    pub(super) use std::sync::atomic::{AtomicBool, Ordering};

    pub(super) use futures_util::task::AtomicWaker;
}

use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use redlock_core::admission::Names;
use redlock_core::{Clock, Instant, Node, NodeEvent};
use redlock_protocol::client::Client;
use redlock_protocol::client::effects::Effects;
use redlock_protocol::client::ids::{HoldId, RequestId};
use redlock_protocol::client::input::{Input, Inspect, Returned};
use redlock_protocol::client::questions::About;
use redlock_protocol::client::terms::Terms;

use self::command::{Command, MarkRequest};
use self::entries::{Entries, Entry};
use self::mailbox::{Mailbox, Signal, Signals};
use self::nodes::Nodes;
use self::observe::Observer;
use self::observing::{Observers, Observing};
use self::present::Present;
use self::slot::Slot;
use crate::counters::Counters;
use crate::error::Unreleased;
use crate::lost::Ended;
use crate::settings::{Quarantine, Settings};

/// The complete state of the driver. It outlives the task that works on it: if a runtime goes away,
/// the next use of the handle continues it on another one.
pub(crate) struct Driver {
    clock: Clock,
    mailbox: Arc<Mailbox>,
    slot: Weak<Slot>,
    nodes: Nodes,
    client: Client,
    #[cfg(feature = "recording")]
    tapped: recording::Tapped,
    entries: Entries,
    observers: Observers,
    observer: Observer,
    /// The links, as bits, that write what they have before the others: a master that calls the
    /// next holder does so while the others are still written to.
    driven_first: u32,
    /// The last commands were several at a time.
    had_several: bool,
    // Buffers that are used again.
    commands: Vec<Command>,
    signals: Signals,
    effects: Effects,
}

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
        let Setup { clock, nodes, settings, seed, counters } = setup;
        let nodes = Nodes::new(nodes, mailbox.clone());
        let terms = Terms {
            names: Names::new(nodes.names.iter().cloned()),
            limits: settings.limits,
            prefix: settings.prefix.to_vec(),
            has_quarantine: settings.quarantine == Quarantine::On,
            fencing: settings.fencing,
            queue: settings.queue,
            hand_over: settings.hand_over,
            seed,
        };
        Self {
            clock,
            mailbox,
            slot,
            #[cfg(feature = "recording")]
            tapped: recording::Tapped::new(&terms),
            client: Client::new(terms),
            entries: Entries::default(),
            observers: Observers::default(),
            observer: Observer::new(counters, nodes.names.clone()),
            nodes,
            driven_first: 0,
            had_several: false,
            commands: Vec::new(),
            signals: Signals::default(),
            effects: Effects::default(),
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
        self.begin(waker);
        self.read_commands();
        self.read_signals();
        // Only what the links write in this turn leaves the line: its node timeout runs from here.
        self.drive_links();
        self.read_commands();
        self.read_signals();
        self.handle(Input::Alarms { seen });
        self.observer.report_suppressed(seen);
        self.nodes.hand_over();
        self.observer.publish(&self.client);
        if self.client.is_closed(self.clock.now()) {
            return Poll::Ready(());
        }
        if self.effects.wants_turn || !self.mailbox.may_sleep() {
            waker.wake_by_ref();
        }
        Poll::Pending
    }

    /// A turn begins, or work without one.
    fn begin(&mut self, waker: &Waker) {
        self.mailbox.begin(waker);
        self.effects.is_traced = observe::is_traced();
    }

    /// Returns `true` if callers come several at a time. Requests in flight show that as well: if
    /// each caller wakes the driver before the next one runs, commands come one by one, however
    /// many there are.
    fn is_busy(&self) -> bool {
        self.had_several || self.client.is_busy()
    }

    /// Returns `true` if a lease is valid, by the latest answers.
    fn holds(&self) -> bool {
        self.client.locks().valid_leases() > 0
    }

    /// Returns when the driver has something to do, if nothing comes in before.
    fn next_due(&self) -> Option<Instant> {
        [self.client.next_due(), self.observer.due()].into_iter().flatten().min()
    }

    /// Passes an input to the client, and carries out the effects.
    fn handle(&mut self, input: Input<'_>) {
        self.handle_at(input, None);
    }

    /// The same for inputs that were read from a clock that was read once for all of them.
    fn handle_at(&mut self, input: Input<'_>, now: Option<Instant>) {
        let present = &mut Present { clock: &self.clock, now, entries: &self.entries };
        #[cfg(not(feature = "recording"))]
        self.client.handle(input, present, &mut self.effects);
        #[cfg(feature = "recording")]
        self.tapped.handle(&mut self.client, input, present, &mut self.effects);
        self.carry_out();
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
            let now = Some(self.clock.now());
            for command in commands.drain(..) {
                let input = self.input(command);
                self.handle_at(input, now);
            }
        }
        self.commands = commands;
    }

    /// Enters the caller of a command, and returns what the client learns of it.
    fn input(&mut self, command: Command) -> Input<'static> {
        let entries = &mut self.entries;
        let inspect =
            |about, node_timeout, masters| Inspect { about, node_timeout, masters }.into();
        match command {
            Command::Acquire(caller, reply) => {
                let asked_at = caller.asked_at;
                let id = entries.enter_with(|id| {
                    reply.enter(id);
                    Entry::Asks(reply, asked_at)
                });
                Input::Acquire(id, caller)
            }
            Command::Extend { hold, ttl, reply } => {
                Input::Extend(hold, ttl, entries.enter(Entry::Extends(reply)))
            }
            Command::Keep { hold } => Input::Keep(hold),
            Command::Release { hold, reply } => {
                let reply = reply.map(|reply| entries.enter(Entry::Releases(reply)));
                Input::Returned(self.returned(hold, reply))
            }
            Command::Forget { hold } => Input::Forget(hold),
            Command::Accepted { hold } => Input::Accepted(hold),
            Command::ReleaseToken(token, reply) => {
                Input::ReleaseToken(token, entries.enter(Entry::Releases(reply)))
            }
            Command::Withdrawn { entry } => {
                let id = entry.get();
                entries.withdrawn(id);
                Input::Withdrawn(id)
            }
            Command::Status { key, node_timeout, reply } => Input::Inspect(
                inspect(About::Status(key.into()), node_timeout, None),
                entries.enter(Entry::Status(reply)),
            ),
            Command::Waiters { queue, node_timeout, reply } => Input::Inspect(
                inspect(About::Waiters(queue.into(), 0), node_timeout, None),
                entries.enter(Entry::Waiters(reply)),
            ),
            Command::Mark(MarkRequest { key, node_timeout, raise, masters }, reply) => {
                let about = About::Mark(key.into(), raise, Vec::new());
                Input::Inspect(
                    inspect(about, node_timeout, Some(masters)),
                    entries.enter(Entry::Mark(reply)),
                )
            }
            Command::Observe(wanted, reply) => {
                let (node_timeout, is_look) = (wanted.node_timeout, wanted.is_look);
                let key = wanted.key.clone().into();
                let observing = Observing::new(wanted.key, reply);
                let reply = entries.enter(Entry::Observes(observing.into()));
                Input::Observe { key, node_timeout, is_look, reply }
            }
            Command::Init(options, reply) => {
                Input::Init(options.order(), entries.enter(Entry::Inits(reply)))
            }
            Command::Report(reply) => Input::Report(entries.enter(Entry::Reports(reply))),
            Command::Close { within, reply } => {
                self.observers.clear();
                Input::Close(within, entries.enter_closing(reply))
            }
        }
    }

    /// The cell of a returned lock shows how its lease ended, and whether its token is known.
    fn returned(&self, hold: HoldId, reply: Option<RequestId>) -> Returned {
        let locks = self.client.locks();
        let lock = locks.held_by(hold).and_then(|id| locks.get(id));
        let cell = lock.and_then(|lock| self.entries.cell(lock.holder()?));
        let lost = match cell.and_then(|cell| cell.ended()) {
            Some(Ended::Lost(lost)) => Some(lost.reason),
            _ => None,
        };
        let is_token_known = cell.is_some_and(|cell| cell.is_token_known());
        Returned { hold, lost, is_token_known, reply }
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
                    votes.by_ref().take(count).for_each(|vote| self.handle(Input::Vote(vote)));
                }
                Signal::Event(master, event) => {
                    if let NodeEvent::KeyChanged(key) = &*event {
                        self.observers.key_changed(key);
                    }
                    self.handle(Input::Event(master, *event));
                }
            }
        }
        signals.votes.clear();
        self.signals = signals;
    }

    /// Moves the line, and polls only the woken links. The votes read by each link are processed
    /// before the next, so that a caller is woken as soon as its deciding reply has arrived.
    fn drive_links(&mut self) {
        self.handle(Input::Turn);
        self.nodes.hand_over();
        let woken = self.mailbox.take_links();
        let first = std::mem::take(&mut self.driven_first);
        for links in [woken & first, woken & !first] {
            for master in (0..self.nodes.len()).filter(|master| links & 1 << master != 0) {
                self.nodes.drive(master);
                self.read_signals();
            }
        }
    }

    /// Opens the links, and continues the work that the previous runtime left.
    fn connect(&mut self) {
        self.nodes.connect();
        self.handle(Input::Connect);
    }

    /// Closes the connections. Every unanswered request becomes *unknown*.
    fn disconnect(&mut self) {
        self.nodes.disconnect();
        self.handle(Input::Disconnect);
    }

    /// Leaves a runtime that is going away, after doing everything that needs no waiting. Requested
    /// releases are handed to the sockets, which write as much as they can without waiting.
    fn leave(&mut self) {
        self.begin(Waker::noop());
        self.read_commands();
        self.drive_links();
        self.park();
    }

    /// Records that no task works on the driver from here on. Callers that wait for answers retry
    /// on their own runtime, and releases and leases wait for the next task.
    fn park(&mut self) {
        self.read_commands();
        self.read_signals();
        self.handle(Input::Dismiss);
        self.entries.dismiss();
        self.observers.clear();
        self.disconnect();
        self.read_signals();
        self.handle(Input::Park);
        self.observer.publish(&self.client);
    }

    /// Starts no new work, and waits for nothing.
    fn close(&mut self) {
        self.handle(Input::Close(Duration::ZERO, None));
    }

    /// Reports the keys left on masters to callers that wait for the end, now or later. The
    /// connections are closed, and their signals are no longer read.
    fn finish(&mut self) -> Result<(), Unreleased> {
        self.observer.all_down();
        let remains = self.client.remains(self.clock.now());
        let outcome = Unreleased::of(remains, &self.nodes.names).into_result();
        self.entries.closed(&outcome);
        self.mailbox.close();
        outcome
    }

    /// Handles a panic of the driver's task, after which no part of the client can be trusted: only
    /// the keys that are left on masters are read from it.
    fn panicked(&mut self) -> Result<(), Unreleased> {
        self.nodes.disconnect();
        let now = self.clock.now();
        for cell in self.entries.panicked() {
            self.observer.lost(&cell, now);
        }
        self.finish()
    }
}
