//! Releases: what a lease leaves to the processes that wait.

use redlock_core::{Exit, Leaving, SharedQueue};

use super::claim::Way;
use super::*;
use crate::waiting::Waiting;
use crate::waiting::leaving::{self, Known, fresh_for};

/// One in this many releases that query M leaves the key to processes that wait at another master,
/// and to processes that cannot wait in a queue.
const OPEN_ONE_IN: u64 = 64;

impl Keys {
    /// Ends a lease: decides how it is left to others, and whether the callers of this process let
    /// others go first. `is_taken`: its caller took it. `has_copy_at` returns whether a master has
    /// its key.
    pub fn lease_ends(
        &mut self,
        (claim, lock): (&mut Claim, LockId),
        is_taken: bool,
        has_copy_at: impl Fn(usize) -> bool,
        cx: &mut Context<'_>,
    ) {
        let usage = self.uses.get(claim.key_use);
        let held_for = usage.and_then(|one| one.held_for(lock, cx.now));
        // A plain release wakes a process that came after the answer and watches the key there.
        let unwanted_at = usage.and_then(|one| one.unwanted_at(fresh_for(cx.fan_out), cx.now));
        let is_unwanted = claim.meeting.is_none() && unwanted_at.is_some_and(has_copy_at);
        self.end_untaken(claim, is_taken, held_for, cx);
        let queue = self.queue_of(&claim.key, cx);
        if queue.is_none() {
            self.end_unqueued(claim, held_for, cx);
        }
        if self.terms.has_queue {
            self.leave_lease((claim, lock), (queue, held_for, is_unwanted), cx);
        }
        if let Some(one) = self.uses.get_mut(claim.key_use) {
            one.was_refused = false;
        }
    }

    /// Handles the end of a lease that no caller has taken. After several of them, the callers of
    /// this process let others go first.
    fn end_untaken(
        &mut self,
        claim: &Claim,
        is_taken: bool,
        held_for: Option<Duration>,
        cx: &mut Context<'_>,
    ) {
        let Some(one) = self.uses.get_mut(claim.key_use) else { return };
        if is_taken {
            return one.untaken.taken();
        }
        if let Some(pause) = one.untaken.untaken(held_for.unwrap_or_default(), cx.reservation()) {
            let until = cx.now.saturating_add(pause);
            self.stand_back(claim, cx, |waiting, _| waiting.stand_back(until));
        }
    }

    /// The same after a run of leases, if no queue works.
    fn end_unqueued(&mut self, claim: &Claim, held_for: Option<Duration>, cx: &mut Context<'_>) {
        let Some(one) = self.uses.get_mut(claim.key_use) else { return };
        let (leases, fan_out) = (u32::from(claim.hand_overs) + 1, cx.fan_out);
        let held_for = held_for.unwrap_or_default();
        if let Some(pause) = one.run.lease_ends(leases, held_for, fan_out, cx.now) {
            self.stand_back(claim, cx, |waiting, now| {
                waiting.stand_back_unqueued(pause, fan_out, now)
            });
        }
    }

    /// The callers of this process let others go first.
    fn stand_back(
        &mut self,
        claim: &Claim,
        cx: &mut Context<'_>,
        stands_back: impl FnOnce(&mut Waiting<RequestId>, Instant) -> crate::waiting::Step<RequestId>,
    ) {
        let queue = self.waiters.enter(&claim.key);
        let step = stands_back(&mut self.waiters.queues[queue].waiting, cx.now);
        self.step(queue, step, cx);
    }

    /// Decides how a lease is left to processes that wait.
    fn leave_lease(
        &mut self,
        (claim, lock): (&mut Claim, LockId),
        (queue, held_for, is_unwanted): (Option<usize>, Option<Duration>, bool),
        cx: &mut Context<'_>,
    ) {
        let usage = self.uses.get(claim.key_use);
        let known = known_of_others(usage, claim, (held_for, is_unwanted), cx.fan_out);
        let leaving::Leaving::Query { reserves, presumes } = leaving::Leaving::of(known) else {
            return;
        };
        let met = claim.meeting.as_ref().map(|meeting| meeting.at);
        let met = met.filter(|at| self.queue_works(&claim.key, *at, cx));
        let Some(at) = met.or(queue) else { return };
        let calls_elsewhere = self.calls_elsewhere(claim, lock, cx);
        let is_open = reserves && calls_elsewhere;
        let leaving = if is_open { Leaving::Open } else { Leaving::Done };
        let gives_up_place = self.waiters.place(&claim.key) != Some(at);
        let way = Way { has_token: true, gives_up_place, leaving };
        claim.legacy.exit = Some((at, self.exit(claim, way, cx)));
        claim.legacy.reserve_ms = (reserves && !is_open).then(|| cx.reservation_ms());
        if calls_elsewhere {
            self.call_elsewhere(claim, at, cx);
        }
        if presumes {
            self.others_may_wait(&claim.key, cx);
        }
    }

