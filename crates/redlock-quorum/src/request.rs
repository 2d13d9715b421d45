//! `LockRequest`: a request for a lock.

use std::future::{Future, IntoFuture};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use redlock_core::{Instant, Label, Resource, Token};
use redlock_protocol::client::callers::Caller;
use redlock_protocol::terms::{HoldOptions, Timing};
use redlock_protocol::waiting::Ask;
use tracing::field::{Empty, display};

use crate::driver::command::Command;
use crate::driver::held_lock::HeldLock;
use crate::error::AcquireError;
use crate::guard::{Guard, Hold};
use crate::handle::Handle;
use crate::run_error::RunError;
use crate::settings::{GivenLabel, InvalidRequest, MAX_HOLD_MIN};

/// A request for a lock. Set options, then `.await` it to acquire the lock, or [`run`](Self::run)
/// work under it. It does nothing before that.
///
/// ```no_run
/// # use std::time::Duration;
/// # async fn example(redlock: redlock_quorum::Redlock) -> anyhow::Result<()> {
/// let request = redlock.lock("reports:daily").ttl(Duration::from_secs(30));
/// let guard = request.wait(Duration::from_secs(5)).label("report-worker-3").await?;
/// # guard.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Cancel safety
/// You can drop the future at any point. The handle finishes the attempt and releases any key it
/// set, on every master it can reach. A lock that was already won is released.
///
/// A future that is kept but no longer polled, for example after a `select!`, may still acquire the
/// lock. The lock is not extended, and blocks other clients for up to one TTL. Then the future
/// returns `TooLate`. Drop futures you no longer need.
///
/// # Errors
/// Awaiting it returns [`AcquireError`]:
///
/// - `Held` if another client, or the caller itself, holds the lock until the wait is over. The
///   lock is not reentrant.
/// - `NoQuorum` if too few masters answer, or report a fault that waiting does not fix.
/// - `TooLate` if no validity is left.
/// - `Invalid` if an option is out of range.
/// - `Shutdown` if the handle was shut down.
#[must_use = "requests do nothing unless awaited or run"]
#[derive(Clone)]
pub struct LockRequest {
    handle: Arc<Handle>,
    resource: Resource,
    ttl: Option<Duration>,
    wait: Wait,
    label: GivenLabel,
    options: HoldOptions,
}

#[derive(Clone, Copy, Debug)]
enum Wait {
    Default,
    For(Duration),
    Until(std::time::Instant),
    Forever,
    /// The wait ends at this instant of the handle's clock. `None` means forever.
    Begun(Option<Instant>),
}

impl LockRequest {
    pub(crate) fn new(handle: Arc<Handle>, resource: Resource) -> Self {
        let options = HoldOptions::default();
        Self {
            handle,
            resource,
            ttl: None,
            wait: Wait::Default,
            label: GivenLabel::Default,
            options,
        }
    }

