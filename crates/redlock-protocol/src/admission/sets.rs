//! Compares the sets of masters in the records with the list of this client. See section 10 of
//! `docs/PROTOCOL.md`.
//!
//! A wrong list is the likeliest accident: two clients whose lists share too few masters both win.
//! `init` writes into each record which set its master belongs to, and a client compares that with
//! its own list. This is a safety net, not a proof. It only refuses requests that would be sent
//! without it, so it cannot create two holders.
//!
//! The rules S1 to S4 have the cases. A warning is a [`ListDoubt`]. A refusal is a
//! [`Misfit::Size`] (one master) or a [`Misfit::Split`] (all masters). Such a master still votes in
//! the sense of admission, because it kept its data.
//!
//! The leases that this client holds are extended and released as usual. A lease that another
//! process has acquired is extended by its token unless the list is too short for a set
//! ([`Admission::is_too_short_for`]): the copies on the unlisted masters would expire, and others
//! could acquire the lock there. With a longer list, a quorum of it is a majority of the masters of
//! any shorter list.
//!
//! A client takes no step of an admission while every voting master has a set of another size
//! ([`Admission::is_elsewhere`]). Otherwise masters that it admits could outvote that set.
//!
//! The list includes addresses that were never connected, because each may be a separate server.
//! Until the first connections are made, requests wait if duplicates among the others would make
//! the list fit ([`Admission::awaits_duplicates`]).
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
//!   list agree on the smaller id. If the lists differ, both may succeed, one after the other, and
//!   the set of the later one stays. Otherwise at least one fails after some attempts.

