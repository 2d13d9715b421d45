//! `GuardSet`: several locks that are held together, as one.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{join_all, select_all};
use redlock_core::{FencingToken, Resource};

use crate::error::ReleaseError;
use crate::guard::{Guard, Hold};
use crate::loss::Loss;
use crate::lost::{Ended, Lost};
use crate::run_error::RunError;

/// Several locks that are held together; made by awaiting a
/// [`LockAllRequest`](crate::LockAllRequest).
///
/// Each is a [`Guard`] of its own, with its own keeper. **The set is held while all of them are**:
/// one that is lost ends the set, and the others stay locked until the set is released or dropped.
///
/// Dropping it releases all of them in the background, as dropping a [`Guard`] does.
#[must_use = "the locks are released when their set is dropped"]
pub struct GuardSet {
    /// In the order in which the caller named them; at least one.
    guards: Vec<Guard>,
}

impl GuardSet {
    /// Takes over guards that one call has collected: at least one, in the caller's order.
    pub(super) fn new(guards: Vec<Guard>) -> Self {
        Self { guards }
    }

    /// Whether all locks are held, exactly and at this moment. Once one is lost this stays false.
    pub fn is_held(&self) -> bool {
        self.guards.iter().all(Guard::is_held)
    }

    /// [`is_held`](Self::is_held) as a `Result`, to be used with `?` between two steps of the work.
    ///
    /// # Errors
    /// [`Lost`] of the first lock that is not held any more, with its resource and the reason.
    pub fn check(&self) -> Result<(), Lost> {
        self.guards.iter().try_for_each(Guard::check)
    }

    /// Resolves when one of the locks is over; as [`Guard::lost`] for each of them.
    pub fn lost(&self) -> SetLoss {
        SetLoss { losses: self.guards.iter().map(Guard::lost).collect() }
    }

    /// How long the holder may still count on all locks, if none is extended: the least of
    /// [`Guard::remaining`].
    pub fn remaining(&self) -> Duration {
        self.guards.iter().map(Guard::remaining).min().unwrap_or_default()
    }

    /// The fencing token of the lock on `resource`: each store gets the token of the lock that
    /// protects it. `None` if the set has no such lock, or the handle gives no tokens.
    pub fn fencing_token(&self, resource: impl Into<Resource>) -> Option<FencingToken> {
        self.get(resource)?.fencing_token()
    }

    /// The guard of the lock on `resource`; `None` if the set has no such lock.
    pub fn get(&self, resource: impl Into<Resource>) -> Option<&Guard> {
        let resource = resource.into();
        self.iter().find(|guard| *guard.resource() == resource)
    }

    /// The guard of each lock, in the order in which they were asked for.
    pub fn iter(&self) -> std::slice::Iter<'_, Guard> {
        self.guards.iter()
    }

    /// A view of all locks for the code that does the work.
    pub fn hold(&self) -> HoldSet {
        HoldSet { holds: self.guards.iter().map(Guard::hold).collect() }
    }

    /// Releases all locks at once, and waits until a quorum of masters is known to be free of each.
    ///
    /// # Errors
    /// The first error of [`Guard::release`], in the order in which the locks were asked for. All
    /// guards are consumed, and clean-up goes on either way.
    ///
    /// # Cancel safety
    /// Dropping the future, polled or not, leaves the releases going on.
    pub fn release(self) -> impl Future<Output = Result<(), ReleaseError>> + Send + use<> {
        let releases: Vec<_> = self.guards.into_iter().map(Guard::release).collect();
        async move { join_all(releases).await.into_iter().collect() }
    }

    /// The work that ran under these locks has ended.
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

/// The guards, in the order in which they were asked for: from here on each lock is for itself.
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

/// A view of several locks that are held together, for the code that does the work: it can read the
/// state and wait for the loss, and neither extend nor release. Cheap to clone; it stays correct
/// after the set is gone.
#[derive(Clone)]
pub struct HoldSet {
    holds: Vec<Hold>,
}

impl HoldSet {
    /// As [`GuardSet::is_held`].
    pub fn is_held(&self) -> bool {
        self.holds.iter().all(Hold::is_held)
    }

    /// As [`GuardSet::check`].
    ///
    /// # Errors
    /// [`Lost`] of the first lock that is not held any more.
    pub fn check(&self) -> Result<(), Lost> {
        self.holds.iter().try_for_each(Hold::check)
    }

    /// As [`GuardSet::lost`].
    pub fn lost(&self) -> SetLoss {
        SetLoss { losses: self.holds.iter().map(Hold::lost).collect() }
    }

    /// As [`GuardSet::remaining`].
    pub fn remaining(&self) -> Duration {
        self.holds.iter().map(Hold::remaining).min().unwrap_or_default()
    }

    /// As [`GuardSet::fencing_token`].
    pub fn fencing_token(&self, resource: impl Into<Resource>) -> Option<FencingToken> {
        let resource = resource.into();
        self.iter().find(|hold| *hold.resource() == resource)?.fencing_token()
    }

    /// The view of each lock, in the order in which they were asked for.
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

/// Any views can be combined into one.
impl FromIterator<Hold> for HoldSet {
    fn from_iter<I: IntoIterator<Item = Hold>>(holds: I) -> Self {
        Self { holds: holds.into_iter().collect() }
    }
}

/// A future that resolves when one lock of a set is over; see [`GuardSet::lost`]. The [`Lost`]
/// inside names the lock and the reason. Dropping it does nothing.
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

/// The first of these locks that is lost while their guards are here; there is at least one.
pub(super) async fn first_lost<'a>(guards: impl Iterator<Item = &'a Guard>) -> Lost {
    let losses = guards.map(|guard| Box::pin(async { guard.loss_of(guard.lost().await) }));
    select_all(losses).await.0
}
