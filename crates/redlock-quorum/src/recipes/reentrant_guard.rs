//! `ReentrantGuard`: one of the guards of an owner that holds its lock.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::error::{AcquireError, ReleaseError};
use crate::guard::Guard;
use crate::hold::HoldCell;
use crate::run_error::RunError;
use crate::settings::InvalidRequest;

/// The largest number of guards of one lease.
pub(super) const DEPTH_MAX: u16 = u16::MAX;

/// One lease, shared by the guards of its owner.
pub(super) struct Entered {
    pub(super) guard: Guard,
    pub(super) shown: Arc<Shown>,
}

/// The state of a lease that can be read without keeping it alive.
pub(super) struct Shown {
    pub(super) cell: Arc<HoldCell>,
    pub(super) depth: AtomicU16,
}

/// A lock that its owner holds: a [`Guard`] shared by all guards of this lease, with the same token
/// and deadline. Dropping the last of them releases the lock.
///
/// It derefs to the [`Guard`] for reading the state, waiting for the loss, and extending. You
/// cannot take the lease out of it, because other guards may depend on it.
#[must_use = "if unused, the lock is left immediately"]
pub struct ReentrantGuard {
    entered: Arc<Entered>,
}

impl ReentrantGuard {
    pub(super) fn of(entered: Arc<Entered>) -> Result<Self, AcquireError> {
        let deeper = |depth: u16| depth.checked_add(1);
        let entry = entered.shown.depth.fetch_update(Ordering::Relaxed, Ordering::Relaxed, deeper);
        match entry {
            Ok(_) => Ok(Self { entered }),
            Err(_) => Err(InvalidRequest::Depth { max: DEPTH_MAX }.into()),
        }
    }

    /// Leaves the lock. The last guard of the lease releases it and waits until a quorum of masters
    /// has confirmed that its key is gone, see [`Guard::release`]. Releasing any other guard sends
    /// nothing.
    ///
    /// # Errors
    /// The same as [`Guard::release`]. Only the last guard can fail.
    ///
    /// # Cancel safety
    /// Dropping the future, polled or not, leaves the lock, and the release continues.
    pub fn release(self) -> impl Future<Output = Result<(), ReleaseError>> + Send + use<> {
        let last = self.leave();
        async move {
            match last {
                Some(guard) => guard.release().await,
                None => Ok(()),
            }
        }
    }

    /// Returns the guard of the lease if this was the last one.
    fn leave(self) -> Option<Guard> {
        let entered = self.entered.clone();
        drop(self);
        // If guards are dropped at the same time, the last one gets it.
        Arc::into_inner(entered).map(|entered| entered.guard)
    }

    pub(super) async fn end_run<T>(self, output: T) -> Result<T, RunError<T>> {
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