use redlock_core::admission::{Names, RecordedSet, SetChange, SetId};
use redlock_core::{ListDoubt, Lists};

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
    /// Returns the set that the latest record of a master named, also while the master is away.
    /// `None` for a second address of a server.
    pub fn set_of(&self, master: usize) -> Option<&RecordedSet> {
        let belongs = self.has_quarantine && !self.is_duplicate(master);
        self.peers[master].set.as_ref().filter(|_| belongs)
    }

    /// Returns the set that most masters of the list belong to. If two sets have equally many,
    /// returns the set of the earlier master.
    pub fn common_set(&self) -> Option<&RecordedSet> {
        RecordedSet::most_common(self.sets())
    }

    /// Returns why no new lock is requested from this master, or `None` if its set fits the list.
    pub fn misfit(&self, master: usize) -> Option<Misfit> {
        if self.set_of(master).is_some_and(|set| self.apart(set) > CHANGING) {
            return Some(Misfit::Size);
        }
        (self.outside() > CHANGING).then_some(Misfit::Split)
    }

    /// Returns `true` if the set of this master has at least two masters more than the list. A lease
    /// on the set would not be extended on a majority of its masters.
    pub fn is_too_short_for(&self, master: usize) -> bool {
        let limit = self.listed() + CHANGING;
        self.set_of(master).is_some_and(|set| usize::from(set.size) > limit)
    }

    /// Returns `true` if masters vote, and each of them belongs to a set whose number does not fit
    /// the list.
    pub(super) fn is_elsewhere(&self) -> bool {
        let is_other = |master| self.misfit(master) == Some(Misfit::Size);
        let mut voting = self.voting().peekable();
        voting.peek().is_some() && voting.all(is_other)
    }

    /// Returns why the list may be wrong although new locks are requested, and the first master
    /// that shows it. `names` are the masters as this client lists them.
    pub fn list_doubt(&self, names: &Names) -> Option<(usize, ListDoubt)> {
        let first = |shows: &dyn Fn(usize) -> bool| (0..self.peers.len()).find(|one| shows(*one));
        let differs = |set| self.apart(set) == CHANGING && !self.may_equal(set);
        let is_near = |master| self.set_of(master).is_some_and(differs);
        let odd = (self.outside() == CHANGING).then(|| first(&|master| self.is_outside(master)));
        let odd = odd.flatten().map(|master| (master, ListDoubt::OtherSet));
        let near = || first(&is_near).map(|master| (master, ListDoubt::Size));
        odd.or_else(near).or_else(|| Some((self.unnamed(names)?, ListDoubt::Names)))
    }

    /// Returns `true` if the list is too long for a recorded set, and would not be if addresses
    /// that are still being connected were duplicates. Another list that is too long is refused.
    pub fn awaits_duplicates(&self) -> bool {
        let may_fit = |set: &RecordedSet| {
            let limit = usize::from(set.size) + CHANGING;
            self.listed() > limit && self.connected_at_least() <= limit
        };
        self.sets().any(may_fit)
    }

    /// Returns `true` if the list has as many masters as the set for some number of duplicates
    /// among the addresses that are still being connected.
    fn may_equal(&self, set: &RecordedSet) -> bool {
        (self.connected_at_least()..=self.listed()).contains(&usize::from(set.size))
    }

    /// Returns the length of the list if all addresses that are still being connected are
    /// duplicates.
    fn connected_at_least(&self) -> usize {
        let is_open = |master: &usize| self.is_connecting && self.twins.shown(*master).is_none();
        self.listed() - (0..self.peers.len()).filter(is_open).count()
    }

    /// Returns the first master whose name is missing from the common set, if it has no set or if
    /// several names are missing. It may be a stranger or a replaced master. It may also have
    /// another spelling, so it is not refused.
    fn unnamed(&self, names: &Names) -> Option<usize> {
        let common = self.common_set()?;
        let lacks_set = |master: usize| !self.is_duplicate(master) && self.set_of(master).is_none();
        // A master that is still being connected may show its set soon.
        let is_heard = |master: usize| !self.is_connecting || self.peers[master].facts.is_some();
        let unknown = self.unknown(common, names);
        let are_several = unknown.len() > CHANGING;
        let shows = |master: &usize| is_heard(*master) && (are_several || lacks_set(*master));
        unknown.into_iter().find(shows)
    }

    /// Returns the masters whose names are missing from a set that contains other names of the
    /// list. A list without any of its names is spelled in another way.
    fn unknown(&self, set: &RecordedSet, names: &Names) -> Vec<usize> {
        let listed = names.iter().enumerate().filter(|(master, _)| !self.is_duplicate(*master));
        let (known, unknown): (Vec<_>, Vec<_>) =
            listed.partition(|(_, name)| set.names.contains(name));
        match known.is_empty() {
            true => Vec::new(),
            false => unknown.into_iter().map(|(master, _)| master).collect(),
        }
    }

    /// Returns this set next to the list of this client. A master without a set gets the common
    /// one.
    pub fn lists(&self, set: Option<&RecordedSet>, names: &Names) -> Lists {
        let (list, duplicates) = self.apart_from_duplicates(names);
        let needs_again = self.too_different(names).is_some();
        let lists = Lists::new(set.or_else(|| self.common_set()).cloned(), list);
        lists.with_duplicates(duplicates).with_again(needs_again)
    }

    /// Returns the set that a master gets at its admission: the set of the voting masters, if all
    /// have the same.
    pub(super) fn set_of_voting(&self) -> Option<RecordedSet> {
        let mut sets = self.voting().map(|master| self.set_of(master));
        let first = sets.next()??;
        sets.all(|set| set.is_some_and(|set| set.id == first.id)).then(|| first.clone())
    }

    /// Returns the set that `init` writes on every master of the list. Duplicate addresses are not
    /// part of it.
    ///
    /// # Errors
    ///
    /// Without `again`, fails if a recorded set and the list differ by more than one master.
    pub(super) fn set_for_all(&self, listed: &Listed, again: bool) -> Result<RecordedSet, NoPlan> {
        if let Some(set) = self.too_different(&listed.names).filter(|_| !again) {
            return Err(NoPlan::OtherSet(self.lists(Some(set), &listed.names).into()));
        }
        // No list is longer than 15.
        let size = u8::try_from(self.listed()).unwrap_or(u8::MAX);
        let (names, _) = self.apart_from_duplicates(&listed.names);
        let is_this = |set: &&RecordedSet| set.size == size && set.names.are_those_of(&names);
        let id = self.sets().filter(is_this).map(|set| set.id).min();
        Ok(RecordedSet { id: id.unwrap_or(listed.fresh), size, names })
    }

    /// Returns the masters of the list that have not answered. If there are any, `init` writes no
    /// set anywhere.
    pub(super) fn unanswered(&self, answers: &[Scored]) -> Vec<usize> {
        let answered = |master| {
            let mut found = answers.iter().filter(|answer| answer.master == master);
            found.any(|answer| answer.facts.role == MasterKind::Master)
        };
        let is_missing = |master: &usize| !self.is_duplicate(*master) && !answered(*master);
        (0..self.peers.len()).filter(is_missing).collect()
    }

    /// Returns the write of a set into the record of this master.
    pub(super) fn set_change(&self, master: usize, to: &RecordedSet) -> Option<SetChange> {
        let from = self.peers[master].master()?.record.set.clone();
        Some(SetChange { from, to: to.clone() })
    }

    fn sets(&self) -> impl Iterator<Item = &RecordedSet> {
        (0..self.peers.len()).filter_map(|master| self.set_of(master))
    }

    pub(super) fn is_duplicate(&self, master: usize) -> bool {
        self.twins.twin_of(master).is_some()
    }

    /// Returns the length of the list without duplicate addresses.
    fn listed(&self) -> usize {
        (0..self.peers.len()).filter(|&master| !self.is_duplicate(master)).count()
    }

    /// Separates the names of the masters from the duplicate addresses. A server has the name that
    /// is listed first, whichever of its addresses votes, so that the names do not depend on the
    /// order of connections.
    fn apart_from_duplicates(&self, names: &Names) -> (Names, Names) {
        let is_repeated = |master: usize| {
            let shown = self.twins.shown(master);
            shown.is_some() && (0..master).any(|other| self.twins.shown(other) == shown)
        };
        let (duplicates, masters): (Vec<_>, Vec<_>) =
            names.iter().enumerate().partition(|(master, _)| is_repeated(*master));
        let of = |names: Vec<(usize, &str)>| Names::new(names.into_iter().map(|(_, name)| name));
        (of(masters), of(duplicates))
    }

    /// Returns by how many the number of masters in the set differs from the length of the list.
    fn apart(&self, set: &RecordedSet) -> usize {
        usize::from(set.size).abs_diff(self.listed())
    }

    /// Returns how many masters are outside of the most common set. Masters without a set are not
    /// outside.
    fn outside(&self) -> usize {
        (0..self.peers.len()).filter(|&master| self.is_outside(master)).count()
    }

    fn is_outside(&self, master: usize) -> bool {
        let common = self.common_set().map(|set| set.id);
        self.set_of(master).is_some_and(|set| Some(set.id) != common)
    }

    /// Returns the first recorded set that differs from the list by more than one master.
    fn too_different(&self, names: &Names) -> Option<&RecordedSet> {
        self.sets().find(|set| self.difference(set, names) > CHANGING)
    }

    /// Returns by how many masters the list differs from a recorded set. A master of the list is in
    /// the set if the set contains its name, or if its record names that set: an address has
    /// several spellings, and a master that lost its record has no set. If several names are
    /// missing next to known ones, their records prove nothing, because strangers get the set of
    /// the others when they are admitted.
    fn difference(&self, set: &RecordedSet, names: &Names) -> usize {
        let unknown = self.unknown(set, names);
        let is_in = |(master, name): &(usize, &str)| {
            let shows = self.set_of(*master).is_some_and(|other| other.id == set.id);
            let is_stranger = unknown.len() > CHANGING && unknown.contains(master);
            set.names.contains(name) || shows && !is_stranger
        };
        let masters = names.iter().enumerate().filter(|(master, _)| !self.is_duplicate(*master));
        let both = masters.filter(is_in).count();
        let larger = usize::from(set.size).max(self.listed());
        // More masters can show a set than it has: each was admitted next to its masters.
        larger.saturating_sub(both).max(self.apart(set))
    }
}
