//! `Mailbox`: the commands of callers, and the answers of masters.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use redlock_core::{NodeEvent, Sink, Vote};

use super::command::Command;
use super::doorbell::Doorbell;

/// Commands from callers, signals from masters, and which links have something to do.
///
/// The driver reads it and never writes to it. Nothing is done while its lock is held.
pub(crate) struct Mailbox {
    letters: Mutex<Letters>,
    /// There are commands, or signals: for a first check without the lock, under which they are
    /// set.
    has_commands: AtomicBool,
    has_signals: AtomicBool,
    /// One bit per woken link.
    links: AtomicU32,
    doorbell: Doorbell,
}

#[derive(Default)]
struct Letters {
    commands: Vec<Command>,
    signals: Signals,
    /// The driver has ended, and no command is read.
    is_closed: bool,
}

/// The masters' answers, and the events of their connections.
#[derive(Default)]
pub(super) struct Signals {
    /// In the order in which it was seen.
    pub(super) order: Vec<Signal>,
    pub(super) votes: Vec<Vote>,
}

pub(super) enum Signal {
    /// The next so many of the votes. Nearly all signals are votes, and they come many at a time:
    /// they are handed over in one piece, and none is moved by itself.
    Votes(usize),
    Event(usize, Box<NodeEvent>),
}

impl Signals {
    fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Counts added votes.
    fn count(&mut self, more: usize) {
        match self.order.last_mut() {
            Some(Signal::Votes(count)) => *count += more,
            _ => self.order.push(Signal::Votes(more)),
        }
    }
}

impl Mailbox {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            letters: Mutex::default(),
            has_commands: AtomicBool::new(false),
            has_signals: AtomicBool::new(false),
            links: AtomicU32::new(0),
            doorbell: Doorbell::new(),
        })
    }

    /// Leaves a command. Once the mailbox is closed it is dropped, and with it the way to answer
    /// it: that is how its caller finds out.
    pub(crate) fn post(&self, command: Command) {
        let mut letters = self.letters();
        if letters.is_closed {
            drop(letters);
            return drop(command);
        }
        letters.commands.push(command);
        self.has_commands.store(true, Ordering::Release);
        drop(letters);
        self.doorbell.ring();
    }

    /// Drops all letters, now and later.
    pub(super) fn close(&self) {
        let mut letters = self.letters();
        letters.is_closed = true;
        let left = std::mem::take(&mut letters.commands);
        drop(letters);
        drop(left);
    }

    /// Requests a turn of the driver.
    pub(super) fn ring(&self) {
        self.doorbell.ring();
    }

    pub(super) fn link_waker(self: &Arc<Self>, master: usize) -> Waker {
        Waker::from(Arc::new(LinkWaker { mailbox: self.clone(), bit: 1 << master }))
    }

    /// The driver begins its turn, and wants `waker` woken once it sleeps.
    pub(super) fn begin(&self, waker: &Waker) {
        self.doorbell.begin(waker);
    }

    /// Returns `true` if commands were left since they were taken.
    #[inline]
    pub(super) fn has_commands(&self) -> bool {
        self.has_commands.load(Ordering::Acquire)
    }

    /// Returns `true` if signals have come since they were taken.
    #[inline]
    pub(super) fn has_signals(&self) -> bool {
        self.has_signals.load(Ordering::Acquire)
    }

    /// Every command that was left so far goes into `into`, which is empty.
    pub(super) fn take_commands(&self, into: &mut Vec<Command>) {
        self.has_commands.store(false, Ordering::Relaxed);
        std::mem::swap(&mut self.letters().commands, into);
    }

    /// Every signal that came so far goes into `into`, which is empty.
    pub(super) fn take_signals(&self, into: &mut Signals) {
        self.has_signals.store(false, Ordering::Relaxed);
        std::mem::swap(&mut self.letters().signals, into);
    }

    /// The links that were woken since the last call, a bit each.
    pub(super) fn take_links(&self) -> u32 {
        self.links.swap(0, Ordering::SeqCst)
    }

    /// Returns `true` if no command and no signal was left.
    pub(super) fn is_empty(&self) -> bool {
        let letters = self.letters();
        letters.commands.is_empty() && letters.signals.is_empty()
    }

    /// Returns `true` if there is nothing left to do, so that the driver may sleep.
    pub(super) fn may_sleep(&self) -> bool {
        self.doorbell.may_sleep(|| self.links.load(Ordering::SeqCst) == 0 && self.is_empty())
    }

    /// No code that holds this lock can panic half-way through a change.
    fn letters(&self) -> MutexGuard<'_, Letters> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signal(&self, add: impl FnOnce(&mut Signals)) {
        let mut letters = self.letters();
        add(&mut letters.signals);
        self.has_signals.store(true, Ordering::Release);
        drop(letters);
        self.doorbell.ring();
    }
}

impl Sink for Mailbox {
    fn vote(&self, vote: Vote) {
        self.signal(|signals| {
            signals.count(1);
            signals.votes.push(vote);
        });
    }

    fn votes(&self, votes: &mut Vec<Vote>) {
        self.signal(|signals| {
            signals.count(votes.len());
            // Nearly always: the driver has taken the votes of the link before.
            if signals.votes.is_empty() {
                std::mem::swap(&mut signals.votes, votes);
            } else {
                signals.votes.append(votes);
            }
        });
    }

    fn event(&self, master: usize, event: NodeEvent) {
        let event = Signal::Event(master, Box::new(event));
        self.signal(|signals| signals.order.push(event));
    }
}

struct LinkWaker {
    mailbox: Arc<Mailbox>,
    bit: u32,
}

impl Wake for LinkWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.mailbox.links.fetch_or(self.bit, Ordering::SeqCst);
        self.mailbox.doorbell.ring();
    }
}
