//! `Mail`: what comes from masters, until a client reads it.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use redlock_core::{NodeEvent, Sink, Vote};

/// What has come from masters and was not read yet.
#[derive(Debug)]
pub(crate) struct Mail {
    number: usize,
    unread: Mutex<Vec<Signal>>,
    /// The clients with unread mail, as bits.
    ready: Arc<AtomicU64>,
}

#[derive(Debug)]
pub(crate) enum Signal {
    Vote(Vote),
    Event(usize, Box<NodeEvent>),
}

impl Mail {
    pub(crate) fn new(number: usize, ready: Arc<AtomicU64>) -> Arc<Self> {
        Arc::new(Self { number, unread: Mutex::default(), ready })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ready.load(Ordering::Relaxed) & 1 << self.number == 0
    }

    fn put(&self, signal: Signal) {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner).push(signal);
        self.ready.fetch_or(1 << self.number, Ordering::Relaxed);
    }

    pub(crate) fn take(&self) -> Vec<Signal> {
        self.ready.fetch_and(!(1 << self.number), Ordering::Relaxed);
        mem::take(&mut *self.unread.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Sink for Mail {
    fn vote(&self, vote: Vote) {
        self.put(Signal::Vote(vote));
    }

    fn event(&self, master: usize, event: NodeEvent) {
        self.put(Signal::Event(master, Box::new(event)));
    }
}
