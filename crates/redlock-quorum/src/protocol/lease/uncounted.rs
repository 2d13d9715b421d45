//! What a lease makes of answers that do not count.

use std::time::Duration;

use redlock_core::{Answer, Cause, Instant, Verdict};

use super::super::extension::Extension;
use super::{HeldLease, Step};

impl HeldLease {
    /// The late answer to the `SET` of the attempt, of a master that did not vote at some time
    /// since it was asked.
    pub(crate) fn acquired_uncounted(
        &mut self,
        master: usize,
        answer: &Answer,
        why: Cause,
        now: Instant,
    ) {
        self.answered_at = now;
        let is_copy = self.ledger.is_copy(master);
        self.ledger.copy_answered(master, answer);
        if !is_copy {
            self.ledger.show(master, why);
        }
    }

    /// `master` has granted the extension `number`, and did not vote at some time since it was
    /// asked: that confirms nothing, for this reason. Where it denies the key, it is right in any
    /// case.
    pub(crate) fn extended_uncounted(
        &mut self,
        number: u32,
        master: usize,
        answer: &Answer,
        why: Cause,
        now: Instant,
    ) -> Step {
        self.answered_at = now;
        self.ledger.write(master, answer, Duration::ZERO);
        let verdict = Verdict::Unknown(why.clone());
        self.count(number, master, &verdict);
        self.ledger.show(master, why);
        let missing = self.find(number).map(Extension::take_missing).unwrap_or_default();
        Step { extend: None, readd: self.give_back(missing), extended: self.conclude(number) }
    }

    /// Such a master has granted a `SET` that gives the key back to it.
    pub(crate) fn readded_uncounted(
        &mut self,
        master: usize,
        answer: &Answer,
        why: Cause,
        now: Instant,
    ) {
        self.answered_at = now;
        self.readding.remove(master);
        self.ledger.write(master, answer, Duration::ZERO);
        self.ledger.show(master, why);
    }
}
