//! `Extension`: one extension of a lease, from its request to its last answer.

use std::time::Duration;

use redlock_core::Verdict;

use crate::master_set::MasterSet;
use crate::votes::tally::{Decision, Tally};

/// One extension on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Extension {
    pub(super) number: u32,
    /// How long it makes the lease last on a master that confirms it.
    pub(super) validity: Duration,
    tally: Tally,
    unanswered: MasterSet,
    /// Masters without a key, which may receive ours again.
    missing: MasterSet,
    is_awaited: bool,
}

/// The outcome of an extension, for the holder that waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extended {
    /// A quorum has confirmed it.
    Confirmed,
    /// So many masters do not hold our key that no quorum does.
    NotOurs,
    /// Too few masters have answered.
    NoQuorum,
}

impl Extension {
    /// Starts the extension `number`, which `asked` of all `masters` receive.
    pub(super) fn new(
        number: u32,
        masters: usize,
        asked: MasterSet,
        validity: Duration,
        is_awaited: bool,
    ) -> Self {
        Self {
            number,
            validity,
            tally: Tally::new(masters),
            unanswered: asked,
            missing: MasterSet::EMPTY,
            is_awaited,
        }
    }

    /// Records the vote of `master`. Votes after the node timeout were already recorded as
    /// *unknown*.
    pub(super) fn count(&mut self, master: usize, verdict: &Verdict) {
        self.unanswered.remove(master);
        if *verdict == Verdict::NotOurs {
            self.missing.insert(master);
        }
        if self.tally.pending() > 0 {
            self.tally.count(verdict);
        }
    }

    /// Ends the wait for votes after the node timeout. Returns the masters whose missing votes
    /// become *unknown*.
    pub(super) fn time_out(&mut self) -> MasterSet {
        self.tally.close();
        self.unanswered
    }

    /// Returns the outcome for the waiting holder, once: immediately if a quorum has confirmed,
    /// otherwise after all masters have answered, so that an error can report each answer.
    pub(super) fn conclude(&mut self) -> Option<Extended> {
        let extended = match self.tally.decision() {
            Decision::Won => Some(Extended::Confirmed),
            _ if self.tally.pending() > 0 => None,
            _ if self.tally.is_refused() => Some(Extended::NotOurs),
            _ => Some(Extended::NoQuorum),
        };
        let extended = extended.filter(|_| self.is_awaited);
        self.is_awaited &= extended.is_none();
        extended
    }

    /// Returns the masters without a key, once the outcome is certain. Otherwise the next answer
    /// could end the lease, which must not set keys again.
    pub(super) fn take_missing(&mut self) -> MasterSet {
        let is_certain = self.unanswered.is_empty() || self.tally.decision() == Decision::Won;
        if is_certain { self.take_all_missing() } else { MasterSet::EMPTY }
    }

    /// Returns the masters without a key, without waiting for missing answers.
    pub(super) fn take_all_missing(&mut self) -> MasterSet {
        std::mem::take(&mut self.missing)
    }

    /// Returns the masters that have not answered.
    pub(super) fn unanswered(&self) -> MasterSet {
        self.unanswered
    }

    /// Returns `true` if its holder waits for it.
    pub(super) fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    /// Returns `true` if no answer can change anything.
    pub(super) fn is_over(&self) -> bool {
        self.unanswered.is_empty() && !self.is_awaited
    }
}
