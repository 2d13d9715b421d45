//! [`GuardSet`](crate::GuardSet) for code that does not await.

use std::fmt;
use std::future::IntoFuture;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use redlock_core::Resource;

use super::{Redlock, Worker};
use crate::error::{AcquireError, ReleaseError};
use crate::lock_options::lock_options;
use crate::lost::Ended;
use crate::recipes::set::HoldSet;
use crate::run_error::RunError;

impl Redlock {
    /// Requests several locks. See [`crate::Redlock::lock_all`].
    pub fn lock_all<K>(&self, resources: K) -> LockAllRequest
    where
        K: IntoIterator,
        K::Item: Into<Resource>,
    {
        LockAllRequest { request: self.redlock.lock_all(resources), worker: self.worker.clone() }
    }

    /// Requests several locks in one attempt. See [`crate::Redlock::try_lock_all`].
    pub fn try_lock_all<K>(&self, resources: K) -> LockAllRequest
    where
        K: IntoIterator,
        K::Item: Into<Resource>,
    {
        self.lock_all(resources).wait(Duration::ZERO)
    }
}

/// A request for several locks. See [`crate::LockAllRequest`], which also describes the options. It
/// does nothing before [`acquire`](Self::acquire) or [`run`](Self::run).
#[must_use = "requests do nothing until acquired or run"]
#[derive(Clone)]
pub struct LockAllRequest {
    request: crate::LockAllRequest,
    worker: Arc<Worker>,
}

lock_options!(LockAllRequest, request);

impl LockAllRequest {
    /// Waits for all locks.
    ///
    /// # Errors
    /// The same as awaiting a [`crate::LockAllRequest`].
    pub fn acquire(self) -> Result<GuardSet, AcquireError> {
        let set = self.worker.wait(self.request.into_future());
        let set = set.unwrap_or(Err(AcquireError::Shutdown))?;
        Ok(GuardSet::new(set, self.worker))
    }

    /// Acquires the locks, runs the work on this thread, and releases them. Blocking work cannot be
    /// stopped from outside: call [`HoldSet::check`] between its steps.
    ///
    /// # Errors
    /// The same as [`LockRequest::run`](super::LockRequest::run).
    pub fn run<T>(self, work: impl FnOnce(HoldSet) -> T) -> Result<T, RunError<T>> {
        self.acquire()?.run(work)
    }

    /// Runs work that can fail under the locks. See [`crate::LockRequest::try_run`].
    ///
    /// # Errors
    /// The same as [`crate::LockRequest::try_run`].
    pub fn try_run<T, E>(self, work: impl FnOnce(HoldSet) -> Result<T, E>) -> Result<T, E>
    where
        E: From<RunError<T>>,
    {
        RunError::flat(self.run(work))
    }
}

impl fmt::Debug for LockAllRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.request.fmt(f)
    }
}

/// Several locks held together. See [`crate::GuardSet`]. It derefs to that type for
/// methods that do not wait. Methods that wait are here and block.
#[must_use = "if unused, the locks are released immediately; `let _ = ..` also drops the guards"]
pub struct GuardSet {
    set: crate::GuardSet,
    worker: Arc<Worker>,
}

impl GuardSet {
    pub(super) fn new(set: crate::GuardSet, worker: Arc<Worker>) -> Self {
        Self { set, worker }
    }

    /// Runs the work on this thread, and releases the locks.
    pub(super) fn run<T>(self, work: impl FnOnce(HoldSet) -> T) -> Result<T, RunError<T>> {
        let Self { set, worker } = self;
        let output = work(set.hold());
        if let Err(lost) = set.check() {
            return Err(RunError::Lost { lost, output: Some(output) });
        }
        // If the handle was shut down in the meantime, nothing is left to release.
        let _ = worker.wait(set.end_run(()));
        Ok(output)
    }

    /// Waits until the first of the locks is over. See [`super::Guard::lost`].
    pub fn lost(&self) -> Ended {
        let ended = self.worker.wait(self.set.lost());
        // The thread has exited because the handle was shut down, which ended the locks.
        ended.unwrap_or_else(|| self.set.check().err().map_or(Ended::Released, Ended::Lost))
    }

    /// Releases all locks. See [`crate::GuardSet::release`].
    ///
    /// # Errors
    /// The same as [`crate::GuardSet::release`].
    pub fn release(self) -> Result<(), ReleaseError> {
        let outcome = self.worker.wait(self.set.release());
        outcome.unwrap_or(Err(ReleaseError::Shutdown))
    }
}

impl Deref for GuardSet {
    type Target = crate::GuardSet;

    fn deref(&self) -> &crate::GuardSet {
        &self.set
    }
}

impl fmt::Debug for GuardSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.set.fmt(f)
    }
}
