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
    /// As [`crate::Redlock::once`].
    pub fn once(&self, name: impl Into<Resource>) -> OnceRequest {
        OnceRequest { request: self.redlock.once(name), worker: self.worker.clone() }
    }

    /// As [`crate::Redlock::last_run`].
    ///
    /// # Errors
    /// As [`crate::Redlock::last_run`].
    pub fn last_run(&self, name: impl Into<Resource>) -> Result<Option<LastRun>, AcquireError> {
        let (redlock, name) = (self.redlock.clone(), name.into());
        let last = self.worker.wait(async move { redlock.last_run(name).await });
        last.unwrap_or(Err(AcquireError::Shutdown))
    }
}

/// Work that is to be done once a period, or once a fire; see [`crate::OnceRequest`].
#[must_use = "work that is not run is not done"]
#[derive(Clone)]
pub struct OnceRequest {
    request: crate::OnceRequest,
    worker: Arc<Worker>,
}

lock_options!(OnceRequest, request);

impl OnceRequest {
    /// As [`crate::OnceRequest::within`].
    pub fn within(self, period: Duration) -> Self {
        Self { request: self.request.within(period), ..self }
    }

    /// As [`crate::OnceRequest::fire`].
    pub fn fire(self, fire: u64) -> Self {
        Self { request: self.request.fire(fire), ..self }
    }

    /// Does the work on this thread, unless it was done before, and marks it as done when it has
    /// ended. Work that blocks cannot be stopped from outside: it must ask [`Hold::check`] between
    /// its steps.
    ///
    /// # Errors
    /// As [`LockRequest::run`](super::LockRequest::run). `Acquire` also means that too few masters
    /// answered what was done before: the work was not begun. Work whose lock was lost leaves no
    /// mark.
    pub fn run<T>(self, work: impl FnOnce(Hold) -> T) -> Result<Once<T>, RunError<T>> {
        match self.begin().map_err(RunError::without_output)? {
            Begun::Done { at, by } => Ok(Once::Done { at, by }),
            Begun::Run(guard) => {
                let output = work(guard.hold());
                guard.end(output).map(Once::Ran)
            }
        }
    }

    /// [`run`](Self::run) for work that may fail: it is marked as done if it ended with `Ok`.
    ///
    /// # Errors
    /// The error of the work, and those of [`run`](Self::run).
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

    /// As [`crate::OnceRequest::begin`].
    ///
    /// # Errors
    /// As [`crate::OnceRequest::begin`].
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

/// Whether work is to be done; see [`OnceRequest::begin`].
#[derive(Debug)]
pub enum Begun {
    /// It is: this is its lock.
    Run(OnceGuard),
    /// It was done before.
    Done {
        /// As [`Once::Done`].
        at: SystemTime,
        /// As [`Once::Done`].
        by: Option<String>,
    },
}

/// The lock of work that is to be done once, while it goes on; see [`crate::OnceGuard`].
#[must_use = "the work is not marked as done when its guard is dropped"]
pub struct OnceGuard {
    guard: crate::OnceGuard,
    worker: Arc<Worker>,
}

impl OnceGuard {
    /// As [`crate::OnceGuard::complete`].
    ///
    /// # Errors
    /// As [`crate::OnceGuard::complete`].
    pub fn complete(self) -> Result<(), MarkError> {
        self.worker.wait(self.guard.complete()).unwrap_or(Err(MarkError::Shutdown))
    }

    /// As [`crate::OnceGuard::release`].
    ///
    /// # Errors
    /// As [`super::Guard::release`].
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
