//! A lock: its machine, its caller, and how its steps are carried out.

use std::sync::Arc;
use std::time::Duration;

use redlock_core::Instant;
use redlock_protocol::client::draws::Draw;
use redlock_protocol::client::key::Claim;
use redlock_protocol::token::attempt::Attempt;
use redlock_protocol::token::lease::HeldLease;
use redlock_protocol::token::lifecycle::{Answered, Event, Lifecycle, Stage, Step};

use super::Driver;
use super::command::{ExtendReply, ReleaseReply};
use crate::hold::{Acceptance, HoldCell};
use redlock_protocol::client::ids::{InspectionId, LockId, RequestId};
use redlock_protocol::client::timers::{Due, Timers};

/// One token: what the machine knows of it, and who waits for it.
pub(super) struct Lock {
    /// Its resource, key and token.
    pub(super) claim: Claim,
    /// How long masters have to answer requests for it.
    pub(super) node_timeout: Duration,
    pub(super) machine: Lifecycle,
    pub(super) caller: Caller,
    /// When that was sent which counts as open in the line.
    pub(super) opened: Option<Instant>,
    /// Until when the attempt waits for answers.
    pub(super) due: Instant,
}

/// The caller that waits for news about a token.
pub(super) enum Caller {
    /// Its request. The alarm is set for when the ballots of its attempt end.
    Asks { request: RequestId, alarm: Option<Instant> },
    /// The holder of its lease.
    Holds(Holder),
    /// The caller that has returned it, and a failed request that its late answers explain.
    Returned { reply: Option<ReleaseReply>, explains: Option<InspectionId> },
}

/// The holder of a lease, from when the lock was won for it.
pub(super) struct Holder {
    pub(super) cell: Arc<HoldCell>,
    /// Callers that wait for an extension, by its number.
    pub(super) extending: Vec<(u32, ExtendReply)>,
    /// When its keeper is scheduled next.
    pub(super) scheduled: Option<Instant>,
    /// The last extension whose margin was counted.
    pub(super) measured: u32,
    /// Its loss was counted.
    pub(super) is_lost: bool,
}

impl Caller {
    /// No caller waits for it.
    pub(super) const NOBODY: Self = Self::Returned { reply: None, explains: None };
}

impl Holder {
    pub(super) fn new(cell: Arc<HoldCell>) -> Self {
        Self { cell, extending: Vec::new(), scheduled: None, measured: 0, is_lost: false }
    }

    /// The machine has learned something, of this master or in general.
    fn learn(&self, lease: &HeldLease, master: Option<usize>) {
        match master {
            Some(master) => self.cell.write(lease.ledger(), master),
            None => {
                self.cell.write_terms(lease);
                self.cell.write_all(lease.ledger());
            }
        }
        if !self.cell.is_settled() && lease.ledger().pending().is_empty() {
            self.cell.settle();
        }
    }

    /// Returns its next alarm, if the keeper's next one is at `due`. A lock that no caller has
    /// taken is not extended, and its alarm is the end of the time for taking it.
    pub(super) fn due(&self, due: Option<Instant>) -> Option<Instant> {
        let until = || self.cell.acceptable_until();
        match self.cell.acceptance() {
            Acceptance::Offered => Some(due.map_or_else(until, |due| due.min(until()))),
            Acceptance::Awaited => Some(until()),
            Acceptance::Accepted => due,
            Acceptance::Withdrawn => None,
        }
    }
}

impl Lock {
    pub(super) fn is_attempt(&self) -> bool {
        self.machine.attempt().is_some()
    }

    pub(super) fn is_lease(&self) -> bool {
        self.machine.lease().is_some()
    }

    /// Returns `true` if its holder currently relies on it.
    pub(super) fn is_held(&self) -> bool {
        matches!(&self.caller, Caller::Holds(holder) if holder.cell.is_held())
    }

    /// The holder sees what a step has made of its lease, by an answer of this master or for another
    /// reason.
    #[inline]
    pub(super) fn show_holder(&self, step: &Step, master: Option<usize>) {
        if let (Step::Hold(_), Some(lease), Caller::Holds(holder)) =
            (step, self.machine.lease(), &self.caller)
        {
            holder.learn(lease, master);
        }
    }

