//! From a request to a lease or an error: attempts, and the pauses between them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rand::RngExt;
use redlock_core::{Op, Token, VoteSlot};

use super::{Asker, Census, Defeat, Driver, Due, Request, Start, StatusReply, VOTING_MAX};
use crate::claim::Claim;
use crate::retry;
use crate::{AcquireError, ExtendError};

impl Driver {
    /// A request stands in line until the first connections are made, and until its turn comes.
    pub(super) fn enqueue(&mut self, request: Box<Request>) {
        if self.closing.is_some() {
            let _ = request.reply.send(Err(AcquireError::Shutdown));
        } else if !request.reply.is_closed() {
            self.line.push_back(request);
            self.advance_line();
        }
    }

    pub(super) fn advance_line(&mut self) {
        while self.start == Start::Done
            && self.context.voting.load(Ordering::Relaxed) < VOTING_MAX
            && let Some(request) = self.line.pop_front()
        {
            self.attempt(request);
        }
    }

    /// One attempt: the same request to all masters at once, under a token of its own.
    fn attempt(&mut self, request: Box<Request>) {
        let timing = request.timing;
        let label = request.label.as_ref();
        let resumed = request.lease.as_ref().map(|lease| lease.token.clone());
        let is_resumed = resumed.is_some();
        let token = resumed.unwrap_or_else(|| Token::random(label));
        // The clock is read before the first byte can leave.
        let now = self.now();
        let claim = Claim::new(request, token, self.context.clone(), now);
        let op = if is_resumed { claim.extend_op(timing.px) } else { claim.acquire_op(timing.px) };
        let due = now.saturating_add(timing.node_timeout);
        self.timers.enter(due, Due::Attempt(Arc::downgrade(&claim)));
        self.send(&op, self.all(), |master| VoteSlot::new(claim.clone(), master, 0, now));
    }

    /// The node timeout of an attempt has passed. If it was won, its keeper takes over.
    pub(super) fn attempt_due(&mut self, claim: &Weak<Claim>) {
        if let Some(claim) = claim.upgrade() {
            claim.time_out();
            claim.end_grace();
            self.keep_later(claim);
        }
    }

    /// A quorum is there, and its holder wants more copies: they have as long again as the quorum
    /// took, and no longer than the node timeout.
    pub(super) fn grace(&mut self, claim: Arc<Claim>) {
        /// The least grace: answers that were sent together come together.
        const GRACE_MIN: Duration = Duration::from_millis(10);
        let grace = claim.fan_out().max(GRACE_MIN);
        self.timers.enter(self.now().saturating_add(grace), Due::Grace(claim));
    }

    /// An attempt was lost: the masters are told to release it, and then it is tried again, or
    /// the caller is told.
    pub(super) fn defeated(
        &mut self,
        claim: &Arc<Claim>,
        mut request: Box<Request>,
        defeat: Defeat,
    ) {
        if request.lease.is_some() {
            return self.give_up(claim, request, defeat);
        }
        self.release(claim, None);
        let now = self.now();
        if self.closing.is_some() || request.reply.is_closed() {
            let _ = request.reply.send(Err(AcquireError::Shutdown));
        } else if request.until.is_none_or(|until| now < until) {
            let pause = retry::pause(request.failures, claim.fan_out(), self.rng.random());
            request.failures = request.failures.saturating_add(1);
            // The last attempt is made when the wait is over, and not skipped.
            let at = now.saturating_add(pause);
            let at = request.until.map_or(at, |until| at.min(until));
            self.timers.enter(at, Due::Retry(request));
        } else {
            self.give_up(claim, request, defeat);
        }
    }

    /// Before the caller is told that it failed, every master is asked who holds the resource, so
    /// that the error can say so: whoever hears "no" wants to know why. The question goes behind
    /// our own release. Where nobody who might know is left, it is not asked.
    fn give_up(&mut self, claim: &Arc<Claim>, request: Box<Request>, defeat: Defeat) {
        if defeat == Defeat::TooLate || claim.is_unanswered() && !claim.is_open() {
            return fail(claim, *request, defeat);
        }
        let (key, node_timeout) = (claim.key.clone(), request.timing.node_timeout);
        self.census(key, node_timeout, Asker::Defeated { claim: claim.clone(), request, defeat });
    }

    /// Asks every master who holds the key.
    pub(super) fn ask(&mut self, key: Arc<[u8]>, node_timeout: Duration, reply: StatusReply) {
        self.census(key, node_timeout, Asker::Status(reply));
    }

    fn census(&mut self, key: Arc<[u8]>, node_timeout: Duration, asker: Asker) {
        let now = self.now();
        let census = Census::new(self.context.clone(), asker);
        self.timers.enter(now.saturating_add(node_timeout), Due::Census(census.clone()));
        let op = Op::inspect(key);
        self.send(&op, self.all(), |master| VoteSlot::new(census.clone(), master, 0, now));
    }
}

/// Tells the caller why there is no lock.
pub(super) fn fail(claim: &Claim, request: Request, defeat: Defeat) {
    let (resource, votes) = (request.resource, claim.votes());
    let error = if defeat == Defeat::TooLate {
        AcquireError::TooLate { resource, votes }
    } else if claim.is_contended() {
        AcquireError::Held { resource, votes }
    } else {
        AcquireError::NoQuorum { resource, votes }
    };
    // Whoever has stopped waiting does not need to know.
    let _ = request.reply.send(Err(error));
}

/// The same outcome in the words of an extension, for a lease that was to be taken over.
pub(crate) fn as_extension(error: AcquireError) -> ExtendError {
    match error {
        AcquireError::Held { resource, votes } => ExtendError::NotOurs { resource, votes },
        AcquireError::NoQuorum { resource, votes } => ExtendError::NoQuorum { resource, votes },
        AcquireError::TooLate { resource, votes } => ExtendError::TooLate { resource, votes },
        AcquireError::Invalid(invalid) => ExtendError::Invalid(invalid),
        AcquireError::Shutdown => ExtendError::Shutdown,
    }
}
