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
    /// As [`crate::Redlock::lock_all`], to be acquired.
    pub fn lock_all<K>(&self, resources: K) -> LockAllRequest
    where
        K: IntoIterator,
        K::Item: Into<Resource>,
    {
        LockAllRequest { request: self.redlock.lock_all(resources), worker: self.worker.clone() }
    }

    /// As [`crate::Redlock::try_lock_all`], to be acquired.
    pub fn try_lock_all<K>(&self, resources: K) -> LockAllRequest
    where
        K: IntoIterator,
        K::Item: Into<Resource>,
    {
        self.lock_all(resources).wait(Duration::ZERO)
    }
}

/// Several locks that are asked for together; see [`crate::LockAllRequest`], also for what the
/// options of a lock mean for several. Nothing happens
/// before [`acquire`](Self::acquire) or [`run`](Self::run).
#[must_use = "locks that are not acquired are not asked for"]
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
    /// As awaiting a [`crate::LockAllRequest`].
    pub fn acquire(self) -> Result<GuardSet, AcquireError> {
        let set = self.worker.wait(self.request.into_future());
        let set = set.unwrap_or(Err(AcquireError::Shutdown))?;
        Ok(GuardSet { set, worker: self.worker })
    }

    /// Acquires the locks, does the work on this thread, and releases them again. Work that blocks
    /// cannot be stopped from outside: it must ask [`HoldSet::check`] between its steps.
    ///
    /// # Errors
    /// As [`LockRequest::run`](super::LockRequest::run).
    pub fn run<T>(self, work: impl FnOnce(HoldSet) -> T) -> Result<T, RunError<T>> {
        let GuardSet { set, worker } = self.acquire()?;
        let output = work(set.hold());
        if let Err(lost) = set.check() {
            return Err(RunError::Lost { lost, output: Some(output) });
        }
        // Where the handle was shut down meanwhile, nothing is left to release.
        let _ = worker.wait(set.end_run(()));
        Ok(output)
    }

    /// As [`crate::LockRequest::try_run`].
    ///
    /// # Errors
    /// As [`crate::LockRequest::try_run`].
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

/// Several locks that are held together; see [`crate::GuardSet`]. It derefs to that type for
/// methods that do not wait; methods that wait are here and block.
#[must_use = "the locks are released when their set is dropped"]
pub struct GuardSet {
    set: crate::GuardSet,
    worker: Arc<Worker>,
}

impl GuardSet {
    /// As [`super::Guard::lost`], for the first of the locks that is over.
    pub fn lost(&self) -> Ended {
        let ended = self.worker.wait(self.set.lost());
        // The thread has ended because the handle was shut down, and that ended the locks.
        ended.unwrap_or_else(|| self.set.check().err().map_or(Ended::Released, Ended::Lost))
    }

    /// As [`crate::GuardSet::release`].
    ///
    /// # Errors
    /// As [`crate::GuardSet::release`].
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
