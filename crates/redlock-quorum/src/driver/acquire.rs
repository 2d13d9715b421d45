//! From a request to a lease or an error: attempts, and the pauses between them.

use std::time::Duration;

use redlock_core::{Cause, Instant, Op, Token, Vote};

use super::command::Request;
use super::grant::Grant;
use super::line::Turn;
use super::masters::REVIVAL;
use super::ticket::{LockId, RequestId, Ticket};
use super::timers::Due;
use super::{Driver, Lock, Stage, Tenure};
use crate::error::AcquireError;
use crate::hold::{HoldCell, votes};
use crate::protocol::attempt::{Attempt, Defeat, Origin, Step};
use crate::protocol::inspection::is_contended;
use crate::protocol::ledger::LastAnswer;
use crate::protocol::master_set::MasterSet;
use crate::protocol::retry;

/// Whether requests go out yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// The first connections are being made, since then.
    Connecting(Instant),
    /// A quorum is connected; the others have a little longer.
    Lingering,
    /// Masters that are not connected now answer *unknown*.
    Done,
}

impl Driver {
    /// Opens the links, and takes up what was left by the runtime before.
    pub(super) fn connect(&mut self) {
        let now = self.now();
        self.start = Start::Connecting(now);
        self.timers.enter(now.saturating_add(self.connect_timeout), Due::Start);
        self.masters.connect();
        self.resume_releases(now);
        self.resume_closing();
        self.consider_start();
    }

    /// Requests go out once every master is connected or known not to be. They do not wait for
    /// the last one, though: once a quorum is connected, the others have as long again as that
    /// took.
    pub(super) fn consider_start(&mut self) {
        /// The least time for the others: connections made at the same time end at the same time.
        const LINGER_MIN: Duration = Duration::from_millis(10);
        if self.start == Start::Done {
            return;
        }
        if !self.masters.is_connecting() {
            self.started();
        } else if let Start::Connecting(since) = self.start
            && self.masters.has_quorum()
        {
            let now = self.now();
            let linger = now.saturating_since(since).max(LINGER_MIN);
            self.start = Start::Lingering;
            self.timers.enter(now.saturating_add(linger), Due::Start);
        }
    }

    /// The first connections are there, or had their time: what waited for them goes out.
    pub(super) fn started(&mut self) {
        if self.start != Start::Done {
            self.start = Start::Done;
            let now = self.now();
            self.resume_leases(now);
            for command in std::mem::take(&mut self.early) {
                self.command(command);
            }
        }
    }

    /// A caller wants a lock.
    pub(super) fn request(&mut self, request: Request) {
        if self.closing.is_some() {
            answer(request, Err(AcquireError::Shutdown));
        } else if self.line.is_full() {
            let why = format!("{} requests wait for their turn", super::line::WAITING_MAX);
            self.refuse_turn(request, why);
        } else {
            let request = self.requests.insert(request);
            self.stand_in_line(request);
            self.limit_standing(request);
        }
    }

    /// A request that waits for its turn does so within its wait, and for a moment at least.
    fn limit_standing(&mut self, id: RequestId) {
        if let Some(until) = self.requests.get(id).and_then(|request| request.until) {
            // Time for the first connections, and for the last attempt at the end of the wait.
            self.timers.enter(until.saturating_add(self.connect_timeout * 2), Due::Turn(id));
        }
    }

    pub(super) fn turn_due(&mut self, id: RequestId) {
        // Those that are being attempted end by themselves.
        let is_attempted = self.requests.get(id).is_none_or(|request| request.is_attempted);
        if !is_attempted && let Some(request) = self.requests.remove(id) {
            self.refuse_turn(request, "its turn did not come in time".into());
        }
    }

    fn refuse_turn(&self, request: Request, why: String) {
        let cause = Cause::NotConnected(why.into());
        let answers = vec![LastAnswer::unknown(cause); self.masters.len()];
        self.fail(request, Defeat::Outvoted, &answers);
    }

    pub(super) fn stand_in_line(&mut self, id: RequestId) {
        if self.requests.contains_key(id) {
            self.line.push(Turn::Attempt(id));
        }
    }

    /// Sends what stands in line, as far as there is room.
    pub(super) fn advance_line(&mut self) {
        if !self.may_send() {
            return;
        }
        while let Some(turn) = self.line.pop() {
            match turn {
                Turn::Attempt(request) => self.attempt(request),
                Turn::Release(lock) => self.send_release(lock),
                Turn::Inspection(inspection) => self.send_inspection(inspection),
            }
        }
    }

    /// Nothing is sent before the first connections are there; and for a moment nothing is sent
    /// while a quorum of connections broke and is being made again.
    fn may_send(&mut self) -> bool {
        if self.start != Start::Done || self.line.is_empty() {
            return false;
        }
        let Some(since) = self.masters.reviving_since() else { return true };
        let until = since.saturating_add(REVIVAL);
        let is_over = self.now() >= until;
        if !is_over {
            self.timers.enter(until, Due::Revived);
        }
        is_over
    }