    /// Sets how long the lock lasts without being extended. Defaults to the handle's TTL; must be
    /// between 10 ms and the handle's `max_ttl`.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Sets how long to keep trying. Defaults to the handle's wait. Zero means one attempt. The
    /// last attempt starts when the wait is over, and takes up to two more node timeouts. A request
    /// whose turn never comes, because too many requests are in line, fails with `NoQuorum` two
    /// connect timeouts after the wait.
    ///
    /// Returns `NoQuorum` early if so many masters report a fault that waiting does not fix
    /// ([`Cause::is_curable`](redlock_core::Cause::is_curable): a wrong password, a replica) that
    /// no quorum is possible. A failed admission step from before this request does not end the
    /// wait, because its cause may have been fixed since.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Wait::For(wait);
        self
    }

    /// Keeps trying until this instant, however long the call itself was delayed. An instant in the
    /// past means one attempt.
    pub fn wait_until(mut self, instant: std::time::Instant) -> Self {
        self.wait = Wait::Until(instant);
        self
    }

    /// Keeps trying until the lock is acquired or the future is dropped, also while masters do not
    /// answer. A fault that waiting does not fix still ends the wait, as described for
    /// [`wait`](Self::wait).
    pub fn wait_forever(mut self) -> Self {
        self.wait = Wait::Forever;
        self
    }

    /// Sets whether the lock is extended while the guard exists. Defaults to `true`. Without it,
    /// the lock is lost after one TTL.
    pub fn auto_extend(mut self, auto_extend: bool) -> Self {
        self.options.auto_extend = auto_extend;
        self
    }

    /// Stops extending the lock this long after it was acquired. It then expires within one TTL.
    /// Defaults to no limit, so hung work holds the lock until its process exits. (The Redis page
    /// recommends a limit.) Must be at least 1 ms.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.options.max_hold = Some(max_hold);
        self
    }

    /// Sets how many masters should hold the key before this returns: 1 to their number. Defaults
    /// to a quorum. Extra copies let the lock survive masters that lose data. The call waits for
    /// them only briefly: about as long as the quorum took, and never longer than the node timeout.
    /// Check [`Guard::copies`].
    pub fn min_copies(mut self, copies: usize) -> Self {
        self.options.min_copies = Some(copies);
        self
    }

    /// Moves the deadline, and with it [`Guard::lost`], this much before the end of the lease, for
    /// work that needs time to stop. Defaults to zero; must be shorter than the validity of the
    /// lease.
    pub fn stop_margin(mut self, margin: Duration) -> Self {
        self.options.stop_margin = margin;
        self
    }

    /// Adds this label to the token, so that `redlock status` shows who holds the lock: 1 to 64 of
    /// `A-Z a-z 0-9 . _ @ : -`. Defaults to the handle's label.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = GivenLabel::Text(label.into());
        self
    }

    /// Adds no label to the token, even if the handle has one.
    pub fn no_label(mut self) -> Self {
        self.label = GivenLabel::None;
        self
    }

    /// Acquires the lock, runs the work, and releases the lock. If the lock is lost, the work is
    /// dropped at its next await point. Work that does not await cannot be stopped: call
    /// [`Hold::check`] between steps.
    ///
    /// A failed release is logged and does not affect the output.
    ///
    /// # Errors
    /// - [`RunError::Acquire`] if the lock was not acquired. The work did not start.
    /// - [`RunError::Lost`] if the lock was lost. The work was stopped, or it finished after the
    ///   loss because it did not await. In that case the error contains its output.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the lock in the background.
    pub async fn run<W, F>(self, work: W) -> Result<F::Output, RunError<F::Output>>
    where
        W: FnOnce(Hold) -> F,
        F: Future,
    {
        self.await?.run(work).await
    }

    /// Runs work that can fail, as [`run`](Self::run) does, and returns one error type, so that a
    /// single `?` covers the lock and the work.
    ///
    /// ```no_run
    /// # use redlock_quorum::Redlock;
    /// # async fn migrate() -> anyhow::Result<u32> { Ok(1) }
    /// # async fn example(redlock: Redlock) -> anyhow::Result<()> {
    /// let steps = redlock.lock("migrations").try_run(|_hold| migrate()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Your own error type needs a conversion from [`RunError`] with the output of the work, such
    /// as a variant with `#[from]` of `thiserror`:
    ///
    /// ```no_run
    /// use redlock_quorum::{Redlock, RunError};
    ///
    /// #[derive(Debug)]
    /// enum MigrateError {
    ///     Lock(RunError<u32>),
    ///     Schema(String),
    /// }
    ///
    /// impl From<RunError<u32>> for MigrateError {
    ///     fn from(error: RunError<u32>) -> Self {
    ///         Self::Lock(error)
    ///     }
    /// }
    ///
    /// async fn migrate() -> Result<u32, MigrateError> {
    ///     Err(MigrateError::Schema("table orders is missing".into()))
    /// }
    ///
    /// # async fn example(redlock: Redlock) {
    /// match redlock.lock("migrations").try_run(|_hold| migrate()).await {
    ///     Ok(steps) => println!("{steps} steps"),
    ///     Err(MigrateError::Lock(RunError::Acquire(error))) => eprintln!("not begun: {error}"),
    ///     Err(MigrateError::Lock(error)) => eprintln!("not protected to its end: {error}"),
    ///     Err(MigrateError::Schema(error)) => eprintln!("failed: {error}"),
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the error of work that failed, even if the lock was lost before. Otherwise the error
    /// of [`run`](Self::run), converted into that type: the lock was not acquired, or it was lost.
    ///
    /// # Cancel safety
    /// The same as for [`run`](Self::run).
    pub async fn try_run<W, F, T, E>(self, work: W) -> Result<T, E>
    where
        W: FnOnce(Hold) -> F,
        F: Future<Output = Result<T, E>>,
        E: From<RunError<T>>,
    {
        RunError::flat(self.run(work).await)
    }

    /// Returns this request for another resource.
    pub(crate) fn of(&self, resource: &Resource) -> Self {
        Self { resource: resource.clone(), ..self.clone() }
    }

    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// Returns this request with its wait starting now.
    pub(crate) fn begun(mut self) -> Self {
        self.wait = Wait::Begun(self.until(self.handle.clock.now()));
        self
    }

    /// Returns this request without the options that concern the holder of a lock, for a lock that
    /// only its caller needs.
    pub(crate) fn without_hold_options(mut self) -> Self {
        self.options = HoldOptions { auto_extend: false, ..HoldOptions::default() };
        self
    }

    /// Returns `true` if the wait of a request that has [`begun`](Self::begun) is over.
    pub(crate) fn is_over(&self) -> bool {
        let now = self.handle.clock.now();
        self.until(now).is_some_and(|until| until <= now)
    }

    /// Returns the TTL of this request, if it differs from the handle's.
    pub(crate) fn own_ttl(&self) -> Option<Duration> {
        self.ttl
    }

    /// Returns `true` if the lease is extended automatically.
    pub(crate) fn has_keeper(&self) -> bool {
        self.options.auto_extend
    }

    /// Runs all checks that are possible before a request is sent.
    pub(crate) fn check_all(&self) -> Result<(), AcquireError> {
        self.handle.key(&self.resource)?;
        self.check()?;
        self.checked_label()?;
        Ok(())
    }

    /// Resumes the lease of this token instead of acquiring a new lock.
    pub(crate) async fn resume(self, token: Token) -> Result<Guard, AcquireError> {
        self.acquire(Some(token)).await
    }

    async fn acquire(self, resume: Option<Token>) -> Result<Guard, AcquireError> {
        let key = self.handle.key(&self.resource)?;
        let (timing, label) = (self.check()?, self.checked_label()?);
        let asked_at = self.handle.clock.now();
        let until = self.until(asked_at);
        self.handle.open()?;
        let command = |reply| {
            let caller = Caller {
                resource: self.resource.clone(),
                key: key.clone().into(),
                ttl: self.ttl,
                timing,
                options: self.options,
                label: label.clone(),
                asked_at,
                until,
                resume: resume.clone(),
                key_use: Default::default(),
                is_attempted: false,
                is_gone: false,
                has_failed: false,
                ask: Ask::All,
            };
            Command::Acquire(caller, reply)
        };
        let span = tracing::debug_span!("acquire", resource = %self.resource, token = Empty);
        // The span is open while the request waits for its answer and never entered, so nothing is
        // logged in it.
        let held = self.handle.inbox.ask_or_withdraw(command).await??;
        span.record("token", display(&held.cell.token));
        self.on_time(held)
    }

    /// Checks the lock when its caller runs, because it may have waited for that. A lock that comes
    /// too late is dropped before it is accepted, so a lease that was only to be resumed is not
    /// released.
    fn on_time(&self, held: HeldLock) -> Result<Guard, AcquireError> {
        Guard::accept(held, self.handle.clone()).map_err(|late| {
            if self.handle.open().is_err() {
                return AcquireError::Shutdown;
            }
            let (resource, votes) = (self.resource.clone(), late.cell.votes());
            AcquireError::TooLate { resource, votes }
        })
    }

    /// Checks the request without sending anything.
    fn check(&self) -> Result<Timing, InvalidRequest> {
        let timing = self.handle.settings.timing(self.ttl)?;
        let masters = self.handle.names.len();
        if let Some(copies) = self.options.min_copies.filter(|n| !(1..=masters).contains(n)) {
            return Err(InvalidRequest::MinCopies { copies, masters });
        }
        if let Some(max_hold) = self.options.max_hold.filter(|hold| *hold < MAX_HOLD_MIN) {
            return Err(InvalidRequest::MaxHold { max_hold });
        }
        timing.check_margin(self.options.stop_margin)?;
        Ok(timing)
    }

    pub(crate) fn checked_label(&self) -> Result<Option<Label>, InvalidRequest> {
        Ok(self.label.check(|| self.handle.settings.label.clone())?)
    }

    fn until(&self, now: Instant) -> Option<Instant> {
        let wait = match self.wait {
            Wait::Default => self.handle.settings.wait,
            Wait::For(wait) => wait,
            Wait::Until(instant) => instant.saturating_duration_since(std::time::Instant::now()),
            Wait::Forever => return None,
            Wait::Begun(until) => return until,
        };
        Some(now.saturating_add(wait))
    }
}

impl IntoFuture for LockRequest {
    type Output = Result<Guard, AcquireError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire(None))
    }
}

impl std::fmt::Debug for LockRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockRequest")
            .field("resource", &self.resource)
            .field("ttl", &self.ttl)
            .field("wait", &self.wait)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