    /// Once a quorum has granted, its ballots have one node timeout: an alarm is set for its end.
    #[inline]
    pub(super) fn time_ballots(&mut self, id: LockId, timers: &mut Timers) {
        if let Caller::Asks { alarm, .. } = &mut self.caller
            && let Some(until) = self.machine.attempt().and_then(Attempt::ballots_until)
            && alarm.replace(until) != Some(until)
        {
            timers.enter(until, Due::Ballots(id));
        }
    }

    /// Whether a quorum has answered an attempt that still counts as open in the line.
    #[inline]
    pub(super) fn is_answered(&self) -> bool {
        self.opened.is_some()
            && self.machine.attempt().is_some_and(|attempt| attempt.outcome().is_answered())
    }

    /// The failed request that late answers to its attempt explain.
    #[inline]
    pub(super) fn explains(&self) -> Option<InspectionId> {
        match self.caller {
            Caller::Returned { explains, .. } => explains,
            _ => None,
        }
    }

    /// Whether the node timeout of what was sent still means something.
    pub(super) fn awaits_votes(&self) -> bool {
        match (self.machine.stage(), &self.caller) {
            (Stage::Attempt(_), _) => true,
            (Stage::Lease(_), Caller::Holds(holder)) => !holder.cell.is_settled(),
            (Stage::Release(release), _) => release.outcome().is_none(),
            _ => false,
        }
    }
}

impl Driver {
    /// Handles an event of a token: its machine decides the next step, and the driver carries it
    /// out.
    pub(super) fn happens(&mut self, id: LockId, event: Event<'_>, now: Instant) {
        if let Some(step) = self.locks.decide(id, event, &mut self.timers, now) {
            self.carry_out(id, step, now);
        }
    }

    /// Handles the answer of a master for a token. Nearly every event is one of these.
    pub(super) fn answered(&mut self, id: LockId, answered: Answered<'_>, now: Instant) {
        let step = self.locks.answered(id, answered, &mut self.timers, now);
        let Some((step, is_answered)) = step else { return };
        if is_answered {
            self.leave_window(id, now);
        }
        self.carry_out(id, step, now);
    }

    /// Most answers have no consequence, which is recognised where they were counted.
    #[inline]
    pub(super) fn carry_out(&mut self, id: LockId, step: Step, now: Instant) {
        if !matches!(step, Step::Wait) {
            self.follow_step(id, step, now);
        }
    }

    fn follow_step(&mut self, id: LockId, step: Step, now: Instant) {
        self.observer.say_step(&self.locks, id, &step);
        match step {
            Step::Wait => {}
            Step::NeedBallot { proposed } => self.draw(id, proposed, now),
            Step::AskOthers { others, first, ballot } => self.ask_others(id, others, first, ballot),
            Step::SendBallot { number, ballot, masters } => {
                self.send_ballot(id, number, ballot, masters, now);
            }
            Step::AwaitCopies(fan_out) => self.await_copies(id, fan_out, now),
            Step::Won(won) => self.won(id, won, now),
            Step::Lost(loss) => self.lost(id, loss, now),
            Step::Hold(step) => self.hold(id, step, now),
            // The caller that requested the decision carries it out.
            Step::HandedOn(_) => {}
            Step::Release => self.begin_release(id, now),
            Step::SendRelease(masters) => self.send_exits(id, masters, now),
            Step::TakeAgain => {
                // The reservations of the former holder are still on their way: they get about the
                // time of a fan-out.
                let random = self.draws.unit(Draw::TakeAgain(id), now);
                let pause = self.fan_out.mul_f64(0.6 + 0.4 * random);
                self.timers.enter(now.saturating_add(pause), Due::TakeAgain(id));
            }
            // Under the same token and ballot: what they had may be reserved for us by now.
            Step::AskAgain { masters, ballot } => self.send_attempt(id, masters, ballot, now),
            Step::Released => self.released(id, now),
            Step::Gone => self.gone(id, now),
        }
    }
}