    /// Decides whether a release that queries M leaves the key to processes that wait at other
    /// masters. They get a share of the releases in proportion to their number. A release in
    /// between, at random, finds out how many they are.
    fn calls_elsewhere(&self, claim: &Claim, lock: LockId, cx: &Context<'_>) -> bool {
        let number = cx.draws.number(Draw::Leave(lock), cx.now);
        let Some(one) = self.uses.get(claim.key_use) else {
            return number.is_multiple_of(OPEN_ONE_IN);
        };
        let (here, elsewhere) = (u64::from(one.waiters), u64::from(one.waiters_elsewhere));
        number.is_multiple_of(OPEN_ONE_IN)
            || here == 0 && one.wait_elsewhere()
            || (number / OPEN_ONE_IN) % (here + elsewhere + 1) < elsewhere
    }

    /// Lets each other master hand the key to the first in its own queue. If no process waits at M,
    /// the callers of this process stand back for as long as a called process needs.
    fn call_elsewhere(&mut self, claim: &mut Claim, at: usize, cx: &mut Context<'_>) {
        let others = (0..cx.points.count()).filter(|other| *other != at);
        let others = others.filter(|other| self.queue_works(&claim.key, *other, cx));
        claim.legacy.elsewhere = others.collect();
        let Some(one) = self.uses.get_mut(claim.key_use) else { return };
        let elsewhere = std::mem::take(&mut one.waiters_elsewhere);
        if elsewhere > 0 && one.waiters == 0 {
            let until = cx.now.saturating_add(cx.fan_out * 2);
            self.stand_back(claim, cx, |waiting, _| waiting.stand_back(until));
        }
    }

    /// Decides how a token is left whose lease this process may never have had: it may have been
    /// held for a long time, and others may wait.
    pub fn leave_token(&mut self, claim: &mut Claim, cx: &mut Context<'_>) {
        let at = self.queue_of(&claim.key, cx).filter(|_| self.terms.has_queue);
        let way = Way { has_token: true, gives_up_place: false, leaving: Leaving::Done };
        claim.legacy.exit = at.map(|at| (at, self.exit(claim, way, cx)));
    }

    /// Returns the parameters of an exit.
    pub(super) fn exit(&mut self, claim: &Claim, way: Way, cx: &Context<'_>) -> Exit {
        let Terms { prefix, ticket, .. } = &self.terms;
        let make = || SharedQueue::new(prefix, &claim.resource, *ticket);
        let queue = match self.uses.get_mut(claim.key_use) {
            Some(one) => one.queue(make),
            None => make(),
        };
        Exit {
            queue,
            token: way.has_token.then(|| claim.token.clone()),
            gives_up_place: way.gives_up_place,
            reservation_ms: cx.reservation_ms(),
            leaving: way.leaving,
        }
    }
}

/// Returns the knowledge about other processes that wait for the key of a lease.
fn known_of_others(
    usage: Option<&Use>,
    claim: &Claim,
    (held_for, is_unwanted): (Option<Duration>, bool),
    fan_out: Duration,
) -> Known {
    let meeting = claim.meeting.as_ref();
    let others_wait = meeting.is_some_and(|meeting| meeting.others_wait);
    Known {
        others_wait: others_wait || usage.is_some_and(|one| one.waiters > 0),
        wait_elsewhere: usage.is_some_and(Use::wait_elsewhere),
        is_unanswered: meeting.is_some_and(|meeting| meeting.is_unanswered()),
        was_held: claim.hand_overs > 0 || usage.is_some_and(Use::was_held_before),
        is_unwanted: is_unwanted && claim.hand_overs == 0,
        held_for,
        fan_out,
    }
}
