//! `Proposals`: the ballots of one attempt, and which masters accepted which.

use redlock_core::{Ballot, Instant};

use super::super::master_set::MasterSet;
use crate::quorum::quorum;
use crate::votes::validity::HoldUntil;

/// The ballots that one attempt has proposed. Acceptances of different ballots never add up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Proposals {
    masters: usize,
    /// Nearly always the only one.
    latest: Option<Proposal>,
    /// Earlier ballots that a quorum may still accept; the oldest first.
    before: Vec<Proposal>,
    /// Masters that have answered some ballot with neither yes nor no: they are asked no more.
    absent: MasterSet,
    /// Masters that would refuse the next ballot.
    refusing: MasterSet,
}

/// One ballot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Proposal {
    number: u32,
    ballot: Ballot,
    /// The masters that it was sent to and that have not answered.
    pending: MasterSet,
    accepted: MasterSet,
    /// Until when those that accepted it are known to hold the key, by the write that it came with
    /// or behind. A later extension gives an acceptance no more time: the key may have been gone
    /// and another's in between.
    holds: HoldUntil,
    asked: MasterSet,
}

impl Proposals {
    /// No ballot was proposed yet.
    pub fn new(masters: usize) -> Self {
        let (absent, refusing) = (MasterSet::EMPTY, MasterSet::EMPTY);
        Self { masters, latest: None, before: Vec::new(), absent, refusing }
    }

    /// One more ballot goes to the masters of `asked`. Returns its number: the first is 1.
    pub fn propose(&mut self, ballot: Ballot, asked: MasterSet) -> u32 {
        let (quorum, number) = (quorum(self.masters), self.count() + 1);
        self.before.extend(self.latest.take());
        self.before.retain(|proposal| proposal.accepted.union(proposal.pending).len() >= quorum);
        let (accepted, holds) = (MasterSet::EMPTY, HoldUntil::new(self.masters));
        self.latest = Some(Proposal { number, ballot, pending: asked, accepted, holds, asked });
        number
    }

    /// The latest ballot goes to these masters, too.
    pub fn join(&mut self, masters: MasterSet) -> Option<(u32, Ballot)> {
        let latest = self.latest.as_mut()?;
        latest.asked = latest.asked.union(masters);
        latest.pending = latest.pending.union(masters);
        Some((latest.number, latest.ballot))
    }

    /// `master` has accepted the ballot with this number, and holds the key until then.
    pub fn accept(&mut self, number: u32, master: usize, until: Instant) {
        if let Some(proposal) = self.find(number)
            && proposal.pending.contains(master)
        {
            proposal.pending.remove(master);
            proposal.accepted.insert(master);
            proposal.holds.set(master, until);
        }
    }

    /// `master` has refused it, or does not hold the key.
    pub fn refuse(&mut self, number: u32, master: usize) {
        if let Some(proposal) = self.find(number) {
            proposal.pending.remove(master);
        }
    }

    /// It is not known whether `master` has accepted it.
    pub fn leave(&mut self, number: u32, master: usize) {
        self.refuse(number, master);
        self.absent.insert(master);
    }

    /// These masters would refuse the next ballot, and no others. What was asked before counts.
    pub fn set_refusing(&mut self, masters: MasterSet) {
        self.refusing = masters;
    }

    /// `master` may have lost what it accepted: none of it counts, and what is on its way does not
    /// either.
    pub fn disown(&mut self, master: usize) {
        for proposal in self.before.iter_mut().chain(&mut self.latest) {
            proposal.accepted.remove(master);
            proposal.holds.clear(master);
            proposal.pending.remove(master);
        }
    }

    /// The ballots that a quorum has accepted.
    fn accepted(&self) -> impl Iterator<Item = &Proposal> {
        let quorum = quorum(self.masters);
        // The latest is the last: of two with the same time it is handed out.
        let all = self.before.iter().chain(&self.latest);
        all.filter(move |proposal| proposal.accepted.len() >= quorum)
    }

    /// Whether a quorum has accepted one of them.
    pub fn is_accepted(&self) -> bool {
        self.accepted().next().is_some()
    }

    /// The ballot whose token may be handed out the longest: a quorum of masters has accepted this
    /// one, and is known to hold the key until then. `None` if no ballot has a quorum.
    pub fn proof(&self) -> Option<Proof> {
        let proof = |one: &Proposal| Proof { ballot: one.ballot, until: one.holds.valid_until() };
        self.accepted().map(proof).max_by_key(|proof| proof.until)
    }

    /// Whether a quorum of `granted` has accepted the latest ballot, or may yet do so. A master
    /// that has not granted is not waited for.
    pub fn is_hopeful(&self, granted: MasterSet) -> bool {
        let Some(latest) = &self.latest else { return false };
        let hoped = latest.accepted.union(latest.pending).union(granted.without(latest.asked));
        let asked_no_more = self.absent.union(self.refusing).without(latest.accepted);
        let hoped = granted.without(asked_no_more).intersection(hoped);
        hoped.len() >= quorum(self.masters)
    }

    /// The masters of `granted` that the latest ballot was not sent to.
    pub fn unasked(&self, granted: MasterSet) -> MasterSet {
        let asked = self.latest.as_ref().map_or(MasterSet::EMPTY, |latest| latest.asked);
        self.askable(granted).without(asked)
    }

    /// The masters of `granted` that another ballot may go to.
    pub fn askable(&self, granted: MasterSet) -> MasterSet {
        granted.without(self.absent.union(self.refusing))
    }

    /// How many ballots there were.
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
    /// Until then a quorum of those that accepted it are known to hold the key.
    pub until: Instant,
}
