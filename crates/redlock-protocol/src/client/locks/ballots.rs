//! Ballots: their choice, and what their answers show.

use redlock_core::{Ballot, Balloted};

use super::attempts::choose;
use super::*;
use crate::token::lifecycle::Event;

impl Locks {
    /// Draws a ballot for an attempt: the first after the grant of the meeting point, or another if
    /// too few masters have accepted the previous ballot.
    pub(super) fn draw(&mut self, id: LockId, proposed: u32, cx: &mut Context<'_>) {
        let Some(lock) = self.table.get(id) else { return };
        // Other clients propose at the same time. From the third ballot on, a margin makes up for
        // that.
        let margin = if proposed < 2 { Duration::ZERO } else { cx.fan_out * 2 };
        let ballot = choose(lock.claim.member, margin, cx);
        if proposed > 0 && ballot.is_some() {
            cx.effects.count(Count::SecondBallot);
        }
        self.happens(id, Event::Drawn(ballot), cx);
    }

    /// Reads the score in an answer for a lock. Masters whose score is not followed get no further
    /// ballot, because they would refuse one after the other.
    pub fn learn_score(&mut self, ticket: Ticket, vote: &Vote, cx: &mut Context<'_>) {
        use Ticket::{Attempt, Ballot, Readd, Score};
        let Some(Balloted::Score(score)) = vote.answer.balloted else { return };
        let (Attempt(id) | Ballot(id, _) | Score(id) | Readd(id)) = ticket else { return };
        let Some(lock) = self.table.get(id) else { return };
        let (member, is_attempt, now) = (lock.claim.member, lock.is_attempt(), cx.now);
        let first = if is_attempt { lock.due.saturating_sub(lock.node_timeout) } else { now };
        cx.voters.ballots().saw(member, vote.master, score, (first, now));
        if is_attempt {
            let refusing = cx.voters.ballots().refusing(member);
            self.happens(id, Event::Refusing(refusing), cx);
        }
    }
}

impl Lock {
    /// Proposes a ballot to these masters.
    pub(super) fn send_ballot(
        &self,
        id: LockId,
        number: u32,
        ballot: Ballot,
        masters: MasterSet,
        cx: &mut Context<'_>,
    ) {
        let op = self.claim.ballot_op(self.machine.attempt(), ballot);
        cx.send(op, masters, Ticket::Ballot(id, number));
    }

    /// Requests the score of masters that granted the key and refused the ballot.
    pub(super) fn ask_scores(&mut self, id: LockId, cx: &mut Context<'_>) {
        let masters = self.machine.ask_scores();
        if !masters.is_empty() {
            cx.send(self.claim.score_op(), masters, Ticket::Score(id));
        }
    }
}
