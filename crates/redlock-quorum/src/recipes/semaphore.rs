//! `Semaphore`: at most so many holders of one name. `slots` describes how a permit is acquired.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use redlock_core::Resource;

use super::permit::{Permit, Permits};
use super::set::HoldSet;
use super::slots::{PERMITS_MAX, Slots, collect};
use crate::error::AcquireError;
use crate::guard::Hold;
use crate::lock_options::lock_options;
use crate::redlock::Redlock;
use crate::request::LockRequest;
use crate::run_error::RunError;
use crate::status::{State, Status};

impl Redlock {
    /// Returns a semaphore with this number of permits, 1 to [`Semaphore::PERMITS_MAX`]: at most
    /// this many are held at a time. Sends nothing yet. The name has at most 507 bytes.
    ///
    /// ```no_run
    /// # async fn back_up() {}
    /// # async fn example(redlock: redlock_quorum::Redlock) -> anyhow::Result<()> {
    /// let permit = redlock.semaphore("backups", 3).acquire().await?;
    /// back_up().await; // at most three at a time, on all hosts
    /// permit.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A number out of range is an error of each request. Reuse the semaphore or its clones,
    /// because it remembers which permit was free last.
    pub fn semaphore(&self, name: impl Into<Resource>, permits: u32) -> Semaphore {
        let slots = Slots::new(name.into(), permits);
        Semaphore { redlock: self.clone(), slots: Arc::new(slots) }
    }
}

/// A semaphore, created by [`Redlock::semaphore`]. Cheap to clone.
///
/// Its permits are ordinary locks: `NAME#0` to `NAME#(n - 1)`, called slots. Everything that a lock
/// promises holds for each permit, so there are never more than n holders. Counting votes for n
/// tokens on each master would not work: three masters that have granted {A, B}, {B, C} and {A, C}
/// give three holders of two permits a majority.
///
/// A caller that finds its slot held waits for the lock `NAME#gate`, in the ordinary queue. Only
/// the holder of the gate waits for slots, so callers that wait are served in order of arrival. A
/// caller that arrives while a permit is free may pass them.
///
/// **Fencing tokens of different slots do not compare.** A store that checks them keeps the largest
/// token of each slot.
///
/// If clients disagree on the number of permits, the larger number applies. To reduce it, stop all
/// clients that use the old number, and wait until the slots beyond the new one are free.
#[must_use = "semaphores do nothing unless a permit is acquired"]
#[derive(Clone)]
pub struct Semaphore {
    redlock: Redlock,
    slots: Arc<Slots>,
}

impl Semaphore {
    /// The largest number of permits of a semaphore.
    pub const PERMITS_MAX: u32 = PERMITS_MAX;

    /// Returns the name.
    pub fn name(&self) -> &Resource {
        self.slots.name()
    }

    /// Returns the number of permits.
    pub fn permits(&self) -> u32 {
        self.slots.len()
    }

    /// Checks the name and the number of permits, as each request does.
    ///
    /// # Errors
    /// Returns the error of a request.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), AcquireError> {
        self.slots.check()?;
        self.redlock.lock(self.slots.gate().clone()).check_all()
    }

    /// Requests one permit. Await the request to acquire it. It retries for the handle's wait.
    pub fn acquire(&self) -> PermitRequest {
        let request = self.redlock.lock(self.name().clone());
        PermitRequest { slots: self.slots.clone(), request }
    }

    /// Requests one permit without waiting: `acquire().wait(Duration::ZERO)`.
    pub fn try_acquire(&self) -> PermitRequest {
        self.acquire().wait(Duration::ZERO)
    }

    /// Requests several permits, all or none. Callers that each collect several never block each
    /// other forever, because only one of them collects at a time. A caller that holds a permit and
    /// requests more may wait for itself.
    pub fn acquire_many(&self, count: u32) -> PermitsRequest {
        let PermitRequest { slots, request } = self.acquire();
        PermitsRequest { slots, count, request }
    }

    /// Queries every master and returns who holds the permits. See [`Redlock::status`].
    pub async fn status(&self) -> Permitted {
        let statuses = self.slots.names().iter().map(|slot| self.redlock.status(slot.clone()));
        let gate = self.redlock.status(self.slots.gate().clone());
        let (slots, gate) = futures_util::future::join(join_all(statuses), gate).await;
        // The holder of the gate waits for a slot.
        let first = u32::from(matches!(gate.state, State::Held { .. }));
        Permitted { waiters: gate.waiters + first, slots }
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("name", self.name())
            .field("permits", &self.permits())
            .finish_non_exhaustive()
    }
}

