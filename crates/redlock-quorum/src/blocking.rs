//! The same API for code that does not await: calls block the calling thread.
//!
//! A handle has its own thread, which extends leases and sends releases whatever the caller
//! computes. You can call it from anywhere, including the worker thread of an async runtime. There
//! it blocks that worker.
//!
//! ```no_run
//! use redlock_quorum::blocking::Redlock;
//!
//! # fn main() -> anyhow::Result<()> {
//! let redlock = Redlock::connect(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"])?;
//! let guard = redlock.lock("orders:42").acquire()?;
//! // ... the work, with guard.check()? between its steps ...
//! guard.release()?;
//! # Ok(())
//! # }
//! ```

mod election;
mod lock_all;
mod once;
mod reentrant;
mod semaphore;
mod watch;
mod worker;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redlock_core::{FencingToken, ListWarning, Resource, Token};

pub use self::election::{Election, Leaders, Leadership};
pub use self::lock_all::{GuardSet, LockAllRequest};
pub use self::once::{Begun, OnceGuard, OnceRequest};
pub use self::reentrant::{Reentrant, ReentrantGuard, ReentrantRequest};
pub use self::semaphore::{Permit, PermitRequest, Permits, PermitsRequest, Semaphore};
pub use self::watch::Watch;
use self::worker::Worker;
use crate::builder::RedlockBuilder;
use crate::error::{AcquireError, ExtendError, ReleaseError, Unreleased};
use crate::guard::Hold;
use crate::init::{Init, InitError, InitReport};
use crate::lease::Lease;
use crate::lock_options::lock_options;
use crate::lost::{Ended, Lost, LostReason};
use crate::report::NodeReport;
use crate::run_error::RunError;
use crate::settings::BuildError;
use crate::stats::Stats;
use crate::status::Status;
use crate::votes::Votes;

/// A handle to N independent Redis masters. See [`crate::Redlock`]. Cheap to clone.
///
/// Dropping the last clone and the last guard waits at most one second for releases that masters
/// have not acknowledged. [`shutdown`](Self::shutdown) waits for as long as you choose.
#[derive(Clone)]
pub struct Redlock {
    redlock: crate::Redlock,
    worker: Arc<Worker>,
}

impl Redlock {
    /// Creates a handle with default settings. See [`crate::Redlock::connect`].
    ///
    /// # Errors
    /// Returns [`BuildError`] if the masters cannot be used or no thread can be started.
    pub fn connect<U>(urls: U) -> Result<Self, BuildError>
    where
        U: IntoIterator,
        U::Item: Into<String>,
    {
        Self::builder().nodes(urls).build_blocking()
    }

    /// Creates a handle with the settings of the environment and of this host's configuration file.
    /// See [`crate::Redlock::from_env`].
    ///
    /// # Errors
    /// Returns [`BuildError`] with the name of the variable or the line of the file, or if no
    /// thread can be started.
    pub fn from_env() -> Result<Self, BuildError> {
        RedlockBuilder::from_env()?.build_blocking()
    }

    /// Returns a builder for handles with non-default settings. Finish with
    /// [`build_blocking`](RedlockBuilder::build_blocking).
    pub fn builder() -> RedlockBuilder {
        crate::Redlock::builder()
    }

    fn new(redlock: crate::Redlock) -> Result<Self, BuildError> {
        let worker = Worker::start(redlock.clone())
            .map_err(|error| BuildError::Thread { why: error.to_string() })?;
        Ok(Self { redlock, worker: Arc::new(worker) })
    }

    /// Requests a lock on `resource`. [`acquire`](LockRequest::acquire) retries for the handle's
    /// wait.
    pub fn lock(&self, resource: impl Into<Resource>) -> LockRequest {
        LockRequest { request: self.redlock.lock(resource), worker: self.worker.clone() }
    }

    /// Requests a lock on `resource` in one attempt.
    pub fn try_lock(&self, resource: impl Into<Resource>) -> LockRequest {
        self.lock(resource).wait(Duration::ZERO)
    }

    /// Queries every master and returns who holds `resource`. See [`crate::Redlock::status`].
    pub fn status(&self, resource: impl Into<Resource>) -> Status {
        let (redlock, resource) = (self.redlock.clone(), resource.into());
        let names = self.redlock.names().to_vec();
        let status = self.worker.wait(async move { redlock.status(resource).await });
        status.unwrap_or_else(|| Status::unasked(&names, "the handle was shut down"))
    }

