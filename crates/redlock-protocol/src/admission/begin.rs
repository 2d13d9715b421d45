//! Decides when a quarantine begins, and how long it is. See rule A8 of `docs/PROTOCOL.md`.
//!
//! The length follows from the masters' `max_ttl`, not the client's, unless none of their records
//! may be current ([`longest_ttl`](Admission::longest_ttl)): a lock of the former incarnation may
//! have been taken by a client that was allowed a longer TTL than this one. The largest `max_ttl`
//! of all records therefore applies. Records are read
//!
//! - *after the loss*: an earlier one may have been raised since, and the longer lock may have been
//!   taken and lost since;
//! - *from every master that can be queried*, or later: a longer value learned during the
//!   quarantine makes it longer. The first q to answer may be exactly the masters without records.
//!   The client waits for a master that is being connected, and for a master that reads its data
//!   from disk, for as long as a quarantine lasts. For an unreachable master, the last record read
//!   applies.

use redlock_core::admission::{Begin, Millis, Nonce, Record, quarantine_length};

use super::peer::Stuck;
use super::view::{MasterKind, MasterView};
use super::{Admission, Step};
use crate::quorum::quorum;

/// The records that this client has read.
pub(super) struct Reading {
    /// The masters whose records were not read.
    pub(super) unread: Vec<usize>,
    /// Another record may become readable soon: a master is being connected, or reads its data from
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
    /// Returns the records that this client has read, and whether it must wait for others. Both
    /// *begin* and `init` use this. Only records of masters that have `answered` are included. A
    /// second address of a server adds no record.
    pub(super) fn reading(&self, answered: impl Fn(usize) -> bool, now: Millis) -> Reading {
        let read: Vec<_> = self.servers().filter(|&master| answered(master)).collect();
        let masters = self.peers.len();
        let unread = (0..masters).filter(|master| !read.contains(master)).collect();
        Reading { unread, may_come: self.is_connecting || self.is_loading(now), masters }
    }

    /// Returns `true` if a quarantine must begin and waits only for a connection that is being
    /// made.
    pub fn awaits_connections(&self) -> bool {
        let wants = |master: usize| !self.is_out(master) && self.peers[master].wants_quarantine();
        let has_quorum = || self.reading(|_| true, 0).has_quorum();
        let can_begin = self.asked && self.has_quarantine && has_quorum();
        can_begin && self.is_connecting && (0..self.peers.len()).any(wants)
    }

    /// Returns the step that begins a quarantine there, or `None` while records of other masters
    /// are missing.
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

    /// Returns `true` if the present quarantine was begun by a client that knew less than this one:
    /// the master that allowed more came back later.
    pub(super) fn is_too_short(&self, master: usize) -> bool {
        let waiting = self.peers[master].present().filter(|facts| facts.quarantine().is_some());
        waiting.is_some_and(|facts| facts.record.length() < self.length())
    }

    /// Returns how long a quarantine lasts, as far as this client knows. *Begin*, *over* and the
    /// reports about them use this length.
    pub(super) fn length(&self) -> Millis {
        quarantine_length(self.longest_ttl())
    }

    /// Records the records of the other masters, read after the record of this master.
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

    /// Returns the longest TTL with which a lock may have been taken, as far as this client knows.
    ///
    /// The record of an admitted master decides, and our own `max_ttl` is ignored. All other
    /// records may have come back with old data, from before `max_ttl` was raised. In addition to
    /// them, our own value applies if an operator set it. Without any record, our own value
    /// applies.
    pub fn longest_ttl(&self) -> Millis {
        let known = self.peers.iter().filter_map(|peer| peer.max_ttl).max().unwrap_or(0);
        let mut masters = self.servers().filter_map(|master| self.peers[master].present());
        let is_present = masters
            .any(|facts| facts.record.admits(facts.identity) && facts.record.max_ttl.is_some());
        let is_held = self.records().any(|record| record.max_ttl.is_some());
        let own_counts = !is_present && (self.is_given || !is_held);
        if own_counts { known.max(self.max_ttl) } else { known }
    }

    /// Returns `true` if a master is loading its data, so that its record may be readable later.
    /// The wait is at most one quarantine, measured by the uptime of the master: loading may take
    /// hours, and a short-lived client sees only a part of it.
    fn is_loading(&self, now: Millis) -> bool {
        let longest = self.length();
        let mut loading = self.peers.iter().filter_map(|peer| peer.loading);
        loading.any(|loading| loading.has_lasted(now) < longest)
    }

    /// Returns the masters whose record was read, one per server.
    fn servers(&self) -> impl Iterator<Item = usize> {
        let masters = 0..self.peers.len();
        masters.filter(|&master| {
            self.peers[master].master().is_some() && self.twins.twin_of(master).is_none()
        })
    }

    /// Returns the records read so far, one per server.
    pub(super) fn records(&self) -> impl Iterator<Item = &Record> {
        self.servers().filter_map(|master| Some(&self.peers[master].master()?.record))
    }
}
