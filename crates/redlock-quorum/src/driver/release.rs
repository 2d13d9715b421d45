//! Releases, until every master has acknowledged them.

use std::time::Duration;

use redlock_core::{Instant, Op, Vote};

use super::command::{LeaseRelease, ReleaseReply};
use super::line::Turn;
use super::ticket::{InspectionId, LockId, Ticket, UseId};
use super::timers::Due;
use super::{Driver, Lock, Stage};
use crate::error::{ExtendError, ReleaseError};
use crate::hold::votes;
use crate::lost::{Ended, LostReason};
use crate::protocol::attempt::{Attempt, Origin};
use crate::protocol::ledger::{LastAnswer, Ledger};
use crate::protocol::master_set::MasterSet;
use crate::protocol::release::{Release, Released, is_denial};
use crate::votes::Votes;

impl Driver {
    /// The holder is done.
    pub(super) fn release(&mut self, id: LockId, reply: Option<ReleaseReply>, now: Instant) {
        let Some(lock) = self.locks.get_mut(id) else {
            // No master has anything left to do: that came true before the caller asked again.
            return answer(reply, Ok(()));
        };
        match &mut lock.stage {
            Stage::Lease(_) => self.release_lease_of(id, reply, now),
            Stage::Release { .. } => self.release_again(id, reply),
            Stage::Attempt { .. } | Stage::Changing => {}
        }
    }

    /// It was asked for before, by a caller whose runtime went away with the answer.
    fn release_again(&mut self, id: LockId, reply: Option<ReleaseReply>) {
        let Some(lock) = self.locks.get_mut(id) else { return };
        let Stage::Release { release, reply: waiting, .. } = &mut lock.stage else { return };
        if reply.is_some() && release.outcome() != Some(Released::Done) && release.reopen() {
            self.line.push(Turn::Release(id));
        }
        match release.outcome() {
            None => *waiting = reply,
            Some(_) => self.answer_release(id, reply),
        }
    }

    fn release_lease_of(&mut self, id: LockId, reply: Option<ReleaseReply>, now: Instant) {
        let ended = self.tenure(id).and_then(|tenure| tenure.cell.ended());
        let was_lost = matches!(ended, Some(Ended::Lost(_)));
        if was_lost {
            self.note_loss(id, now);
        }
        let Some(mut tenure) = self.end_lease(id) else { return };
        tenure.cell.end(Ended::Released);
        tenure.lease.end(LostReason::Released);
        for (_, waiting) in tenure.extending {
            let _ = waiting.send(Err(ExtendError::Lost(tenure.cell.lost(LostReason::Released))));
        }
        let (life, unanswered) = (tenure.lease.life_max(), tenure.lease.unanswered());
        let ledger = tenure.lease.into_ledger();
        self.begin_release(id, ledger, unanswered, life, was_lost, reply, now);
    }

    /// An attempt that was not won is released where its key may be. What was only to be taken
    /// over is left to its holder.
    pub(super) fn release_attempt(&mut self, id: LockId, attempt: Attempt, now: Instant) {
        if attempt.origin() == Origin::Resumed {
            self.locks.remove(id);
            return;
        }
        let life = Duration::from_millis(attempt.timing().px);
        let ledger = attempt.into_ledger();
        let unanswered = ledger.pending();
        if ledger.may_hold().is_empty() && ledger.unanswered().is_empty() {
            // Every master that was asked has refused: there is nothing to release.
            self.locks.remove(id);
            return;
        }
        self.begin_release(id, ledger, unanswered, life, false, None, now);
    }

    pub(super) fn release_lease(&mut self, lease: LeaseRelease, now: Instant) {
        let LeaseRelease { resource, key, token, timing, reply } = lease;
        let masters = self.masters.len();
        let all = MasterSet::all(masters);
        let node_timeout = timing.node_timeout;
        let stage = Stage::Changing;
        let (known, opened, due) = (UseId::default(), None, now);
        let lock = Lock { resource, key, known, token, node_timeout, stage, opened, due };
        let id = self.locks.insert(lock);
        let life = Duration::from_millis(timing.px);
        self.begin_release(id, Ledger::new(masters), all, life, false, Some(reply), now);
    }

    #[expect(clippy::too_many_arguments, reason = "each is a fact that the release starts from")]
    fn begin_release(
        &mut self,
        id: LockId,
        ledger: Ledger,
        unanswered: MasterSet,
        life: Duration,
        was_lost: bool,
        reply: Option<ReleaseReply>,
        now: Instant,
    ) {
        let Some(lock) = self.locks.get_mut(id) else { return };
        let release = Release::new(ledger, unanswered, life, was_lost, now);
        lock.stage = Stage::Release { release, reply, explains: None };
        self.releases += 1;
        self.line.push(Turn::Release(id));
        // What waits for the key here asks behind the release.
        self.key_left(id, now);
    }

    /// Late answers to the attempt go to this inspection.
    pub(super) fn set_explains(&mut self, id: LockId, inspection: InspectionId) {
        if let Some(Stage::Release { explains, .. }) =
            self.locks.get_mut(id).map(|lock| &mut lock.stage)
        {
            *explains = Some(inspection);
        }
    }

