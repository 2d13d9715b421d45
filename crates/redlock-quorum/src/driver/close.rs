//! The end: no new work starts, and the driver waits for releases.

use std::time::Duration;

use redlock_core::Instant;
use redlock_protocol::abandoned::Left;
use redlock_protocol::token::lifecycle::Event;

use super::Driver;
use super::acquire::Start;
use super::command::CloseReply;
use super::lock::Lock;
use crate::error::{AcquireError, ForgottenKeys, Unreleased, UnreleasedKey};
use crate::hold::Acceptance;
use crate::lost::LostReason;
use redlock_protocol::client::ids::RequestId;
use redlock_protocol::client::key::Keys;
use redlock_protocol::client::locks::unacknowledged::Unacknowledged;
use redlock_protocol::client::timers::Due;

/// A handle that is being closed.
pub(super) struct Closing {
    /// The callers that wait for the end, and until when: all of them get the same outcome.
    replies: Vec<(Instant, CloseReply)>,
    /// The limit if no caller waits.
    until: Instant,
    /// Until when the driver waits for admission steps, even if no caller waits, so that
    /// short-lived processes complete a step.
    steps_until: Instant,
    /// The callers do not wait any longer.
    is_over: bool,
}

impl Closing {
    /// Returns `true` if a caller gets the outcome as soon as all steps are finished.
    fn is_ending(&self) -> bool {
        self.is_over && self.replies.iter().any(|(_, reply)| !reply.is_closed())
    }

    /// Returns when the wait of the last caller is over.
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// Stops waiting if the wait of some caller is over.
    pub(super) fn time_passed(&mut self, now: Instant) {
        self.is_over |= self.is_due(now);
    }

    /// Returns `true` if the wait of some caller is over.
    fn is_due(&self, now: Instant) -> bool {
        let mut waiting = self.replies.iter().filter(|(_, reply)| !reply.is_closed()).peekable();
        match waiting.peek() {
            Some(_) => waiting.any(|(until, _)| *until <= now),
            None => self.until <= now,
        }
    }
}

impl Driver {
    /// Starts no new work. Waiting requests fail, leases are lost, and releases continue until all
    /// are acknowledged or the wait of one caller is over.
    pub(super) fn close(&mut self, within: Duration, reply: Option<CloseReply>) {
        let until = self.now().saturating_add(within);
        let before = self.closing.take();
        if before.is_none() {
            self.dismiss_requests();
            self.withdraw_offers();
            self.observers.clear();
            self.lose_leases(LostReason::Shutdown);
        }
        // Those whose time is over wait only for the steps: a later call does not prolong that.
        let is_over = before.as_ref().is_some_and(Closing::is_ending);
        let steps_until = self.steps_until(before.as_ref());
        let mut replies = before.map_or_else(Vec::new, |closing| closing.replies);
        replies.extend(reply.map(|reply| (until, reply)));
        self.closing = Some(Closing { replies, until, steps_until, is_over });
        self.timers.enter(until, Due::Close);
        // No master that answers errors is left alone for longer.
        (0..self.masters.len()).for_each(|master| self.ask_again(master, true));
    }

    /// Another call does not prolong it.
    fn steps_until(&mut self, before: Option<&Closing>) -> Instant {
        if let Some(closing) = before {
            return closing.steps_until;
        }
        let until = self.now().saturating_add(self.settings.connect_timeout);
        self.timers.enter(until, Due::Wake);
        until
    }

    /// Returns `true` if the driver is done: it is closed, no step must be finished, and either no
    /// release is left or no caller waits for it.
    pub(super) fn is_closed(&self) -> bool {
        self.closing.as_ref().is_some_and(|closing| {
            let finishes = self.masters.finishes_steps() && self.now() < closing.steps_until;
            !finishes && (closing.is_over || self.locks.releases() == 0)
        })
    }

    /// Reports the keys left on masters to callers that wait for the end, now or later. The
    /// connections are closed, and their signals are no longer read.
    pub(super) fn finish(&mut self) -> Result<(), Unreleased> {
        (0..self.masters.len()).for_each(|master| self.observer.counters.down(master));
        let outcome = self.left();
        if let Some(closing) = self.closing.take() {
            for (_, reply) in closing.replies {
                let _ = reply.send(outcome.clone());
            }
        }
        self.mailbox.close();
        outcome
    }

