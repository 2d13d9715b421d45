//! Ballots: which are proposed, and what becomes of them.

use std::time::Duration;

use redlock_core::{Ballot, Balloted, Cause, Instant, Member, Op, Vote};

use super::ticket::{LockId, RequestId, Ticket};
use super::timers::Due;
use super::{Driver, Stage};
use crate::protocol::attempt::{Defeat, Step};
use crate::protocol::heard::{Heard, Standing};
use crate::protocol::master_set::MasterSet;

impl Driver {
    /// The ballot for the next attempt on a resource of this member, or for the next one of the
    /// same attempt. None where none is left below 2^53.
    pub(super) fn choose(
        &mut self,
        member: Member,
        margin: Duration,
        now: Instant,
    ) -> Option<Ballot> {
        let ballot = self.ballots.next(member, margin, now);
        self.observer.counters.ballots.add(u64::from(ballot.is_some()));
        ballot
    }

    /// No ballot is left for the resource that this request wants.
    pub(super) fn refuse_exhausted(&mut self, id: RequestId, now: Instant) {
        let Some(request) = self.requests.remove(id) else { return };
        self.left_waiting(id, &request.key, now);
        let why = "no fencing token is left below 2^53: some client has written a score that is \
                   near to it, see `redlock doctor`";
        self.refuse_unsent(request, Cause::NotSent(why.into()));
    }

    /// A quorum has granted, and too few have accepted: another ballot goes to those that granted.
    pub(super) fn propose(&mut self, id: LockId, now: Instant) {
        let Some(lock) = self.locks.get(id) else { return };
        let Stage::Attempt { attempt, .. } = &lock.stage else { return };
        // Others propose meanwhile: after the second one that is left out of account no more.
        let margin = if attempt.ballots() < 2 { Duration::ZERO } else { self.fan_out * 2 };
        let Some(ballot) = self.choose(lock.member(), margin, now) else {
            return self.attempt_step(id, Step::Lost(Defeat::BallotRefused), now);
        };
        self.observer.counters.second_ballots.add(1);
        if let Some(Stage::Attempt { attempt, .. }) = self.locks.get_mut(id).map(|l| &mut l.stage)
            && let Some((number, masters)) = attempt.propose(ballot)
        {
            self.send_ballot(id, number, ballot, masters, now);
        }
    }

    /// These masters have granted, too, after the latest ballot was proposed to the others.
    pub(super) fn join(&mut self, id: LockId, masters: MasterSet, now: Instant) {
        if let Some(Stage::Attempt { attempt, .. }) = self.locks.get_mut(id).map(|l| &mut l.stage)
            && let Some((number, ballot)) = attempt.join(masters)
        {
            self.send_ballot(id, number, ballot, masters, now);
        }
    }

    pub(super) fn send_ballot(
        &mut self,
        id: LockId,
        number: u32,
        ballot: Ballot,
        masters: MasterSet,
        now: Instant,
    ) {
        let Some(lock) = self.locks.get(id) else { return };
        let op = lock.ballot_op(ballot);
        for vote in self.masters.send(&op, masters, Ticket::Ballot(id, number), now) {
            self.vote(&vote);
        }
    }

    /// Masters that refused the ballot behind a grant are asked for their score.
    pub(super) fn ask_scores(&mut self, id: LockId, now: Instant) {
        let Some(lock) = self.locks.get_mut(id) else { return };
        let masters = match &mut lock.stage {
            Stage::Attempt { attempt, .. } => attempt.ask_scores(),
            Stage::Lease(tenure) => tenure.lease.ask_scores(),
            Stage::Release { .. } | Stage::Changing => return,
        };
        if masters.is_empty() {
            return;
        }
        let op = Op::score(lock.key.clone(), lock.token.clone(), lock.member());
        for vote in self.masters.send(&op, masters, Ticket::Score(id), now) {
            self.vote(&vote);
        }
    }

    /// The answer of a master to the ballot of this round; `None` if it was asked for its score.
    pub(super) fn ballot_vote(
        &mut self,
        id: LockId,
        round: Option<u32>,
        vote: &Vote,
        standing: &Standing,
        now: Instant,
    ) {
        let (master, heard) = (vote.master, Heard { answer: &vote.answer, standing });
        let Some(lock) = self.locks.get_mut(id) else { return };
        match &mut lock.stage {
            Stage::Attempt { attempt, .. } => {
                let step = match round {
                    Some(round) => attempt.ballot_vote(round, master, heard, vote.sent_at, now),
                    None => attempt.score_vote(master, heard, now),
                };
                self.attempt_step(id, step, now);
            }
            Stage::Lease(tenure) => {
                tenure.lease.balloted(master, heard, vote.sent_at, now);
                tenure.cell.write(tenure.lease.ledger(), master);
                self.publish(id, now);
            }
            Stage::Release { .. } | Stage::Changing => {}
        }
    }

    /// A quorum has granted: from here on its ballots have one node timeout.
    pub(super) fn time_ballots(&mut self, id: LockId) {
        if let Some(Stage::Attempt { attempt, alarm, .. }) =
            self.locks.get_mut(id).map(|lock| &mut lock.stage)
            && let Some(until) = attempt.ballots_until()
            && *alarm != Some(until)
        {
            *alarm = Some(until);
            self.timers.enter(until, Due::Ballots(id, until));
        }
    }

    /// The time for the ballots of an attempt is over.
    pub(super) fn ballots_due(&mut self, id: LockId, at: Instant, now: Instant) {
        if let Some(Stage::Attempt { attempt, .. }) = self.locks.get_mut(id).map(|l| &mut l.stage)
            && attempt.ballots_until() == Some(at)
        {
            let step = attempt.end_ballots(now);
            self.attempt_step(id, step, now);
        }
    }

    /// What a master said about itself: its TIME, and from which score on its members go.
    pub(super) fn learn_facts(&mut self, master: usize, now: Instant) {
        let Some(facts) = self.masters.facts(master) else { return };
        let (time, floor) = (facts.time_us, facts.record.as_ref().ok().and_then(|one| one.floor));
        if let Some(time) = time {
            self.ballots.learn_clock(master, time, now);
        }
        self.learn_floor(floor, now);
    }

    /// A master was admitted with this score for all members.
    pub(super) fn learn_floor(&mut self, floor: Option<u64>, now: Instant) {
        if let Some(floor) = floor {
            self.ballots.saw_floor(floor, now);
        }
    }

    /// The score in an answer to what was asked for a lock. Masters whose score is not followed get
    /// no further ballot: they would refuse one after the other.
    pub(super) fn learn_score(&mut self, vote: &Vote) {
        use Ticket::{Attempt, Ballot, Readd, Score};
        let Some(Balloted::Score(score)) = vote.answer.balloted else { return };
        let ticket = Ticket::unpack(vote.ticket);
        let (Attempt(id) | Ballot(id, _) | Score(id) | Readd(id)) = ticket else { return };
        let now = vote.read_at.unwrap_or_else(|| self.now());
        let Some(lock) = self.locks.get_mut(id) else { return };
        let member = lock.member();
        match &mut lock.stage {
            Stage::Attempt { attempt, .. } => {
                let first = lock.due.saturating_sub(lock.node_timeout);
                self.ballots.saw(member, vote.master, score, (first, now));
                attempt.set_refusing(self.ballots.refusing(member));
            }
            _ => self.ballots.saw(member, vote.master, score, (now, now)),
        }
    }
}
