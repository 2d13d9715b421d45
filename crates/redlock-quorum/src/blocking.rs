//! The lock for code that does not await: the same names, with calls that block.
//!
//! A handle has a thread of its own, on which leases are extended and releases sent whatever the
//! caller computes. Calls may be made from anywhere, inside the worker of an async runtime too;
//! there they block that worker, and all that it would have done meanwhile.
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

mod lock_all;
mod once;
mod reentrant;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use futures::FutureExt;
use redlock_core::{FencingToken, Lists, Resource, Token};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

pub use self::lock_all::{GuardSet, LockAllRequest};
pub use self::once::{Begun, OnceGuard, OnceRequest};
pub use self::reentrant::{Reentrant, ReentrantGuard, ReentrantRequest};
use crate::builder::RedlockBuilder;
use crate::driver::slot::Slot;
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

/// A handle on N independent Redis masters; see [`crate::Redlock`]. Cheap to clone.
///
/// Dropping the last clone, and the last guard, waits for releases that masters have not
/// acknowledged, for a second at most; [`shutdown`](Self::shutdown) waits for as long as you
/// choose.
#[derive(Clone)]
pub struct Redlock {
    redlock: crate::Redlock,
    worker: Arc<Worker>,
}

impl Redlock {
    /// As [`crate::Redlock::connect`].
    ///
    /// # Errors
    /// [`BuildError`] when the masters cannot be used or no thread can be started.
    pub fn connect<U>(urls: U) -> Result<Self, BuildError>
    where
        U: IntoIterator,
        U::Item: Into<String>,
    {
        Self::builder().nodes(urls).build_blocking()
    }

    /// As [`crate::Redlock::from_env`].
    ///
    /// # Errors
    /// [`BuildError`] with the name of the variable, or when no thread can be started.
    pub fn from_env() -> Result<Self, BuildError> {
        RedlockBuilder::from_env()?.build_blocking()
    }

    /// A builder, for everything that is not default; end it with
    /// [`build_blocking`](RedlockBuilder::build_blocking).
    pub fn builder() -> RedlockBuilder {
        crate::Redlock::builder()
    }

    fn new(redlock: crate::Redlock) -> Result<Self, BuildError> {
        let worker = Worker::start(redlock.clone())
            .map_err(|error| BuildError::Thread { why: error.to_string() })?;
        Ok(Self { redlock, worker: Arc::new(worker) })
    }

    /// A lock on `resource`, to be acquired: it keeps trying for the handle's wait.
    pub fn lock(&self, resource: impl Into<Resource>) -> LockRequest {
        LockRequest { request: self.redlock.lock(resource), worker: self.worker.clone() }
    }

    /// A lock on `resource` in one attempt.
    pub fn try_lock(&self, resource: impl Into<Resource>) -> LockRequest {
        self.lock(resource).wait(Duration::ZERO)
    }

    /// As [`crate::Redlock::status`].
    pub fn status(&self, resource: impl Into<Resource>) -> Status {
        let (redlock, resource) = (self.redlock.clone(), resource.into());
        let names = self.redlock.names().to_vec();
        let status = self.worker.wait(async move { redlock.status(resource).await });
        status.unwrap_or_else(|| Status::unasked(&names, "the handle was shut down"))
    }

    /// As [`crate::Redlock::stats`].
    pub fn stats(&self) -> Stats {
        self.redlock.stats()
    }

    /// Returns the recorded set and our list. See [`crate::Redlock::list_warning`].
    pub fn list_warning(&self) -> Option<Lists> {
        self.redlock.list_warning()
    }

    /// As [`crate::Redlock::inspect`].
    pub fn inspect(&self) -> Vec<NodeReport> {
        let (redlock, names) = (self.redlock.clone(), self.redlock.names().to_vec());
        let reports = self.worker.wait(async move { redlock.inspect().await });
        reports.unwrap_or_else(|| NodeReport::unasked(&names, "the handle was shut down"))
    }