    /// Its turn has come: it goes to every master on which the key may be, behind what was sent
    /// there before, on the same connection.
    pub(super) fn send_release(&mut self, id: LockId, now: Instant) {
        let Some(lock) = self.locks.get_mut(id) else { return };
        let Stage::Release { release, .. } = &mut lock.stage else { return };
        let masters = release.send();
        if masters.is_empty() {
            release.time_out();
            return self.release_changed(id, now);
        }
        lock.opened = Some(now);
        self.say(id, "release");
        let Some(lock) = self.locks.get(id) else { return };
        let op = Op::release(lock.key.clone(), lock.token.clone());
        self.line.open();
        self.timers.enter(now.saturating_add(lock.node_timeout), Due::Release(id));
        for vote in self.masters.send(&op, masters, Ticket::Release(id), now) {
            self.vote(&vote);
        }
    }

    /// The answer of a master to a release.
    pub(super) fn release_vote(&mut self, id: LockId, vote: &Vote, now: Instant) {
        let master = vote.master;
        self.unacknowledged[master].is_denying |= is_denial(&vote.answer);
        let Some(lock) = self.locks.get_mut(id) else { return };
        let Stage::Release { release, .. } = &mut lock.stage else { return };
        let latency = now.saturating_since(vote.sent_at);
        let is_decided = release.vote(master, &vote.answer, latency, now).is_some();
        let (has_failed, is_over) = (release.has_failed(master), release.is_over());
        if lock.opened.is_some() && release.is_answered() {
            self.leave_window(id, now);
        }
        if has_failed {
            self.left_unacknowledged(id, master, now);
        } else {
            self.unacknowledged[master].acknowledges = true;
        }
        if vote.answer.is_reply() {
            self.unacknowledged[master].settle(now);
        }
        // Most votes change nothing for the caller.
        if is_decided || is_over {
            self.release_changed(id, now);
        }
    }

    /// The node timeout of a release has passed. What is still on its way stays in the table.
    pub(super) fn release_due(&mut self, id: LockId, now: Instant) {
        let Some(lock) = self.locks.get_mut(id) else { return };
        let Stage::Release { release, .. } = &mut lock.stage else { return };
        let silent = release.pending();
        release.time_out();
        self.observer.timed_out(lock, silent);
        self.release_changed(id, now);
    }

    /// Answers the caller once the outcome is known, and removes what is over.
    pub(super) fn release_changed(&mut self, id: LockId, now: Instant) {
        let Some(lock) = self.locks.get_mut(id) else { return };
        let Stage::Release { release, reply, .. } = &mut lock.stage else { return };
        if release.outcome().is_none() {
            return;
        }
        let (reply, is_over) = (reply.take(), release.is_over());
        self.leave_window(id, now);
        self.answer_release(id, reply);
        if is_over {
            self.say(id, "released");
        }
        if is_over && self.locks.remove(id).is_some() {
            self.releases -= 1;
        }
    }

    fn answer_release(&self, id: LockId, reply: Option<ReleaseReply>) {
        let Some(reply) = reply else { return };
        let Some(Lock { resource, stage: Stage::Release { release, .. }, .. }) = self.locks.get(id)
        else {
            return;
        };
        let (resource, votes) = (|| resource.clone(), || self.votes(release.answers()));
        let outcome = match release.outcome() {
            Some(Released::Done) => Ok(()),
            Some(Released::NotOurs) => {
                Err(ReleaseError::NotOurs { resource: resource(), votes: votes() })
            }
            Some(Released::Unconfirmed) | None => {
                Err(ReleaseError::Unconfirmed { resource: resource(), votes: votes() })
            }
        };
        answer(Some(reply), outcome);
    }

    fn votes(&self, answers: &[LastAnswer]) -> Votes {
        votes(self.masters.names(), answers)
    }

    /// The process of `master` has ended, and with it all that was on its way there.
    pub(super) fn process_ended(&mut self, master: usize, now: Instant) {
        self.unacknowledged[master].settle(now);
        if self.releases == 0 && self.leases == 0 {
            return;
        }
        for lock in self.locks.values_mut() {
            match &mut lock.stage {
                Stage::Release { release, .. } => release.process_ended(master, now),
                Stage::Lease(tenure) => tenure.lease.process_ended(master, now),
                Stage::Attempt { .. } | Stage::Changing => {}
            }
        }
    }

    /// The releases that the runtime before has left go on.
    pub(super) fn resume_releases(&mut self, now: Instant) {
        let ids: Vec<LockId> = self.locks.keys().collect();
        for id in ids {
            let lock = &self.locks[id];
            let Stage::Release { release, .. } = &lock.stage else { continue };
            let failed: Vec<usize> =
                (0..self.masters.len()).filter(|master| release.has_failed(*master)).collect();
            if release.is_waiting() {
                self.line.push(Turn::Release(id));
            } else if release.outcome().is_none() {
                self.timers.enter(now.saturating_add(lock.node_timeout), Due::Release(id));
            }
            for master in failed {
                self.left_unacknowledged(id, master, now);
            }
        }
    }
}

/// A caller that has stopped waiting does not need to know.
fn answer(reply: Option<ReleaseReply>, outcome: Result<(), ReleaseError>) {
    if let Some(reply) = reply {
        let _ = reply.send(outcome);
    }
}
