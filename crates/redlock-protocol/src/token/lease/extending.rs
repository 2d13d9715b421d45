//! Extensions of a lease, started by its keeper or awaited by its holder.

use redlock_core::{Cause, Instant, Verdict};
use std::time::Duration;

use super::extension::{Extended, Extension};
use super::{HeldLease, Step};
use crate::LostReason;
use crate::master_set::MasterSet;
use crate::terms::Timing;
use crate::votes::answer::Judged;

/// An extension to send now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extend {
    /// The number of the extension. Later extensions have larger numbers.
    pub number: u32,
    /// The masters that receive it.
    pub masters: MasterSet,
}

impl HeldLease {
    /// Returns the masters that have not answered this extension.
    pub fn unanswered_of(&self, number: u32) -> MasterSet {
        let extension = self.extensions.iter().find(|extension| extension.number == number);
        extension.map(Extension::unanswered).unwrap_or_default()
    }

    /// Extends the lease for its holder, who wants this duration from now and from each later
    /// extension.
    pub fn extend(&mut self, timing: Timing) -> Extend {
        self.timing = timing;
        self.px_max = self.px_max.max(timing.px);
        self.validity_min = self.validity_min.min(timing.ttl.validity());
        self.extension(MasterSet::all(self.ledger.masters()), true)
    }

    /// Limits all further extensions to this duration.
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

    /// Records the answer of `master` to the extension `number`. A denial of the key is always
    /// valid.
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
        // An extension sent before the key was set again says nothing about the new copy.
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

    /// Discards the requests of `step`, because the holder saw the end of the lease before they
    /// were sent.
    pub fn call_off(&mut self, step: Step) -> Step {
        self.readding = self.readding.without(step.readd);
        let number = step.extend.map(|extend| extend.number);
        self.extensions.retain(|extension| Some(extension.number) != number);
        Step { extended: step.extended, ..Step::default() }
    }

    /// Ends the wait for an extension after its node timeout.
    pub fn extension_timed_out(&mut self, number: u32) -> Option<Extended> {
        let unanswered = self.find(number)?.time_out();
        self.ledger.time_out(unanswered);
        self.conclude(number)
    }

    pub(super) fn find(&mut self, number: u32) -> Option<&mut Extension> {
        self.extensions.iter_mut().find(|extension| extension.number == number)
    }

    /// Records a vote and returns the validity that this extension confers. An extension stays
    /// until all its votes have arrived. Without it, zero would confirm nothing.
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
