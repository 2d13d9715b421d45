//! [`Election`](crate::Election) for code that does not await.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use redlock_core::Resource;

use super::watch::Changes;
use super::{Redlock, Worker};
use crate::error::{AcquireError, ExtendError, ReleaseError};
use crate::guard::Hold;
use crate::lost::{Ended, LostReason};
use crate::recipes::election::Leader;
use crate::run_error::RunError;
use crate::status::Status;

impl Redlock {
    /// Returns the election with this name. See [`crate::Redlock::election`].
    pub fn election(&self, name: impl Into<Resource>) -> Election {
        Election { election: self.redlock.election(name), worker: self.worker.clone() }
    }
}

/// An election. See [`crate::Election`].
#[must_use = "elections do nothing unless used"]
#[derive(Clone)]
pub struct Election {
    election: crate::Election,
    worker: Arc<Worker>,
}

impl Election {
    /// Sets the text by which others know this candidate. See [`crate::Election::candidate`].
    pub fn candidate(mut self, text: impl Into<String>) -> Self {
        self.election = self.election.candidate(text);
        self
    }

    /// Sets how long to campaign. See [`crate::Election::wait`].
    pub fn wait(mut self, wait: Duration) -> Self {
        self.election = self.election.wait(wait);
        self
    }

    /// Sets how long the leadership lasts without being extended. See [`crate::Election::ttl`].
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.election = self.election.ttl(ttl);
        self
    }

    /// Ends a leadership this long after it was won. See [`crate::Election::max_hold`].
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.election = self.election.max_hold(max_hold);
        self
    }

    /// Waits until this candidate leads. See [`crate::Election::campaign`].
    ///
    /// # Errors
    /// The same as [`crate::Election::campaign`].
    pub fn campaign(&self) -> Result<Leadership, AcquireError> {
        let leadership = self.worker.wait(self.election.campaign());
        let leadership = leadership.unwrap_or(Err(AcquireError::Shutdown))?;
        Ok(Leadership { leadership, worker: self.worker.clone() })
    }

    /// Campaigns, runs the work on this thread while this candidate leads, and campaigns again if
    /// the leadership was lost. If the work returns as the leader, resigns and returns its output.
    ///
    /// Blocking work cannot be stopped from outside: call [`Hold::check`] between its steps, and
    /// return if it fails. That output is dropped, and the work runs again in the next leadership.
    ///
    /// # Errors
    /// Returns [`RunError::Acquire`] if a campaign fails.
    pub fn run<T>(self, mut work: impl FnMut(Hold) -> T) -> Result<T, RunError<T>> {
        loop {
            let leadership = self.campaign()?;
            let output = work(leadership.hold());
            if !leadership.is_held() {
                continue;
            }
            let handle = leadership.handle().clone();
            if let Err(error) = leadership.resign() {
                handle.warn_of_release(&error);
            }
            return Ok(output);
        }
    }

    /// Queries every master and returns who leads. See [`crate::Election::leader`].
    pub fn leader(&self) -> Leader {
        let leader = self.worker.wait(self.election.leader());
        leader.unwrap_or_else(|| {
            Leader::of(Status::unasked(self.election.names(), "the handle was shut down"))
        })
    }

    /// Returns an iterator over who leads. See [`crate::Election::observe`].
    pub fn observe(&self) -> Leaders {
        Leaders(Changes::new(self.election.observe(), self.worker.clone()))
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.election.fmt(f)
    }
}

/// The leadership of an [`Election`]. See [`crate::Leadership`], to which it derefs for methods
/// that do not wait. Methods that wait are here and block.
#[must_use = "if unused, the leadership ends immediately"]
pub struct Leadership {
    leadership: crate::Leadership,
    worker: Arc<Worker>,
}

impl Leadership {
    /// Waits until the leadership is over. See [`super::Guard::lost`].
    pub fn lost(&self) -> Ended {
        let ended = self.worker.wait(self.leadership.lost());
        ended.unwrap_or_else(|| Ended::Lost(self.cell().lost(LostReason::Shutdown)))
    }

    /// Waits until every master has answered, or its time is up. See [`super::Guard::settled`].
    pub fn settled(&self) {
        // A handle that was shut down waits for nothing.
        let _ = self.worker.wait(self.leadership.settled());
    }

    /// Extends the lock. See [`super::Guard::extend`].
    ///
    /// # Errors
    /// The same as [`super::Guard::extend`].
    pub fn extend(&self, ttl: Duration) -> Result<(), ExtendError> {
        let outcome = self.worker.wait(self.leadership.extension(ttl));
        outcome.unwrap_or(Err(ExtendError::Shutdown))
    }

    /// Ends the leadership. See [`crate::Leadership::resign`].
    ///
    /// # Errors
    /// The same as [`super::Guard::release`].
    pub fn resign(self) -> Result<(), ReleaseError> {
        let outcome = self.worker.wait(self.leadership.resign());
        outcome.unwrap_or(Err(ReleaseError::Shutdown))
    }

    /// Ends the leadership. See [`resign`](Self::resign).
    ///
    /// # Errors
    /// The same as [`super::Guard::release`].
    pub fn release(self) -> Result<(), ReleaseError> {
        self.resign()
    }
}

impl Deref for Leadership {
    type Target = crate::Leadership;

    fn deref(&self) -> &crate::Leadership {
        &self.leadership
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.leadership.fmt(f)
    }
}

/// An iterator over who leads. See [`crate::Leaders`]. Each call of `next` blocks until the next
/// change.
#[must_use = "iterators do nothing unless used"]
pub struct Leaders(Changes<crate::Leaders>);

impl Iterator for Leaders {
    type Item = Leader;

    fn next(&mut self) -> Option<Leader> {
        self.0.next()
    }
}

impl fmt::Debug for Leaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.stream.fmt(f)
    }
}
