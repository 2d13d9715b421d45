//! Attempts: from the token to the lease or the loss.

mod end;

use std::time::Duration;

use redlock_core::{Ballot, Bid, Cause, Instant, Member, Op, Token, Verdict, Vote};

use super::ticket::{LockId, RequestId, Ticket, UseId};
use super::timers::Due;
use super::{Driver, Lock, Stage};
use crate::protocol::attempt::{Attempt, Defeat, FIRST, Origin, Step};
use crate::protocol::heard::{Heard, Standing};
use crate::protocol::master_set::MasterSet;
use crate::protocol::waiting::Ask;

impl Driver {
    /// One attempt: the same request to all masters at once, under a token of its own.
    pub(super) fn attempt(&mut self, id: RequestId, now: Instant) {
        if !self.prepare(id, now) {
            return;
        }
        let Some(request) = self.requests.get(id) else { return };
        let (resource, key) = (request.resource.clone(), request.key.clone());
        let (timing, node_timeout) = (request.timing, request.timing.node_timeout);
        let (token, origin) = match &request.resume {
            Some(token) => (token.clone(), Origin::Resumed),
            None => (Token::random(request.label.as_ref()), Origin::Acquired),
        };
        let mut attempt = Attempt::new(self.masters.len(), origin, timing, request.options, now);
        let first = match request.ask {
            Ask::MeetingPointFirst => self.masters.meeting_point(&key, now),
            Ask::All => None,
        };
        let mut time = node_timeout;
        if let Some(first) = first {
            attempt = attempt.asking_first(first);
            time = time.min(self.answer_time());
        }
        let is_fenced = self.settings.fencing;
        let ballot = match first {
            None if is_fenced => {
                let member = Member::of(resource.as_bytes());
                match self.choose(member, Duration::ZERO, now) {
                    Some(ballot) => Some(ballot),
                    None => return self.refuse_exhausted(id, now),
                }
            }
            _ => None,
        };
        if is_fenced {
            attempt = attempt.fenced(ballot);
        }
        let asked = attempt.asked();
        let stage = Stage::Attempt { attempt, request: id, alarm: None };
        let due = now.saturating_add(time);
        let (known, opened) = (UseId::default(), Some(now));
        let lock = Lock { resource, key, known, token, node_timeout, stage, opened, due };
        let lock = self.locks.insert(lock);
        self.observer.counters.attempts.add(1);
        self.observer.counters.rounds.add(1);
        self.say_attempt(lock, id, asked);
        self.line.open();
        self.timers.enter(due, Due::Attempt(lock, due));
        self.send_attempt(lock, asked, ballot, now);
    }

    /// Says whether there is to be an attempt, and for how long its lease is to last.
    fn prepare(&mut self, id: RequestId, now: Instant) -> bool {
        let Some(request) = self.requests.get_mut(id) else { return false };
        if request.reply.is_closed() {
            // The caller is gone: nothing is acquired for it.
            let key = request.key.clone();
            self.cancelled(id);
            self.left_waiting(id, &key, now);
            return false;
        }
        let limit = self.masters.max_ttl();
        let checked = self.settings.timing(request.ttl, limit).and_then(|timing| {
            timing.check_margin(request.options.stop_margin)?;
            Ok(timing)
        });
        match checked {
            Ok(timing) => {
                request.timing = timing;
                request.is_attempted = true;
                true
            }
            Err(invalid) => {
                self.refuse_invalid(id, invalid);
                false
            }
        }
    }

    /// Masters that do not vote are asked for a copy, without a ballot, and their vote is known at
    /// once.
    fn send_attempt(&mut self, id: LockId, asked: MasterSet, ballot: Option<Ballot>, now: Instant) {
        let copies = self.masters.copies_only(asked);
        let Some(lock) = self.locks.get(id) else { return };
        let mut unsent = Vec::new();
        for (op, masters) in lock.attempt_ops(asked, copies, ballot).into_iter().flatten() {
            unsent.extend(self.masters.send(&op, masters, Ticket::Attempt(id), now));
        }
        if !copies.is_empty() {
            let why = |master| (master, self.masters.cause(master, now));
            let whys: Vec<_> = copies.iter().map(why).collect();
            self.only_copies(id, whys, now);
        }
        for vote in unsent {
            self.vote(&vote);
        }
    }

    fn only_copies(&mut self, id: LockId, whys: Vec<(usize, Cause)>, now: Instant) {
        for (master, why) in &whys {
            self.masters.answered(*master, &Verdict::Unknown(why.clone()));
        }
        let Some(Stage::Attempt { attempt, .. }) = self.locks.get_mut(id).map(|l| &mut l.stage)
        else {
            return;
        };
        let step = attempt.only_copies(whys, now);
        self.attempt_counted(id, step, now);
    }

    pub(super) fn attempt_counted(&mut self, id: LockId, step: Step, now: Instant) {
        if let Some(Stage::Attempt { attempt, .. }) = self.locks.get(id).map(|lock| &lock.stage)
            && attempt.is_answered()
        {
            self.leave_window(id, now);
        }
        self.attempt_step(id, step, now);
    }

