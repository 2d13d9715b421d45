//! `Reentrant`: one owner of a lock, which can acquire it again while holding it.
//!
//! # States
//!
//! | state of an owner | a call | the last guard is dropped | the lease is lost |
//! |---|---|---|---|
//! | free | requests the lock; concurrent calls wait in the queue of the process | | |
//! | held, by this many guards | adds a guard without a request | released: free | lost |
//! | lost, guards still exist | as free | nothing | |
//!
//! The first call that gets the lock wakes the others, which then enter. A call whose own wait ends
//! in the meantime fails with its own error, and does not affect the others. Each lease has its own
//! count, so guards of a lost lease never release a lock that was acquired later.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use redlock_core::Resource;
use tokio::sync::Notify;

use super::reentrant_guard::{DEPTH_MAX, Entered, ReentrantGuard, Shown};
use crate::error::{AcquireError, ExtendError};
use crate::guard::{Guard, Hold};
use crate::lock_options::lock_options;
use crate::redlock::Redlock;
use crate::request::LockRequest;
use crate::run_error::RunError;

/// A reentrant lock handle, created by [`Redlock::reentrant`]. Cheap to clone. **All clones are the
/// same owner** and can re-enter the lock while it is held.
///
/// It does not distinguish tasks or threads. Two tasks with clones of one owner hold the lock at
/// the same time, as intended, and so do the branches of a `join!`, which are one task. Create a
/// separate owner for each unit of work that must exclude the others, and pass it to the code that
/// it calls. If you cannot pass it, use a `tokio::task_local!`, or, in code that does not await, a
/// `thread_local!`:
///
/// ```no_run
/// use redlock_quorum::{Redlock, Reentrant};
///
/// tokio::task_local! {
///     /// The owner for the work of this task.
///     static ACCOUNT: Reentrant;
/// }
///
/// # async fn example(redlock: Redlock) -> anyhow::Result<()> {
/// ACCOUNT.scope(redlock.reentrant("account:42"), transfer()).await?;
/// # Ok(())
/// # }
///
/// async fn transfer() -> anyhow::Result<()> {
///     let guard = ACCOUNT.with(|account| account.lock()).await?; // queries the masters
///     book().await?;
///     guard.release().await?; // the outermost guard releases
///     Ok(())
/// }
///
/// async fn book() -> anyhow::Result<()> {
///     let guard = ACCOUNT.with(|account| account.lock()).await?; // immediate, sends nothing
///     // ...
///     guard.release().await?; // the lock is still held
///     Ok(())
/// }
/// ```
///
/// # Limits
///
/// - Another process cannot re-enter the lock: an owner belongs to one process. For commands, use
///   `redlock run --reentrant`.
/// - The code of one owner is not ordered: an owner excludes others, but not itself.
#[derive(Clone)]
pub struct Reentrant {
    owner: Arc<Owner>,
}

struct Owner {
    redlock: Redlock,
    resource: Resource,
    /// The latest lease. Calls may enter it while one of its guards exists.
    current: Mutex<Option<Current>>,
    /// Wakes the waiting calls after one of them has got the lock.
    acquired: Notify,
}

/// A lease, for code that does not keep it alive: only the last guard may release it.
#[derive(Clone)]
struct Current {
    entered: Weak<Entered>,
    shown: Arc<Shown>,
}

impl Redlock {
    /// Creates an owner of the lock on `resource`, which can acquire it again while holding it. See
    /// [`Reentrant`]. Sends nothing before [`Reentrant::lock`].
    ///
    /// Each call creates another owner. Clones of one owner are the same owner.
    pub fn reentrant(&self, resource: impl Into<Resource>) -> Reentrant {
        let owner = Owner {
            redlock: self.clone(),
            resource: resource.into(),
            current: Mutex::new(None),
            acquired: Notify::new(),
        };
        Reentrant { owner: Arc::new(owner) }
    }
}

impl Reentrant {
    /// The largest number of guards that an owner can have in its lock.
    pub const DEPTH_MAX: u16 = DEPTH_MAX;

    /// Returns the resource of the lock.
    pub fn resource(&self) -> &Resource {
        &self.owner.resource
    }

    /// Requests the lock. If this owner holds it, awaiting the request returns immediately and
    /// sends nothing. Otherwise it retries for the handle's wait.
    pub fn lock(&self) -> ReentrantRequest {
        let request = self.owner.redlock.lock(self.owner.resource.clone());
        ReentrantRequest { owner: self.owner.clone(), request }
    }

    /// Requests the lock in one attempt: `lock().wait(Duration::ZERO)`. See [`lock`](Self::lock).
    pub fn try_lock(&self) -> ReentrantRequest {
        self.lock().wait(Duration::ZERO)
    }

    /// Returns how many guards this owner has in a lock that is currently held.
    pub fn depth(&self) -> u16 {
        self.owner.held().map_or(0, |current| current.shown.depth.load(Ordering::Relaxed))
    }
}

impl fmt::Debug for Reentrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reentrant")
            .field("resource", self.resource())
            .field("depth", &self.depth())
            .finish_non_exhaustive()
    }
}

/// A request of an owner for its lock. See [`LockRequest`] for the options.
///
/// The options of the outermost call apply. Of an inner call, only [`ttl`](Self::ttl) and the wait
/// apply: a TTL longer than the lock's extends the lock before the call returns. A shorter one
/// never shortens it.
///
/// Concurrent calls of one owner share one attempt, each for its own wait. If the attempt fails, a
/// call that has time left continues.
///
/// # Cancel safety
/// The same as [`LockRequest`]. Dropping the future does not affect the owner's other calls and
/// guards.
///
/// # Errors
/// The same as [`LockRequest`], and `Invalid` with [`InvalidRequest::Depth`] beyond
/// [`Reentrant::DEPTH_MAX`]. If a longer TTL is not confirmed, the error of the extension is
/// returned as an acquire error, and the lock stays as it was.
///
/// [`InvalidRequest::Depth`]: crate::InvalidRequest::Depth
#[must_use = "requests do nothing unless awaited or run"]
#[derive(Clone)]
pub struct ReentrantRequest {
    owner: Arc<Owner>,
    request: LockRequest,
}

