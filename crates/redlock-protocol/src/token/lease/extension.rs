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
    /// Masters that have no key: they may be given ours again.
    missing: MasterSet,
    is_awaited: bool,
}

/// The outcome of an extension that its holder waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extended {
    /// A quorum has confirmed it.
    Confirmed,
    /// Too many masters do not hold our key: no quorum does.
    NotOurs,
    /// Too few masters have answered.
    NoQuorum,
}

impl Extension {
    /// The extension `number` goes to `asked` of all `masters`.
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

    /// Counts the vote of `master`. One that comes after the time is up is counted already.
    pub(super) fn count(&mut self, master: usize, verdict: &Verdict) {
        self.unanswered.remove(master);
        if *verdict == Verdict::NotOurs {
            self.missing.insert(master);
        }
        if self.tally.pending() > 0 {
            self.tally.count(verdict);
        }
    }

    /// The node timeout has passed: votes that are still out, which are returned, are *unknown*.
    pub(super) fn time_out(&mut self) -> MasterSet {
        self.tally.close();
        self.unanswered
    }

    /// The answer for the holder that waits, once: at once where a quorum has confirmed; otherwise
    /// when all have answered, so that it can report what each master answered.
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

    /// The masters that have no key, once the outcome is certain: a lease that is lost with the
    /// next answer gives nothing back.
    pub(super) fn take_missing(&mut self) -> MasterSet {
        let is_certain = self.unanswered.is_empty() || self.tally.decision() == Decision::Won;
        if is_certain { self.take_all_missing() } else { MasterSet::EMPTY }
    }

    /// Concludes without waiting for the masters that have not answered.
    pub(super) fn take_all_missing(&mut self) -> MasterSet {
        std::mem::take(&mut self.missing)
    }

    /// The masters that have not answered.
    pub(super) fn unanswered(&self) -> MasterSet {
        self.unanswered
    }

    /// Whether its holder waits for it.
    pub(super) fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    /// Whether nothing more comes of it.
    pub(super) fn is_over(&self) -> bool {
        self.unanswered.is_empty() && !self.is_awaited
    }
}
