//! `Lock`: one token, its machine, and who waits for it.

use std::time::Duration;

use redlock_core::Instant;

use super::Context;
use crate::client::callers::Caller;
use crate::client::effects::{Effect, Effects, Trace, Traced, What};
use crate::client::ids::{InspectionId, LockId, RequestId};
use crate::client::key::{Claim, SILENT};
use crate::client::timers::{Due, Timers};
use crate::master_set::MasterSet;
use crate::terms::Limits;
use crate::token::attempt::Attempt;
use crate::token::lease::HeldLease;
use crate::token::lifecycle::{Lifecycle, Stage, Step};
use crate::token::release::Release;

/// One token: what the machine knows of it, and who waits for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lock {
    /// Its resource, key and token.
    pub claim: Claim,
    /// How long masters have to answer requests for it.
    pub(super) node_timeout: Duration,
    pub(super) machine: Lifecycle,
    pub(super) owner: Owner,
    /// When that was sent which counts as open in the line.
    pub(super) opened: Option<Instant>,
    /// Until when the attempt waits for answers.
    pub(super) due: Instant,
}

/// The caller that waits for news about a token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    /// It wants the token. The alarm is set for when the ballots of its attempt end.
    Asks { request: RequestId, alarm: Option<Instant> },
    /// The holder of its lease.
    Holds(Holder),
    /// The caller that has returned it, and a failed request that its late answers explain.
    Returned { reply: Option<RequestId>, explains: Option<InspectionId> },
}

/// The holder of a lease, from when the lock was won for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Holder {
    pub(super) id: RequestId,
    /// Until when its fencing token may be handed out.
    pub(super) until: Option<Instant>,
    /// Callers that wait for an extension, by its number.
    pub(super) extending: Vec<(u32, RequestId)>,
    /// When its keeper is scheduled next.
    pub(super) scheduled: Option<Instant>,
    /// The last extension whose margin was counted.
    pub(super) measured: u32,
    /// Its loss was counted.
    pub(super) is_lost: bool,
    /// The masters that were known to have its key when the lease ended.
    pub(super) copies: MasterSet,
}

impl Owner {
    /// No caller waits for it.
    pub(super) const NOBODY: Self = Self::Returned { reply: None, explains: None };
}

impl Holder {
    pub(super) fn new(id: RequestId, until: Option<Instant>) -> Self {
        let extending = Vec::new();
        let copies = MasterSet::EMPTY;
        Self { id, until, extending, scheduled: None, measured: 0, is_lost: false, copies }
    }

    /// Returns until when the caller can take the lock, as things are.
    pub(super) fn acceptable_until(&self, lease: &HeldLease) -> Instant {
        let deadline = lease.deadline().unwrap_or(Instant::ORIGIN);
        self.until.map_or(deadline, |until| until.min(deadline))
    }
}

impl Lock {
    /// Returns `true` while masters are queried for the token.
    pub fn is_attempt(&self) -> bool {
        self.machine.attempt().is_some()
    }

    /// Returns `true` while the token is held.
    pub fn is_lease(&self) -> bool {
        self.machine.lease().is_some()
    }

    /// Returns the machine of the token.
    pub fn machine(&self) -> &Lifecycle {
        &self.machine
    }

    /// Returns the masters that were known to have the key when the lease ended.
    pub fn copies(&self) -> MasterSet {
        match &self.owner {
            Owner::Holds(holder) => holder.copies,
            _ => MasterSet::EMPTY,
        }
    }

    /// Returns the holder of the lease.
    pub fn holder(&self) -> Option<RequestId> {
        match &self.owner {
            Owner::Holds(holder) => Some(holder.id),
            _ => None,
        }
    }

    /// Returns `true` if this caller would set the key with the same expiry and value.
    pub fn fits(&self, caller: &Caller, limits: &Limits, max_ttl: Duration) -> bool {
        let Some(lease) = self.machine.lease() else { return false };
        let timing = limits.timing(caller.ttl, max_ttl);
        let label = caller.label.as_ref().map(|label| label.as_str());
        timing.is_ok_and(|timing| timing == lease.timing()) && label == self.claim.token.label()
    }

    /// Once a quorum has granted, its ballots have one node timeout: an alarm is set for its end.
    #[inline]
    pub(super) fn time_ballots(&mut self, id: LockId, timers: &mut Timers) {
        if let Owner::Asks { alarm, .. } = &mut self.owner
            && let Some(until) = self.machine.attempt().and_then(Attempt::ballots_until)
            && alarm.replace(until) != Some(until)
        {
            timers.enter(until, Due::Ballots(id));
        }
    }

    /// Returns `true` if a quorum has answered an attempt that still counts as open in the line.
    #[inline]
    pub(super) fn is_answered(&self) -> bool {
        self.opened.is_some()
            && self.machine.attempt().is_some_and(|attempt| attempt.outcome().is_answered())
    }

    /// Returns the failed request that late answers to its attempt explain.
    #[inline]
    pub fn explains(&self) -> Option<InspectionId> {
        match self.owner {
            Owner::Returned { explains, .. } => explains,
            _ => None,
        }
    }

    /// Returns `true` if the node timeout of what was sent still means something.
    pub(super) fn awaits_votes(&self) -> bool {
        match self.machine.stage() {
            Stage::Attempt(_) => true,
            Stage::Lease(lease) => !lease.ledger().pending().is_empty(),
            Stage::Release(release) => release.outcome().is_none(),
            Stage::Over => false,
        }
    }

    /// Returns `true` if the TTL of a released token is unknown.
    pub(super) fn releases_of_another(&self) -> bool {
        self.machine.release().is_some_and(Release::is_of_another)
    }

    /// Returns the lease and its holder.
    pub(super) fn held(&mut self) -> Option<(&HeldLease, &mut Holder)> {
        match (self.machine.stage(), &mut self.owner) {
            (Stage::Lease(lease), Owner::Holds(holder)) => Some((lease, holder)),
            _ => None,
        }
    }

    /// Records that a quorum has answered the requests, or that the token no longer waits for them.
    pub(super) fn leave_window(&mut self, cx: &mut Context<'_>) {
        cx.line.close(&mut self.opened, cx.now, self.node_timeout);
    }

    /// Returns `true` if the node timeout of an attempt has passed at this alarm, unless it was
    /// given more time.
    pub fn is_attempt_due(&self, at: Instant) -> bool {
        self.due == at
    }

    /// The holder sees what a step has made of its lease, by an answer of this master or for another
    /// reason.
    #[inline]
    pub(super) fn show(
        &self,
        id: LockId,
        step: &Step,
        master: Option<usize>,
        cx: &mut Context<'_>,
    ) {
        if matches!(step, Step::Hold(_))
            && let Some(holder) = self.holder()
        {
            cx.effects.push(Effect::Show(holder, id, master));
        }
    }

    /// Traces a step.
    pub(crate) fn trace(&self, what: impl FnOnce() -> What, effects: &mut Effects) {
        if effects.is_traced {
            let (resource, token) = (self.claim.resource.clone(), self.claim.token.clone());
            let trace = Trace { resource, of: Traced::Lock(token), what: what() };
            effects.push(Effect::Traced(trace.into()));
        }
    }

    /// Counts masters that have not answered within the node timeout.
    pub(super) fn timed_out(&self, silent: MasterSet, effects: &mut Effects) {
        for master in silent.iter() {
            effects.count_vote(master, &SILENT);
            self.trace(|| What::HappensAt(master, "no answer in time"), effects);
        }
    }
}
