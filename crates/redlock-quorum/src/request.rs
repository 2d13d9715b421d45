//! `LockRequest`: a lock that is asked for.

use std::future::{Future, IntoFuture};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use redlock_core::{Instant, Label, Resource, Token};
use redlock_protocol::terms::{HoldOptions, Timing};
use redlock_protocol::waiting::Ask;
use tracing::field::{Empty, display};

use crate::driver::command::{Command, Request};
use crate::driver::hold::held_lock::HeldLock;
use crate::error::AcquireError;
use crate::guard::{Guard, Hold};
use crate::handle::Handle;
use crate::run_error::RunError;
use crate::settings::{GivenLabel, InvalidRequest, MAX_HOLD_MIN, check_margin};

/// A lock that is asked for: set what is not default, then `.await` it, or [`run`](Self::run)
/// work under it. Nothing happens before that.
///
/// # Cancel safety
/// Dropping the future at any point leaves no key behind where a key can be reached: the attempt
/// and its clean-up belong to the handle. A lock that was already won is released.
///
/// A future that is kept and not polled any more, beside a `select!` for instance, may win the lock
/// all the same. Until it is polled the lock is not extended, and keeps all others out: for its TTL
/// at most, at the end of which it is released. Then the future returns `TooLate`. Drop such a
/// future as soon as it is not wanted any more.
///
/// # Errors
/// Awaiting it returns [`AcquireError`]: `Held` when another holds the lock until the wait is over,
/// `NoQuorum` when too few masters answer, or report a fault that waiting does not cure, `TooLate`
/// when nothing of the lease is left, `Invalid` when an option is out of range, and `Shutdown` when
/// the handle was shut down. A lock that the caller itself holds counts as held by another: it is
/// not reentrant.
#[must_use = "a lock that is not awaited is not asked for"]
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
    /// Its end was decided, by the handle's clock; `None` is for ever.
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

    /// How long the lease lasts without extension: 10 ms to the handle's `max_ttl`. Default: the
    /// handle's TTL.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How long to keep trying. Default: the handle's wait. Zero is one attempt. The last attempt
    /// is made when the wait is over, and takes up to two node timeouts more. Where so many
    /// requests stand in line that its turn does not come, it ends two connect timeouts behind the
    /// wait, with `NoQuorum`.
    ///
    /// The wait ends early, with `NoQuorum`, when so many masters report a fault that waiting does
    /// not cure ([`Cause::is_curable`](redlock_core::Cause::is_curable): a wrong password, a
    /// replica) that no quorum is left. A step towards the admission of a master that was refused
    /// before this request began does not count: what it was refused for may be cured.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Wait::For(wait);
        self
    }

    /// Keep trying until this instant, however long the call itself was delayed. An instant in the
    /// past is one attempt.
    pub fn wait_until(mut self, instant: std::time::Instant) -> Self {
        self.wait = Wait::Until(instant);
        self
    }

    /// Keep trying until the lock is acquired or the future is dropped. Masters that do not answer
    /// are waited for, too. A fault that waiting does not cure ends the wait all the same, as for
    /// [`wait`](Self::wait).
    pub fn wait_forever(mut self) -> Self {
        self.wait = Wait::Forever;
        self
    }

    /// Whether a keeper extends the lease while the guard exists. Default: yes. Without it the lock
    /// is lost after one TTL.
    pub fn auto_extend(mut self, auto_extend: bool) -> Self {
        self.options.auto_extend = auto_extend;
        self
    }

    /// For how long the keeper goes on extending, from the acquisition: after that the lease is
    /// left to lapse, within one TTL. Default: without limit, so that work that hangs holds the
    /// lock until its process ends. (The Redis page advises a limit.) Less than 1 ms is refused.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.options.max_hold = Some(max_hold);
        self
    }

    /// How many masters should have granted before the guard is handed over: 1 to their number. A
    /// quorum is enough to hold the lock; more copies let it survive more masters that lose it
    /// against the rules. More than a quorum is waited for only a short grace, about as long as the
    /// quorum took and never longer than the node timeout: [`Guard::copies`] returns their number.
    /// Default: a quorum.
    pub fn min_copies(mut self, copies: usize) -> Self {
        self.options.min_copies = Some(copies);
        self
    }

    /// Makes the deadline, and so [`Guard::lost`], come this much earlier than the end of the
    /// lease, for work that needs time to stop. Default: zero. Must leave something of the lease.
    pub fn stop_margin(mut self, margin: Duration) -> Self {
        self.options.stop_margin = margin;
        self
    }

    /// A name that is added to the token, for people that ask who holds the lock: 1 to 64 of
    /// `A-Z a-z 0-9 . _ @ : -`. Default: the handle's label.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = GivenLabel::Text(label.into());
        self
    }

    /// Adds no name to the token, even if the handle has a label.
    pub fn no_label(mut self) -> Self {
        self.label = GivenLabel::None;
        self
    }

    /// Acquires the lock, does the work, and releases the lock again. When the lock is lost while
    /// the work is going on, the work is dropped where it awaits. What does not await cannot be
    /// stopped: ask [`Hold::check`] in between.
    ///
    /// A release that fails is logged; it never costs the output.
    ///
    /// # Errors
    /// [`RunError::Acquire`] when there is no lock: the work was not begun. [`RunError::Lost`]
    /// when it was lost: the work was stopped, or it ended after the loss because it did not
    /// await, and its output is inside.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the lock in the background.
    pub async fn run<W, F>(self, work: W) -> Result<F::Output, RunError<F::Output>>
    where
        W: FnOnce(Hold) -> F,
        F: Future,
    {
        let guard = self.await?;
        let output = guard.work(work).await?;
        guard.end_run(output).await
    }

    /// [`run`](Self::run) for work that can fail: one `?` for the lock and the work.
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
    /// # Errors
    /// The error of work that ended with one, after a loss of the lock too. Otherwise the error of
    /// [`run`](Self::run), converted into that type: the lock was not acquired, or it was lost.
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

    /// This request for another resource.
    pub(crate) fn of(&self, resource: &Resource) -> Self {
        Self { resource: resource.clone(), ..self.clone() }
    }

    /// This request, with its wait counted from now on.
    pub(crate) fn begun(mut self) -> Self {
        self.wait = Wait::Begun(self.until(self.handle.clock.now()));
        self
    }

    /// Whether the wait of a request that has [`begun`](Self::begun) has ended.
    pub(crate) fn is_over(&self) -> bool {
        let now = self.handle.clock.now();
        self.until(now).is_some_and(|until| until <= now)
    }

    /// The TTL that was asked for, where it is not that of the handle.
    pub(crate) fn own_ttl(&self) -> Option<Duration> {
        self.ttl
    }

    /// Whether a keeper is to extend the lease.
    pub(crate) fn has_keeper(&self) -> bool {
        self.options.auto_extend
    }

    /// All checks that can be made before a request is sent.
    pub(crate) fn check_all(&self) -> Result<(), AcquireError> {
        self.handle.key(&self.resource)?;
        self.check()?;
        self.checked_label()?;
        Ok(())
    }

    /// Takes over the lease that this token signs, instead of acquiring anew.
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
            Command::Acquire(Request {
                resource: self.resource.clone(),
                key: key.clone(),
                ttl: self.ttl,
                timing,
                options: self.options,
                label: label.clone(),
                asked_at,
                until,
                resume: resume.clone(),
                reply,
                key_use: Default::default(),
                is_attempted: false,
                ask: Ask::All,
            })
        };
        let span = tracing::debug_span!("acquire", resource = %self.resource, token = Empty);
        // It is open while the answer is waited for, and never entered: nothing is logged in there.
        let held = self.handle.inbox.ask_or_withdraw(command).await??;
        span.record("token", display(&held.cell.token));
        self.on_time(held)
    }

    /// A lock may have waited for its caller to get to run: what counts is what is left now. One
    /// that comes too late is dropped before it was accepted: what was only to be taken over is
    /// not released then.
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
        let timing = self.handle.settings.timing_unlimited(self.ttl)?;
        let masters = self.handle.names.len();
        if let Some(copies) = self.options.min_copies.filter(|n| !(1..=masters).contains(n)) {
            return Err(InvalidRequest::MinCopies { copies, masters });
        }
        if let Some(max_hold) = self.options.max_hold.filter(|hold| *hold < MAX_HOLD_MIN) {
            return Err(InvalidRequest::MaxHold { max_hold });
        }
        check_margin(&timing, self.options.stop_margin)?;
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
