//! From a request to a lease or an error: attempts, and the pauses between them.

use std::time::Duration;

use redlock_core::{Cause, Instant, Op, Token, Verdict, Vote};

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
use crate::protocol::inspection::{is_contended, is_hopeless};
use crate::protocol::ledger::LastAnswer;
use crate::protocol::master_set::MasterSet;
use crate::protocol::waiting::{Ask, Refusal};
use crate::settings::InvalidRequest;

/// Whether requests go out yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// No runtime drives the masters.
    Parked,
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
        let until = now.saturating_add(self.settings.connect_timeout);
        self.timers.enter(until, Due::Start);
        self.masters.connect(until);
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
        if matches!(self.start, Start::Done | Start::Parked) {
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

    /// The first connections are made, or their time is over: what waited for them is sent.
    pub(super) fn started(&mut self) {
        if self.start != Start::Done {
            self.start = Start::Done;
            let now = self.now();
            self.resume_leases(now);
            for command in std::mem::take(&mut self.early) {
                self.command(command, now);
            }
        }
    }

    /// A caller wants a lock.
    pub(super) fn request(&mut self, request: Request, now: Instant) {
        if self.closing.is_some() {
            answer(request, Err(AcquireError::Shutdown));
        } else if self.line.is_full() {
            let why = format!("{} requests wait for their turn", super::line::WAITING_MAX);
            self.refuse_turn(request, why);
        } else {
            let may_wait = request.until.is_none_or(|until| until > now);
            let is_resumed = request.resume.is_some();
            self.ask();
            let request = self.requests.insert(request);
            self.say_request(request, "request");
            if is_resumed || !may_wait {
                self.stand_in_line(request);
            } else {
                self.ask_or_queue(request, now);
            }
        }
    }

    /// A request whose turn does not come at once waits for it within its wait, and for a moment at
    /// least.
    fn limit_standing(&mut self, id: RequestId) {
        if self.start == Start::Done && !self.line.is_long() {
            return;
        }
        if let Some(until) = self.requests.get(id).and_then(|request| request.until) {
            // Time for the first connections, and for the last attempt at the end of the wait.
            let grace = self.settings.connect_timeout.saturating_mul(2);
            self.timers.enter(until.saturating_add(grace), Due::Turn(id));
        }
    }

    pub(super) fn turn_due(&mut self, id: RequestId) {
        // Those that are being attempted end by themselves.
        let is_attempted = self.requests.get(id).is_none_or(|request| request.is_attempted);
        if !is_attempted && let Some(request) = self.requests.remove(id) {
            let now = self.now();
            self.left_waiting(id, &request.key, now);
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
            self.limit_standing(id);
        }
    }

    /// Sends what stands in line, as far as there is room.
    pub(super) fn advance_line(&mut self) {
        if !self.may_send() {
            return;
        }
        // The clock is read before the first byte can leave, and once for all: none leaves before
        // the links are polled.
        let now = self.now();
        while let Some(turn) = self.line.pop() {
            match turn {
                Turn::Attempt(request) => self.attempt(request, now),
                Turn::Release(lock) => self.send_release(lock, now),
                Turn::Inspection(inspection) => self.send_inspection(inspection, now),
            }
        }
    }

    /// Whether what stands in line can be sent. Nothing is sent before the first connections are
    /// there; and for a moment nothing is sent while a quorum of connections broke and is being made
    /// again.
    pub(super) fn may_send(&mut self) -> bool {
        if self.start != Start::Done || !self.line.can_advance() || self.awaits_admission() {
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

    /// The TTL is longer than the masters allow.
    fn refuse_invalid(&mut self, id: RequestId, invalid: InvalidRequest) {
        let Some(request) = self.requests.remove(id) else { return };
        let now = self.now();
        self.left_waiting(id, &request.key, now);
        answer(request, Err(invalid.into()));
    }

    /// One attempt: the same request to all masters at once, under a token of its own.
    fn attempt(&mut self, id: RequestId, now: Instant) {
        let Some(request) = self.requests.get_mut(id) else { return };
        if request.reply.is_closed() {
            // The caller is gone: nothing is acquired for it.
            let key = request.key.clone();
            self.requests.remove(id);
            return self.left_waiting(id, &key, now);
        }
        let limit = self.masters.max_ttl();
        match self.settings.timing(request.ttl, limit).and_then(|timing| {
            timing.check_margin(request.options.stop_margin)?;
            Ok(timing)
        }) {
            Ok(timing) => request.timing = timing,
            Err(invalid) => return self.refuse_invalid(id, invalid),
        }
        request.is_attempted = true;
        let ask = request.ask;
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
        let node_timeout = timing.node_timeout;
        let attempt = Attempt::new(self.masters.len(), origin, timing, options, now);
        let first = match ask {
            Ask::MeetingPointFirst => self.masters.meeting_point(&key, now),
            Ask::All => None,
        };
        let (attempt, time) = match first {
            Some(first) => (attempt.asking_first(first), self.answer_time().min(node_timeout)),
            None => (attempt, node_timeout),
        };
        let asked = attempt.asked();
        let stage = Stage::Attempt { attempt, request: id };
        let due = now.saturating_add(time);
        let lock = Lock { resource, key, token, node_timeout, stage, opened: Some(now), due };
        let lock = self.locks.insert(lock);
        self.observer.counters.attempts.add(1);
        self.observer.counters.rounds.add(1);
        self.say_attempt(lock, id, asked);
        self.line.open();
        self.timers.enter(due, Due::Attempt(lock, due));
        self.send_attempt(lock, &op, asked, now);
    }

    /// Masters that do not vote are asked for a copy, and their vote is known at once.
    fn send_attempt(&mut self, id: LockId, op: &Op, asked: MasterSet, now: Instant) {
        for vote in self.masters.send(op, asked, Ticket::Attempt(id), now) {
            self.vote(&vote);
        }
        for master in self.masters.copies_only(asked).iter() {
            let why = self.masters.cause(master, now);
            self.masters.answered(master, &Verdict::Unknown(why.clone()));
            let Some(Stage::Attempt { attempt, .. }) = self.locks.get_mut(id).map(|l| &mut l.stage)
            else {
                return;
            };
            let step = attempt.only_copy(master, why, now);
            self.attempt_counted(id, step, now);
        }
    }

    pub(super) fn attempt_counted(&mut self, id: LockId, step: Step, now: Instant) {
        if let Some(Stage::Attempt { attempt, .. }) = self.locks.get(id).map(|lock| &lock.stage)
            && attempt.is_answered()
        {
            self.leave_window(id, now);
        }
        self.attempt_step(id, step, now);
    }

    /// The meeting point has granted: the same request goes to the others.
    fn ask_others(&mut self, id: LockId) {
        let now = self.now();
        self.observer.counters.rounds.add(1);
        let Some(lock) = self.locks.get_mut(id) else { return };
        let Stage::Attempt { attempt, .. } = &mut lock.stage else { return };
        let others = attempt.ask_others(None);
        let op = Op::acquire(lock.key.clone(), lock.token.clone(), attempt.timing().px);
        lock.due = now.saturating_add(lock.node_timeout);
        self.timers.enter(lock.due, Due::Attempt(id, lock.due));
        self.send_attempt(id, &op, others, now);
    }

    /// The answer of a master to an attempt, in time or late.
    pub(super) fn attempt_vote(&mut self, id: LockId, vote: &Vote, now: Instant) {
        self.masters.answered(vote.master, &vote.answer.verdict);
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
            Stage::Release { release, explains, .. } => {
                release.acquired(vote.master, &vote.answer);
                if let Some(inspection) = *explains {
                    let latency = now.saturating_since(vote.sent_at);
                    self.attempt_explained(inspection, vote, latency);
                }
                self.release_changed(id, now);
            }
            Stage::Changing => {}
        }
    }

    /// `master` may have forgotten every key: its grants do not count.
    pub(super) fn disown_attempts(&mut self, master: usize, now: Instant) {
        for id in self.attempt_ids() {
            if let Some(Stage::Attempt { attempt, .. }) =
                self.locks.get_mut(id).map(|l| &mut l.stage)
            {
                let step = attempt.disown(master, now);
                self.attempt_step(id, step, now);
            }
        }
    }

    /// The node timeout of an attempt has passed.
    pub(super) fn attempt_due(&mut self, id: LockId, at: Instant, now: Instant) {
        let Some(lock) = self.locks.get_mut(id).filter(|lock| lock.due == at) else { return };
        match &mut lock.stage {
            Stage::Attempt { attempt, .. } => {
                let silent = attempt.ledger().pending();
                let step = attempt.time_out(now);
                self.observer.timed_out(lock, silent);
                self.leave_window(id, now);
                self.attempt_step(id, step, now);
            }
            Stage::Lease(tenure) => {
                let silent = tenure.lease.ledger().pending();
                tenure.lease.attempt_timed_out();
                tenure.cell.write_all(tenure.lease.ledger());
                tenure.cell.settle();
                self.observer.timed_out(lock, silent);
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
        self.say_step(id, step);
        match step {
            Step::Wait => {}
            Step::AskOthers => self.ask_others(id),
            // No lock has a fencing token yet.
            Step::Propose | Step::Join(_) => {}
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
        let Some((attempt, wish)) = self.end_attempt(id, now) else { return };
        self.measure(attempt.fan_out());
        let Some(request) = self.requests.remove(wish) else { return };
        self.key_won(id, wish, &request.key);
        let is_resumed = attempt.origin() == Origin::Resumed;
        let lease = attempt.into_lease(now);
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
        self.observer.won(&request, lock, now);
        let tenure = Tenure {
            lease,
            cell: cell.clone(),
            extending: Vec::new(),
            scheduled: None,
            measured: 0,
            is_lost: false,
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
        cell: std::sync::Arc<HoldCell>,
        is_resumed: bool,
        now: Instant,
    ) {
        let Some(slot) = self.slot.upgrade() else { return };
        let grant = Grant::new(cell, id, slot, is_resumed);
        if let Err(Ok(grant)) = request.reply.send(Ok(grant)) {
            grant.cancel();
            if is_resumed { self.forget(id) } else { self.release(id, None, now) }
        }
    }

    /// The attempt was lost: it is released, and then it is tried again, or the caller is answered.
    fn lost(&mut self, id: LockId, defeat: Defeat, now: Instant) {
        let Some((attempt, request)) = self.end_attempt(id, now) else { return };
        let answers = attempt.answers().to_vec();
        if let Some(silent) = attempt.silent_first() {
            self.suspect(silent, now);
        }
        if attempt.is_refused() {
            self.measure(attempt.fan_out());
        }
        let is_explained = !attempt.is_unanswered() && defeat != Defeat::TooLate;
        let is_resumed = attempt.origin() == Origin::Resumed;
        let refusal = attempt.refusal(defeat);
        // More votes may be on their way: what those masters answered last counts.
        let is_hopeless =
            refusal == Refusal::Silent && is_hopeless(&answers, self.masters.barred());
        self.release_attempt(id, attempt, now);
        let Some(wish) = self.requests.get_mut(request) else { return };
        let is_gone = wish.reply.is_closed();
        let may_wait = !is_resumed && !is_hopeless && wish.until.is_none_or(|until| now < until);
        if !is_gone && may_wait {
            return self.wait_on(request, refusal, now);
        }
        let Some(wish) = self.requests.remove(request) else { return };
        self.left_waiting(request, &wish.key, now);
        if is_gone {
            // Nothing waits for an answer.
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
        self.observer.failed(&request, defeat, self.now());
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
