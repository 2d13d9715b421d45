//! The invariants that hold after every event.

use redlock_core::Instant;

use super::World;
use crate::quorum::quorum;
use crate::token::lease::HeldLease;
use crate::token::lifecycle::Stage;
use crate::token::release::Release;
use crate::votes::ledger::Ledger;

impl World {
    pub(super) fn check(&mut self) {
        match self.machine.stage() {
            Stage::Attempt(attempt) => self.check_exposed(attempt.ledger()),
            Stage::Lease(lease) => {
                self.check_exposed(lease.ledger());
                self.check_lease(lease);
                self.is_over |= self.has_lapsed();
            }
            Stage::Release(release) => self.check_release(release),
            Stage::Over => self.check_gone(),
        }
    }

    fn check_exposed(&self, ledger: &Ledger) {
        for (place, master) in self.masters.iter().enumerate() {
            assert!(!master.may_hold(self.now) || ledger.may_hold().contains(place), "{place}");
        }
    }

    fn check_lease(&self, lease: &HeldLease) {
        let deadline = lease.deadline().filter(|deadline| *deadline > self.now);
        assert!(!(self.is_over && deadline.is_some()), "no lease is revived");
        for (place, master) in self.masters.iter().enumerate() {
            let counts = lease.ledger().hold_until(place) > self.now;
            assert!(!counts || master.holds(self.now) || master.has_lost, "{place} has no key");
            if let Some(left) = lease.left(place, self.now) {
                let until = self.now.saturating_add(left);
                assert!(!master.may_hold(until), "{place} keeps a key for longer");
            }
        }
        if let Some(deadline) = deadline {
            let mut confirmed: Vec<Option<Instant>> =
                self.masters.iter().map(|master| master.confirmed).collect();
            confirmed.sort_unstable_by(|a, b| b.cmp(a));
            let until = confirmed[quorum(self.masters.len()) - 1].expect("a quorum has confirmed");
            assert!(deadline <= until.saturating_sub(self.options.stop_margin));
        }
    }

    fn check_release(&self, release: &Release) {
        let left = release.unacknowledged();
        for (place, master) in self.masters.iter().enumerate() {
            if !left.contains(place) {
                assert!(!master.may_hold(self.now), "{place} keeps a key");
            } else if let Some(left) = release.left(place, self.now) {
                let until = self.now.saturating_add(left);
                assert!(!master.may_hold(until), "{place} keeps a key for longer");
            }
        }
    }

    fn check_gone(&self) {
        let mut masters = self.masters.iter();
        assert!(masters.all(|master| !master.may_hold(self.now)), "a key is left");
    }

    /// Repairs all masters and asserts that no key is left.
    pub(super) fn heal(&mut self) {
        self.give_up();
        for master in 0..self.masters.len() {
            self.masters[master].is_busy = false;
            self.reconnect(master);
        }
        self.settle();
        (0..self.masters.len()).for_each(|master| self.retry(master));
        self.settle();
        self.give_up();
        assert!(self.machine.is_over(), "{:?}", self.machine);
        assert!(self.masters.iter().all(|master| !master.may_hold(self.now)));
    }

    fn settle(&mut self) {
        for master in 0..self.masters.len() {
            while self.masters[master].owes_an_answer() {
                self.serve(master);
                self.deliver(master);
                self.check();
            }
        }
    }
}
