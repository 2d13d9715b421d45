//! The connections to all masters.

use redlock_core::Instant;

use super::link::{Link, State};
use crate::master_set::MasterSet;
use crate::quorum::quorum;

/// The connection to each master of the list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Links(pub(super) Vec<Link>);

impl Links {
    /// Returns `true` if there is a connection to `master`.
    pub fn is_up(&self, master: usize) -> bool {
        self.0[master].state == State::Up
    }

    /// Returns whether `master` reports changes of keys. `None` if it is not connected.
    pub fn tracks(&self, master: usize) -> Option<bool> {
        let link = &self.0[master];
        let facts = link.facts.as_ref().filter(|_| link.state == State::Up);
        facts.map(|facts| facts.tracks)
    }

    /// Returns `true` if a late SET may still arrive over a previous connection to `master`.
    pub fn lacks_barrier(&self, master: usize) -> bool {
        self.0[master].lacks_barrier
    }

    /// Returns `true` if some master was never reached, and still may be.
    pub fn is_connecting(&self) -> bool {
        self.0.iter().any(|link| link.state == State::Connecting)
    }

    /// Returns `true` if a quorum of masters is connected.
    #[inline]
    pub fn has_quorum(&self) -> bool {
        self.up_count() >= quorum(self.0.len())
    }

    /// Returns since when connections are being made again that would complete a quorum. `None` if
    /// there is a quorum, or if these connections would not complete one.
    #[inline]
    pub fn reviving_since(&self) -> Option<Instant> {
        let since = self.0.iter().filter_map(|link| match link.state {
            State::Reviving(since, _) => Some(since),
            _ => None,
        });
        let reviving = since.clone().count();
        let suffices = self.up_count() + reviving >= quorum(self.0.len());
        if self.has_quorum() || !suffices { None } else { since.max() }
    }

    fn up_count(&self) -> usize {
        self.0.iter().filter(|link| link.state == State::Up).count()
    }

    /// Returns the masters whose last answer showed an obstacle that waiting does not remove.
    pub fn incurable(&self) -> MasterSet {
        (0..self.0.len()).filter(|master| self.0[*master].is_incurable).collect()
    }

    /// Returns `true` if a new connection to `master` is urgent.
    pub fn is_urgent(&self, master: usize) -> bool {
        self.0[master].is_urgent
    }

    /// Returns the masters whose latest step failed before this instant. The cause may have been
    /// removed since, and the next step shows whether it was.
    pub fn step_failed_before(&self, at: Instant) -> MasterSet {
        let failure = |master: usize| self.0[master].step_failure.as_ref();
        let was = |master: &usize| failure(*master).is_some_and(|failure| failure.at < at);
        (0..self.0.len()).filter(was).collect()
    }
}
