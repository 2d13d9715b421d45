//! [`OnceRequest`](crate::OnceRequest) for code that does not await.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use redlock_core::Resource;

use super::{Redlock, Worker};
use crate::error::{AcquireError, MarkError, ReleaseError};
use crate::guard::Hold;
use crate::lock_options::lock_options;
use crate::marks::LastRun;
use crate::recipes::once::Once;
use crate::recipes::once_guard::ended;
use crate::run_error::RunError;

impl Redlock {
    /// Requests a job that runs once. See [`crate::Redlock::once`].
    pub fn once(&self, name: impl Into<Resource>) -> OnceRequest {
        OnceRequest { request: self.redlock.once(name), worker: self.worker.clone() }
    }

    /// Returns the last completed run. See [`crate::Redlock::last_run`].
    ///
    /// # Errors
    /// The same as [`crate::Redlock::last_run`].
    pub fn last_run(&self, name: impl Into<Resource>) -> Result<Option<LastRun>, AcquireError> {
        let (redlock, name) = (self.redlock.clone(), name.into());
        let last = self.worker.wait(async move { redlock.last_run(name).await });
        last.unwrap_or(Err(AcquireError::Shutdown))
    }
}

/// A job that runs once per period or per scheduled time. See [`crate::OnceRequest`].
#[must_use = "a job does nothing unless started"]
#[derive(Clone)]
pub struct OnceRequest {
    request: crate::OnceRequest,
    worker: Arc<Worker>,
}

lock_options!(OnceRequest, request);

impl OnceRequest {
    /// Skips the job if a completed run began less than `period` ago. See
    /// [`crate::OnceRequest::within`].
    pub fn within(self, period: Duration) -> Self {
        Self { request: self.request.within(period), ..self }
    }

    /// Skips the job if this scheduled run was completed. See [`crate::OnceRequest::fire`].
    pub fn fire(self, fire: u64) -> Self {
        Self { request: self.request.fire(fire), ..self }
    }

    /// Runs the job on this thread, unless it was already completed, and records its completion
    /// afterwards. Blocking work cannot be stopped from outside, so call [`Hold::check`] between
    /// its steps.
    ///
    /// # Errors
    /// The same as [`LockRequest::run`](super::LockRequest::run). `Acquire` also means that too few
    /// masters reported the last completion. The job did not start. A job whose lock was lost
    /// leaves no mark.
    pub fn run<T>(self, work: impl FnOnce(Hold) -> T) -> Result<Once<T>, RunError<T>> {
        match self.begin().map_err(RunError::without_output)? {
            Begun::Done { at, by } => Ok(Once::Done { at, by }),
            Begun::Run(guard) => {
                let output = work(guard.hold());
                guard.end(output).map(Once::Ran)
            }
        }
    }

    /// Runs a job that can fail. Its completion is recorded only if it returned `Ok`. See
    /// [`run`](Self::run).
    ///
    /// # Errors
    /// Returns the error of the job, or an error of [`run`](Self::run).
    pub fn try_run<T, E>(self, work: impl FnOnce(Hold) -> Result<T, E>) -> Result<Once<T>, E>
    where
        E: From<RunError<T>>,
    {
        let guard = match self.begin().map_err(RunError::without_output)? {
            Begun::Done { at, by } => return Ok(Once::Done { at, by }),
            Begun::Run(guard) => guard,
        };
        match work(guard.hold()) {
            Ok(output) => Ok(Once::Ran(guard.end(output)?)),
            Err(error) => {
                let handle = guard.handle().clone();
                if let Err(error) = guard.release() {
                    handle.warn_of_release(&error);
                }
                Err(error)
            }
        }
    }

    /// Starts the job without a closure. See [`crate::OnceRequest::begin`].
    ///
    /// # Errors
    /// The same as [`crate::OnceRequest::begin`].
    pub fn begin(self) -> Result<Begun, RunError> {
        let begun = self.worker.wait(self.request.begin());
        Ok(match begun.unwrap_or(Err(AcquireError::Shutdown.into()))? {
            crate::Begun::Done { at, by } => Begun::Done { at, by },
            crate::Begun::Run(guard) => Begun::Run(OnceGuard { guard, worker: self.worker }),
        })
    }
}

impl fmt::Debug for OnceRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.request.fmt(f)
    }
}

/// The outcome of [`OnceRequest::begin`].
#[derive(Debug)]
pub enum Begun {
    /// The job is due, and this guard holds its lock.
    Run(OnceGuard),
    /// The job was already completed.
    Done {
        /// Start of the last run. See [`Once::Done`].
        at: SystemTime,
        /// Label of the process that completed it. See [`Once::Done`].
        by: Option<String>,
    },
}

/// The lock of a job that runs once, while it runs. See [`crate::OnceGuard`].
#[must_use = "if dropped, the completion is not recorded, and the job runs again"]
pub struct OnceGuard {
    guard: crate::OnceGuard,
    worker: Arc<Worker>,
}

impl OnceGuard {
    /// Records the completion of the job, and releases its lock. See
    /// [`crate::OnceGuard::complete`].
    ///
    /// # Errors
    /// The same as [`crate::OnceGuard::complete`].
    pub fn complete(self) -> Result<(), MarkError> {
        self.worker.wait(self.guard.complete()).unwrap_or(Err(MarkError::Shutdown))
    }

    /// Releases the lock without a mark. See [`crate::OnceGuard::release`].
    ///
    /// # Errors
    /// The same as [`super::Guard::release`].
    pub fn release(self) -> Result<(), ReleaseError> {
        self.worker.wait(self.guard.release()).unwrap_or(Err(ReleaseError::Shutdown))
    }

    fn end<T>(self, output: T) -> Result<T, RunError<T>> {
        let handle = self.handle().clone();
        ended(&handle, self.complete(), output)
    }
}

impl Deref for OnceGuard {
    type Target = crate::OnceGuard;

    fn deref(&self) -> &crate::OnceGuard {
        &self.guard
    }
}

impl fmt::Debug for OnceGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}
