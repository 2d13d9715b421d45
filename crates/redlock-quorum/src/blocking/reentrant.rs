//! [`Reentrant`](crate::Reentrant) for code that does not await.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use redlock_core::Resource;

use super::{Redlock, Worker};
use crate::error::{AcquireError, ExtendError, ReleaseError};
use crate::guard::Hold;
use crate::lock_options::lock_options;
use crate::lost::{Ended, LostReason};
use crate::run_error::RunError;

/// A reentrant lock handle. See [`crate::Reentrant`]. An owner is not tied to a thread: for one
/// owner per thread, keep it in a `thread_local!`.
#[derive(Clone)]
pub struct Reentrant {
    reentrant: crate::Reentrant,
    worker: Arc<Worker>,
}

impl Redlock {
    /// Creates an owner of a lock. See [`crate::Redlock::reentrant`].
    pub fn reentrant(&self, resource: impl Into<Resource>) -> Reentrant {
        Reentrant { reentrant: self.redlock.reentrant(resource), worker: self.worker.clone() }
    }
}

impl Reentrant {
    /// Returns the resource of the lock.
    pub fn resource(&self) -> &Resource {
        self.reentrant.resource()
    }

    /// Requests the lock. See [`crate::Reentrant::lock`].
    pub fn lock(&self) -> ReentrantRequest {
        ReentrantRequest { request: self.reentrant.lock(), worker: self.worker.clone() }
    }

    /// Requests the lock in one attempt. See [`crate::Reentrant::try_lock`].
    pub fn try_lock(&self) -> ReentrantRequest {
        ReentrantRequest { request: self.reentrant.try_lock(), worker: self.worker.clone() }
    }

    /// Returns how many guards are in the held lock. See [`crate::Reentrant::depth`].
    pub fn depth(&self) -> u16 {
        self.reentrant.depth()
    }
}

impl fmt::Debug for Reentrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reentrant.fmt(f)
    }
}

/// A request of an owner for its lock. See [`crate::ReentrantRequest`], which also describes the
/// options of inner calls. It does nothing before [`acquire`](Self::acquire) or [`run`](Self::run).
#[must_use = "requests do nothing until acquired or run"]
#[derive(Clone)]
pub struct ReentrantRequest {
    request: crate::ReentrantRequest,
    worker: Arc<Worker>,
}

lock_options!(ReentrantRequest, request);

impl ReentrantRequest {
    /// Waits for the lock. Returns immediately if its owner holds it.
    ///
    /// # Errors
    /// The same as awaiting a [`crate::ReentrantRequest`].
    pub fn acquire(self) -> Result<ReentrantGuard, AcquireError> {
        let guard = match self.request.enter() {
            Some(entered) => entered?,
            None => {
                let acquired = self.worker.wait(self.request.into_future());
                acquired.unwrap_or(Err(AcquireError::Shutdown))?
            }
        };
        Ok(ReentrantGuard { guard, worker: self.worker })
    }

    /// Acquires the lock, runs the work on this thread, and leaves the lock. Blocking work cannot
    /// be stopped from outside: call [`Hold::check`] between its steps.
    ///
    /// # Errors
    /// The same as [`LockRequest::run`](super::LockRequest::run).
    pub fn run<T>(self, work: impl FnOnce(Hold) -> T) -> Result<T, RunError<T>> {
        let guard = self.acquire()?;
        let output = work(guard.hold());
        if let Err(lost) = guard.check() {
            return Err(RunError::Lost { lost, output: Some(output) });
        }
        let handle = guard.guard.handle().clone();
        if let Err(error) = guard.release() {
            handle.warn_of_release(&error);
        }
        Ok(output)
    }

    /// Runs work that can fail under the lock. See [`crate::LockRequest::try_run`].
    ///
    /// # Errors
    /// The same as [`crate::LockRequest::try_run`].
    pub fn try_run<T, E>(self, work: impl FnOnce(Hold) -> Result<T, E>) -> Result<T, E>
    where
        E: From<RunError<T>>,
    {
        RunError::flat(self.run(work))
    }
}

impl fmt::Debug for ReentrantRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.request.fmt(f)
    }
}

/// A lock that its owner holds. See [`crate::ReentrantGuard`]. It derefs to [`crate::Guard`] for
/// methods that do not wait. Methods that wait are here and block.
#[must_use = "if unused, the lock is left immediately"]
pub struct ReentrantGuard {
    guard: crate::ReentrantGuard,
    worker: Arc<Worker>,
}

impl ReentrantGuard {
    /// Waits until the lock is over. See [`super::Guard::lost`].
    pub fn lost(&self) -> Ended {
        let ended = self.worker.wait(self.guard.lost());
        ended.unwrap_or_else(|| Ended::Lost(self.guard.cell().lost(LostReason::Shutdown)))
    }

    /// Waits until every master has answered. See [`super::Guard::settled`].
    pub fn settled(&self) {
        // A handle that was shut down waits for nothing.
        let _ = self.worker.wait(self.guard.settled());
    }

    /// Extends the lock. See [`super::Guard::extend`].
    ///
    /// # Errors
    /// Returns [`ExtendError`] if no quorum confirms the extension. The lock then stays valid as
    /// long as before.
    pub fn extend(&self, ttl: Duration) -> Result<(), ExtendError> {
        let outcome = self.worker.wait(self.guard.extension(ttl));
        outcome.unwrap_or(Err(ExtendError::Shutdown))
    }

    /// Leaves the lock. See [`crate::ReentrantGuard::release`].
    ///
    /// # Errors
    /// The same as [`super::Guard::release`]. Only the last guard can fail.
    pub fn release(self) -> Result<(), ReleaseError> {
        let outcome = self.worker.wait(self.guard.release());
        outcome.unwrap_or(Err(ReleaseError::Shutdown))
    }
}

impl Deref for ReentrantGuard {
    type Target = crate::Guard;

    fn deref(&self) -> &crate::Guard {
        &self.guard
    }
}

impl fmt::Debug for ReentrantGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}
