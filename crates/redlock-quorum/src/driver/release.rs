//! Releases, until every master has acknowledged them.

mod unacknowledged;

use std::sync::Arc;
use std::time::Duration;

use redlock_core::{Instant, Vote};
use redlock_protocol::token::lifecycle::{Answered, Asked, Event, Lifecycle, Step};
use redlock_protocol::token::release::{Release, Released, is_denial};
use redlock_protocol::votes::answer::Judged;

use super::Driver;
use super::command::{LeaseRelease, ReleaseReply};
use super::lock::{Caller, Holder, Lock};
use crate::error::ReleaseError;
use crate::hold::{Acceptance, votes};
use crate::lost::Ended;
use redlock_protocol::client::ids::{HoldId, LockId, Ticket};
use redlock_protocol::client::key::Claim;
use redlock_protocol::client::line::Outgoing;
use redlock_protocol::client::timers::Due;
use redlock_protocol::master_set::MasterSet;

impl Driver {
    /// The holder is done.
    pub(super) fn release(&mut self, hold: HoldId, reply: Option<ReleaseReply>, now: Instant) {
        let Some((id, lock)) =
            self.locks.held_by(hold).and_then(|id| Some((id, self.locks.get(id)?)))
        else {
            // The next caller has it, or no master has anything left to do, which became true
            // before this request.
            return answer(reply, Ok(()));
        };
        if lock.is_lease() {
            let ended = self.locks.held(id).and_then(|(_, holder)| holder.cell.ended());
            let was_lost = matches!(ended, Some(Ended::Lost(_)));
            if was_lost {
                self.note_loss(id, now);
            } else if self.hand_on(id, now) {
                return answer(reply, Ok(()));
            }
            self.happens(id, Event::Returned { was_lost }, now);
        } else if reply.is_some() {
            // A caller whose runtime went away with the answer requested it earlier.
            self.happens(id, Event::ReturnedAgain, now);
        }
        self.await_release(id, reply);
    }

    /// The caller is answered once the outcome is known.
    fn await_release(&mut self, id: LockId, reply: Option<ReleaseReply>) {
        let Some(lock) = self.locks.get_mut(id) else { return };
        let outcome = lock.machine.release().map(Release::outcome);
        match (outcome, &mut lock.caller) {
            (Some(None), Caller::Returned { reply: waiting, .. }) => *waiting = reply,
            (Some(Some(_)), Caller::Returned { .. }) => {
                lock.answer_release(&self.nodes.names, reply);
            }
            _ => {}
        }
    }

    /// Releases a lock of which only the token is known, so its key may be on each master.
    pub(super) fn release_lease(&mut self, lease: LeaseRelease, now: Instant) {
        let LeaseRelease { resource, key, token, timing, reply } = lease;
        let id = self.locks.insert(Lock {
            claim: Claim::new(resource, key, token, None),
            node_timeout: timing.node_timeout,
            machine: Lifecycle::releasing(self.masters.len(), timing, now),
            caller: Caller::Returned { reply: Some(reply), explains: None },
            opened: None,
            due: now,
        });
        self.with_claim(id, now, |keys, lock, cx| keys.leave_token(&mut lock.claim, cx));
        self.stand_in_line_for_release(id, now);
    }

    /// Starts the release of a token whose attempt or lease is over, or sends it once more.
    pub(super) fn begin_release(&mut self, id: LockId, now: Instant) {
        let Some(lock) = self.locks.get(id) else { return };
        match lock.caller {
            Caller::Returned { .. } => return self.line.push(Outgoing::Release(id)),
            Caller::Holds(_) => {
                self.with_claim(id, now, |keys, Lock { claim, caller, .. }, cx| {
                    let Caller::Holds(Holder { cell, .. }) = caller else { return };
                    let is_taken = cell.acceptance() == Acceptance::Accepted;
                    keys.lease_ends((claim, id), is_taken, |at| cell.has_copy_at(at), cx);
                });
                if let Some(holder) = self.locks.leave_holder(id) {
                    self.set_holding();
                    holder.end();
                }
            }
            Caller::Asks { .. } => {
                self.locks.leave_holder(id);
            }
        }
        self.stand_in_line_for_release(id, now);
    }

    fn stand_in_line_for_release(&mut self, id: LockId, now: Instant) {
        if self.locks.begin_release(id) {
            self.line.push(Outgoing::Release(id));
            // Callers that wait for the key here send their requests after the release.
            self.key_left(id, now);
        }
    }

    /// Sends a release whose turn has come to every master that may have the key, after earlier
    /// requests on the same connection.
    pub(super) fn send_release(&mut self, id: LockId, now: Instant) {
        let Some(step) = self.locks.decide(id, Event::Turn, &mut self.timers, now) else { return };
        if let (Step::SendRelease(_), Some(lock)) = (&step, self.locks.get_mut(id)) {
            lock.opened = Some(now);
            self.line.open();
            self.timers.enter(now.saturating_add(lock.node_timeout), Due::Release(id));
            self.observer.say(&self.locks, id, "release");
        }
        self.carry_out(id, step, now);
    }

