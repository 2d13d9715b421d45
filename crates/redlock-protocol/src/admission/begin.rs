//! When a quarantine is begun, and how long it is.
//!
//! The length comes from `max_ttl`, which is the masters' and not the client's, but where none of
//! their records may be of today ([`longest_ttl`](Admission::longest_ttl)): a lock of the
//! former incarnation may have been taken by a client that was allowed a longer TTL than this one. So the
//! largest `max_ttl` counts that any record holds, and a record is worth asking for only
//!
//! - *behind the loss*: one that was read before may have been raised since, and the longer lock
//!   may have been taken and lost since;
//! - *from everyone that can be asked*, or is asked later: what is learned when the quarantine is
//!   under way makes it longer. The first q that answer may be just those that have lost
//!   their records. A master that is being connected is waited for, and so is one that reads its
//!   data from disk, for as long as a quarantine lasts. Of one that cannot be reached, what was
//!   read last counts.

use redlock_core::admission::{Begin, Millis, Nonce, Record, quarantine_length};

use super::peer::Stuck;
use super::view::{MasterKind, MasterView};
use super::{Admission, Step};
use crate::quorum::quorum;

/// The records that this client has read.
pub(super) struct Reading {
    /// The masters whose records are not.
    pub(super) unread: Vec<usize>,
    /// Another one may be read in a while: a master is being connected, or reads its data from
    /// disk.
    pub(super) may_come: bool,
    masters: usize,
}

impl Reading {
    pub(super) fn has_quorum(&self) -> bool {
        self.masters - self.unread.len() >= quorum(self.masters)
    }
}

impl Admission {
    /// The records that this client has read, and whether it must wait for others: *begin* and
    /// `init` both decide by this. Only the records of masters that have `answered` count. A second
    /// address of a server adds no record.
    pub(super) fn reading(&self, answered: impl Fn(usize) -> bool, now: Millis) -> Reading {
        let read: Vec<_> = self.servers().filter(|&master| answered(master)).collect();
        let masters = self.peers.len();
        let unread = (0..masters).filter(|master| !read.contains(master)).collect();
        Reading { unread, may_come: self.is_connecting || self.is_loading(now), masters }
    }

    /// Whether a quarantine is to be begun, and only a connection that is being made is waited for.
    pub fn awaits_connections(&self) -> bool {
        let wants = |master: usize| !self.is_out(master) && self.peers[master].wants_quarantine();
        let has_quorum = || self.reading(|_| true, 0).has_quorum();
        let can_begin = self.asked && self.has_quarantine && has_quorum();
        can_begin && self.is_connecting && (0..self.peers.len()).any(wants)
    }

    /// The step that begins a quarantine there; `None` while records of other masters are awaited.
    pub(super) fn begin(
        &self,
        master: usize,
        facts: &MasterView,
        now: Millis,
        nonce: Nonce,
    ) -> Option<Step> {
        if self.is_too_short(master) {
            return Some(self.begin_now(master, facts, now, nonce));
        }
        let known = self.reading(|_| true, now);
        if known.may_come || !known.has_quorum() {
            return None;
        }
        let others: Vec<_> = self.servers().filter(|&other| other != master).collect();
        if !self.peers[master].has_read_others && !others.is_empty() {
            return Some(Step::ReadRecords(others));
        }
        Some(self.begin_now(master, facts, now, nonce))
    }

    fn begin_now(&self, master: usize, facts: &MasterView, now: Millis, nonce: Nonce) -> Step {
        let (expect, identity) = (facts.record.seen(), facts.identity);
        let (max_ttl, until) = (self.longest_ttl(), self.until(master, now));
        let is_outdated = self.peers[master].is_outdated();
        Step::Begin(Begin { expect, identity, nonce, max_ttl, is_outdated, until })
    }

    /// Whether the quarantine that is under way was begun by a client that knew less than this one:
    /// the master that allowed more came back later.
    pub(super) fn is_too_short(&self, master: usize) -> bool {
        let waiting = self.peers[master].present().filter(|facts| facts.quarantine().is_some());
        waiting.is_some_and(|facts| facts.record.length() < self.length())
    }

    /// How long a quarantine lasts, as far as this client knows: *begin*, *over* and the reports
    /// about them use this length.
    pub(super) fn length(&self) -> Millis {
        quarantine_length(self.longest_ttl())
    }

    /// The records of the others arrived, behind what was read of this master.
    pub(super) fn on_records(
        &mut self,
        master: usize,
        answers: &[(usize, MasterView)],
        now: Millis,
    ) {
        let of_masters = answers.iter().filter(|(_, facts)| facts.role == MasterKind::Master);
        let mut answered = vec![master];
        for (other, facts) in of_masters {
            self.peers[*other].remember(facts);
            answered.push(*other);
        }
        let is_quorum = self.reading(|other| answered.contains(&other), now).has_quorum();
        let peer = &mut self.peers[master];
        peer.under_way = false;
        if is_quorum {
            peer.has_read_others = true;
        } else {
            peer.rest(Stuck::Failed, now);
        }
    }

    /// The longest TTL that a lock may have been taken with, as far as this client knows.
    ///
    /// The record of an admitted master decides, and our own `max_ttl` is ignored. All other
    /// records may have come back with old data, from before `max_ttl` was raised: beside them our
    /// own counts if a person gave it. Without any record our own counts.
    pub fn longest_ttl(&self) -> Millis {
        let known = self.peers.iter().filter_map(|peer| peer.max_ttl).max().unwrap_or(0);
        let mut masters = self.servers().filter_map(|master| self.peers[master].present());
        let is_present = masters
            .any(|facts| facts.record.admits(facts.identity) && facts.record.max_ttl.is_some());
        let is_held = self.records().any(|record| record.max_ttl.is_some());
        let own_counts = !is_present && (self.is_given || !is_held);
        if own_counts { known.max(self.max_ttl) } else { known }
    }

    /// Whether a master is loading its data, so that its record may be readable later. The wait is
    /// no longer than a quarantine, by the uptime of the master: loading may take hours, and a
    /// short-lived client sees only a part of it.
    fn is_loading(&self, now: Millis) -> bool {
        let longest = self.length();
        let mut loading = self.peers.iter().filter_map(|peer| peer.loading);
        loading.any(|loading| loading.has_lasted(now) < longest)
    }

    /// The masters whose record was read, one for each server.
    fn servers(&self) -> impl Iterator<Item = usize> {
        let masters = 0..self.peers.len();
        masters.filter(|&master| {
            self.peers[master].master().is_some() && self.twins.twin_of(master).is_none()
        })
    }

    /// The records that were read, one for each server.
    pub(super) fn records(&self) -> impl Iterator<Item = &Record> {
        self.servers().filter_map(|master| Some(&self.peers[master].master()?.record))
    }
}