    /// Returns statistics of this handle and all its clones. See [`crate::Redlock::stats`].
    pub fn stats(&self) -> Stats {
        self.redlock.stats()
    }

    /// Returns why the list may be wrong. See [`crate::Redlock::list_warning`].
    pub fn list_warning(&self) -> Option<ListWarning> {
        self.redlock.list_warning()
    }

    /// Returns the state of each master. See [`crate::Redlock::inspect`].
    pub fn inspect(&self) -> Vec<NodeReport> {
        let (redlock, names) = (self.redlock.clone(), self.redlock.names().to_vec());
        let reports = self.worker.wait(async move { redlock.inspect().await });
        reports.unwrap_or_else(|| NodeReport::unasked(&names, "the handle was shut down"))
    }

    /// Lets new masters vote immediately. See [`crate::Redlock::init`].
    ///
    /// # Errors
    /// The same as [`crate::Redlock::init_with`].
    pub fn init(&self) -> Result<InitReport, InitError> {
        self.init_with(Init::default())
    }

    /// Lets masters vote without waiting out a quarantine. See [`crate::Redlock::init_with`].
    ///
    /// # Errors
    /// The same as [`crate::Redlock::init_with`].
    pub fn init_with(&self, init: Init) -> Result<InitReport, InitError> {
        let redlock = self.redlock.clone();
        let outcome = self.worker.wait(async move { redlock.init_with(init).await });
        outcome.unwrap_or(Err(InitError::Shutdown))
    }

    /// Resumes a lease. See [`crate::Redlock::resume`].
    ///
    /// # Errors
    /// Returns [`ExtendError`] if the lease is no longer ours or no quorum confirms it.
    pub fn resume(&self, lease: Lease) -> Result<Guard, ExtendError> {
        let redlock = self.redlock.clone();
        let guard = self.worker.wait(async move { redlock.resume(lease).await });
        let guard = guard.unwrap_or(Err(ExtendError::Shutdown))?;
        Ok(Guard { guard, worker: self.worker.clone() })
    }

    /// Releases a lease by its token. See [`crate::Redlock::release`].
    ///
    /// # Errors
    /// The same as [`Guard::release`].
    pub fn release(&self, lease: Lease) -> Result<(), ReleaseError> {
        let redlock = self.redlock.clone();
        let outcome = self.worker.wait(async move { redlock.release(lease).await });
        outcome.unwrap_or(Err(ReleaseError::Shutdown))
    }

    /// Closes this handle and all its clones. See [`crate::Redlock::shutdown`].
    ///
    /// # Errors
    /// Returns [`Unreleased`] if keys may remain on masters.
    pub fn shutdown(self, within: Duration) -> Result<(), Unreleased> {
        let redlock = self.redlock.clone();
        self.worker.wait(redlock.shutdown(within)).unwrap_or(Ok(()))
    }
}

impl RedlockBuilder {
    /// Creates a handle for code that does not await, and starts its thread. See
    /// [`build`](Self::build).
    ///
    /// # Errors
    /// The same as [`build`](Self::build), and if no thread can be started.
    pub fn build_blocking(self) -> Result<Redlock, BuildError> {
        Redlock::new(self.build()?)
    }
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.redlock.fmt(f)
    }
}

/// A request for a lock. See [`crate::LockRequest`]. It does nothing before
/// [`acquire`](Self::acquire) or [`run`](Self::run).
#[must_use = "requests do nothing until acquired or run"]
#[derive(Clone)]
pub struct LockRequest {
    request: crate::LockRequest,
    worker: Arc<Worker>,
}

lock_options!(LockRequest, request);

impl LockRequest {
    /// Waits for the lock.
    ///
    /// # Errors
    /// The same as awaiting a [`crate::LockRequest`].
    pub fn acquire(self) -> Result<Guard, AcquireError> {
        let guard = self.worker.wait(self.request.into_future());
        let guard = guard.unwrap_or(Err(AcquireError::Shutdown))?;
        Ok(Guard { guard, worker: self.worker })
    }

    /// Acquires the lock, runs the work on this thread, and releases the lock. Blocking work cannot
    /// be stopped from outside: call [`Hold::check`] between its steps.
    ///
    /// # Errors
    /// - [`RunError::Acquire`] if the lock was not acquired. The work did not start.
    /// - [`RunError::Lost`] if the lock was lost before the work ended. Its last part was not
    ///   protected, and the error contains its output.
    pub fn run<T>(self, work: impl FnOnce(Hold) -> T) -> Result<T, RunError<T>> {
        self.acquire()?.run(work)
    }