lock_options!(ReentrantRequest, request);

impl ReentrantRequest {
    /// Enters the lock, runs the work, and leaves the lock. The outermost call releases it. See
    /// [`LockRequest::run`].
    ///
    /// # Errors
    /// The same as [`LockRequest::run`].
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and leaves the lock.
    pub async fn run<W, F>(self, work: W) -> Result<F::Output, RunError<F::Output>>
    where
        W: FnOnce(Hold) -> F,
        F: Future,
    {
        let guard = self.await?;
        let output = guard.work(work).await?;
        guard.end_run(output).await
    }

    /// Runs work that can fail under the lock. See [`LockRequest::try_run`].
    ///
    /// # Errors
    /// The same as [`LockRequest::try_run`].
    ///
    /// # Cancel safety
    /// The same as [`run`](Self::run).
    pub async fn try_run<W, F, T, E>(self, work: W) -> Result<T, E>
    where
        W: FnOnce(Hold) -> F,
        F: Future<Output = Result<T, E>>,
        E: From<RunError<T>>,
    {
        RunError::flat(self.run(work).await)
    }

    /// Returns a guard without awaiting, if the owner holds the lock and nothing has to be sent.
    pub(crate) fn enter(&self) -> Option<Result<ReentrantGuard, AcquireError>> {
        let current = self.owner.held()?;
        let is_enough = |ttl| ttl <= current.shown.cell.ttl();
        if !self.request.own_ttl().is_none_or(is_enough) {
            return None;
        }
        current.entered.upgrade().map(ReentrantGuard::of)
    }

    async fn acquire(self) -> Result<ReentrantGuard, AcquireError> {
        let Self { owner, request } = self;
        let ttl = request.own_ttl();
        let mut attempt = pin!(request.into_future());
        loop {
            let mut acquired = pin!(owner.acquired.notified());
            // After this line no wake-up is missed. Earlier changes are seen by entering.
            acquired.as_mut().enable();
            if let Some(entered) = owner.enter(ttl).await? {
                return Ok(entered);
            }
            tokio::select! {
                biased;
                outcome = &mut attempt => return owner.conclude(outcome, ttl).await,
                () = acquired => {}
            }
        }
    }
}

impl IntoFuture for ReentrantRequest {
    type Output = Result<ReentrantGuard, AcquireError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            match self.enter() {
                Some(entered) => entered,
                // Boxed, so that a call that only enters does not pay for its size.
                None => Box::pin(self.acquire()).await,
            }
        })
    }
}

impl fmt::Debug for ReentrantRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReentrantRequest").field(&self.request).finish()
    }
}

impl Owner {
    fn current(&self) -> MutexGuard<'_, Option<Current>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the lease if it is held now. A lost lease is never entered again.
    fn held(&self) -> Option<Current> {
        let current = self.current().clone();
        current.filter(|current| current.shown.cell.is_held())
    }

    /// Adds a guard to the held lock. Returns `None` if the lock is not held.
    async fn enter(&self, ttl: Option<Duration>) -> Result<Option<ReentrantGuard>, AcquireError> {
        let entered = self.held().and_then(|current| current.entered.upgrade());
        let Some(entered) = entered else { return Ok(None) };
        let guard = ReentrantGuard::of(entered)?;
        let Some(ttl) = ttl.filter(|ttl| *ttl > guard.ttl()) else { return Ok(Some(guard)) };
        match guard.extend(ttl).await {
            Ok(()) => Ok(Some(guard)),
            // The lease has ended in the meantime, so the call requests the lock again.
            Err(ExtendError::Lost(_)) => Ok(None),
            Err(error) => Err(of_extension(error)),
        }
    }

    /// Handles the end of one call's attempt.
    async fn conclude(
        &self,
        outcome: Result<Guard, AcquireError>,
        ttl: Option<Duration>,
    ) -> Result<ReentrantGuard, AcquireError> {
        match outcome {
            Ok(guard) => self.found(guard),
            // Another call of this owner may have got the lock at the same moment.
            Err(error) => self.enter(ttl).await?.ok_or(error),
        }
    }

    /// Creates the outermost guard of a lease.
    fn found(&self, guard: Guard) -> Result<ReentrantGuard, AcquireError> {
        let shown = Arc::new(Shown { cell: guard.cell().clone(), depth: AtomicU16::new(0) });
        let entered = Arc::new(Entered { guard, shown: shown.clone() });
        let current = Current { entered: Arc::downgrade(&entered), shown };
        let outermost = ReentrantGuard::of(entered)?;
        let former = self.current().replace(current);
        drop(former);
        self.acquired.notify_waiters();
        Ok(outermost)
    }
}

/// Converts the error of an extension into an acquire error.
fn of_extension(error: ExtendError) -> AcquireError {
    match error {
        ExtendError::Lost(lost) => {
            AcquireError::Held { resource: lost.resource, votes: lost.votes }
        }
        ExtendError::NotOurs { resource, votes } => AcquireError::Held { resource, votes },
        ExtendError::NoQuorum { resource, votes } => AcquireError::NoQuorum { resource, votes },
        ExtendError::TooLate { resource, votes } => AcquireError::TooLate { resource, votes },
        ExtendError::Invalid(invalid) => AcquireError::Invalid(invalid),
        ExtendError::Shutdown => AcquireError::Shutdown,
    }
}
