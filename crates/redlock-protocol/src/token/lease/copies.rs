//! The copies of a lease: confirmed, lost, doubted, and set again.

use redlock_core::{Instant, Verdict};
use std::time::Duration;

use super::HeldLease;
use crate::LostReason;
use crate::master_set::MasterSet;
use crate::votes::answer::Judged;

impl HeldLease {
    /// Records that the server process of `master` has exited, with all requests on their way to
    /// it. A key that it wrote to disk expires within one expiry from now.
    pub fn process_ended(&mut self, master: usize, now: Instant) {
        self.answered_at = now;
        self.ledger.process_ended(master);
    }

    /// Distrusts the copy of `master`, which may have lost its data: another process answers there,
    /// or the master reported a loss. A remaining copy is confirmed by the next extension, which is
    /// due immediately.
    pub fn disown(&mut self, master: usize, now: Instant) {
        self.suspected.remove(master);
        self.lose(master, LostReason::DataLost);
        self.settle(now);
        self.doubt(now);
    }

    /// Distrusts the copy of `master`, which may have lost its data. Only the key itself can prove
    /// the contrary, so every master is queried for its key immediately.
    pub fn suspect(&mut self, master: usize, now: Instant) {
        self.suspected.insert(master);
        self.doubt(now);
    }

    /// Invalidates the copy of a suspected master that has not confirmed it in time.
    pub fn disown_suspected(&mut self, master: usize, now: Instant) {
        if self.suspected.contains(master) {
            self.disown(master, now);
        }
    }

    /// Records the answer of `master` to a `SET` that restores its key. The copy is valid from the
    /// time of sending, for the shortest validity of any request, and only if the lease has not
    /// lapsed. After a refusal, the key may still be ours, set by an earlier such request whose
    /// answer was lost.
    pub fn readded<'a>(
        &mut self,
        master: usize,
        judged: impl Into<Judged<'a>>,
        sent_at: Instant,
        now: Instant,
    ) {
        let judged = self.receive(judged, now).of_former_key();
        self.readding.remove(master);
        let before = self.ledger.valid_until();
        self.ledger.write(master, judged, now.saturating_since(sent_at));
        if *judged.verdict() == Verdict::Granted {
            self.confirm(master, sent_at, self.validity_min);
            self.settle(now);
            self.reschedule(before, now);
        }
    }

    /// Returns the masters whose key is set again. This happens only while the lease is valid,
    /// because no other client can hold a quorum then, and for one request at a time per master.
    pub(super) fn give_back(&mut self, missing: MasterSet) -> MasterSet {
        if self.deadline().is_none() {
            return MasterSet::EMPTY;
        }
        let missing = missing.without(self.readding);
        missing.iter().for_each(|master| self.ledger.expose(master));
        self.readding = self.readding.union(missing);
        missing
    }

    pub(super) fn confirm(&mut self, master: usize, sent_at: Instant, validity: Duration) {
        self.suspected.remove(master);
        self.ledger.confirm(master, sent_at, validity);
    }

    pub(super) fn lose(&mut self, master: usize, reason: LostReason) {
        self.ledger.disown(master);
        self.evidence = reason;
    }
}
