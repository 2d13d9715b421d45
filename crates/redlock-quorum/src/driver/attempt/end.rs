//! The end of an attempt: the lease that its caller gets, or why there is none.

use std::sync::Arc;
use std::time::Duration;

use redlock_core::Instant;

use crate::counters::Outcome;
use crate::driver::command::Request;
use crate::driver::grant::Grant;
use crate::driver::ticket::{LockId, RequestId};
use crate::driver::{Driver, Stage, Tenure};
use crate::hold::{Fence, HoldCell};
use crate::protocol::attempt::{Attempt, Defeat, Origin};
use crate::protocol::inspection::is_hopeless;
use crate::protocol::waiting::Refusal;

impl Driver {
    /// Hands the lease to its caller, which is woken from here.
    pub(super) fn won(&mut self, id: LockId, now: Instant) {
        let Some((attempt, wish)) = self.end_attempt(id, now) else { return };
        self.observer.counters.outcome(Outcome::Won);
        self.measure(attempt.fan_out());
        let Some(request) = self.requests.remove(wish) else {
            // Nobody wants it any more.
            return self.release_attempt(id, attempt, now);
        };
        self.key_won(id, wish, &request, now);
        let is_resumed = attempt.origin() == Origin::Resumed;
        let fence = Fence::of(attempt.proof());
        let lease = attempt.into_lease(now);
        let Some(lock) = self.locks.get_mut(id) else { return };
        let cell = HoldCell::new(
            lock.resource.clone(),
            lock.token.clone(),
            self.clock.clone(),
            self.masters.names().clone(),
            &lease,
            fence,
        );
        self.observer.won(&request, lock, now);
        let tenure = Tenure {
            lease,
            cell: cell.clone(),
            extending: Vec::new(),
            scheduled: None,
            measured: 0,
            is_lost: false,
            is_resumed,
        };
        lock.stage = Stage::Lease(tenure);
        self.leases += 1;
        self.masters.set_holding(true);
        self.schedule(id);
        self.deliver(id, request, cell, is_resumed, now);
    }

    /// A caller that has gone away gets nothing: what was acquired for it is released, and what it
    /// wanted to take over is left to its holder.
    fn deliver(
        &mut self,
        id: LockId,
        request: Request,
        cell: Arc<HoldCell>,
        is_resumed: bool,
        now: Instant,
    ) {
        let Some(slot) = self.slot.upgrade() else { return };
        let grant = Grant::new(cell, id, slot, is_resumed);
        if let Err(Ok(grant)) = request.reply.send(Ok(grant)) {
            grant.cancel();
            if is_resumed { self.forget(id, now) } else { self.release(id, None, now) }
        }
    }

    /// The attempt was lost: it is released, and then it is tried again, or the caller is answered.
    pub(super) fn lost(&mut self, id: LockId, defeat: Defeat, now: Instant) {
        let Some((attempt, request)) = self.end_attempt(id, now) else { return };
        let answers = attempt.answers().to_vec();
        if let Some(silent) = attempt.silent_first() {
            self.suspect(silent, now);
        }
        if attempt.is_refused() {
            self.measure(attempt.fan_out());
        }
        if defeat == Defeat::BallotRefused {
            self.observer.counters.ballots_refused.add(1);
        }
        // Where the masters have granted the key nobody else holds it.
        let is_explained = !attempt.is_unanswered() && defeat == Defeat::Outvoted;
        let is_resumed = attempt.origin() == Origin::Resumed;
        let refusal = attempt.refusal(defeat);
        let is_late = defeat == Defeat::TooLate;
        self.observer.counters.outcome(if is_late { Outcome::TooLate } else { refusal.into() });
        self.release_attempt(id, attempt, now);
        let Some(wish) = self.requests.get(request) else { return };
        // More votes may be on their way: what those masters answered last counts.
        let is_hopeless = refusal == Refusal::Silent
            && is_hopeless(
                &answers,
                self.masters.barred(),
                self.masters.hindered_before(wish.asked_at),
            );
        let key = wish.key.clone();
        let is_gone = wish.reply.is_closed();
        let may_wait = !is_resumed && !is_hopeless && wish.until.is_none_or(|until| now < until);
        self.key_refused(&key, now);
        if !is_gone && may_wait {
            return self.wait_on(request, refusal, now);
        }
        let Some(wish) = self.requests.remove(request) else { return };
        self.left_waiting(request, &key, now);
        if is_gone {
            self.observer.counters.cancelled.add(1);
        } else if is_explained && !is_resumed {
            // The error reports who holds the resource: masters are asked for that,
            // behind our own release. Where no master is left that may know, none is asked.
            let inspection = self.explain(wish, defeat, answers);
            self.set_explains(id, inspection);
        } else {
            self.fail(wish, defeat, &answers);
        }
    }

    /// How long votes take: what waiters pause for is measured by it.
    /// Never nothing: a pause of a few times nothing would be none.
    fn measure(&mut self, fan_out: Duration) {
        /// No network is quicker.
        const FAN_OUT_MIN: Duration = Duration::from_micros(50);
        self.fan_out = (self.fan_out * 4 + fan_out.max(FAN_OUT_MIN)) / 5;
    }

    /// Takes the attempt out of its lock, which gets another stage.
    pub(in crate::driver) fn end_attempt(
        &mut self,
        id: LockId,
        now: Instant,
    ) -> Option<(Attempt, RequestId)> {
        self.leave_window(id, now);
        let lock = self.locks.get_mut(id)?;
        match std::mem::replace(&mut lock.stage, Stage::Changing) {
            Stage::Attempt { attempt, request, .. } => Some((attempt, request)),
            stage => {
                lock.stage = stage;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use redlock_core::{Resource, Token};

    use super::*;
    use crate::Redlock;
    use crate::driver::Lock;
    use crate::driver::ticket::UseId;
    use crate::settings::HoldOptions;

    #[test]
    fn an_attempt_whose_request_is_gone_is_released() {
        let masters = (1..=3).map(|nth| format!("redis://127.0.0.1:{nth}"));
        let redlock = Redlock::connect(masters).unwrap();
        let slot = redlock.handle.inbox.slot();
        let mut driver = slot.enter(&mut slot.state(), None).expect("nothing works on it");
        let (now, resource) = (driver.now(), Resource::from("orders:42"));
        let timing = driver.settings.timing(None, driver.masters.max_ttl()).unwrap();
        let attempt = Attempt::new(3, Origin::Acquired, timing, HoldOptions::default(), now);
        let stage = Stage::Attempt { attempt, request: RequestId::default(), alarm: None };
        let id = driver.locks.insert(Lock {
            key: resource.key(b""),
            resource,
            known: UseId::default(),
            token: Token::random(None),
            node_timeout: timing.node_timeout,
            stage,
            opened: None,
            due: now,
        });
        driver.won(id, now);
        assert!(matches!(driver.locks[id].stage, Stage::Release { .. }));
    }
}
