//! Ballots: their choice, and the handling of their answers.

use std::time::Duration;

use redlock_core::{Ballot, Balloted, Cause, Instant, Member, Vote};
use redlock_protocol::master_set::MasterSet;
use redlock_protocol::token::lifecycle::Event;

use crate::driver::Driver;
use redlock_protocol::client::ids::{LockId, RequestId, Ticket};

impl Driver {
    /// The ballot for the next attempt on a resource of this member, or for the next one of the
    /// same attempt. `None` if no ballot is left below 2^53.
    pub(in crate::driver) fn choose(
        &mut self,
        member: Member,
        margin: Duration,
        now: Instant,
    ) -> Option<Ballot> {
        let ballot = self.masters.ballots().next(member, margin, now);
        self.observer.counters.ballots.add(u64::from(ballot.is_some()));
        ballot
    }

    /// No ballot is left for the resource that this request wants.
    pub(in crate::driver) fn refuse_exhausted(&mut self, id: RequestId, now: Instant) {
        let Some(request) = self.requests.remove(id) else { return };
        self.with_keys(now, |keys, cx| keys.answered(id, &request.key, cx));
        let why = "no fencing token is left below 2^53, because some program has written a ballot \
                   close to it; run `redlock doctor`";
        self.refuse_unsent(request, Cause::NotSent(why.into()));
    }

    /// Draws a ballot for an attempt: the first after the grant of the meeting point, or another if
    /// too few masters have accepted the previous ballot.
    pub(in crate::driver) fn draw(&mut self, id: LockId, proposed: u32, now: Instant) {
        let Some(lock) = self.locks.get(id) else { return };
        // Other clients propose at the same time. From the third ballot on, a margin makes up for
        // that.
        let margin = if proposed < 2 { Duration::ZERO } else { self.fan_out * 2 };
        let ballot = self.choose(lock.claim.member, margin, now);
        let is_second = proposed > 0 && ballot.is_some();
        self.observer.counters.second_ballots.add(u64::from(is_second));
        self.happens(id, Event::Drawn(ballot), now);
    }

    pub(in crate::driver) fn send_ballot(
        &mut self,
        id: LockId,
        number: u32,
        ballot: Ballot,
        masters: MasterSet,
        now: Instant,
    ) {
        let Some(lock) = self.locks.get(id) else { return };
        let op = lock.claim.ballot_op(lock.machine.attempt(), ballot);
        self.send(&op, masters, Ticket::Ballot(id, number), now);
    }

    /// Requests the score of masters that granted the key and refused the ballot.
    pub(in crate::driver) fn ask_scores(&mut self, id: LockId, now: Instant) {
        let Some(lock) = self.locks.get_mut(id) else { return };
        let masters = lock.machine.ask_scores();
        if masters.is_empty() {
            return;
        }
        let op = lock.claim.score_op();
        self.send(&op, masters, Ticket::Score(id), now);
    }

    /// Reads the score in an answer for a lock. Masters whose score is not followed get no further
    /// ballot, because they would refuse one after the other.
    pub(in crate::driver) fn learn_score(&mut self, vote: &Vote) {
        use Ticket::{Attempt, Ballot, Readd, Score};
        let Some(Balloted::Score(score)) = vote.answer.balloted else { return };
        let ticket = Ticket::unpack(vote.ticket);
        let (Attempt(id) | Ballot(id, _) | Score(id) | Readd(id)) = ticket else { return };
        let now = vote.read_at.unwrap_or_else(|| self.now());
        let Some(lock) = self.locks.get(id) else { return };
        let member = lock.claim.member;
        let is_attempt = lock.is_attempt();
        let first = if is_attempt { lock.due.saturating_sub(lock.node_timeout) } else { now };
        self.masters.ballots().saw(member, vote.master, score, (first, now));
        if is_attempt {
            let refusing = self.masters.ballots().refusing(member);
            self.happens(id, Event::Refusing(refusing), now);
        }
    }
}
