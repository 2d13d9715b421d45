//! The keeper: extends what is held, until it is released, lost, or held long enough.

use std::sync::Arc;

use rand::RngExt;
use redlock_core::{Instant, VoteSlot};

use super::{Driver, Due};
use crate::claim::Claim;
use crate::round::{EXTEND, ExtendReply, READD, Round};
use crate::settings::Timing;

impl Driver {
    /// The first extension is due a third of the TTL after the lease began: two more can fail
    /// before it is over.
    pub(super) fn keep_later(&mut self, claim: Arc<Claim>) {
        if claim.is_held() {
            let third = claim.timing().ttl.get() / 3;
            self.timers.enter(claim.started.saturating_add(third), Due::Keep(claim));
        }
    }

    pub(super) fn keep(&mut self, claim: Arc<Claim>) {
        if !claim.is_held() {
            return;
        }
        let now = self.now();
        if is_kept(&claim, now) {
            let timing = claim.timing();
            self.extension(claim, timing, now, None);
        } else {
            // Nothing to do any more but to know that it is held, until it is not.
            self.timers.enter(now.saturating_add(claim.remaining()), Due::Keep(claim));
        }
    }

    /// The holder wants more time, now and from each extension that follows.
    pub(super) fn extend(&mut self, claim: Arc<Claim>, timing: Timing, reply: ExtendReply) {
        claim.set_timing(timing);
        let now = self.now();
        self.extension(claim, timing, now, Some(reply));
    }

    fn extension(
        &mut self,
        claim: Arc<Claim>,
        timing: Timing,
        now: Instant,
        reply: Option<ExtendReply>,
    ) {
        let op = claim.extend_op(timing.px);
        let round = Round::new(claim, timing, now, reply);
        self.timers.enter(now.saturating_add(timing.node_timeout), Due::Round(round.clone()));
        self.send(&op, self.all(), |master| VoteSlot::new(round.clone(), master, EXTEND, now));
    }

    /// The node timeout of an extension has passed. Where no quorum has confirmed it is tried
    /// again soon, until the lease is over: a failed extension never releases anything.
    pub(super) fn round_due(&mut self, round: &Arc<Round>) {
        round.time_out();
        if !round.is_keepers || !round.claim.is_held() {
            return;
        }
        let next = if round.is_won() {
            round.started.saturating_add(round.timing.ttl.get() / 3)
        } else {
            let pause = round.timing.node_timeout.mul_f64(self.rng.random());
            self.now().saturating_add(pause)
        };
        self.timers.enter(next, Due::Keep(round.claim.clone()));
    }

    /// A master has lost the key of a lease, and nobody else has it there. While the lease is
    /// valid no other can hold a quorum, so the key may be set again; it counts from when that is
    /// confirmed, and only if the lease has not lapsed by then.
    pub(super) fn readd(&mut self, round: &Arc<Round>, master: usize) {
        let claim = &round.claim;
        if self.closing.is_none() && claim.is_held() {
            claim.touch(master);
            let slot = VoteSlot::new(round.clone(), master, READD, self.now());
            self.masters[master].submit(claim.acquire_op(round.timing.px), slot);
        }
    }
}

fn is_kept(claim: &Claim, now: Instant) -> bool {
    let held = now.saturating_since(claim.started);
    claim.terms.auto_extend && claim.terms.max_hold.is_none_or(|max_hold| held < max_hold)
}