    /// As [`crate::Redlock::init`].
    ///
    /// # Errors
    /// As [`crate::Redlock::init_with`].
    pub fn init(&self) -> Result<InitReport, InitError> {
        self.init_with(Init::default())
    }

    /// As [`crate::Redlock::init_with`].
    ///
    /// # Errors
    /// As [`crate::Redlock::init_with`].
    pub fn init_with(&self, init: Init) -> Result<InitReport, InitError> {
        let redlock = self.redlock.clone();
        let outcome = self.worker.wait(async move { redlock.init_with(init).await });
        outcome.unwrap_or(Err(InitError::Shutdown))
    }

    /// As [`crate::Redlock::resume`].
    ///
    /// # Errors
    /// [`ExtendError`] when it is not ours any more or no quorum confirms it.
    pub fn resume(&self, lease: Lease) -> Result<Guard, ExtendError> {
        let redlock = self.redlock.clone();
        let guard = self.worker.wait(async move { redlock.resume(lease).await });
        let guard = guard.unwrap_or(Err(ExtendError::Shutdown))?;
        Ok(Guard { guard, worker: self.worker.clone() })
    }

    /// As [`crate::Redlock::release`].
    ///
    /// # Errors
    /// As [`Guard::release`].
    pub fn release(&self, lease: Lease) -> Result<(), ReleaseError> {
        let redlock = self.redlock.clone();
        let outcome = self.worker.wait(async move { redlock.release(lease).await });
        outcome.unwrap_or(Err(ReleaseError::Shutdown))
    }

    /// As [`crate::Redlock::shutdown`].
    ///
    /// # Errors
    /// [`Unreleased`] when keys may be left on masters.
    pub fn shutdown(self, within: Duration) -> Result<(), Unreleased> {
        let redlock = self.redlock.clone();
        self.worker.wait(redlock.shutdown(within)).unwrap_or(Ok(()))
    }
}

impl RedlockBuilder {
    /// As [`build`](Self::build), for code that does not await: starts a thread for the handle.
    ///
    /// # Errors
    /// As [`build`](Self::build), and when no thread can be started.
    pub fn build_blocking(self) -> Result<Redlock, BuildError> {
        Redlock::new(self.build()?)
    }
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.redlock.fmt(f)
    }
}

/// A lock that is asked for; see [`crate::LockRequest`]. Nothing happens before
/// [`acquire`](Self::acquire) or [`run`](Self::run).
#[must_use = "a lock that is not acquired is not asked for"]
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
    /// As awaiting a [`crate::LockRequest`].
    pub fn acquire(self) -> Result<Guard, AcquireError> {
        let guard = self.worker.wait(self.request.into_future());
        let guard = guard.unwrap_or(Err(AcquireError::Shutdown))?;
        Ok(Guard { guard, worker: self.worker })
    }

    /// Acquires the lock, does the work on this thread, and releases the lock again. Work that
    /// blocks cannot be stopped from outside: it must ask [`Hold::check`] between its steps.
    ///
    /// # Errors
    /// [`RunError::Acquire`] when there is no lock: the work was not begun. [`RunError::Lost`]
    /// when the lock was lost before the work ended: its last part was not protected, and its
    /// output is inside.
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

    /// [`run`](Self::run) for work that can fail; see [`crate::LockRequest::try_run`].
    ///
    /// # Errors
    /// The error of work that ended with one, after a loss of the lock too. Otherwise the error of
    /// [`run`](Self::run), converted into that type.
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

/// A lock that is held; see [`crate::Guard`].
#[must_use = "the lock is released when its guard is dropped"]
pub struct Guard {
    guard: crate::Guard,
    worker: Arc<Worker>,
}

impl Guard {
    /// The resource of the lock.
    pub fn resource(&self) -> &Resource {
        self.guard.resource()
    }

    /// As [`crate::Guard::token`].
    pub fn token(&self) -> &Token {
        self.guard.token()
    }

