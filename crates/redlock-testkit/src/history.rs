//! `History`: what contenders for locks saw, in the order in which they saw it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redlock_core::{Clock, Instant};

/// An event that a contender saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The contender began to try.
    Invoked,
    /// The contender holds the lock until this instant. Each extension has its own record.
    Granted {
        /// Until when, on the history's clock.
        until: Instant,
    },
    /// The lock that it holds has this fencing token. Said when the lock is returned, not for
    /// extensions.
    Fenced {
        /// The token.
        fencing_token: u64,
        /// Until when it holds the lock, on the history's clock.
        until: Instant,
    },
    /// The contender does not hold the lock.
    Refused,
    /// The contender does not know the outcome, and so must not use the lock.
    Unknown,
    /// The contender stopped using the lock.
    Released,
    /// The contender learned that the lock is lost.
    Lost,
    /// The contender completed a job that must run once, and the masters keep its completion mark.
    Completed {
        /// For which fire.
        fire: u64,
    },
}

/// One line of a [`History`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Record {
    /// When.
    pub at: Instant,
    /// The number of the contender.
    pub contender: usize,
    /// Of which resource.
    pub resource: Arc<str>,
    /// The token of the attempt; empty if there is none yet.
    pub token: Arc<str>,
    /// The event.
    pub event: Event,
}

impl Record {
    /// Creates a record for a checker that judges a history while it is written.
    pub fn new(
        at: Instant,
        contender: usize,
        resource: Arc<str>,
        token: Arc<str>,
        event: Event,
    ) -> Self {
        Self { at, contender, resource, token, event }
    }
}

/// A log that many contenders write into, all by one clock.
#[derive(Debug)]
pub struct History {
    clock: Clock,
    records: Mutex<Vec<Record>>,
}

impl History {
    /// Creates an empty history. `clock` must also be the clock of the locks under test, because
    /// the ends of their leases are compared with it.
    pub fn new(clock: Clock) -> Self {
        Self { clock, records: Mutex::default() }
    }

    /// Returns the log of one contender for one resource.
    pub fn contender(self: &Arc<Self>, contender: usize, resource: &str) -> Contender {
        Contender { history: self.clone(), contender, resource: resource.into() }
    }

    /// Returns all records so far.
    pub fn records(&self) -> Vec<Record> {
        self.log().clone()
    }

    /// No code that holds this lock can panic half-way through a change.
    fn log(&self) -> MutexGuard<'_, Vec<Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes into a [`History`] in the name of one contender for one resource.
#[derive(Clone, Debug)]
pub struct Contender {
    history: Arc<History>,
    contender: usize,
    resource: Arc<str>,
}

impl Contender {
    /// Call this before trying.
    pub fn invoke(&self) {
        self.record("", Event::Invoked);
    }

    /// Call this when the lock is held, and after every extension, with the end of the lease.
    pub fn granted(&self, token: &str, until: Instant) {
        self.record(token, Event::Granted { until });
    }

    /// Call this when the lock is returned, with its fencing token and the end of the lease.
    pub fn fenced(&self, token: &str, fencing_token: u64, until: Instant) {
        self.record(token, Event::Fenced { fencing_token, until });
    }

    /// Call this when the lock is not held.
    pub fn refused(&self) {
        self.record("", Event::Refused);
    }

    /// Call this when it is not known whether the lock is held.
    pub fn unknown(&self) {
        self.record("", Event::Unknown);
    }

    /// Call this *before* the release is sent: from then on the lock may be another's.
    pub fn released(&self, token: &str) {
        self.record(token, Event::Released);
    }

    /// Call this when the lock is known to be lost.
    pub fn lost(&self, token: &str) {
        self.record(token, Event::Lost);
    }

    /// Call this when work for a fire is completed, and known to be marked.
    pub fn completed(&self, fire: u64) {
        self.record("", Event::Completed { fire });
    }

    fn record(&self, token: &str, event: Event) {
        let (contender, resource) = (self.contender, self.resource.clone());
        let token = token.into();
        // The clock is read under the lock, so that the log is in the order of its instants.
        let mut log = self.history.log();
        let at = self.history.clock.now();
        log.push(Record { at, contender, resource, token, event });
    }
}
