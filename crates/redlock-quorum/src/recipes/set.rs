//! `GuardSet`: several locks that are held together.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{join_all, select_all};
use redlock_core::{FencingToken, Resource};

use crate::error::ReleaseError;
use crate::guard::{Guard, Hold};
use crate::loss::Loss;
use crate::lost::{Ended, Lost};
use crate::run_error::RunError;

/// Several locks held together, created by awaiting a
/// [`LockAllRequest`](crate::LockAllRequest).
///
/// Each is a separate [`Guard`] with its own keeper. **The set is held while all of them are.** If
/// one lock is lost, the set is no longer held. The others remain until you release or drop the
/// set.
///
/// Dropping it releases all of them in the background, like dropping a [`Guard`].
#[must_use = "if unused, the locks are released immediately; `let _ = ..` also drops the guards"]
pub struct GuardSet {
    /// The guards in the order in which the caller named them, at least one.
    guards: Vec<Guard>,
}

impl GuardSet {
    /// Creates a set from the guards that one call has collected: at least one, in the caller's
    /// order.
    pub(super) fn new(guards: Vec<Guard>) -> Self {
        Self { guards }
    }

    /// Returns `true` if all locks are held at the time of the call. Once one is lost, this stays
    /// `false`.
    pub fn is_held(&self) -> bool {
        self.guards.iter().all(Guard::is_held)
    }

    /// Returns an error if one of the locks is lost. Use it with `?` between two steps of the work.
    /// See [`is_held`](Self::is_held).
    ///
    /// # Errors
    /// Returns [`Lost`] of the first lock that is no longer held, with its resource and the reason.
    pub fn check(&self) -> Result<(), Lost> {
        self.guards.iter().try_for_each(Guard::check)
    }

    /// Resolves when one of the locks is over. See [`Guard::lost`].
    pub fn lost(&self) -> SetLoss {
        SetLoss { losses: self.guards.iter().map(Guard::lost).collect() }
    }

    /// Returns how long you may rely on all locks if none is extended: the smallest
    /// [`Guard::remaining`].
    pub fn remaining(&self) -> Duration {
        self.guards.iter().map(Guard::remaining).min().unwrap_or_default()
    }

    /// Returns the fencing token of the lock on `resource`. Pass each store the token of the lock
    /// that protects it. `None` if the set has no such lock, or fencing is off.
    pub fn fencing_token(&self, resource: impl Into<Resource>) -> Option<FencingToken> {
        self.get(resource)?.fencing_token()
    }

    /// Returns the guard of the lock on `resource`, or `None` if the set has no such lock.
    pub fn get(&self, resource: impl Into<Resource>) -> Option<&Guard> {
        let resource = resource.into();
        self.iter().find(|guard| *guard.resource() == resource)
    }

    /// Returns the guard of each lock, in the order of the request.
    pub fn iter(&self) -> std::slice::Iter<'_, Guard> {
        self.guards.iter()
    }

    /// Returns a view of all locks for the code that does the work.
    pub fn hold(&self) -> HoldSet {
        HoldSet { holds: self.guards.iter().map(Guard::hold).collect() }
    }

    /// Releases all locks, and waits until a quorum of masters has confirmed for each that its key
    /// is gone.
    ///
    /// # Errors
    /// Returns the first error of [`Guard::release`], in the order of the request. All guards are
    /// consumed, and clean-up continues in every case.
    ///
    /// # Cancel safety
    /// Dropping the future, polled or not, does not cancel the releases.
    pub fn release(self) -> impl Future<Output = Result<(), ReleaseError>> + Send + use<> {
        let releases: Vec<_> = self.guards.into_iter().map(Guard::release).collect();
        async move { join_all(releases).await.into_iter().collect() }
    }

    /// Runs the work while all locks are held, and releases them.
    pub(super) async fn run<W, F>(self, work: W) -> Result<F::Output, RunError<F::Output>>
    where
        W: FnOnce(HoldSet) -> F,
        F: Future,
    {
        let output = tokio::select! {
            // The loss is polled first: after it, no more of the work runs.
            biased;
            lost = first_lost(self.iter()) => return Err(RunError::Lost { lost, output: None }),
            output = work(self.hold()) => output,
        };
        self.end_run(output).await
    }

    /// Ends the locks after the work that ran under them.
    pub(crate) async fn end_run<T>(self, output: T) -> Result<T, RunError<T>> {
        if let Err(lost) = self.check() {
            return Err(RunError::Lost { lost, output: Some(output) });
        }
        // A set has at least one guard, and all are of one handle.
        let handle = self.guards.first().map(|guard| guard.handle().clone());
        if let (Err(error), Some(handle)) = (self.release().await, handle) {
            handle.warn_of_release(&error);
        }
        Ok(output)
    }
}

