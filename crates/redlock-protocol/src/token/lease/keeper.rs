//! The keeper: when a lease is extended automatically, and which masters receive the extension.

use super::extending::Extend;
use super::{HeldLease, State, Step};
use crate::LostReason;
use crate::master_set::MasterSet;
use crate::retry;
use redlock_core::Instant;

/// The state of the keeper, with its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Keeper {
    /// Extends at this instant.
    Due(Instant),
    /// Has sent an extension, and checks the outcome at this instant.
    Asked { answer_by: Instant, failures: u32 },
    /// Its extension did not move the lease. It tries again at this instant.
    Pausing { until: Instant, failures: u32 },
    /// Does not extend, or no longer does.
    Off,
}

impl HeldLease {
    /// Returns when [`tick`](Self::tick) has something to do.
    #[inline]
    pub fn due(&self) -> Option<Instant> {
        match (self.state, self.keeper) {
            (State::Over(_), _) | (_, Keeper::Off) => None,
            (_, Keeper::Due(at) | Keeper::Asked { answer_by: at, .. }) => Some(at),
            (_, Keeper::Pausing { until, .. }) => Some(until),
        }
    }

    /// Returns the masters that have not answered the keeper in time, when [`tick`](Self::tick) is
    /// due to record them.
    pub fn silent(&self, now: Instant) -> MasterSet {
        match self.keeper {
            Keeper::Asked { answer_by, .. } if answer_by <= now => self.unanswered(),
            _ => MasterSet::EMPTY,
        }
    }

    /// Starts the keeper for a new holder that wants one.
    #[inline]
    pub(super) fn start_keeper(&mut self) {
        self.keeper = Keeper::Off;
        if self.options.auto_extend {
            self.keep_from_here();
        }
    }

    /// Starts the keeper.
    #[inline]
    pub fn keep_from_here(&mut self) {
        self.keeper = Keeper::Due(self.extension_due());
    }

    /// Advances the keeper to `now`. `random`, from 0 to 1, draws the pause after a failure.
    pub fn tick(&mut self, now: Instant, random: f64) -> Step {
        self.settle(now);
        if self.due().is_none_or(|due| due > now) {
            return Step::default();
        }
        match self.keeper {
            Keeper::Asked { failures, .. } => {
                let (node_timeout, longest) =
                    (self.timing.node_timeout, self.timing.ttl.get() / 10);
                let pause = retry::extension_pause(node_timeout, failures, longest, random);
                let until = now.saturating_add(pause);
                self.keeper = Keeper::Pausing { until, failures: failures.saturating_add(1) };
                Step { readd: self.give_up_waiting(), ..Step::default() }
            }
            Keeper::Pausing { failures, .. } => {
                Step { extend: self.keep(now, failures), ..Step::default() }
            }
            Keeper::Due(_) => Step { extend: self.keep(now, 0), ..Step::default() },
            Keeper::Off => Step::default(),
        }
    }

    /// Sends an extension to every master that has answered its previous one. A slow or silent
    /// master does not receive a second one, because requests cannot overtake each other on its
    /// connection.
    pub(super) fn keep(&mut self, now: Instant, failures: u32) -> Option<Extend> {
        if self.is_held_long_enough(now) {
            self.keeper = Keeper::Off;
            self.lapse = LostReason::MaxHold;
            return None;
        }
        let answer_by = now.saturating_add(self.timing.node_timeout);
        self.keeper = Keeper::Asked { answer_by, failures };
        let masters = MasterSet::all(self.ledger.masters()).without(self.unanswered());
        (!masters.is_empty()).then(|| self.extension(masters, false))
    }

    pub(super) fn is_held_long_enough(&self, now: Instant) -> bool {
        self.options.max_hold.is_some_and(|max| now.saturating_since(self.started) >= max)
    }

    /// Queries every master for its key immediately, because some master may have lost its data.
    pub(super) fn doubt(&mut self, now: Instant) {
        if let Keeper::Due(_) = self.keeper {
            self.keeper = Keeper::Due(now);
        }
    }

    /// Queries `master`, which has proven that its data is there, for its copy.
    pub fn ask_again(&mut self, master: usize, now: Instant) -> Step {
        self.settle(now);
        let has_copy = self.ledger.hold_until(master) > now;
        if has_copy { self.ask_alone(master, now) } else { Step::default() }
    }

    /// Queries `master`, which votes now and did not vote before, for its copy immediately. A copy
    /// that it received in the meantime is valid once confirmed. Until then, the lease would not
    /// survive the loss of another master.
    pub fn confirm_copy(&mut self, master: usize, now: Instant) -> Step {
        self.settle(now);
        let is_open = self.ledger.hold_until(master) <= now;
        let may_hold = self.ledger.may_hold().contains(master);
        if is_open && may_hold { self.ask_alone(master, now) } else { Step::default() }
    }

    /// Extends only at `master`. A master that has not answered receives no second request, and a
    /// lease without a keeper stays as it is.
    pub(super) fn ask_alone(&mut self, master: usize, now: Instant) -> Step {
        let is_kept = self.due().is_some() && !self.is_held_long_enough(now);
        if !is_kept || self.unanswered().contains(master) {
            return Step::default();
        }
        let extend = self.extension(MasterSet::from_iter([master]), false);
        Step { extend: Some(extend), ..Step::default() }
    }

    /// Plans the next extension after an extension that moved the lease, which was valid until
    /// `before`.
    pub(super) fn reschedule(&mut self, before: Instant, now: Instant) {
        let due = self.extension_due();
        if self.keeper != Keeper::Off && self.ledger.valid_until() > before && due > now {
            self.keeper = Keeper::Due(due);
        }
    }

    /// Returns one third of the holder's time after the quorum was confirmed, so that two more
    /// extensions can fail before the lease is over.
    #[inline]
    pub(super) fn extension_due(&self) -> Instant {
        let confirmed = self.ledger.valid_until().saturating_sub(self.timing.ttl.validity());
        let time = self.timing.ttl.get().saturating_sub(self.options.stop_margin);
        confirmed.saturating_add(time / 3)
    }

    /// Records masters that have not answered the keeper in time. Masters without a key no longer
    /// wait for them.
    pub(super) fn give_up_waiting(&mut self) -> MasterSet {
        let mut missing = MasterSet::EMPTY;
        for extension in self.extensions.iter_mut().filter(|one| !one.is_awaited()) {
            self.ledger.time_out(extension.unanswered());
            missing = missing.union(extension.take_all_missing());
        }
        self.give_back(missing)
    }
}
