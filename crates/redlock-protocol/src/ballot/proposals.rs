//! `Proposals`: the ballots of one attempt, and which masters accepted which. See rules F5 to F8 of
//! `docs/PROTOCOL.md`.

use redlock_core::{Ballot, Instant};

use super::super::master_set::MasterSet;
use crate::quorum::quorum;
use crate::votes::validity::HoldUntil;

/// The ballots that one attempt has proposed. Acceptances of different ballots never add up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Proposals {
    masters: usize,
    /// Usually the only one.
    latest: Option<Proposal>,
    /// Earlier ballots that a quorum may still accept, oldest first.
    before: Vec<Proposal>,
    /// Masters that have neither accepted nor refused some ballot. They receive no more ballots.
    absent: MasterSet,
    /// Masters that would refuse the next ballot.
    refusing: MasterSet,
}

/// One ballot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Proposal {
    number: u32,
    ballot: Ballot,
    /// The masters that received it and have not answered.
    pending: MasterSet,
    accepted: MasterSet,
    /// Until when the masters that accepted it are known to hold the key, by the write that the
    /// ballot came with or after. A later extension does not prolong an acceptance, because another
    /// client's key may have existed in between.
    holds: HoldUntil,
    asked: MasterSet,
}

impl Proposals {
    /// Creates the proposals of an attempt without a ballot.
    pub fn new(masters: usize) -> Self {
        let (absent, refusing) = (MasterSet::EMPTY, MasterSet::EMPTY);
        Self { masters, latest: None, before: Vec::new(), absent, refusing }
    }

    /// Proposes another ballot to the masters of `asked`. Returns its number, starting with 1.
    pub fn propose(&mut self, ballot: Ballot, asked: MasterSet) -> u32 {
        let (quorum, number) = (quorum(self.masters), self.count() + 1);
        self.before.extend(self.latest.take());
        self.before.retain(|proposal| proposal.accepted.union(proposal.pending).len() >= quorum);
        let (accepted, holds) = (MasterSet::EMPTY, HoldUntil::new(self.masters));
        self.latest = Some(Proposal { number, ballot, pending: asked, accepted, holds, asked });
        number
    }

    /// Proposes the latest ballot to these masters as well.
    pub fn join(&mut self, masters: MasterSet) -> Option<(u32, Ballot)> {
        let latest = self.latest.as_mut()?;
        latest.asked = latest.asked.union(masters);
        latest.pending = latest.pending.union(masters);
        Some((latest.number, latest.ballot))
    }

    /// Records that `master` has accepted the ballot with this number, and holds the key until
    /// then.
    pub fn accept(&mut self, number: u32, master: usize, until: Instant) {
        if let Some(proposal) = self.find(number)
            && proposal.pending.contains(master)
        {
            proposal.pending.remove(master);
            proposal.accepted.insert(master);
            proposal.holds.set(master, until);
        }
    }

    /// Records that `master` has refused the ballot, or does not hold the key.
    pub fn refuse(&mut self, number: u32, master: usize) {
        if let Some(proposal) = self.find(number) {
            proposal.pending.remove(master);
        }
    }

    /// Records that the answer of `master` is unknown.
    pub fn leave(&mut self, number: u32, master: usize) {
        self.refuse(number, master);
        self.absent.insert(master);
    }

    /// Sets the masters that would refuse the next ballot. Requests already sent remain valid.
    pub fn set_refusing(&mut self, masters: MasterSet) {
        self.refusing = masters;
    }

    /// Invalidates all acceptances of `master`, which may have lost them, including those on their
    /// way.
    pub fn disown(&mut self, master: usize) {
        for proposal in self.before.iter_mut().chain(&mut self.latest) {
            proposal.accepted.remove(master);
            proposal.holds.clear(master);
            proposal.pending.remove(master);
        }
    }

    /// Returns the ballots that a quorum has accepted.
    fn accepted(&self) -> impl Iterator<Item = &Proposal> {
        let quorum = quorum(self.masters);
        // The latest ballot is the last: of two with the same time, it is handed out.
        let all = self.before.iter().chain(&self.latest);
        all.filter(move |proposal| proposal.accepted.len() >= quorum)
    }

    /// Returns `true` if a quorum has accepted one of the ballots.
    pub fn is_accepted(&self) -> bool {
        self.accepted().next().is_some()
    }

    /// Returns the ballot whose token may be handed out for the longest time: a quorum of masters
    /// has accepted it and is known to hold the key until then. `None` if no ballot has a quorum.
    pub fn proof(&self) -> Option<Proof> {
        let proof = |one: &Proposal| Proof { ballot: one.ballot, until: one.holds.valid_until() };
        self.accepted().map(proof).max_by_key(|proof| proof.until)
    }

    /// Returns `true` if a quorum of `granted` has accepted the latest ballot, or may still do so.
    /// Does not wait for a master that has not granted the key.
    pub fn is_hopeful(&self, granted: MasterSet) -> bool {
        let Some(latest) = &self.latest else { return false };
        let hoped = latest.accepted.union(latest.pending).union(granted.without(latest.asked));
        let asked_no_more = self.absent.union(self.refusing).without(latest.accepted);
        let hoped = granted.without(asked_no_more).intersection(hoped);
        hoped.len() >= quorum(self.masters)
    }

    /// Returns the masters of `granted` that the latest ballot was not sent to.
    pub fn unasked(&self, granted: MasterSet) -> MasterSet {
        let asked = self.latest.as_ref().map_or(MasterSet::EMPTY, |latest| latest.asked);
        self.askable(granted).without(asked)
    }

    /// Returns the masters of `granted` that may receive another ballot.
    pub fn askable(&self, granted: MasterSet) -> MasterSet {
        granted.without(self.absent.union(self.refusing))
    }

    /// Returns how many ballots were proposed.
    pub fn count(&self) -> u32 {
        self.latest.as_ref().map_or(0, |latest| latest.number)
    }

    fn find(&mut self, number: u32) -> Option<&mut Proposal> {
        self.before.iter_mut().chain(&mut self.latest).find(|proposal| proposal.number == number)
    }
}

/// A ballot that may be handed out, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Proof {
    /// The ballot.
    pub ballot: Ballot,
    /// Until then, a quorum of the masters that accepted it are known to hold the key.
    pub until: Instant,
}