    /// Returns the keys that may be left on masters: keys of leases whose guards still exist, and
    /// keys with an unacknowledged release.
    fn left(&mut self) -> Result<(), Unreleased> {
        let now = self.now();
        let keys = self.locks.values().flat_map(|lock| self.left_of(lock, now)).collect();
        Unreleased { keys, forgotten: self.abandoned(now) }.into_result()
    }

    fn abandoned(&mut self, now: Instant) -> Vec<ForgottenKeys> {
        let (names, masters) = (&self.nodes.names, &self.masters);
        let of = |(master, unacknowledged): (usize, &mut Unacknowledged)| {
            let Left { count, within, from_wake_up } = unacknowledged.abandoned(now)?;
            let from_wake_up = from_wake_up || masters.links().lacks_barrier(master);
            Some(ForgottenKeys { node: names[master].to_string(), count, within, from_wake_up })
        };
        self.unacknowledged.iter_mut().enumerate().filter_map(of).collect()
    }

    fn left_of(&self, lock: &Lock, now: Instant) -> Vec<UnreleasedKey> {
        let names = &self.nodes.names;
        let key = |master: usize, left: Option<Duration>, expiry: Duration| UnreleasedKey {
            node: names[master].to_string(),
            resource: lock.claim.resource.clone(),
            within: left.unwrap_or(expiry),
            from_wake_up: left.is_none() || self.masters.links().lacks_barrier(master),
        };
        let (left, expiry) = (lock.machine.left(now), lock.machine.expiry());
        left.into_iter().map(|(master, left)| key(master, left, expiry)).collect()
    }

    fn dismiss_requests(&mut self) {
        self.abort_attempts();
        self.with_keys(self.now(), Keys::give_up_places);
        self.keys.clear();
        let (requests, now) = (self.requests.ids().collect::<Vec<RequestId>>(), self.now());
        for id in requests {
            if let Some(request) = self.requests.remove(id) {
                self.refuse(request, AcquireError::Shutdown, now);
            }
        }
        self.with_questions(now, |questions, _, _, cx| questions.dismiss_failures(cx));
    }

    fn abort_attempts(&mut self) {
        let now = self.now();
        for id in self.locks.ids(Lock::is_attempt) {
            self.abort_attempt(id, now);
        }
    }

    /// Takes back and releases a lock that its caller has not taken. No caller relies on it yet.
    fn withdraw_offers(&mut self) {
        let now = self.now();
        for id in self.locks.ids(Lock::is_lease) {
            let Some((_, holder)) = self.locks.held(id) else { continue };
            if holder.cell.change_acceptance(Acceptance::Withdrawn) != Acceptance::Accepted {
                self.happens(id, Event::Untaken, now);
            }
        }
    }

    /// Ends every held lease. Their keys are left to expire, because a holder might not have
    /// noticed yet, and no other client must get the lock before that.
    fn lose_leases(&mut self, reason: LostReason) {
        let now = self.now();
        for id in self.locks.ids(Lock::is_lease) {
            self.locks.end_lease(id, reason);
            self.note_loss(id, now);
        }
    }

    /// Handles a panic of the driver's task, after which no part of the driver can be trusted.
    pub(super) fn panicked(&mut self) -> Result<(), Unreleased> {
        self.disconnect();
        self.lose_leases(LostReason::Panicked);
        self.finish()
    }

    /// Records that no task works on the driver from here on. Callers that wait for answers retry
    /// on their own runtime, and releases and leases wait for the next task.
    pub(super) fn park(&mut self) {
        self.start = Start::Parked;
        self.read_commands();
        self.read_signals();
        self.abort_attempts();
        self.settle();
        // When they are sent, a place may already belong to a later wait, so they only delete keys.
        for lock in self.locks.values_mut() {
            lock.claim.leave_nothing();
        }
        self.observer.counters.cancelled.add(self.requests.len() as u64);
        self.requests.clear();
        self.keys.clear();
        self.observers.clear();
        self.early.clear();
        self.locks.release_callers();
        if let Some(closing) = &mut self.closing {
            closing.replies.clear();
        }
        // Unanswered requests become unknown, and no caller gets that as an answer.
        self.disconnect();
        self.masters.park();
        self.questions.clear();
        self.askers.clear();
        self.read_signals();
        self.line.clear();
        self.timers.clear();
        self.observer.reset();
        self.unacknowledged.iter_mut().for_each(Unacknowledged::clear);
        self.publish_numbers();
    }
}
