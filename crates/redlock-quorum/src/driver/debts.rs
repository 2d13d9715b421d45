//! Releases, until every master has acknowledged them.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rand::RngExt;
use redlock_core::{Instant, NodeState, Op, VoteSlot};

use super::{Driver, Due};
use crate::Lease;
use crate::claim::Claim;
use crate::error::Owed;
use crate::farewell::{Farewell, ReleaseReply};
use crate::guard::Ended;
use crate::settings::Timing;

/// Releases that one master may owe. A master that is away for long collects them; the oldest are
/// forgotten first, because their keys are the likeliest to have expired.
const OWED_MAX: usize = 10_000;
/// How often masters that do not acknowledge are asked again, on average.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// What is owed by whom.
pub(super) struct Debts {
    /// By master: releases that it has not acknowledged, and of which no request is on its way.
    queues: Vec<VecDeque<Arc<Farewell>>>,
    /// Releases whose requests have been on their way for longer than the node timeout.
    overdue: Vec<Arc<Farewell>>,
    is_asking: bool,
}

impl Debts {
    pub(super) fn new(masters: usize) -> Self {
        let queues = (0..masters).map(|_| VecDeque::new()).collect();
        Self { queues, overdue: Vec::new(), is_asking: false }
    }
}

impl Driver {
    /// Tells every master on which the key may be to release it: behind whatever was sent there
    /// before, on the same connection.
    pub(super) fn release(&mut self, claim: &Arc<Claim>, reply: Option<ReleaseReply>) {
        claim.end(Ended::Released);
        self.part_while_closing(claim);
        let timing = claim.timing();
        let now = self.now();
        let farewell = Farewell::new(
            claim.resource.clone(),
            claim.release_op(),
            now.saturating_add(claim.life_max()),
            claim.touched(),
            claim.was_lost(),
            self.context.clone(),
            reply,
        );
        self.bid(farewell, timing, now);
    }

    pub(super) fn release_lease(
        &mut self,
        lease: Lease,
        key: Arc<[u8]>,
        timing: Timing,
        reply: ReleaseReply,
    ) {
        let op = Op::release(key, lease.token);
        let (now, all) = (self.now(), self.all());
        let expires = now.saturating_add(Duration::from_millis(timing.px));
        let context = self.context.clone();
        let farewell = Farewell::new(lease.resource, op, expires, all, false, context, Some(reply));
        self.bid(farewell, timing, now);
    }

    fn bid(&mut self, farewell: Arc<Farewell>, timing: Timing, now: Instant) {
        let due = now.saturating_add(timing.node_timeout);
        self.timers.enter(due, Due::Farewell(Arc::downgrade(&farewell)));
        self.send(&farewell.op, farewell.owed(), |master| {
            VoteSlot::new(farewell.clone(), master, 0, now)
        });
    }

    /// The node timeout of a release has passed. What is still on its way is remembered, for
    /// whoever closes the handle.
    pub(super) fn farewell_due(&mut self, farewell: &Weak<Farewell>) {
        let Some(farewell) = farewell.upgrade() else { return };
        farewell.time_out();
        if farewell.owed() != 0 {
            if self.debts.overdue.len() >= OWED_MAX {
                self.debts.overdue.retain(|farewell| farewell.owed() != 0);
            }
            self.debts.overdue.push(farewell);
        }
    }

    /// `master` was told and has not acknowledged: it is told again when it can be reached.
    pub(super) fn owe(&mut self, farewell: Arc<Farewell>, master: usize) {
        let queue = &mut self.debts.queues[master];
        if queue.len() >= OWED_MAX
            && let Some(forgotten) = queue.pop_front()
        {
            tracing::warn!(
                node = %self.context.names[master],
                resource = %forgotten.resource,
                "too many releases are owed: this one is left to the expiry of its key"
            );
        }
        queue.push_back(farewell);
        self.ask_again();
    }

    fn ask_again(&mut self) {
        if !std::mem::replace(&mut self.debts.is_asking, true) {
            let pause = ASK_AGAIN.mul_f64(self.rng.random_range(0.5..1.5));
            self.timers.enter(self.now().saturating_add(pause), Due::Debts);
        }
    }

    pub(super) fn ask_debtors(&mut self) {
        self.debts.is_asking = false;
        for master in 0..self.masters.len() {
            if matches!(self.masters[master].state(), NodeState::Up { .. }) {
                self.pay(master);
            }
        }
        if self.debts.queues.iter().any(|queue| !queue.is_empty()) {
            self.ask_again();
        }
    }

    /// Sends `master` everything it owes an acknowledgement for.
    pub(super) fn pay(&mut self, master: usize) {
        let now = self.now();
        for farewell in std::mem::take(&mut self.debts.queues[master]) {
            if farewell.owed() & 1 << master != 0 {
                let op = farewell.op.clone();
                let slot = VoteSlot::new(farewell.clone(), master, 0, now);
                self.debts.overdue.push(farewell);
                self.masters[master].submit(op, slot);
            }
        }
    }

    /// Every key that may be left on a master.
    pub(super) fn owed(&mut self) -> Vec<Owed> {
        let mut farewells = std::mem::take(&mut self.debts.overdue);
        farewells.extend(self.debts.queues.iter().flatten().cloned());
        farewells.extend(self.timers.iter().filter_map(|due| match due {
            Due::Farewell(farewell) => farewell.upgrade(),
            _ => None,
        }));
        farewells.retain(|farewell| farewell.owed() != 0);
        farewells.sort_by_key(Arc::as_ptr);
        farewells.dedup_by_key(|farewell| Arc::as_ptr(farewell));
        let now = self.now();
        let owed = farewells
            .iter()
            .flat_map(|farewell| {
                let within = farewell.expires.saturating_since(now);
                self.keys(&farewell.resource, farewell.owed(), within)
            })
            .collect();
        self.debts.overdue = farewells;
        owed
    }

    /// One entry for each master whose bit is set.
    pub(super) fn keys(
        &self,
        resource: &redlock_core::Resource,
        masters: u32,
        within: Duration,
    ) -> Vec<Owed> {
        let names = self.context.names.iter().enumerate();
        names
            .filter(|(master, _)| masters & 1 << master != 0)
            .map(|(_, node)| Owed { node: node.to_string(), resource: resource.clone(), within })
            .collect()
    }
}
