//! Log lines for each step, for subscribers at the trace level.

use redlock_core::{Instant, Vote};
use redlock_protocol::client::ids::{LockId, RequestId, Ticket, WaitingId};
use redlock_protocol::client::key::Claim;
use redlock_protocol::master_set::MasterSet;
use redlock_protocol::token::lifecycle::Step;
use tracing::trace;

use super::{Observer, log, number};
use crate::driver::Driver;
use crate::driver::command::{AcquireReply, Request};
use crate::driver::locks::Locks;
use redlock_protocol::client::callers::Callers;

fn claim(locks: &Locks, id: LockId) -> Option<&Claim> {
    locks.get(id).map(|lock| &lock.claim)
}

impl Observer {
    /// Traces the masters that an attempt queries.
    pub(in crate::driver) fn say_attempt(
        &self,
        locks: &Locks,
        id: LockId,
        request: RequestId,
        asked: MasterSet,
    ) {
        if self.is_traced
            && let Some(Claim { resource, token, .. }) = claim(locks, id)
        {
            let (request, masters) = (number(request), asked.len());
            log(|| trace!(%resource, request, %token, masters, "attempt"));
        }
    }

    /// Something is sent for a lock, or comes to its end.
    pub(in crate::driver) fn say(&self, locks: &Locks, id: LockId, what: &'static str) {
        if self.is_traced
            && let Some(Claim { resource, token, .. }) = claim(locks, id)
        {
            log(|| trace!(%resource, %token, "{what}"));
        }
    }

    /// The attempt has led to something.
    pub(in crate::driver) fn say_step(&self, locks: &Locks, id: LockId, step: &Step) {
        if self.is_traced
            && !matches!(step, Step::Wait | Step::Hold(_))
            && let Some(Claim { resource, token, .. }) = claim(locks, id)
        {
            log(|| trace!(%resource, %token, ?step, "decided"));
        }
    }

    /// Something happens to a caller that waits.
    pub(in crate::driver) fn say_request(
        &self,
        requests: &Callers<AcquireReply>,
        id: RequestId,
        what: &'static str,
    ) {
        if self.is_traced
            && let Some(Request { resource, .. }) = requests.get(id)
        {
            log(|| trace!(%resource, request = number(id), "{what}"));
        }
    }
}

impl Driver {
    /// Something happens to the callers that wait for a key, at this master.
    pub(in crate::driver) fn say_head(&self, id: WaitingId, master: usize, what: &'static str) {
        if self.observer.is_traced
            && let Some(head) = self.keys.head(id)
            && let Some(Request { resource, .. }) = self.requests.get(head)
        {
            let node = &self.nodes.names[master];
            log(|| trace!(%resource, request = number(head), %node, "{what}"));
        }
    }

    /// The answer of a master.
    pub(in crate::driver) fn say_vote(&self, vote: &Vote, now: Instant) {
        if !self.observer.is_traced {
            return;
        }
        let (to, id) = match Ticket::unpack(vote.ticket) {
            Ticket::Attempt(id) => ("attempt", id),
            Ticket::Ballot(id, _) => ("ballot", id),
            Ticket::Score(id) => ("score", id),
            Ticket::Exit(id) => ("place given up", id),
            Ticket::Extension(id, _) => ("extension", id),
            Ticket::Readd(id) => ("re-add", id),
            Ticket::Release(id) => ("release", id),
            Ticket::Watch(waiting, _) | Ticket::Place(waiting, _) => {
                return self.say_head(waiting, vote.master, "vote on a watch");
            }
            // Its outcome is reported with the error that it explains.
            Ticket::Inspection(_) | Ticket::Admission(_) => return,
        };
        if let Some(Claim { resource, token, .. }) = claim(&self.locks, id) {
            let (node, verdict) = (&self.nodes.names[vote.master], &vote.answer.verdict);
            let latency = now.saturating_since(vote.sent_at);
            log(|| trace!(%resource, %token, %node, to, %verdict, ?latency, "vote"));
        }
    }
}
