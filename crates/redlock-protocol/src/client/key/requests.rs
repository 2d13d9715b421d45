//! The requests that are sent for one token.

use redlock_core::{Ballot, Bid, Op};

use super::claim::Claim;
use crate::master_set::MasterSet;
use crate::token::attempt::{Attempt, Origin};

/// A request, and the masters that it goes to.
type Addressed = (Op, MasterSet);

impl Claim {
    /// Returns the requests of an attempt to the masters of `asked`. Those to `copies` have no
    /// ballot.
    pub fn attempt_ops(
        &self,
        attempt: &Attempt,
        (asked, copies): (MasterSet, MasterSet),
        ballot: Option<Ballot>,
    ) -> [Option<Addressed>; 3] {
        let px = attempt.timing().px;
        // Whether the key is requested even if it is reserved.
        let takes = self.meeting.as_ref().is_some_and(|meeting| meeting.takes);
        let op = |bid: Option<Bid>| {
            let (key, token) = (self.key.clone(), self.token.clone());
            match (attempt.origin(), bid) {
                (Origin::Acquired, bid) if takes => Op::take(key, token, px, bid),
                (Origin::Acquired, Some(bid)) => Op::acquire_fenced(key, token, px, bid),
                (Origin::Acquired, None) => Op::acquire(key, token, px),
                (Origin::Resumed, Some(bid)) => Op::resume(key, token, px, bid),
                (Origin::Resumed, None) => Op::extend(key, token, px),
            }
        };
        let bid = ballot.map(|ballot| self.bid(ballot));
        let meeting = self.meeting.as_ref().filter(|meeting| asked.contains(meeting.at));
        let met: MasterSet = meeting.iter().map(|meeting| meeting.at).collect();
        let enter = meeting.map(|meeting| (meeting.enter(self, px, bid), met));
        let copies = if bid.is_some() { copies } else { MasterSet::EMPTY };
        let copy = (!copies.is_empty()).then(|| (op(None), copies));
        let counted = asked.without(copies).without(met);
        [enter, (!counted.is_empty()).then(|| (op(bid), counted)), copy]
    }

    /// Returns the request that proposes a further ballot. A resumption extends the key each time,
    /// so that an acceptance is valid from the write that it came with.
    pub fn ballot_op(&self, attempt: Option<&Attempt>, ballot: Ballot) -> Op {
        let (key, token, bid) = (self.key.clone(), self.token.clone(), self.bid(ballot));
        match attempt {
            Some(attempt) if attempt.origin() == Origin::Resumed => {
                Op::resume(key, token, attempt.timing().px, bid)
            }
            _ => Op::ballot(key, token, bid),
        }
    }

    /// Returns the request for the score of masters that refused a ballot.
    pub fn score_op(&self) -> Op {
        Op::score(self.key.clone(), self.token.clone(), self.member)
    }

    /// Returns the request that extends the key to `px` milliseconds.
    pub fn extend_op(&self, px: u64) -> Op {
        Op::extend(self.key.clone(), self.token.clone(), px)
    }

    /// Returns the requests that set a lost key of a lease again. Those to `copies` have no ballot.
    pub fn readd_ops(
        &self,
        px: u64,
        is_fenced: bool,
        (masters, copies): (MasterSet, MasterSet),
    ) -> [Addressed; 2] {
        let plain = Op::acquire(self.key.clone(), self.token.clone(), px);
        let counted = match is_fenced {
            true => Op::give_back(self.key.clone(), self.token.clone(), px, self.member),
            false => plain.clone(),
        };
        [(counted, masters.without(copies)), (plain, copies)]
    }

    fn bid(&self, ballot: Ballot) -> Bid {
        Bid { ballot, member: self.member }
    }
}
