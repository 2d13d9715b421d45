//! `Permit` and `Permits`: the held permits of a semaphore.

use std::fmt;
use std::future::Future;
use std::ops::Deref;

use super::set::GuardSet;
use crate::error::ReleaseError;
use crate::guard::Guard;
use crate::lease::Lease;

/// A held permit, released on drop: the [`Guard`] of its slot's lock, to which it derefs.
#[must_use = "if unused, the permit is released immediately"]
pub struct Permit {
    slot: u32,
    pub(super) guard: Guard,
}

impl Permit {
    pub(super) fn new((slot, guard): (u32, Guard)) -> Self {
        Self { slot, guard }
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn into_parts(self) -> (u32, Guard) {
        (self.slot, self.guard)
    }

    /// Returns the number of the slot, from 0. No other holder has the same slot at the same time,
    /// so you can use it to choose one of n resources, such as a port.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Releases the permit. See [`Guard::release`].
    ///
    /// # Errors
    /// The same as [`Guard::release`].
    ///
    /// # Cancel safety
    /// Dropping the future, polled or not, does not cancel the release.
    pub fn release(self) -> impl Future<Output = Result<(), ReleaseError>> + Send + use<> {
        self.guard.release()
    }

    /// Gives up the permit and keeps the lock of its slot. See [`Guard::into_lease`].
    pub fn into_lease(self) -> Lease {
        self.guard.into_lease()
    }

    /// Drops the permit without releasing it. See [`Guard::forget`].
    pub fn forget(self) {
        self.guard.forget();
    }
}

impl Deref for Permit {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("slot", &self.slot).field("guard", &self.guard).finish()
    }
}

/// Several permits that are held together: the [`GuardSet`] of their slots' locks, to which it
/// derefs. Dropping it releases all of them in the background.
#[must_use = "if unused, the permits are released immediately"]
pub struct Permits {
    slots: Vec<u32>,
    pub(super) set: GuardSet,
}

impl Permits {
    pub(super) fn new(held: Vec<(u32, Guard)>) -> Self {
        let (slots, guards) = held.into_iter().unzip();
        Self { slots, set: GuardSet::new(guards) }
    }

    /// Releases all permits. See [`GuardSet::release`].
    ///
    /// # Errors
    /// The same as [`GuardSet::release`].
    ///
    /// # Cancel safety
    /// Dropping the future, polled or not, does not cancel the releases.
    pub fn release(self) -> impl Future<Output = Result<(), ReleaseError>> + Send + use<> {
        self.set.release()
    }

    /// Returns the numbers of the slots, in order.
    pub fn slots(&self) -> &[u32] {
        &self.slots
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn into_parts(self) -> (Vec<u32>, GuardSet) {
        (self.slots, self.set)
    }
}

impl Deref for Permits {
    type Target = GuardSet;

    fn deref(&self) -> &GuardSet {
        &self.set
    }
}

/// From here on, nothing knows the slots but the names of the locks.
impl From<Permits> for GuardSet {
    fn from(permits: Permits) -> Self {
        permits.set
    }
}

/// Yields the permits, in the order of their slots. From here on, each is separate.
impl IntoIterator for Permits {
    type Item = Permit;
    type IntoIter = std::vec::IntoIter<Permit>;

    fn into_iter(self) -> Self::IntoIter {
        let permits = self.slots.into_iter().zip(self.set).map(Permit::new);
        permits.collect::<Vec<_>>().into_iter()
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.set.fmt(f)
    }
}
