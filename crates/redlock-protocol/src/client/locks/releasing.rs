//! Releases, until every master has acknowledged them.

use super::*;
use crate::client::effects::Unreleased;
use crate::client::input::TokenRelease;
use crate::client::key::{Claim, Exits};
use crate::client::line::Outgoing;
use crate::token::lifecycle::{Answered, Asked, Event, Lifecycle, Step};
use crate::token::release::{Release, Released, is_denial};
use crate::votes::answer::Judged;

impl Locks {
    /// Releases the lock for a caller, and answers the caller when the outcome is known. A caller
    /// whose runtime went away with the answer requests the release again.
    pub fn await_release(&mut self, id: LockId, reply: Option<RequestId>, cx: &mut Context<'_>) {
        let Some(lock) = self.table.get_mut(id) else { return };
        let outcome = lock.machine.release().map(Release::outcome);
        match (outcome, &mut lock.owner) {
            (Some(None), Owner::Returned { reply: waiting, .. }) => *waiting = reply,
            (Some(Some(_)), Owner::Returned { .. }) => lock.answer_release(reply, cx),
            _ => {}
        }
    }

    /// Begins the release of a lock of which only the token is known, so its key may be on each
    /// master. [`stand_in_line`](Self::stand_in_line) must follow.
    pub fn release_token(
        &mut self,
        token: TokenRelease,
        reply: RequestId,
        cx: &mut Context<'_>,
    ) -> LockId {
        let TokenRelease { resource, key, token, timing } = token;
        self.table.insert(Lock {
            claim: Claim::new(resource, key, token, None),
            node_timeout: timing.node_timeout,
            machine: Lifecycle::releasing(self.terms.masters, timing, cx.now),
            owner: Owner::Returned { reply: Some(reply), explains: None },
            opened: None,
            due: cx.now,
        })
    }

    /// Starts the release of a token whose attempt or lease is over.
    pub fn begin_release(&mut self, id: LockId, cx: &mut Context<'_>) {
        if let Some(holder) = self.leave_holder(id) {
            cx.set_holding(self.leases > 0);
            holder.end(cx);
        }
        self.stand_in_line(id, cx);
    }

    /// Puts a release in line, unless every queried master has refused or the token is left to its
    /// former holder.
    pub fn stand_in_line(&mut self, id: LockId, cx: &mut Context<'_>) {
        if self.table.get(id).is_none_or(|lock| lock.machine.is_over()) {
            self.table.remove(id);
            return;
        }
        self.releases += 1;
        cx.line.push(Outgoing::Release(id));
        // Callers that wait for the key here send their requests after the release.
        self.outcomes.push_back(Outcome::Left(id));
    }

    /// Sends a release whose turn has come to every master that may have the key, after earlier
    /// requests on the same connection.
    pub fn send_release(&mut self, id: LockId, cx: &mut Context<'_>) {
        let Some(step) = self.decide(id, Event::Turn, cx) else { return };
        if let (Step::SendRelease(_), Some(lock)) = (&step, self.table.get_mut(id)) {
            lock.opened = Some(cx.now);
            cx.line.open();
            cx.timers.enter(cx.now.saturating_add(lock.node_timeout), Due::Release(id));
            lock.trace(|| What::Happens("release"), cx.effects);
        }
        self.carry_out(id, step, cx);
    }

    /// Records the answer of a master to a release.
    pub fn release_answered(
        &mut self,
        id: LockId,
        vote: &Vote,
        judged: Judged<'_>,
        cx: &mut Context<'_>,
    ) {
        let master = vote.master;
        if is_denial(&vote.answer) {
            self.unacknowledged[master].denied();
        }
        if self.table.get(id).is_some_and(Lock::releases_of_another) {
            // The longest expiry of a key that any client may have set, by the records read so far.
            let longest = self.terms.limits.expiry_max(cx.voters.longest_ttl());
            self.happens(id, Event::Allowed(longest), cx);
        }
        let Some(lock) = self.table.get_mut(id) else { return };
        let step = lock.machine.answered(Answered::of(Asked::Release, vote, judged), cx.now);
        let Some(release) = lock.machine.release() else { return };
        let has_failed = release.has_failed(master);
        if lock.opened.is_some() && release.is_answered() {
            lock.leave_window(cx);
        }
        if has_failed {
            self.left_unacknowledged(id, master, cx);
        } else {
            self.unacknowledged[master].acknowledged();
        }
        if vote.answer.is_reply() {
            self.unacknowledged[master].settle(cx.now);
        }
        self.carry_out(id, step, cx);
    }