    /// One attempt: the same request to all masters at once, under a token of its own.
    fn attempt(&mut self, id: RequestId) {
        let Some(request) = self.requests.get_mut(id) else { return };
        if request.reply.is_closed() {
            // The caller is gone: nothing is acquired for it.
            self.requests.remove(id);
            return;
        }
        request.is_attempted = true;
        let (timing, options) = (request.timing, request.options);
        let (resource, key) = (request.resource.clone(), request.key.clone());
        let (token, origin) = match &request.resume {
            Some(token) => (token.clone(), Origin::Resumed),
            None => (Token::random(request.label.as_ref()), Origin::Acquired),
        };
        let op = match origin {
            Origin::Acquired => Op::acquire(key.clone(), token.clone(), timing.px),
            Origin::Resumed => Op::extend(key.clone(), token.clone(), timing.px),
        };
        // The clock is read before the first byte can leave.
        let now = self.now();
        let attempt = Attempt::new(self.masters.len(), origin, timing, options, now);
        let stage = Stage::Attempt { attempt, request: id };
        let node_timeout = timing.node_timeout;
        let lock = Lock { resource, key, token, node_timeout, stage, opened: Some(now) };
        let lock = self.locks.insert(lock);
        self.line.open();
        self.timers.enter(now.saturating_add(node_timeout), Due::Attempt(lock));
        let all = MasterSet::all(self.masters.len());
        for vote in self.masters.send(&op, all, Ticket::Attempt(lock), now) {
            self.vote(&vote);
        }
    }

    /// The answer of a master to an attempt, in time or late.
    pub(super) fn attempt_vote(&mut self, id: LockId, vote: &Vote, now: Instant) {
        let Some(lock) = self.locks.get_mut(id) else { return };
        match &mut lock.stage {
            Stage::Attempt { attempt, .. } => {
                let step = attempt.vote(vote.master, &vote.answer, vote.sent_at, now);
                if attempt.is_answered() {
                    self.leave_window(id, now);
                }
                self.attempt_step(id, step, now);
            }
            Stage::Lease(tenure) => {
                tenure.lease.acquired(vote.master, &vote.answer, vote.sent_at, now);
                tenure.cell.write(tenure.lease.ledger(), vote.master);
                if tenure.lease.ledger().pending().is_empty() {
                    tenure.cell.settle();
                }
                self.publish(id, now);
            }
            // Behind a release only the explanation of a lost attempt wants to know.
            Stage::Release { explains: Some(inspection), .. } => {
                let (inspection, latency) = (*inspection, now.saturating_since(vote.sent_at));
                self.attempt_explained(inspection, vote, latency);
            }
            Stage::Release { .. } | Stage::Changing => {}
        }
    }

    /// The node timeout of an attempt has passed.
    pub(super) fn attempt_due(&mut self, id: LockId, now: Instant) {
        let Some(lock) = self.locks.get_mut(id) else { return };
        match &mut lock.stage {
            Stage::Attempt { attempt, .. } => {
                let step = attempt.time_out(now);
                self.leave_window(id, now);
                self.attempt_step(id, step, now);
            }
            Stage::Lease(tenure) => {
                tenure.lease.attempt_timed_out();
                tenure.cell.write_all(tenure.lease.ledger());
                tenure.cell.settle();
            }
            Stage::Release { .. } | Stage::Changing => {}
        }
    }

    pub(super) fn grace_due(&mut self, id: LockId, now: Instant) {
        if let Some(Stage::Attempt { attempt, .. }) = self.locks.get_mut(id).map(|l| &mut l.stage) {
            let step = attempt.end_grace(now);
            self.attempt_step(id, step, now);
        }
    }

    /// What was sent has been answered by a quorum, or is not waited for any longer.
    pub(super) fn leave_window(&mut self, id: LockId, now: Instant) {
        if let Some(lock) = self.locks.get_mut(id)
            && let Some(opened) = lock.opened.take()
        {
            self.line.close(opened, now, lock.node_timeout);
        }
    }

    fn attempt_step(&mut self, id: LockId, step: Step, now: Instant) {
        match step {
            Step::Wait => {}
            Step::AwaitCopies => self.await_copies(id, now),
            Step::Won => self.won(id, now),
            Step::Lost(defeat) => self.lost(id, defeat, now),
        }
    }

    /// A quorum is there, and its holder wants more copies: they have as long again as the quorum
    /// took, and no longer than the node timeout.
    fn await_copies(&mut self, id: LockId, now: Instant) {
        /// The least grace: answers that were sent together come together.
        const GRACE_MIN: Duration = Duration::from_millis(10);
        if let Some(Stage::Attempt { attempt, .. }) = self.locks.get(id).map(|lock| &lock.stage) {
            let grace = attempt.fan_out().max(GRACE_MIN);
            self.timers.enter(now.saturating_add(grace), Due::Grace(id));
        }
    }