/// The holders of a semaphore's permits. See [`Semaphore::status`]. A snapshot, like [`Status`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Permitted {
    /// The status of each slot, in order.
    pub slots: Vec<Status>,
    /// The number of processes that wait for a permit. See [`Status::waiters`].
    pub waiters: u32,
}

/// A request for one permit, created by [`Semaphore::acquire`]. See [`LockRequest`] for the
/// options. Its TTL also applies to the gate.
///
/// # Cancel safety
/// The same as [`LockRequest`]. A future that is neither dropped nor polled blocks other waiters
/// for at most one TTL.
///
/// # Errors
/// The same as [`LockRequest`], with the name of the semaphore as the resource.
///
/// - `Held` if no permit was free until the wait was over.
/// - `Invalid` with [`InvalidRequest::Permits`] if the number of permits is out of range.
///
/// [`InvalidRequest::Permits`]: crate::InvalidRequest::Permits
#[must_use = "requests do nothing unless awaited or run"]
#[derive(Clone)]
pub struct PermitRequest {
    slots: Arc<Slots>,
    request: LockRequest,
}

lock_options!(PermitRequest, request);

impl PermitRequest {
    /// Acquires the permit, runs the work, and releases the permit. The work is stopped if the
    /// permit is lost. See [`LockRequest::run`].
    ///
    /// # Errors
    /// The same as [`LockRequest::run`].
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the permit in the background.
    pub async fn run<W, F>(self, work: W) -> Result<F::Output, RunError<F::Output>>
    where
        W: FnOnce(Hold) -> F,
        F: Future,
    {
        self.await?.guard.run(work).await
    }

    /// Runs work that can fail with the permit. See [`LockRequest::try_run`].
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

    async fn acquire(self) -> Result<Permit, AcquireError> {
        let held = collect(&self.slots, 1, self.request).await?;
        // One was wanted, so there is one.
        held.into_iter().next().map(Permit::new).ok_or(AcquireError::Shutdown)
    }
}

impl IntoFuture for PermitRequest {
    type Output = Result<Permit, AcquireError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}

impl fmt::Debug for PermitRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PermitRequest").field(&self.request).finish()
    }
}

/// A request for several permits, created by [`Semaphore::acquire_many`]. Options apply to each
/// permit, except `wait`, which covers all of them. See [`LockRequest`].
///
/// While permits are missing, the held ones are extended whatever `auto_extend` is. `max_hold`
/// starts for each permit with its own grant.
///
/// # Cancel safety
/// The same as [`PermitRequest`].
///
/// # Errors
/// The same as [`PermitRequest`], and:
///
/// - `TooLate` if a collected permit is lost again and no time is left to start again.
/// - `Invalid` with [`InvalidRequest::PermitCount`] if the count is zero, or larger than the number
///   of permits.
///
/// [`InvalidRequest::PermitCount`]: crate::InvalidRequest::PermitCount
#[must_use = "requests do nothing unless awaited or run"]
#[derive(Clone)]
pub struct PermitsRequest {
    slots: Arc<Slots>,
    count: u32,
    request: LockRequest,
}

lock_options!(PermitsRequest, request);

impl PermitsRequest {
    /// Acquires the permits, runs the work, and releases them. The work is stopped if one of them
    /// is lost. See [`LockRequest::run`].
    ///
    /// # Errors
    /// The same as [`LockRequest::run`].
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the permits in the background.
    pub async fn run<W, F>(self, work: W) -> Result<F::Output, RunError<F::Output>>
    where
        W: FnOnce(HoldSet) -> F,
        F: Future,
    {
        self.await?.set.run(work).await
    }

    /// Runs work that can fail with the permits. See [`LockRequest::try_run`].
    ///
    /// # Errors
    /// The same as [`LockRequest::try_run`].
    ///
    /// # Cancel safety
    /// The same as [`run`](Self::run).
    pub async fn try_run<W, F, T, E>(self, work: W) -> Result<T, E>
    where
        W: FnOnce(HoldSet) -> F,
        F: Future<Output = Result<T, E>>,
        E: From<RunError<T>>,
    {
        RunError::flat(self.run(work).await)
    }

    async fn acquire(self) -> Result<Permits, AcquireError> {
        let held = collect(&self.slots, self.count, self.request).await?;
        Ok(Permits::new(held))
    }
}

impl IntoFuture for PermitsRequest {
    type Output = Result<Permits, AcquireError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}

impl fmt::Debug for PermitsRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PermitsRequest")
            .field("count", &self.count)
            .field("request", &self.request)
            .finish()
    }
}
