//! `Reentrant`: one owner of a lock, which may take it again while it holds it.
//!
//! # States
//!
//! | state of an owner | a call | the last guard goes | the lease is lost |
//! |---|---|---|---|
//! | free | asks for the lock; calls meanwhile ask beside it, in the queue of the process | | |
//! | held, by so many guards | one guard more, nothing is sent | released: free | lost |
//! | lost, guards are still there | as free | nothing | |
//!
//! The first of the calls that gets the lock wakes the others, and they enter. A call whose own
//! wait ends meanwhile ends with its own error, and takes nothing from the others. Each lease has
//! a count of its own, so guards of a lost one never release what was acquired after it.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::ops::Deref;
use std::pin::pin;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use redlock_core::Resource;
use tokio::sync::Notify;

use crate::error::{AcquireError, ExtendError, ReleaseError};
use crate::guard::{Guard, Hold};
use crate::hold::HoldCell;
use crate::lock_options::lock_options;
use crate::redlock::Redlock;
use crate::request::LockRequest;
use crate::run_error::RunError;
use crate::settings::InvalidRequest;

/// One owner of a lock, which may take it again while it holds it; made by
/// [`Redlock::reentrant`]. Cheap to clone: **every clone is the same owner.**
///
/// It does not distinguish tasks or threads. Two tasks with clones of one owner are in the lock at
/// the same time, as they are meant to be, and so are the branches of a `join!`, which are one
/// task. Give each unit of work that must exclude the others an owner of its own, and pass that on
/// to the code that it calls. Where it cannot be passed on, a `tokio::task_local!` carries it, or
/// in code that does not await a `thread_local!`:
///
/// ```no_run
/// use redlock_quorum::{Redlock, Reentrant};
///
/// tokio::task_local! {
///     /// The owner for what this task does.
///     static ACCOUNT: Reentrant;
/// }
///
/// # async fn example(redlock: Redlock) -> anyhow::Result<()> {
/// ACCOUNT.scope(redlock.reentrant("account:42"), transfer()).await?;
/// # Ok(())
/// # }
///
/// async fn transfer() -> anyhow::Result<()> {
///     let guard = ACCOUNT.with(|account| account.lock()).await?; // asks the masters
///     book().await?;
///     guard.release().await?; // the outermost one releases
///     Ok(())
/// }
///
/// async fn book() -> anyhow::Result<()> {
///     let guard = ACCOUNT.with(|account| account.lock()).await?; // returns at once, sends nothing
///     // ...
///     guard.release().await?; // the lock is still held
///     Ok(())
/// }
/// ```
///
/// # What it does not give
///
/// * Re-entry by another process: an owner belongs to one process. `redlock run --reentrant` is for
///   commands.
/// * An order among the code of one owner: it excludes others, and not itself.
#[derive(Clone)]
pub struct Reentrant {
    owner: Arc<Owner>,
}

struct Owner {
    redlock: Redlock,
    resource: Resource,
    /// The latest lease. Calls may enter it while a guard of it is there.
    current: Mutex<Option<Current>>,
    /// Wakes the calls that ask for the lock, when one of them has got it.
    acquired: Notify,
}

/// A lease, for those that do not keep it: the last guard alone may release it.
#[derive(Clone)]
struct Current {
    entered: Weak<Entered>,
    shown: Arc<Shown>,
}

/// One lease, shared by the guards of its owner.
struct Entered {
    guard: Guard,
    shown: Arc<Shown>,
}

/// The state of a lease that can be read without keeping it.
struct Shown {
    cell: Arc<HoldCell>,
    depth: AtomicU16,
}

impl Redlock {
    /// An owner of the lock on `resource`, which may take it again while it holds it: see
    /// [`Reentrant`]. Nothing is sent before [`Reentrant::lock`].
    ///
    /// Each call makes another owner; clones of one are the same.
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
    /// How often an owner may be in its lock at a time.
    pub const DEPTH_MAX: u16 = u16::MAX;

    /// The resource of the lock.
    pub fn resource(&self) -> &Resource {
        &self.owner.resource
    }

    /// The lock, to be awaited. Where this owner holds it, that returns at once and sends nothing;
    /// else it keeps trying for the handle's wait.
    pub fn lock(&self) -> ReentrantRequest {
        let request = self.owner.redlock.lock(self.owner.resource.clone());
        ReentrantRequest { owner: self.owner.clone(), request }
    }

    /// [`lock`](Self::lock) in one attempt: `lock().wait(Duration::ZERO)`.
    pub fn try_lock(&self) -> ReentrantRequest {
        self.lock().wait(Duration::ZERO)
    }