    /// Hands the lease to its caller, which is woken from here.
    fn won(&mut self, id: LockId, now: Instant) {
        let Some((attempt, request)) = self.end_attempt(id, now) else { return };
        let Some(request) = self.requests.remove(request) else { return };
        let is_resumed = attempt.origin() == Origin::Resumed;
        let lease = attempt.into_lease();
        let (Some(deadline), Some(lock)) = (lease.deadline(), self.locks.get_mut(id)) else {
            return;
        };
        let cell = HoldCell::new(
            lock.resource.clone(),
            lock.token.clone(),
            self.clock.clone(),
            self.masters.names().clone(),
            &lease,
            deadline,
        );
        let tenure = Tenure { lease, cell: cell.clone(), extending: Vec::new(), scheduled: None };
        lock.stage = Stage::Lease(tenure);
        self.leases += 1;
        self.masters.set_holding(true);
        self.schedule(id);
        self.deliver(id, request, cell, is_resumed);
    }

    /// A caller that has gone away gets nothing: what was acquired for it is released, and what it
    /// wanted to take over is left to its holder.
    fn deliver(
        &mut self,
        id: LockId,
        request: Request,
        cell: std::sync::Arc<HoldCell>,
        is_resumed: bool,
    ) {
        let Some(slot) = self.slot.upgrade() else { return };
        let grant = Grant::new(cell, id, slot, is_resumed);
        if let Err(Ok(grant)) = request.reply.send(Ok(grant)) {
            grant.cancel();
            if is_resumed { self.forget(id) } else { self.release(id, None) }
        }
    }

    /// The attempt was lost: it is released, and then it is tried again, or the caller is answered.
    fn lost(&mut self, id: LockId, defeat: Defeat, now: Instant) {
        let Some((attempt, request)) = self.end_attempt(id, now) else { return };
        let (fan_out, answers) = (attempt.fan_out(), attempt.answers().to_vec());
        let is_explained = !attempt.is_unanswered() && defeat != Defeat::TooLate;
        let is_resumed = attempt.origin() == Origin::Resumed;
        self.release_attempt(id, attempt, now);
        let Some(wish) = self.requests.get_mut(request) else { return };
        let is_gone = wish.reply.is_closed();
        if !is_gone && !is_resumed && wish.until.is_none_or(|until| now < until) {
            return self.try_again(request, fan_out, now);
        }
        let Some(wish) = self.requests.remove(request) else { return };
        if is_gone {
            // Nothing waits for an answer.
        } else if is_explained && !is_resumed {
            // A caller that gets no wants to know why: masters are asked who holds the resource,
            // behind our own release. Where no master is left that may know, none is asked.
            let inspection = self.explain(wish, defeat, answers);
            self.set_explains(id, inspection);
        } else {
            self.fail(wish, defeat, &answers);
        }
    }

    fn try_again(&mut self, id: RequestId, fan_out: Duration, now: Instant) {
        let random = self.random();
        let Some(request) = self.requests.get_mut(id) else { return };
        let pause = retry::pause(request.failures, fan_out, random);
        request.failures = request.failures.saturating_add(1);
        request.is_attempted = false;
        // The last attempt is made when the wait is over, and not skipped.
        let at = now.saturating_add(pause);
        let at = request.until.map_or(at, |until| at.min(until));
        self.timers.enter(at, Due::Retry(id));
    }

    /// Takes the attempt out of its lock, which gets another stage.
    pub(super) fn end_attempt(&mut self, id: LockId, now: Instant) -> Option<(Attempt, RequestId)> {
        self.leave_window(id, now);
        let lock = self.locks.get_mut(id)?;
        match std::mem::replace(&mut lock.stage, Stage::Changing) {
            Stage::Attempt { attempt, request } => Some((attempt, request)),
            stage => {
                lock.stage = stage;
                None
            }
        }
    }

    /// Answers the caller with why there is no lock.
    pub(super) fn fail(&self, request: Request, defeat: Defeat, answers: &[LastAnswer]) {
        let (resource, votes) = (request.resource.clone(), votes(self.masters.names(), answers));
        let error = if defeat == Defeat::TooLate {
            AcquireError::TooLate { resource, votes }
        } else if is_contended(answers) {
            AcquireError::Held { resource, votes }
        } else {
            AcquireError::NoQuorum { resource, votes }
        };
        answer(request, Err(error));
    }
}

/// A caller that has stopped waiting does not need to know.
pub(super) fn answer(request: Request, outcome: Result<Grant, AcquireError>) {
    let _ = request.reply.send(outcome);
}
