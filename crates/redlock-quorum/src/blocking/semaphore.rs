//! [`Semaphore`](crate::Semaphore) for code that does not await.

use std::fmt;
use std::future::IntoFuture;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use redlock_core::Resource;

use super::{Guard, GuardSet, Redlock, Worker};
use crate::error::{AcquireError, ReleaseError};
use crate::guard::Hold;
use crate::lock_options::lock_options;
use crate::recipes::semaphore::Permitted;
use crate::recipes::set::HoldSet;
use crate::run_error::RunError;

impl Redlock {
    /// Returns a semaphore with this number of permits. See [`crate::Redlock::semaphore`].
    pub fn semaphore(&self, name: impl Into<Resource>, permits: u32) -> Semaphore {
        let semaphore = self.redlock.semaphore(name, permits);
        Semaphore { semaphore, worker: self.worker.clone() }
    }
}

/// A semaphore. See [`crate::Semaphore`].
#[must_use = "semaphores do nothing unless a permit is acquired"]
#[derive(Clone)]
pub struct Semaphore {
    semaphore: crate::Semaphore,
    worker: Arc<Worker>,
}

impl Semaphore {
    /// Returns the name.
    pub fn name(&self) -> &Resource {
        self.semaphore.name()
    }

    /// Returns the number of permits.
    pub fn permits(&self) -> u32 {
        self.semaphore.permits()
    }

    /// Requests one permit. See [`crate::Semaphore::acquire`].
    pub fn acquire(&self) -> PermitRequest {
        PermitRequest { request: self.semaphore.acquire(), worker: self.worker.clone() }
    }

    /// Requests one permit without waiting.
    pub fn try_acquire(&self) -> PermitRequest {
        self.acquire().wait(Duration::ZERO)
    }

    /// Requests several permits, all or none. See [`crate::Semaphore::acquire_many`].
    pub fn acquire_many(&self, count: u32) -> PermitsRequest {
        PermitsRequest { request: self.semaphore.acquire_many(count), worker: self.worker.clone() }
    }

    /// Queries every master and returns who holds the permits. `None` after a shutdown. See
    /// [`crate::Semaphore::status`].
    pub fn status(&self) -> Option<Permitted> {
        let semaphore = self.semaphore.clone();
        self.worker.wait(async move { semaphore.status().await })
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.semaphore.fmt(f)
    }
}

/// A request for one permit. See [`crate::PermitRequest`]. It does nothing before
/// [`acquire`](Self::acquire) or [`run`](Self::run).
#[must_use = "requests do nothing until acquired or run"]
#[derive(Clone)]
pub struct PermitRequest {
    request: crate::PermitRequest,
    worker: Arc<Worker>,
}

lock_options!(PermitRequest, request);

impl PermitRequest {
    /// Waits for the permit.
    ///
    /// # Errors
    /// The same as awaiting a [`crate::PermitRequest`].
    pub fn acquire(self) -> Result<Permit, AcquireError> {
        let permit = self.worker.wait(self.request.into_future());
        let (slot, guard) = permit.unwrap_or(Err(AcquireError::Shutdown))?.into_parts();
        Ok(Permit { slot, guard: Guard { guard, worker: self.worker } })
    }

    /// Acquires the permit, runs the work on this thread, and releases the permit. See
    /// [`LockRequest::run`](super::LockRequest::run).
    ///
    /// # Errors
    /// The same as [`LockRequest::run`](super::LockRequest::run).
    pub fn run<T>(self, work: impl FnOnce(Hold) -> T) -> Result<T, RunError<T>> {
        self.acquire()?.guard.run(work)
    }

    /// Runs work that can fail with the permit. See [`crate::LockRequest::try_run`].
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

impl fmt::Debug for PermitRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.request.fmt(f)
    }
}

/// A request for several permits. See [`crate::PermitsRequest`]. It does nothing before
/// [`acquire`](Self::acquire) or [`run`](Self::run).
#[must_use = "requests do nothing until acquired or run"]
#[derive(Clone)]
pub struct PermitsRequest {
    request: crate::PermitsRequest,
    worker: Arc<Worker>,
}

lock_options!(PermitsRequest, request);

impl PermitsRequest {
    /// Waits for all permits.
    ///
    /// # Errors
    /// The same as awaiting a [`crate::PermitsRequest`].
    pub fn acquire(self) -> Result<Permits, AcquireError> {
        let permits = self.worker.wait(self.request.into_future());
        let (slots, set) = permits.unwrap_or(Err(AcquireError::Shutdown))?.into_parts();
        Ok(Permits { slots, set: GuardSet::new(set, self.worker) })
    }

    /// Acquires the permits, runs the work on this thread, and releases them. See
    /// [`LockAllRequest::run`](super::LockAllRequest::run).
    ///
    /// # Errors
    /// The same as [`LockRequest::run`](super::LockRequest::run).
    pub fn run<T>(self, work: impl FnOnce(HoldSet) -> T) -> Result<T, RunError<T>> {
        self.acquire()?.set.run(work)
    }

    /// Runs work that can fail with the permits. See [`crate::LockRequest::try_run`].
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

impl fmt::Debug for PermitsRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.request.fmt(f)
    }
}

/// A held permit, released on drop: the blocking [`Guard`] of its slot's lock, to which it derefs.
/// See [`crate::Permit`].
#[must_use = "if unused, the permit is released immediately"]
pub struct Permit {
    slot: u32,
    guard: Guard,
}

impl Permit {
    /// Returns the number of the slot, from 0. See [`crate::Permit::slot`].
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Releases the permit. See [`crate::Guard::release`].
    ///
    /// # Errors
    /// The same as [`Guard::release`].
    pub fn release(self) -> Result<(), ReleaseError> {
        self.guard.release()
    }

    /// Gives up the permit and keeps the lock of its slot. See [`crate::Guard::into_lease`].
    pub fn into_lease(self) -> crate::Lease {
        self.guard.into_lease()
    }

    /// Drops the permit without releasing it. See [`crate::Guard::forget`].
    pub fn forget(self) {
        self.guard.forget();
    }
}

impl Deref for Permit {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("slot", &self.slot).field("guard", &self.guard).finish()
    }
}

/// Several permits that are held together: the blocking [`GuardSet`] of their slots' locks, to
/// which it derefs. See [`crate::Permits`].
#[must_use = "if unused, the permits are released immediately"]
pub struct Permits {
    slots: Vec<u32>,
    set: GuardSet,
}

impl Permits {
    /// Returns the numbers of the slots, in order.
    pub fn slots(&self) -> &[u32] {
        &self.slots
    }

    /// Releases all permits. See [`crate::GuardSet::release`].
    ///
    /// # Errors
    /// The same as [`crate::GuardSet::release`].
    pub fn release(self) -> Result<(), ReleaseError> {
        self.set.release()
    }
}

impl Deref for Permits {
    type Target = GuardSet;

    fn deref(&self) -> &GuardSet {
        &self.set
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.set.fmt(f)
    }
}
