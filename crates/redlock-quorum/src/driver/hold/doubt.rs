//! The copies on a master that reports that its data may be gone.
//!
//! A server reports that for another database, too, and whenever that is flushed. So on a master
//! with a record no lease is extended before a probe has proven that the data is there. Then the
//! leases are extended at this master alone, once in [`RECHECK_EVERY`] at most.

use std::time::Duration;

use redlock_core::Instant;
use redlock_protocol::token::lifecycle::Event;

use crate::driver::Driver;
use crate::driver::timers::Due;
use crate::settings::Quarantine;

/// The time between two batches of extensions at one master. They are not urgent: the probe has
/// proven that the data is there.
const RECHECK_EVERY: Duration = Duration::from_secs(1);

/// The doubt about the data of one master.
#[derive(Default)]
pub(crate) struct Doubt {
    /// When its copies are disowned, unless its incarnation proves unchanged before.
    until: Option<Instant>,
    /// It has reported since the last batch of extensions.
    owes_recheck: bool,
    /// The next batch comes no earlier.
    recheck_from: Option<Instant>,
}

impl Driver {
    /// The data of `master` may be gone. The probe goes first: its answer decides whether the
    /// answers behind it count.
    pub(in crate::driver) fn data_lost(&mut self, master: usize, now: Instant) {
        match self.settings.quarantine {
            Quarantine::On => self.doubt_record(master, now),
            Quarantine::Off => self.doubt_until(master, now, self.settings.node_timeout()),
        }
        self.advance_master(master, now);
        self.lost_sight(master, now);
        if self.settings.quarantine == Quarantine::Off {
            self.suspect_copies(master, now);
        }
    }

    /// The first report that is not answered by a proof counts: later ones postpone nothing.
    fn doubt_record(&mut self, master: usize, now: Instant) {
        let doubt = &mut self.steps.doubts[master];
        doubt.owes_recheck = true;
        if doubt.until.is_none() {
            self.doubt_until(master, now, self.settings.order_timeout());
        }
    }

    fn doubt_until(&mut self, master: usize, now: Instant, time: Duration) {
        let until = now.saturating_add(time);
        self.steps.doubts[master].until = Some(until);
        self.timers.enter(until, Due::Doubt(master));
    }

    /// It was to be proven by now that `master` has what it had.
    pub(in crate::driver) fn doubt_due(&mut self, master: usize, now: Instant) {
        let doubted = &mut self.steps.doubts[master].until;
        if doubted.is_some_and(|until| until <= now) {
            *doubted = None;
            if self.masters.give_up(master) {
                self.disown(master, now);
            }
            self.disown_suspected(master, now);
        }
    }

    /// `master` votes: a probe was sent behind its last report, and has found the same incarnation.
    pub(in crate::driver) fn proven(&mut self, master: usize, now: Instant) {
        if self.settings.quarantine == Quarantine::On {
            self.steps.doubts[master].until = None;
            self.recheck(master, now);
        }
    }

    /// Another batch of extensions may go to `master`.
    pub(in crate::driver) fn recheck_due(&mut self, master: usize, now: Instant) {
        if self.masters.votes(master) {
            self.recheck(master, now);
        }
    }

    /// Each lease asks `master` whether it has its key, if that has reported since it was asked.
    fn recheck(&mut self, master: usize, now: Instant) {
        let doubt = &mut self.steps.doubts[master];
        if !doubt.owes_recheck || doubt.recheck_from.is_some_and(|from| now < from) {
            return;
        }
        let next = now.saturating_add(RECHECK_EVERY);
        (doubt.owes_recheck, doubt.recheck_from) = (false, Some(next));
        self.timers.enter(next, Due::Recheck(master));
        self.each_taken(now, || Event::Proven(master));
    }

    /// Without a record nothing proves that the data of `master` is there, but the keys themselves:
    /// every lease is extended at once.
    fn suspect_copies(&mut self, master: usize, now: Instant) {
        let why = self.masters.cause(master, now);
        self.each_lock(now, || Event::Suspected(master, why.clone()));
    }

    /// The keys that `master` has not confirmed since then are taken for gone.
    fn disown_suspected(&mut self, master: usize, now: Instant) {
        self.each_lock(now, || Event::Unproven(master));
    }
}
