//! `LockRequest`: a lock that is asked for.

use std::future::{Future, IntoFuture};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use redlock_core::{Instant, InvalidResource, Label, Resource};
use tokio::sync::oneshot;

use crate::claim::Terms;
use crate::driver::{Message, Request};
use crate::guard::{Ended, Guard, Hold};
use crate::redlock::Inner;
use crate::settings::Timing;
use crate::{AcquireError, InvalidRequest, Lease, RunError};

/// A lock that is asked for: set what is not default, then `.await` it, or [`run`](Self::run)
/// work under it. Nothing happens before that.
///
/// # Cancel safety
/// Dropping the future at any point leaves no key behind where a key can be reached: the attempt
/// and its clean-up belong to the handle. A lock that was already won is released.
#[must_use = "a lock that is not awaited is not asked for"]
#[derive(Clone)]
pub struct LockRequest {
    handle: Arc<Inner>,
    resource: Resource,
    ttl: Option<Duration>,
    wait: Wait,
    label: Option<String>,
    terms: Terms,
    lease: Option<Lease>,
}

#[derive(Clone, Copy, Debug)]
enum Wait {
    Default,
    For(Duration),
    Forever,
}

impl LockRequest {
    pub(crate) fn new(handle: Arc<Inner>, resource: Resource) -> Self {
        let terms = Terms {
            auto_extend: true,
            max_hold: None,
            min_copies: None,
            stop_margin: Duration::ZERO,
        };
        Self { handle, resource, ttl: None, wait: Wait::Default, label: None, terms, lease: None }
    }

