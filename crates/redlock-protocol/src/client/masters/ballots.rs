//! The ballots of this client, by the clocks and scores of masters.

use std::time::Duration;

use redlock_core::{Ballot, Instant, Member};

use super::Masters;
use crate::master_set::MasterSet;

impl Masters {
    /// Returns the next ballot for a resource of this member. `None` if no ballot is left below
    /// 2^53.
    #[inline]
    pub fn next_ballot(
        &mut self,
        member: Member,
        margin: Duration,
        now: Instant,
    ) -> Option<Ballot> {
        self.ballots.next(member, margin, now)
    }

    /// Records a score of `master` for `member`, read now by an attempt whose first ballot was
    /// chosen at `since`.
    pub fn saw_score(
        &mut self,
        member: Member,
        master: usize,
        score: u64,
        (since, now): (Instant, Instant),
    ) {
        self.ballots.saw(member, master, score, (since, now));
    }

    /// Returns the masters whose score the next ballot for `member` does not exceed. They would
    /// refuse one ballot after the other.
    pub fn refusing(&self, member: Member) -> MasterSet {
        self.ballots.refusing(member)
    }

    /// Records TIME of a master, and the score from which its members start.
    pub(super) fn learn_facts(&mut self, master: usize, now: Instant) {
        let Some(facts) = &self.links[master].facts else { return };
        if let Some(time) = facts.time_us {
            self.ballots.learn_clock(master, time, now);
        }
        self.learn_floor(facts.record.as_ref().ok().and_then(|record| record.floor), now);
    }

    /// Records the score with which a master was admitted for all members.
    pub(super) fn learn_floor(&mut self, floor: Option<u64>, now: Instant) {
        if let Some(floor) = floor {
            self.ballots.saw_floor(floor, now);
        }
    }
}
