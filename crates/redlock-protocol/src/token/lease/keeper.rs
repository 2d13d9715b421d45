//! The keeper: when a lease is extended by itself, and which masters are asked.

use super::extending::Extend;
use super::{HeldLease, State, Step};
use crate::LostReason;
use crate::master_set::MasterSet;
use crate::retry;
use redlock_core::Instant;

/// The state of the keeper, with its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Keeper {
    /// It extends at this instant.
    Due(Instant),
    /// It has asked, and checks the outcome at this instant.
    Asked { answer_by: Instant, failures: u32 },
    /// Its extension did not move the lease: it asks again at this instant.
    Pausing { until: Instant, failures: u32 },
    /// It does not extend, or not any more.
    Off,
}

impl HeldLease {
    /// When [`tick`](Self::tick) has something to do.
    #[inline]
    pub fn due(&self) -> Option<Instant> {
        match (self.state, self.keeper) {
            (State::Over(_), _) | (_, Keeper::Off) => None,
            (_, Keeper::Due(at) | Keeper::Asked { answer_by: at, .. }) => Some(at),
            (_, Keeper::Pausing { until, .. }) => Some(until),
        }
    }

    /// The masters that the keeper asked and that have not answered in time, when
    /// [`tick`](Self::tick) is due to write them down.
    pub fn silent(&self, now: Instant) -> MasterSet {
        match self.keeper {
            Keeper::Asked { answer_by, .. } if answer_by <= now => self.unanswered(),
            _ => MasterSet::EMPTY,
        }
    }

    /// The keeper of a new holder begins, where that wants one.
    #[inline]
    pub(super) fn start_keeper(&mut self) {
        self.keeper = Keeper::Off;
        if self.options.auto_extend {
            self.keep_from_here();
        }
    }

    /// The keeper begins.
    #[inline]
    pub fn keep_from_here(&mut self) {
        self.keeper = Keeper::Due(self.extension_due());
    }

    /// Time has passed. `random`, from 0 to 1, draws the pause after a failure.
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

    /// The keeper asks every master that has answered what it was asked before: one that is slow
    /// or silent is not asked twice, because nothing overtakes on its connection.
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

    /// Some master's data may be gone: each is asked at once what it still has.
    pub(super) fn doubt(&mut self, now: Instant) {
        if let Keeper::Due(_) = self.keeper {
            self.keeper = Keeper::Due(now);
        }
    }

    /// `master` has proven that its data is there, and is asked whether it has its copy.
    pub fn ask_again(&mut self, master: usize, now: Instant) -> Step {
        self.settle(now);
        let has_copy = self.ledger.hold_until(master) > now;
        if has_copy { self.ask_alone(master, now) } else { Step::default() }
    }

    /// `master` votes, and did not before. A copy that it got meanwhile counts once it is confirmed:
    /// the master is asked for that at once, because until then the lease would not survive the
    /// loss of another.
    pub fn confirm_copy(&mut self, master: usize, now: Instant) -> Step {
        self.settle(now);
        let is_open = self.ledger.hold_until(master) <= now;
        let may_hold = self.ledger.may_hold().contains(master);
        if is_open && may_hold { self.ask_alone(master, now) } else { Step::default() }
    }

    /// An extension at `master` alone. One that has not answered is not asked twice, and what the
    /// keeper does not extend stays as it is.
    pub(super) fn ask_alone(&mut self, master: usize, now: Instant) -> Step {
        let is_kept = self.due().is_some() && !self.is_held_long_enough(now);
        if !is_kept || self.unanswered().contains(master) {
            return Step::default();
        }
        let extend = self.extension(MasterSet::from_iter([master]), false);
        Step { extend: Some(extend), ..Step::default() }
    }

    /// Plans the next extension after one that moved the lease, which was valid until `before`.
    pub(super) fn reschedule(&mut self, before: Instant, now: Instant) {
        let due = self.extension_due();
        if self.keeper != Keeper::Off && self.ledger.valid_until() > before && due > now {
            self.keeper = Keeper::Due(due);
        }
    }

    /// A third of the holder's time after the quorum was confirmed: two more extensions can fail
    /// before the lease is over.
    #[inline]
    pub(super) fn extension_due(&self) -> Instant {
        let confirmed = self.ledger.valid_until().saturating_sub(self.timing.ttl.validity());
        let time = self.timing.ttl.get().saturating_sub(self.options.stop_margin);
        confirmed.saturating_add(time / 3)
    }

    /// Masters that have not answered the keeper in time are written down as such, and are not
    /// waited for by those that have no key.
    pub(super) fn give_up_waiting(&mut self) -> MasterSet {
        let mut missing = MasterSet::EMPTY;
        for extension in self.extensions.iter_mut().filter(|one| !one.is_awaited()) {
            self.ledger.time_out(extension.unanswered());
            missing = missing.union(extension.take_all_missing());
        }
        self.give_back(missing)
    }
}
