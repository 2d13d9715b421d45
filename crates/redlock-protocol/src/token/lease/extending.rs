//! Extensions of a lease: those of its keeper, and those that its holder waits for.

use redlock_core::{Cause, Instant, Verdict};
use std::time::Duration;

use super::extension::{Extended, Extension};
use super::{HeldLease, Step};
use crate::LostReason;
use crate::master_set::MasterSet;
use crate::terms::Timing;
use crate::votes::answer::Judged;

/// An extension to be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extend {
    /// The number of the extension; the next one has a larger one.
    pub number: u32,
    /// The masters that are asked.
    pub masters: MasterSet,
}

impl HeldLease {
    /// The masters that have not answered this extension.
    pub fn unanswered_of(&self, number: u32) -> MasterSet {
        let extension = self.extensions.iter().find(|extension| extension.number == number);
        extension.map(Extension::unanswered).unwrap_or_default()
    }

    /// The holder wants it to last so long from now, and from each extension that follows.
    pub fn extend(&mut self, timing: Timing) -> Extend {
        self.timing = timing;
        self.px_max = self.px_max.max(timing.px);
        self.validity_min = self.validity_min.min(timing.ttl.validity());
        self.extension(MasterSet::all(self.ledger.masters()), true)
    }

    /// From now on each extension lasts for this long only.
    pub fn limit(&mut self, timing: Timing) {
        self.timing = timing;
        self.validity_min = self.validity_min.min(timing.ttl.validity());
    }

    pub(super) fn extension(&mut self, masters: MasterSet, is_awaited: bool) -> Extend {
        self.last_number = self.last_number.wrapping_add(1);
        self.extensions.push(Extension::new(
            self.last_number,
            self.ledger.masters(),
            masters,
            self.timing.ttl.validity(),
            is_awaited,
        ));
        Extend { number: self.last_number, masters }
    }

    /// The answer of `master` to the extension `number`. A master that denies the key is right in
    /// any case.
    pub fn extended<'a>(
        &mut self,
        number: u32,
        master: usize,
        judged: impl Into<Judged<'a>>,
        sent_at: Instant,
        now: Instant,
    ) -> Step {
        let judged = self.receive(judged, now).of_former_key();
        let before = self.ledger.valid_until();
        self.ledger.write(master, judged, now.saturating_since(sent_at));
        // The answer to an extension that was sent before the key was given back does not show that
        // copy.
        if !self.readding.contains(master) {
            self.ledger.extended(master, judged.answer);
        }
        let verdict = self.shown_by_score(master, judged.verdict().into_owned());
        let validity = self.count(number, master, &verdict);
        match verdict {
            Verdict::Granted => self.confirm(master, sent_at, validity),
            Verdict::NotOurs | Verdict::Held { .. } | Verdict::Unknown(Cause::Demoted(_)) => {
                self.lose(master, LostReason::NotOurs);
            }
            _ => {}
        }
        self.settle(now);
        self.reschedule(before, now);
        let missing = self.find(number).map(Extension::take_missing).unwrap_or_default();
        let readd = self.give_back(missing);
        let extended = self.conclude(number).map(|extended| (number, extended));
        Step { extend: None, readd, extended }
    }

    /// The holder has seen the end of the lease before `step` was carried out: nothing of it is
    /// sent.
    pub fn call_off(&mut self, step: Step) -> Step {
        self.readding = self.readding.without(step.readd);
        let number = step.extend.map(|extend| extend.number);
        self.extensions.retain(|extension| Some(extension.number) != number);
        Step { extended: step.extended, ..Step::default() }
    }

    /// The node timeout of an extension that its holder waits for has passed.
    pub fn extension_timed_out(&mut self, number: u32) -> Option<Extended> {
        let unanswered = self.find(number)?.time_out();
        self.ledger.time_out(unanswered);
        self.conclude(number)
    }

    pub(super) fn find(&mut self, number: u32) -> Option<&mut Extension> {
        self.extensions.iter_mut().find(|extension| extension.number == number)
    }

    /// Counts a vote, and returns the validity that this extension confers. Every extension stays
    /// until all its votes are in; if it did not, zero would confirm nothing.
    pub(super) fn count(&mut self, number: u32, master: usize, verdict: &Verdict) -> Duration {
        self.find(number).map_or(Duration::ZERO, |extension| {
            extension.count(master, verdict);
            extension.validity
        })
    }

    pub(super) fn conclude(&mut self, number: u32) -> Option<Extended> {
        let extended = self.find(number)?.conclude();
        self.extensions.retain(|extension| !extension.is_over());
        extended
    }
}