    /// As [`crate::Guard::fencing_token`].
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.guard.fencing_token()
    }

    /// As [`crate::Guard::remaining`].
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// As [`crate::Guard::is_held`].
    pub fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    /// As [`crate::Guard::check`].
    ///
    /// # Errors
    /// [`Lost`] once the lock is not held any more, with the reason.
    pub fn check(&self) -> Result<(), Lost> {
        self.guard.check()
    }

    /// Waits until the lock is over, for a thread that watches over another.
    pub fn lost(&self) -> Ended {
        let ended = self.worker.wait(self.guard.lost());
        ended.unwrap_or_else(|| Ended::Lost(self.guard.cell().lost(LostReason::Shutdown)))
    }

    /// Waits until every master has answered the request for this lock, or its time is up; as
    /// [`crate::Guard::settled`].
    pub fn settled(&self) {
        // A handle that was shut down waits for nothing.
        let _ = self.worker.wait(self.guard.settled());
    }

    /// As [`crate::Guard::copies`].
    pub fn copies(&self) -> usize {
        self.guard.copies()
    }

    /// As [`crate::Guard::votes`].
    pub fn votes(&self) -> Votes {
        self.guard.votes()
    }

    /// As [`crate::Guard::hold`].
    pub fn hold(&self) -> Hold {
        self.guard.hold()
    }

    /// As [`crate::Guard::extend`].
    ///
    /// # Errors
    /// [`ExtendError`] when no quorum confirms it; the lock is then valid as long as before.
    pub fn extend(&self, ttl: Duration) -> Result<(), ExtendError> {
        let outcome = self.worker.wait(self.guard.extension(ttl));
        outcome.unwrap_or(Err(ExtendError::Shutdown))
    }

    /// As [`crate::Guard::release`].
    ///
    /// # Errors
    /// [`ReleaseError`] when the lock was lost before, or too few masters have answered in time.
    pub fn release(self) -> Result<(), ReleaseError> {
        let outcome = self.worker.wait(self.guard.release());
        outcome.unwrap_or(Err(ReleaseError::Shutdown))
    }

    /// As [`crate::Guard::into_lease`].
    pub fn into_lease(self) -> Lease {
        self.guard.into_lease()
    }

    /// As [`crate::Guard::forget`].
    pub fn forget(self) {
        self.guard.forget();
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}

/// The thread on which the driver works.
struct Worker {
    slot: Arc<Slot>,
    runtime: Handle,
    /// Dropped to end the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// How long the thread goes on releasing when no handle needs it any more.
const LINGER: Duration = Duration::from_secs(1);

impl Worker {
    fn start(redlock: crate::Redlock) -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let slot = redlock.slot().clone();
        let handle = runtime.handle().clone();
        let thread = std::thread::Builder::new().name("redlock".into()).spawn(move || {
            runtime.block_on(async {
                let _ = stopped.await;
                if let Err(left) = redlock.shutdown(LINGER).await {
                    tracing::warn!(%left, "the blocking handle was dropped");
                }
            });
        })?;
        Ok(Self { slot, runtime: handle, stop: Some(stop), thread: Some(thread) })
    }

    /// Does `work` on the worker's thread and waits for it; `None` when that thread has ended.
    ///
    /// The result comes back through a channel of the standard library: it blocks in places where
    /// an async runtime forbids its own ways to block.
    fn wait<F>(&self, work: F) -> Option<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        if self.slot.is_forked() {
            // Nothing of it waits: each request fails at its first poll.
            return work.now_or_never();
        }
        let (done, outcome) = mpsc::sync_channel(1);
        self.runtime.spawn(async move {
            // The result has no receiver only when the caller's thread has been torn down.
            let _ = done.send(work.await);
        });
        outcome.recv().ok()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.slot.is_forked() {
            // There is no such thread here, and waking it would wake the parent's.
            std::mem::forget((self.stop.take(), self.thread.take()));
            return;
        }
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked has nothing more to release.
            let _ = thread.join();
        }
    }
}
