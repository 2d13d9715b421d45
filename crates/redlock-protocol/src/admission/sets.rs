//! Compares the sets of masters in the records with the list of this client.
//!
//! A wrong list is the likeliest accident: two clients whose lists share too few masters both win.
//! `init` writes into each record which set its master belongs to, and a client compares that with
//! its own list. This is a safety net, not a proof. It only refuses requests that would be sent
//! without it, so it cannot create two holders.
//!
//! | records | new locks |
//! |---|---|
//! | no set | as without this file |
//! | one id, and the number of masters in the list | as without this file |
//! | a number that differs by one, or one master with another id | requested, with a warning: a change may be under way |
//! | a number that differs by two or more | not requested from that master ([`Misfit::Size`]) |
//! | two or more masters outside of the most common set | not requested from any master ([`Misfit::Split`]) |
//!
//! Such a master still votes in the sense of admission, because it kept its data. Held leases are
//! extended and released as usual, and masters are admitted as usual. Only new locks are refused.
//!
//! # Effects of each failure
//!
//! - *A master is away*: the set in its last record still applies. Otherwise a mixed list would be
//!   accepted as soon as the masters of one set are away.
//! - *A master restarts empty*: its new record names no set until it is admitted with the set of
//!   the voting masters.
//! - *An `init` is under way, or was interrupted*: in the meantime, records differ. A refused
//!   master is probed every second, so the refusal ends at most one second after the last write.
//!   After an interrupted `init`, only another one ends it.
//! - *Another `init` writes at the same time*: both read back what they wrote. Two with the same
//!   list agree on the smaller id. If the lists differ, at least one of the two fails.

use redlock_core::admission::{Names, RecordedSet, SetChange, SetId};

use super::{Admission, MasterKind, NoPlan, Scored};

/// Why no new lock is requested from a master, although it votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Misfit {
    /// The number of masters in its set differs from the length of the list by two or more.
    Size,
    /// The masters of the list belong to different sets.
    Split,
}

/// The list for which `init` is called.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Listed {
    /// The masters, as the caller names them.
    pub names: Names,
    /// A random id, used if no record names exactly this list.
    pub fresh: SetId,
}

/// How many masters may differ during a change.
const CHANGING: usize = 1;

impl Admission {
    /// Returns the set that the latest record of a master named, also while the master is away. `None` for
    /// a second address of a server.
    pub fn set_of(&self, master: usize) -> Option<&RecordedSet> {
        let is_twin = self.twins.twin_of(master).is_some();
        self.peers[master].set.as_ref().filter(|_| self.has_quarantine && !is_twin)
    }

    /// Returns the set that most masters of the list belong to. If two sets have equally many,
    /// returns the set of the earlier master.
    pub fn common_set(&self) -> Option<&RecordedSet> {
        let sets: Vec<_> = self.sets().collect();
        let count = |id: SetId| sets.iter().filter(|set| set.id == id).count();
        // `max_by_key` returns the last of several maxima, so the order is reversed to prefer the
        // first master.
        sets.iter().rev().max_by_key(|set| count(set.id)).copied()
    }

    /// Returns why no new lock is requested from this master, or `None` if its set fits the list.
    pub fn misfit(&self, master: usize) -> Option<Misfit> {
        if self.set_of(master).is_some_and(|set| self.apart(set) > CHANGING) {
            return Some(Misfit::Size);
        }
        (self.outside() > CHANGING).then_some(Misfit::Split)
    }

    /// Returns the first master whose record shows that a change of the list may be under way: its set has
    /// one master more or less than the list, or it is the only one outside of the common set. New
    /// locks are requested.
    pub fn changing(&self) -> Option<usize> {
        let is_odd = |set: &RecordedSet| match self.outside() {
            CHANGING => self.common_set().is_some_and(|common| common.id != set.id),
            _ => false,
        };
        let shows = |set: &RecordedSet| self.apart(set) == CHANGING || is_odd(set);
        (0..self.peers.len()).find(|&master| self.set_of(master).is_some_and(shows))
    }

    /// Returns the set that a master gets at its admission: the set of the voting masters, if all
    /// have the same.
    pub(super) fn set_of_voting(&self) -> Option<RecordedSet> {
        let mut sets = self.voting().map(|master| self.set_of(master));
        let first = sets.next()??;
        sets.all(|set| set.is_some_and(|set| set.id == first.id)).then(|| first.clone())
    }

    /// Returns the set that `init` writes on every master of the list.
    ///
    /// # Errors
    ///
    /// Without `again`, fails if a recorded set and the list differ by more than one master.
    pub(super) fn set_for_all(&self, listed: &Listed, again: bool) -> Result<RecordedSet, NoPlan> {
        let differs = |set: &&RecordedSet| self.difference(set, listed) > CHANGING;
        if let Some(set) = self.sets().find(differs).filter(|_| !again) {
            return Err(NoPlan::OtherSet(set.clone()));
        }
        // No list is longer than 15.
        let size = u8::try_from(self.peers.len()).unwrap_or(u8::MAX);
        let is_this =
            |set: &&RecordedSet| set.size == size && set.names.are_those_of(&listed.names);
        let id = self.sets().filter(is_this).map(|set| set.id).min();
        Ok(RecordedSet { id: id.unwrap_or(listed.fresh), size, names: listed.names.clone() })
    }

    /// Returns `true` if every master of the list has answered. Otherwise `init` writes no set
    /// anywhere.
    pub(super) fn is_answered_by_all(&self, answers: &[Scored]) -> bool {
        let answered = |master| {
            let mut found = answers.iter().filter(|answer| answer.master == master);
            found.any(|answer| answer.facts.role == MasterKind::Master)
        };
        (0..self.peers.len()).all(answered)
    }

    /// Returns the write of a set into the record of this master.
    pub(super) fn set_change(&self, master: usize, to: &RecordedSet) -> Option<SetChange> {
        let from = self.peers[master].master()?.record.set.clone();
        Some(SetChange { from, to: to.clone() })
    }

    fn sets(&self) -> impl Iterator<Item = &RecordedSet> {
        (0..self.peers.len()).filter_map(|master| self.set_of(master))
    }

    /// Returns by how many the number of masters in the set differs from the length of the list.
    fn apart(&self, set: &RecordedSet) -> usize {
        usize::from(set.size).abs_diff(self.peers.len())
    }

    /// Returns how many masters are outside of the most common set. Masters without a set are not
    /// outside.
    fn outside(&self) -> usize {
        let Some(common) = self.common_set() else { return 0 };
        self.sets().filter(|set| set.id != common.id).count()
    }

    /// Returns by how many masters the list differs from a recorded set. A master of the list is in
    /// the set if its record names that set, or if the set contains its name. Both are checked,
    /// because an address has several spellings, and a master that lost its record has no set.
    fn difference(&self, set: &RecordedSet, listed: &Listed) -> usize {
        let is_in = |(master, name): &(usize, &str)| {
            self.set_of(*master).is_some_and(|other| other.id == set.id) || set.names.contains(name)
        };
        let both = listed.names.iter().enumerate().filter(is_in).count();
        usize::from(set.size).max(self.peers.len()).saturating_sub(both)
    }
}