/// Yields the guards, in the order of the request. From here on, each lock is separate.
impl IntoIterator for GuardSet {
    type Item = Guard;
    type IntoIter = std::vec::IntoIter<Guard>;

    fn into_iter(self) -> Self::IntoIter {
        self.guards.into_iter()
    }
}

impl<'a> IntoIterator for &'a GuardSet {
    type Item = &'a Guard;
    type IntoIter = std::slice::Iter<'a, Guard>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Debug for GuardSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.guards).finish()
    }
}

/// A view of several locks held together, for the code that does the work. It can read the
/// state and wait for the loss, but not extend or release. Cheap to clone. It stays correct after
/// the set is gone.
#[derive(Clone)]
pub struct HoldSet {
    holds: Vec<Hold>,
}

impl HoldSet {
    /// Returns `true` if all locks are held. See [`GuardSet::is_held`].
    pub fn is_held(&self) -> bool {
        self.holds.iter().all(Hold::is_held)
    }

    /// Returns an error if one of the locks is lost. See [`GuardSet::check`].
    ///
    /// # Errors
    /// Returns [`Lost`] of the first lock that is no longer held.
    pub fn check(&self) -> Result<(), Lost> {
        self.holds.iter().try_for_each(Hold::check)
    }

    /// Resolves when one of the locks is over. See [`GuardSet::lost`].
    pub fn lost(&self) -> SetLoss {
        SetLoss { losses: self.holds.iter().map(Hold::lost).collect() }
    }

    /// Returns how long you may rely on all locks. See [`GuardSet::remaining`].
    pub fn remaining(&self) -> Duration {
        self.holds.iter().map(Hold::remaining).min().unwrap_or_default()
    }

    /// Returns the fencing token of the lock on `resource`. See [`GuardSet::fencing_token`].
    pub fn fencing_token(&self, resource: impl Into<Resource>) -> Option<FencingToken> {
        let resource = resource.into();
        self.iter().find(|hold| *hold.resource() == resource)?.fencing_token()
    }

    /// Returns the view of each lock, in the order of the request.
    pub fn iter(&self) -> std::slice::Iter<'_, Hold> {
        self.holds.iter()
    }
}

impl<'a> IntoIterator for &'a HoldSet {
    type Item = &'a Hold;
    type IntoIter = std::slice::Iter<'a, Hold>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Debug for HoldSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.holds).finish()
    }
}

/// Combines any views into one.
impl FromIterator<Hold> for HoldSet {
    fn from_iter<I: IntoIterator<Item = Hold>>(holds: I) -> Self {
        Self { holds: holds.into_iter().collect() }
    }
}

/// A future that resolves when one lock of a set is lost or released. See [`GuardSet::lost`]. The
/// [`Lost`] inside names the lock and the reason. Dropping it does nothing.
#[must_use = "futures do nothing unless polled"]
#[derive(Clone, Debug)]
pub struct SetLoss {
    losses: Vec<Loss>,
}

impl Future for SetLoss {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        let mut ended = self.losses.iter_mut().map(|loss| Pin::new(loss).poll(cx));
        ended.find(Poll::is_ready).unwrap_or(Poll::Pending)
    }
}

/// Resolves with the first of these locks that is lost while their guards exist. There must be at
/// least one.
pub(super) async fn first_lost<'a>(guards: impl Iterator<Item = &'a Guard>) -> Lost {
    let losses = guards.map(|guard| Box::pin(async { guard.loss_of(guard.lost().await) }));
    select_all(losses).await.0
}
