//! `LockAllRequest`: locks several resources together. `collect` describes how. See rule M1 of
//! `docs/PROTOCOL.md`.

use std::collections::BTreeSet;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::time::Duration;

use futures_util::future::BoxFuture;
use redlock_core::Resource;

use super::collect::Collection;
use super::set::{GuardSet, HoldSet};
use crate::error::AcquireError;
use crate::guard::Guard;
use crate::lock_options::lock_options;
use crate::redlock::Redlock;
use crate::request::LockRequest;
use crate::run_error::RunError;
use crate::settings::InvalidRequest;

impl Redlock {
    /// Requests locks on 1 to 64 different resources. Await the request to acquire all of them or
    /// none. It retries for the handle's wait.
    ///
    /// All are requested at the same time, so free locks take one round trip. If another client
    /// holds one, the locks after it in the order of their bytes are released while the call waits
    /// for it. Callers whose sets overlap therefore never block each other forever, in whichever
    /// order they name the resources.
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

    /// Requests several locks in one attempt: `lock_all(resources).wait(Duration::ZERO)`. See
    /// [`lock_all`](Self::lock_all).
    pub fn try_lock_all<K>(&self, resources: K) -> LockAllRequest
    where
        K: IntoIterator,
        K::Item: Into<Resource>,
    {
        self.lock_all(resources).wait(Duration::ZERO)
    }
}

/// A request for several locks. Created by [`Redlock::lock_all`].
///
/// Options apply to each lock, except `wait`, which covers the whole set. See [`LockRequest`].
/// While locks are missing, the held ones are extended whatever `auto_extend` is. `max_hold` starts
/// for each lock with its own grant.
///
/// # Cancel safety
/// The same as [`LockRequest`], for each lock. A future that is neither dropped nor polled keeps
/// its locks for at most one TTL.
///
/// # Errors
/// The same as [`LockRequest`]. The error names the refused resource and each master's answer.
///
/// - `TooLate` if a collected lock is lost again and no time is left to start again.
/// - `Invalid` with [`InvalidRequest::Resources`] or [`InvalidRequest::SameResource`] if there are
///   no resources, too many, or duplicates.
#[must_use = "requests do nothing unless awaited or run"]
#[derive(Clone)]
pub struct LockAllRequest {
    /// The resources, in the caller's order.
    resources: Vec<Resource>,
    /// The options of each lock. Its resource is replaced.
    template: LockRequest,
}

lock_options!(LockAllRequest, template);

impl LockAllRequest {
    /// The largest number of resources that one call can lock.
    pub const RESOURCES_MAX: usize = 64;

    /// Acquires the locks, runs the work, and releases them. The work is stopped if one of the
    /// locks is lost. See [`LockRequest::run`].
    ///
    /// # Errors
    /// The same as [`LockRequest::run`].
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the locks in the background.
    pub async fn run<W, F>(self, work: W) -> Result<F::Output, RunError<F::Output>>
    where
        W: FnOnce(HoldSet) -> F,
        F: Future,
    {
        self.await?.run(work).await
    }

    /// Runs work that can fail under the locks. See [`LockRequest::try_run`].
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

    /// Checks the whole request before anything is sent.
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
        let handle = request.handle().clone();
        let mut held = handle.collecting(Collection::new(keys, request).complete()).await?;
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
