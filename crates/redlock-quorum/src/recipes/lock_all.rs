//! `LockAllRequest`: several resources that are locked together. `collect` has how.

use std::collections::BTreeSet;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::time::Duration;

use futures::future::BoxFuture;
use redlock_core::Resource;

use super::collect::Collection;
use super::set::{GuardSet, HoldSet, first_lost};
use crate::error::AcquireError;
use crate::guard::Guard;
use crate::lock_options::lock_options;
use crate::redlock::Redlock;
use crate::request::LockRequest;
use crate::run_error::RunError;
use crate::settings::InvalidRequest;

impl Redlock {
    /// Locks on several resources, to be awaited: 1 to 64 different ones. All are held together or
    /// none; it keeps trying for the handle's wait.
    ///
    /// All are asked for at once, so it takes one round trip if all are free. If one is held by
    /// another, the locks behind it in the order of their bytes are released during the wait for
    /// it: callers whose sets overlap never block each other for ever, in whichever order they name
    /// the resources.
    ///
    /// ```no_run
    /// # async fn example(redlock: redlock_quorum::Redlock) -> anyhow::Result<()> {
    /// let accounts = redlock.lock_all(["account:1", "account:2"]).await?;
    /// // ... the transfer, with accounts.check()? between its steps; each store gets the token
    /// // of its own account, accounts.fencing_token("account:1") ...
    /// accounts.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock_all<K>(&self, resources: K) -> LockAllRequest
    where
        K: IntoIterator,
        K::Item: Into<Resource>,
    {
        let resources = resources.into_iter().map(Into::into).collect();
        LockAllRequest { resources, template: self.lock("") }
    }

    /// [`lock_all`](Self::lock_all) in one attempt: `lock_all(resources).wait(Duration::ZERO)`.
    pub fn try_lock_all<K>(&self, resources: K) -> LockAllRequest
    where
        K: IntoIterator,
        K::Item: Into<Resource>,
    {
        self.lock_all(resources).wait(Duration::ZERO)
    }
}

/// Several locks that are asked for together; see [`Redlock::lock_all`], and [`LockRequest`] for
/// the options. They hold for each lock, but the wait, which is that of the whole. While locks are
/// still missing, those that are held are extended whatever `auto_extend` says; `max_hold` counts
/// for each lock from its own grant.
///
/// # Cancel safety
/// As [`LockRequest`], for each lock. A future that is neither dropped nor polled any more keeps
/// what it has collected for one TTL at most.
///
/// # Errors
/// As [`LockRequest`]: the error names the resource that was refused, and each master's answer.
/// `TooLate` where a lock that was collected is lost again, and no time is left to begin anew.
/// `Invalid` with [`InvalidRequest::Resources`] or [`InvalidRequest::SameResource`] where there are
/// none, too many, or one twice.
#[must_use = "locks that are not awaited are not asked for"]
#[derive(Clone)]
pub struct LockAllRequest {
    /// In the caller's order.
    resources: Vec<Resource>,
    /// The options of each lock. Its resource is replaced.
    template: LockRequest,
}

lock_options!(LockAllRequest, template);

impl LockAllRequest {
    /// How many resources one call may lock.
    pub const RESOURCES_MAX: usize = 64;

    /// As [`LockRequest::run`]: the work is stopped where one of the locks is lost.
    ///
    /// # Errors
    /// As [`LockRequest::run`].
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the locks in the background.
    pub async fn run<W, F>(self, work: W) -> Result<F::Output, RunError<F::Output>>
    where
        W: FnOnce(HoldSet) -> F,
        F: Future,
    {
        let set = self.await?;
        let output = tokio::select! {
            // The loss is checked first: once it is known, nothing more of the work is done.
            biased;
            lost = first_lost(set.iter()) => return Err(RunError::Lost { lost, output: None }),
            output = work(set.hold()) => output,
        };
        set.end_run(output).await
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
        W: FnOnce(HoldSet) -> F,
        F: Future<Output = Result<T, E>>,
        E: From<RunError<T>>,
    {
        RunError::flat(self.run(work).await)
    }

    /// Checks the whole before anything is sent.
    fn check(&self) -> Result<(), AcquireError> {
        let count = self.resources.len();
        if !(1..=Self::RESOURCES_MAX).contains(&count) {
            return Err(InvalidRequest::Resources { count, max: Self::RESOURCES_MAX }.into());
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = self.resources.iter().find(|resource| !seen.insert(*resource)) {
            return Err(InvalidRequest::SameResource { resource: twice.clone() }.into());
        }
        self.resources.iter().try_for_each(|resource| self.template.of(resource).check_all())
    }

    async fn acquire(self) -> Result<GuardSet, AcquireError> {
        self.check()?;
        let keeps = self.template.has_keeper();
        let keys = self.resources.iter().cloned().collect();
        let request = self.template.begun().auto_extend(false);
        let mut held = Collection::new(keys, request).complete().await?;
        if keeps {
            held.values().for_each(Guard::keep);
        }
        let in_order = self.resources.iter().filter_map(|resource| held.remove(resource));
        Ok(GuardSet::new(in_order.collect()))
    }
}

impl IntoFuture for LockAllRequest {
    type Output = Result<GuardSet, AcquireError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}

impl fmt::Debug for LockAllRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockAllRequest")
            .field("resources", &self.resources)
            .field("template", &self.template)
            .finish()
    }
}
