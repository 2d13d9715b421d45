//! The copies of a lease: confirmed, lost, doubted, and given back.

use redlock_core::{Instant, Verdict};
use std::time::Duration;

use super::HeldLease;
use crate::LostReason;
use crate::master_set::MasterSet;
use crate::votes::answer::Judged;

impl HeldLease {
    /// The server process of `master` is gone, and with it all requests that were on their way
    /// there: a key that it wrote down expires within one expiry from now.
    pub fn process_ended(&mut self, master: usize, now: Instant) {
        self.answered_at = now;
        self.ledger.process_ended(master);
    }

    /// `master` may have lost its data: another process answers there, or the master reported a
    /// loss. It confirms a remaining copy with the next extension, which is due at once.
    pub fn disown(&mut self, master: usize, now: Instant) {
        self.suspected.remove(master);
        self.lose(master, LostReason::DataLost);
        self.settle(now);
        self.doubt(now);
    }

    /// `master` may have lost its data, and nothing but the key itself can prove that it has not:
    /// each is asked at once what it still has.
    pub fn suspect(&mut self, master: usize, now: Instant) {
        self.suspected.insert(master);
        self.doubt(now);
    }

    /// It had time to.
    pub fn disown_suspected(&mut self, master: usize, now: Instant) {
        if self.suspected.contains(master) {
            self.disown(master, now);
        }
    }

    /// The answer of `master` to a `SET` that gives the key back to it. It counts from when it was
    /// sent, for the shortest time that it can have been sent with, and only if the lease has not
    /// lapsed. After a refusal the key may be ours all the same, set by an earlier such request
    /// whose answer was lost.
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

    /// Keys are set again only while the lease is valid: no other can hold a quorum then. Each
    /// master is given its key once at a time.
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