    /// Runs work that can fail under the lock. See [`crate::LockRequest::try_run`].
    ///
    /// # Errors
    /// Returns the error of the work if it failed, even after a loss of the lock. Otherwise returns
    /// the error of [`run`](Self::run), converted into that type.
    pub fn try_run<T, E>(self, work: impl FnOnce(Hold) -> Result<T, E>) -> Result<T, E>
    where
        E: From<RunError<T>>,
    {
        RunError::flat(self.run(work))
    }
}

impl fmt::Debug for LockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.request.fmt(f)
    }
}

/// A held lock, released on drop. See [`crate::Guard`].
#[must_use = "if unused, the lock is released immediately; `let _ = ..` also drops the guard"]
pub struct Guard {
    guard: crate::Guard,
    worker: Arc<Worker>,
}

impl Guard {
    /// Returns the resource of the lock.
    pub fn resource(&self) -> &Resource {
        self.guard.resource()
    }

    /// Returns the token of the lock. See [`crate::Guard::token`].
    pub fn token(&self) -> &Token {
        self.guard.token()
    }

    /// Returns the fencing token. See [`crate::Guard::fencing_token`].
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.guard.fencing_token()
    }

    /// Returns how long you may rely on the lock. See [`crate::Guard::remaining`].
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Returns `true` if the lock is held at the time of the call. See [`crate::Guard::is_held`].
    pub fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    /// Returns an error if the lock is lost. See [`crate::Guard::check`].
    ///
    /// # Errors
    /// Returns [`Lost`], with the reason, if the lock is no longer held.
    pub fn check(&self) -> Result<(), Lost> {
        self.guard.check()
    }

    /// Waits until the lock is over, for a thread that supervises another.
    pub fn lost(&self) -> Ended {
        let ended = self.worker.wait(self.guard.lost());
        ended.unwrap_or_else(|| Ended::Lost(self.guard.cell().lost(LostReason::Shutdown)))
    }

    /// Waits until every master has answered the request for this lock, or its time is up. See
    /// [`crate::Guard::settled`].
    pub fn settled(&self) {
        // A handle that was shut down waits for nothing.
        let _ = self.worker.wait(self.guard.settled());
    }

    /// Returns how many masters are known to hold the key. See [`crate::Guard::copies`].
    pub fn copies(&self) -> usize {
        self.guard.copies()
    }

    /// Returns each master's last answer. See [`crate::Guard::votes`].
    pub fn votes(&self) -> Votes {
        self.guard.votes()
    }

    /// Returns a view of this lock for the code that does the work. See [`crate::Guard::hold`].
    pub fn hold(&self) -> Hold {
        self.guard.hold()
    }

    /// Extends the lock. See [`crate::Guard::extend`].
    ///
    /// # Errors
    /// Returns [`ExtendError`] if no quorum confirms the extension. The lock then stays valid as
    /// long as before.
    pub fn extend(&self, ttl: Duration) -> Result<(), ExtendError> {
        let outcome = self.worker.wait(self.guard.extension(ttl));
        outcome.unwrap_or(Err(ExtendError::Shutdown))
    }

    /// Releases the lock. See [`crate::Guard::release`].
    ///
    /// # Errors
    /// Returns [`ReleaseError`] if the lock was lost before, or too few masters answered in time.
    pub fn release(self) -> Result<(), ReleaseError> {
        let outcome = self.worker.wait(self.guard.release());
        outcome.unwrap_or(Err(ReleaseError::Shutdown))
    }

    /// Runs the work on this thread, and releases the lock.
    fn run<T>(self, work: impl FnOnce(Hold) -> T) -> Result<T, RunError<T>> {
        let output = work(self.hold());
        if let Err(lost) = self.check() {
            return Err(RunError::Lost { lost, output: Some(output) });
        }
        let handle = self.guard.handle().clone();
        if let Err(error) = self.release() {
            handle.warn_of_release(&error);
        }
        Ok(output)
    }

    /// Gives up the guard and keeps the lock. See [`crate::Guard::into_lease`].
    pub fn into_lease(self) -> Lease {
        self.guard.into_lease()
    }

    /// Drops the guard without releasing the lock. See [`crate::Guard::forget`].
    pub fn forget(self) {
        self.guard.forget();
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}