    /// Handles the node timeout of a release. Requests still on their way stay in the table.
    pub fn release_due(&mut self, id: LockId, cx: &mut Context<'_>) {
        let Some(lock) = self.table.get(id) else { return };
        let Some(release) = lock.machine.release() else { return };
        lock.timed_out(release.pending(), cx.effects);
        self.happens(id, Event::ReleaseTimedOut, cx);
    }

    /// Answers the caller once the outcome is known, and removes a finished release.
    pub(super) fn released(&mut self, id: LockId, cx: &mut Context<'_>) {
        let Some(lock) = self.table.get_mut(id) else { return };
        let is_over = lock.machine.is_over();
        let Owner::Returned { reply, .. } = &mut lock.owner else { return };
        let reply = reply.take();
        lock.answer_release(reply, cx);
        lock.leave_window(cx);
        if is_over {
            lock.trace(|| What::Happens("released"), cx.effects);
            self.table.remove(id);
            self.releases -= 1;
        }
    }

    /// Settles the requests to `master`, because its server has restarted.
    pub fn process_ended(&mut self, master: usize, now: Instant) {
        self.unacknowledged[master].settle(now);
        if self.releases == 0 && self.leases == 0 {
            return;
        }
        for lock in self.table.values_mut() {
            lock.machine.on(Event::ProcessEnded(master), now);
        }
    }

    /// Continues a release that the previous runtime left.
    pub fn resume_release(&mut self, id: LockId, cx: &mut Context<'_>) {
        let Some(lock) = self.table.get(id) else { return };
        let Some(release) = lock.machine.release() else { return };
        let failed: Vec<usize> =
            (0..self.terms.masters).filter(|master| release.has_failed(*master)).collect();
        if release.is_waiting() {
            cx.line.push(Outgoing::Release(id));
        } else if release.outcome().is_none() {
            cx.timers.enter(cx.now.saturating_add(lock.node_timeout), Due::Release(id));
        }
        for master in failed {
            self.left_unacknowledged(id, master, cx);
        }
    }
}

impl Lock {
    /// Sends the final requests for a token in one turn, the meeting point first, because the other
    /// masters are written to while it calls the next holder. A process that queries them earlier
    /// is refused there, and retries a few times. If this process exits in between, the key stays
    /// on the others until it expires, as with any holder that dies.
    pub(super) fn send_exits(&mut self, id: LockId, masters: MasterSet, cx: &mut Context<'_>) {
        let Exits { release, meeting, elsewhere } = self.claim.take_exits();
        let met = MasterSet::from_iter(meeting.as_ref().map(|(at, _)| *at));
        let mut others = masters.without(met);
        if let Some((asked, leave)) = elsewhere {
            let asked = asked.intersection(others);
            others = others.without(asked);
            cx.send(leave, asked, Ticket::Release(id));
        }
        cx.send(release, others, Ticket::Release(id));
        let Some((at, leave)) = meeting else { return };
        cx.effects.push(Effect::First(at));
        // At a master that cannot have the key, it only calls the next one.
        let counts = masters.contains(at);
        let ticket = if counts { Ticket::Release(id) } else { Ticket::Exit(id) };
        cx.send(leave, met, ticket);
    }

    /// Answers the caller of a release with its outcome.
    fn answer_release(&self, reply: Option<RequestId>, cx: &mut Context<'_>) {
        let (Some(reply), Some(release)) = (reply, self.machine.release()) else { return };
        let unreleased = || Unreleased {
            resource: self.claim.resource.clone(),
            outcome: release.outcome(),
            answers: release.answers().to_vec(),
        };
        let is_done = release.outcome() == Some(Released::Done);
        let why = (!is_done).then(|| unreleased().into());
        cx.effects.push(Effect::Released(reply, why));
    }
}