    /// Sends the final requests for a token in one turn, the meeting point first, because the other
    /// masters are written to while it calls the next holder. A process that queries them earlier
    /// is refused there, and retries a few times. If this process exits in between, the key stays
    /// on the others until it expires, as with any holder that dies.
    pub(super) fn send_exits(&mut self, id: LockId, masters: MasterSet, now: Instant) {
        let Some(lock) = self.locks.get_mut(id) else { return };
        let (release, exit) = lock.claim.take_exits();
        let met = MasterSet::from_iter(exit.as_ref().map(|(at, _)| *at));
        self.send(&release, masters.without(met), Ticket::Release(id), now);
        let Some((at, leave)) = exit else { return };
        self.driven_first |= 1 << at;
        // At a master that cannot have the key, it only calls the next one.
        let counts = masters.contains(at);
        let ticket = if counts { Ticket::Release(id) } else { Ticket::Exit(id) };
        self.send(&leave, met, ticket, now);
    }

    /// Handles a master's report of its waiters, in its answer to a release or to the exit from a queue.
    pub(super) fn left_queue(&mut self, id: LockId, vote: &Vote, now: Instant) {
        if vote.answer.queued.is_some() {
            self.with_claim(id, now, |keys, lock, cx| keys.left_queue(&lock.claim, vote, cx));
        }
    }

    /// Records that a caller of this process no longer holds the key.
    pub(super) fn key_left(&mut self, id: LockId, now: Instant) {
        self.with_claim(id, now, |keys, lock, cx| keys.left(&lock.claim, id, cx));
    }

    /// The answer of a master to a release.
    pub(super) fn release_vote(
        &mut self,
        id: LockId,
        vote: &Vote,
        judged: Judged<'_>,
        now: Instant,
    ) {
        let master = vote.master;
        self.left_queue(id, vote, now);
        if is_denial(&vote.answer) {
            self.unacknowledged[master].denied();
        }
        if self.locks.get(id).is_some_and(Lock::releases_of_another) {
            // The longest expiry of a key that any client may have set, by the records read so far.
            let longest = Duration::from_millis(self.masters.admission().longest_ttl());
            self.happens(id, Event::Allowed(self.settings.expiry_max(longest)), now);
        }
        let Some(lock) = self.locks.get_mut(id) else { return };
        let step = lock.machine.answered(Answered::of(Asked::Release, vote, judged), now);
        let Some(release) = lock.machine.release() else { return };
        let has_failed = release.has_failed(master);
        if lock.opened.is_some() && release.is_answered() {
            self.leave_window(id, now);
        }
        if has_failed {
            self.left_unacknowledged(id, master, now);
        } else {
            self.unacknowledged[master].acknowledged();
        }
        if vote.answer.is_reply() {
            self.unacknowledged[master].settle(now);
        }
        self.carry_out(id, step, now);
    }

    /// Handles the node timeout of a release. Requests still on their way stay in the table.
    pub(super) fn release_due(&mut self, id: LockId, now: Instant) {
        let Some(lock) = self.locks.get(id) else { return };
        let Some(release) = lock.machine.release() else { return };
        self.observer.timed_out(Some(lock), release.pending());
        self.happens(id, Event::ReleaseTimedOut, now);
    }

    /// Answers the caller once the outcome is known, and removes a finished release.
    pub(super) fn released(&mut self, id: LockId, now: Instant) {
        let Some(lock) = self.locks.get_mut(id) else { return };
        let is_over = lock.machine.is_over();
        let Caller::Returned { reply, .. } = &mut lock.caller else { return };
        let reply = reply.take();
        lock.answer_release(&self.nodes.names, reply);
        self.leave_window(id, now);
        if is_over {
            self.observer.say(&self.locks, id, "released");
            self.locks.end_release(id);
        }
    }

    /// The process of `master` has ended, and with it all that was on its way there.
    pub(super) fn process_ended(&mut self, master: usize, now: Instant) {
        self.unacknowledged[master].settle(now);
        if self.locks.releases() == 0 && self.locks.leases() == 0 {
            return;
        }
        for lock in self.locks.values_mut() {
            lock.machine.on(Event::ProcessEnded(master), now);
        }
    }

    /// Continues the releases that the previous runtime left.
    pub(super) fn resume_releases(&mut self, now: Instant) {
        for id in self.locks.ids(|_| true) {
            let Some(lock) = self.locks.get(id) else { continue };
            let Some(release) = lock.machine.release() else { continue };
            let failed: Vec<usize> =
                (0..self.masters.len()).filter(|master| release.has_failed(*master)).collect();
            if release.is_waiting() {
                self.line.push(Outgoing::Release(id));
            } else if release.outcome().is_none() {
                self.timers.enter(now.saturating_add(lock.node_timeout), Due::Release(id));
            }
            for master in failed {
                self.left_unacknowledged(id, master, now);
            }
        }
    }
}

impl Lock {
    /// Returns `true` if the TTL of a released token is unknown.
    fn releases_of_another(&self) -> bool {
        self.machine.release().is_some_and(Release::is_of_another)
    }

    /// Answers the caller of a release with its outcome.
    fn answer_release(&self, names: &[Arc<str>], reply: Option<ReleaseReply>) {
        let (Some(reply), Some(release)) = (reply, self.machine.release()) else { return };
        let (resource, votes) =
            (|| self.claim.resource.clone(), || votes(names, release.answers()));
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
}

/// A caller that has stopped waiting does not need to know.
fn answer(reply: Option<ReleaseReply>, outcome: Result<(), ReleaseError>) {
    if let Some(reply) = reply {
        let _ = reply.send(outcome);
    }
}
