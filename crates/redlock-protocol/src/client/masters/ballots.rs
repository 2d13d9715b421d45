//! The ballots of this client, by the clocks and scores of masters.

use redlock_core::Instant;

use super::Masters;

impl Masters {
    /// Records TIME of a master, and the score from which its members start.
    pub(super) fn learn_facts(&mut self, master: usize, now: Instant) {
        let Some(facts) = &self.links.0[master].facts else { return };
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