    /// The meeting point has granted: the same request goes to the others, and the ballot that goes
    /// with it to the meeting point alone.
    fn ask_others(&mut self, id: LockId) {
        let now = self.now();
        self.observer.counters.rounds.add(1);
        let Some(lock) = self.locks.get(id) else { return };
        let Stage::Attempt { attempt, .. } = &lock.stage else { return };
        let (asked, is_fenced, member) = (attempt.asked(), attempt.is_fenced(), lock.member());
        let ballot = is_fenced.then(|| self.choose(member, Duration::ZERO, now));
        let ballot = match ballot {
            Some(None) => return self.attempt_step(id, Step::Lost(Defeat::BallotRefused), now),
            chosen => chosen.flatten(),
        };
        let Some(lock) = self.locks.get_mut(id) else { return };
        let Stage::Attempt { attempt, .. } = &mut lock.stage else { return };
        let others = attempt.ask_others(ballot);
        lock.due = now.saturating_add(lock.node_timeout);
        self.timers.enter(lock.due, Due::Attempt(id, lock.due));
        if let Some(ballot) = ballot {
            self.send_ballot(id, FIRST, ballot, asked, now);
        }
        self.send_attempt(id, others, ballot, now);
    }

    /// The answer of a master to an attempt, in time or late.
    pub(super) fn attempt_vote(
        &mut self,
        id: LockId,
        vote: &Vote,
        standing: &Standing,
        now: Instant,
    ) {
        let heard = Heard { answer: &vote.answer, standing };
        self.masters.answered(vote.master, &standing.count(&vote.answer.verdict));
        let Some(lock) = self.locks.get_mut(id) else { return };
        match &mut lock.stage {
            Stage::Attempt { attempt, .. } => {
                let step = attempt.vote(vote.master, heard, vote.sent_at, now);
                self.attempt_counted(id, step, now);
            }
            Stage::Lease(tenure) => {
                tenure.lease.acquired(vote.master, heard, vote.sent_at, now);
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
                    self.attempt_explained(inspection, vote.master, heard, latency);
                }
                self.release_changed(id, now);
            }
            Stage::Changing => {}
        }
        if matches!(vote.answer.verdict, Verdict::BallotRefused) {
            self.ask_scores(id, now);
        }
    }

    /// `master` may have forgotten every key: its grants do not count.
    pub(super) fn disown_attempts(&mut self, master: usize, now: Instant) {
        let why = self.masters.cause(master, now);
        for id in self.attempt_ids() {
            if let Some(Stage::Attempt { attempt, .. }) =
                self.locks.get_mut(id).map(|l| &mut l.stage)
            {
                let step = attempt.disown(master, why.clone(), now);
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

    pub(super) fn attempt_step(&mut self, id: LockId, step: Step, now: Instant) {
        self.say_step(id, step);
        self.time_ballots(id);
        match step {
            Step::Wait => {}
            Step::AskOthers => self.ask_others(id),
            Step::Propose => self.propose(id, now),
            Step::Join(masters) => self.join(id, masters, now),
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
}

impl Lock {
    /// The member of the ballot sets that its resource uses.
    pub(super) fn member(&self) -> Member {
        Member::of(self.resource.as_bytes())
    }

    /// What an attempt asks of which masters of `asked`; those of `copies` get no ballot.
    fn attempt_ops(
        &self,
        asked: MasterSet,
        copies: MasterSet,
        ballot: Option<Ballot>,
    ) -> [Option<(Op, MasterSet)>; 2] {
        let Stage::Attempt { attempt, .. } = &self.stage else { return [None, None] };
        let op = |bid: Option<Bid>| {
            let (key, token, px) = (self.key.clone(), self.token.clone(), attempt.timing().px);
            match (attempt.origin(), bid) {
                (Origin::Acquired, Some(bid)) => Op::acquire_fenced(key, token, px, bid),
                (Origin::Acquired, None) => Op::acquire(key, token, px),
                (Origin::Resumed, Some(bid)) => Op::resume(key, token, px, bid),
                (Origin::Resumed, None) => Op::extend(key, token, px),
            }
        };
        let Some(ballot) = ballot else { return [Some((op(None), asked)), None] };
        let bid = Bid { ballot, member: self.member() };
        let copy = (!copies.is_empty()).then(|| (op(None), copies));
        [Some((op(Some(bid)), asked.without(copies))), copy]
    }

    /// What proposes a further ballot of an attempt. A resume extends the key each time, so that an
    /// acceptance counts from the write that it came with.
    pub(super) fn ballot_op(&self, ballot: Ballot) -> Op {
        let bid = Bid { ballot, member: self.member() };
        let (key, token) = (self.key.clone(), self.token.clone());
        match &self.stage {
            Stage::Attempt { attempt, .. } if attempt.origin() == Origin::Resumed => {
                Op::resume(key, token, attempt.timing().px, bid)
            }
            _ => Op::ballot(key, token, bid),
        }
    }
}
