//! The sets of masters that records name, next to the list of this client.
//!
//! A wrong list is the likeliest accident: two clients with lists that share too few masters both
//! win. `init` writes into each record which set its master belongs to, and a client compares that
//! with its own list. This is a net and not a proof. It only refuses requests that would be sent
//! without it, so it cannot make two holders.
//!
//! | what the records show | new locks |
//! |---|---|
//! | no set | as without this file |
//! | one id, and the number of masters in the list | as without this file |
//! | a number that differs by one, or one master with another id | requested, with a warning: a change may be under way |
//! | a number that differs by two or more | not requested from that master ([`Misfit::Size`]) |
//! | two or more masters outside of the most common set | not requested from any master ([`Misfit::Split`]) |
//!
//! The machine still says that such a master votes: it kept its data. A held lease is extended and
//! released as before, and masters are admitted as before. Only new locks are refused.
//!
//! # What each failure does
//!
//! - *A master is away*: the set that its last record named still counts. Otherwise a mixed list
//!   would be accepted as soon as the masters of one set are away.
//! - *A master restarts empty*: its new record names no set, until it is admitted with that of the
//!   voting masters.
//! - *An `init` is under way, or has stopped in the middle*: for that time records differ. A refused
//!   master is probed again each second, so the refusal ends a second after the last write at most.
//!   After an interrupted `init`, only another one ends it.
//! - *Another `init` writes at the same time*: both read back what they wrote. Two with the same
//!   list agree on the smaller id. Of two with different lists one at least fails.

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

/// So many masters may differ while a change is under way.
const CHANGING: usize = 1;

impl Admission {
    /// Returns the set that the latest record of a master named, also while the master is away. `None` for
    /// a second address of a server.
    pub fn set_of(&self, master: usize) -> Option<&RecordedSet> {
        let is_twin = self.twins.twin_of(master).is_some();
        self.peers[master].set.as_ref().filter(|_| self.has_quarantine && !is_twin)
    }

    /// Returns the set that most masters of the list belong to. If two have equally many, the one of
    /// the earlier master.
    pub fn common_set(&self) -> Option<&RecordedSet> {
        let sets: Vec<_> = self.sets().collect();
        let count = |id: SetId| sets.iter().filter(|set| set.id == id).count();
        // The last one of equals is the maximum, so the first master comes last.
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

    /// The set that a master gets at its admission: that of the voting masters, if all have it.
    pub(super) fn set_of_voting(&self) -> Option<RecordedSet> {
        let mut sets = self.voting().map(|master| self.set_of(master));
        let first = sets.next()??;
        sets.all(|set| set.is_some_and(|set| set.id == first.id)).then(|| first.clone())
    }

    /// The set that `init` writes on every master of the list.
    ///
    /// # Errors
    ///
    /// Without `again`, if a recorded set and the list differ by more than one master.
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

    /// Whether every master of the list has answered: otherwise `init` writes no set anywhere.
    pub(super) fn is_answered_by_all(&self, answers: &[Scored]) -> bool {
        let answered = |master| {
            let mut found = answers.iter().filter(|answer| answer.master == master);
            found.any(|answer| answer.facts.role == MasterKind::Master)
        };
        (0..self.peers.len()).all(answered)
    }

    /// The write of a set into the record of this master.
    pub(super) fn set_change(&self, master: usize, to: &RecordedSet) -> Option<SetChange> {
        let from = self.peers[master].master()?.record.set.clone();
        Some(SetChange { from, to: to.clone() })
    }

    fn sets(&self) -> impl Iterator<Item = &RecordedSet> {
        (0..self.peers.len()).filter_map(|master| self.set_of(master))
    }

    /// By how many the number of masters in the set differs from the length of the list.
    fn apart(&self, set: &RecordedSet) -> usize {
        usize::from(set.size).abs_diff(self.peers.len())
    }

    /// How many masters are outside of the most common set. Those without a set are in none.
    fn outside(&self) -> usize {
        let Some(common) = self.common_set() else { return 0 };
        self.sets().filter(|set| set.id != common.id).count()
    }

    /// By how many masters the list differs from a recorded set. A master of the list is in the set
    /// if its record names that set, or the set has its name: an address may be spelled in two ways,
    /// and a master that lost its record has no set.
    fn difference(&self, set: &RecordedSet, listed: &Listed) -> usize {
        let is_in = |(master, name): &(usize, &str)| {
            self.set_of(*master).is_some_and(|other| other.id == set.id) || set.names.contains(name)
        };
        let both = listed.names.iter().enumerate().filter(is_in).count();
        usize::from(set.size).max(self.peers.len()).saturating_sub(both)
    }
}