    /// How long the lease lasts without extension: 10 ms to the handle's `max_ttl`. Default: the
    /// handle's TTL.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How long to keep trying. Default: the handle's wait. Zero is one attempt. The last attempt
    /// is made when the wait is over, and takes up to two node timeouts more.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Wait::For(wait);
        self
    }

    /// Keep trying until the lock is had or the future is dropped. Masters that do not answer are
    /// waited for, too.
    pub fn wait_forever(mut self) -> Self {
        self.wait = Wait::Forever;
        self
    }

    /// Whether a keeper extends the lease while the guard lives. Default: yes. Without it the
    /// lock is lost after one TTL.
    pub fn auto_extend(mut self, auto_extend: bool) -> Self {
        self.terms.auto_extend = auto_extend;
        self
    }

    /// For how long the keeper goes on extending, from the acquisition: after that the lease is
    /// left to lapse, within one TTL. Default: without limit, so that work that hangs holds the
    /// lock for as long as its process lives. (The Redis page advises a limit.)
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.terms.max_hold = Some(max_hold);
        self
    }

    /// How many masters should have granted before the guard is handed over: 1 to their number.
    /// A quorum is enough to hold the lock; more copies let it survive more masters that lose it
    /// against the rules. More than a quorum is waited for only a short grace, about as long as
    /// the quorum took and never longer than the node timeout: ask [`Guard::copies`] what there
    /// is. Default: a quorum.
    pub fn min_copies(mut self, copies: usize) -> Self {
        self.terms.min_copies = Some(copies);
        self
    }

    /// Makes the deadline, and so [`Guard::lost`], come this much earlier than the end of the
    /// lease, for work that needs time to stop. Default: zero. Must leave something of the lease.
    pub fn stop_margin(mut self, margin: Duration) -> Self {
        self.terms.stop_margin = margin;
        self
    }

    /// A name that is added to the token, for people who ask who holds the lock: 1 to 64 of
    /// `A-Z a-z 0-9 . _ @ : -`. Default: the handle's label.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Acquires the lock, does the work, and releases the lock again. When the lock is lost while
    /// the work is going on, the work is dropped where it awaits. What does not await cannot be
    /// stopped: ask [`Hold::check`] in between.
    ///
    /// A release that fails is logged; it never costs the result. Nor does a loss that comes while
    /// the last part of the work runs without awaiting: nobody could have stopped it.
    ///
    /// # Errors
    /// [`RunError::Acquire`] when there is no lock: the work was not begun. [`RunError::Lost`]
    /// when it was lost: the work was stopped.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the lock in the background.
    pub async fn run<W, F>(self, work: W) -> Result<F::Output, RunError>
    where
        W: FnOnce(Hold) -> F,
        F: Future,
    {
        let guard = self.await?;
        let lost = guard.lost();
        let output = tokio::select! {
            // The loss is looked at first: once it is known, nothing more of the work is done.
            biased;
            ended = lost => match ended {
                Ended::Lost(lost) => return Err(lost.into()),
                // Only this function could have released it, and it has not.
                Ended::Released => return Err(guard.claim().lost(crate::Why::Released).into()),
            },
            output = work(guard.hold()) => output,
        };
        if let Err(error) = guard.release().await {
            tracing::warn!(%error, "the work is done, but its lock is not known to be released");
        }
        Ok(output)
    }

    /// Takes over `lease` instead of acquiring anew.
    pub(crate) fn resume(
        mut self,
        lease: Lease,
    ) -> impl Future<Output = Result<Guard, AcquireError>> {
        self.lease = Some(lease);
        self.acquire()
    }

    async fn acquire(self) -> Result<Guard, AcquireError> {
        let timing = self.check()?;
        let label = self.checked_label()?;
        let until = self.until();
        loop {
            if let Some(shut_down) = self.handle.shut_down_error() {
                return Err(shut_down);
            }
            let (reply, outcome) = oneshot::channel();
            let request = Request {
                resource: self.resource.clone(),
                key: self.handle.key(&self.resource),
                timing,
                terms: self.terms.clone(),
                label: label.clone(),
                until,
                lease: self.lease.clone(),
                reply,
                handle: self.handle.clone(),
                failures: 0,
            };
            self.handle.start_and_post(Message::Acquire(Box::new(request)))?;
            match outcome.await {
                Ok(Ok(guard)) => return self.on_time(guard),
                Ok(Err(error)) => return Err(error),
                // The runtime that drove the handle has gone: try again on this one.
                Err(_) => {}
            }
        }
    }

    /// A guard may have waited for its caller to get to run: what counts is what is left now.
    fn on_time(&self, guard: Guard) -> Result<Guard, AcquireError> {
        if guard.is_held() {
            return Ok(guard);
        }
        Err(AcquireError::TooLate { resource: self.resource.clone(), votes: guard.votes() })
    }

    /// Checks the request without sending anything.
    fn check(&self) -> Result<Timing, InvalidRequest> {
        self.resource.check()?;
        // A prefix and a name may make up together what neither may begin with.
        if self.handle.key(&self.resource).starts_with(Resource::RESERVED.as_bytes()) {
            return Err(InvalidResource::Reserved.into());
        }
        let timing = self.handle.settings.timing(self.ttl)?;
        let masters = self.handle.context.names.len();
        if let Some(copies) = self.terms.min_copies.filter(|n| !(1..=masters).contains(n)) {
            return Err(InvalidRequest::MinCopies { copies, masters });
        }
        timing.check_margin(self.terms.stop_margin)?;
        Ok(timing)
    }

    fn checked_label(&self) -> Result<Option<Label>, InvalidRequest> {
        match &self.label {
            Some(label) => Ok(Some(Label::parse(label)?)),
            None => Ok(self.handle.settings.label.clone()),
        }
    }

    fn until(&self) -> Option<Instant> {
        let wait = match self.wait {
            Wait::Default => self.handle.settings.wait,
            Wait::For(wait) => wait,
            Wait::Forever => return None,
        };
        Some(self.handle.context.clock.now().saturating_add(wait))
    }
}

impl IntoFuture for LockRequest {
    type Output = Result<Guard, AcquireError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}

impl std::fmt::Debug for LockRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockRequest")
            .field("resource", &self.resource)
            .field("ttl", &self.ttl)
            .field("wait", &self.wait)
            .field("terms", &self.terms)
            .finish_non_exhaustive()
    }
}