    /// How many guards of this owner are in a lock that is held at this moment.
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

/// A lock that is asked for by its owner; see [`LockRequest`] for the options.
///
/// They are those of the outermost call. Of a call inside only [`ttl`](Self::ttl) and the wait
/// count: a TTL that is longer than that of the lock extends it before the call returns, a shorter
/// one never shortens it.
///
/// Calls of one owner that ask at the same time share one attempt, each for no longer than its own
/// wait: where it ends without the lock, one that has time left goes on.
///
/// # Cancel safety
/// As [`LockRequest`]: dropping the future at any point leaves no key behind where a key can be
/// reached, and takes nothing from the owner's other calls and guards.
///
/// # Errors
/// As [`LockRequest`]; and `Invalid` with [`InvalidRequest::Depth`] beyond
/// [`Reentrant::DEPTH_MAX`]. Where a longer TTL is not confirmed, the error is that of the
/// extension in the same words, and the lock stays as it was.
#[must_use = "a lock that is not awaited is not asked for"]
#[derive(Clone)]
pub struct ReentrantRequest {
    owner: Arc<Owner>,
    request: LockRequest,
}

lock_options!(ReentrantRequest, request);

impl ReentrantRequest {
    /// As [`LockRequest::run`]: the lock is left when the work has ended, and released where this
    /// was the outermost call.
    ///
    /// # Errors
    /// As [`LockRequest::run`].
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

    /// As [`LockRequest::try_run`].
    ///
    /// # Errors
    /// As [`LockRequest::try_run`].
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub async fn try_run<W, F, T, E>(self, work: W) -> Result<T, E>
    where
        W: FnOnce(Hold) -> F,
        F: Future<Output = Result<T, E>>,
        E: From<RunError<T>>,
    {
        RunError::flat(self.run(work).await)
    }

    /// The lock without awaiting, where its owner holds it and nothing has to be sent.
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
            // From here on no wake-up is missed; what came before is seen by entering.
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
                // In a box of its own: who enters does not pay for what it needs.
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

    /// The lease, where it is held at this moment. A lost one is never entered again.
    fn held(&self) -> Option<Current> {
        let current = self.current().clone();
        current.filter(|current| current.shown.cell.is_held())
    }

    /// One more guard of the held lock; `None` if the lock is not held.
    async fn enter(&self, ttl: Option<Duration>) -> Result<Option<ReentrantGuard>, AcquireError> {
        let entered = self.held().and_then(|current| current.entered.upgrade());
        let Some(entered) = entered else { return Ok(None) };
        let guard = ReentrantGuard::of(entered)?;
        let Some(ttl) = ttl.filter(|ttl| *ttl > guard.ttl()) else { return Ok(Some(guard)) };
        match guard.extend(ttl).await {
            Ok(()) => Ok(Some(guard)),
            // It ended meanwhile: the call asks for it anew.
            Err(ExtendError::Lost(_)) => Ok(None),
            Err(error) => Err(of_extension(error)),
        }
    }

    /// The attempt of one call has ended.
    async fn conclude(
        &self,
        outcome: Result<Guard, AcquireError>,
        ttl: Option<Duration>,
    ) -> Result<ReentrantGuard, AcquireError> {
        match outcome {
            Ok(guard) => self.found(guard),
            // Another call of this owner may have got it at the same moment.
            Err(error) => self.enter(ttl).await?.ok_or(error),
        }
    }

    /// The outermost guard of a lease.
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

/// The error of an extension, in the words of an acquisition.
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

/// A lock that its owner holds: a [`Guard`] that is shared by all guards of this lease, with the
/// same token and deadline. The last of them that goes releases the lock.
///
/// It derefs to the [`Guard`] for reading the state, waiting for the loss, and extending. The lease
/// cannot be taken out of it, because other guards may depend on it.
#[must_use = "the lock is left when its guard is dropped"]
pub struct ReentrantGuard {
    entered: Arc<Entered>,
}

impl ReentrantGuard {
    fn of(entered: Arc<Entered>) -> Result<Self, AcquireError> {
        let deeper = |depth: u16| depth.checked_add(1);
        let entry = entered.shown.depth.fetch_update(Ordering::Relaxed, Ordering::Relaxed, deeper);
        match entry {
            Ok(_) => Ok(Self { entered }),
            Err(_) => Err(InvalidRequest::Depth { max: Reentrant::DEPTH_MAX }.into()),
        }
    }

    /// Leaves the lock. The last guard of the lease releases it, as [`Guard::release`] does, and
    /// waits until a quorum of masters is known to be free of it; the release of another guard
    /// sends nothing.
    ///
    /// # Errors
    /// As [`Guard::release`], for the last guard alone.
    ///
    /// # Cancel safety
    /// Dropping the future, polled or not, leaves the lock, and the release goes on.
    pub fn release(self) -> impl Future<Output = Result<(), ReleaseError>> + Send + use<> {
        let last = self.leave();
        async move {
            match last {
                Some(guard) => guard.release().await,
                None => Ok(()),
            }
        }
    }

    /// The guard of the lease, where this was the last one.
    fn leave(self) -> Option<Guard> {
        let entered = self.entered.clone();
        drop(self);
        // Of guards that are dropped at the same time, the last one gets it.
        Arc::into_inner(entered).map(|entered| entered.guard)
    }

    async fn end_run<T>(self, output: T) -> Result<T, RunError<T>> {
        if let Err(lost) = self.check() {
            return Err(RunError::Lost { lost, output: Some(output) });
        }
        match self.leave() {
            Some(guard) => guard.end_run(output).await,
            None => Ok(output),
        }
    }
}

impl Drop for ReentrantGuard {
    fn drop(&mut self) {
        self.entered.shown.depth.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Deref for ReentrantGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.entered.guard
    }
}

impl fmt::Debug for ReentrantGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReentrantGuard")
            .field("guard", &self.entered.guard)
            .field("depth", &self.entered.shown.depth)
            .finish()
    }
}
