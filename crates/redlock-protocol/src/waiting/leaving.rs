//! `Leaving`: how a release treats the processes that wait in the shared queue.
//!
//! A plain release deletes the key and calls no process. The first in the queue notices by its
//! watch, and a caller of the former holder may be faster. A release that queries M hands the key
//! to the first in the queue there, in one step. It needs no further request, but M does more work
//! for it, which costs an eighth of the rate if locks are held for only a few round trips.
//!
//! So a longer hold always queries M. After a short one, the process may rely on an answer of M
//! that is fresh: at most [ten votes](fresh_for) old.

use std::time::Duration;

/// How many times as long as a vote a hold lasts that counts as long, and an answer is fresh.
const FRESH: u32 = 10;

/// Returns how long an answer of M stays fresh, which is also the shortest length of a long hold.
/// `fan_out` is the length of a vote.
pub fn fresh_for(fan_out: Duration) -> Duration {
    fan_out.saturating_mul(FRESH)
}

/// A process's knowledge about others when it releases a lease.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    /// By the latest answer of M, others wait.
    pub others_wait: bool,
    /// Others wait at other masters, or seem to.
    pub wait_elsewhere: bool,
    /// M called this process, and has not answered it since.
    pub is_unanswered: bool,
    /// A caller of this process had the key previously, as far as is remembered, or had this lease.
    pub was_held: bool,
    /// By a [fresh](fresh_for) answer of M, no process waits, and M has the key.
    pub is_unwanted: bool,
    /// How long this process has had the lease. `None` if it was resumed.
    pub held_for: Option<Duration>,
    /// How long a vote takes.
    pub fan_out: Duration,
}

/// How a lease is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// The key is deleted on each master, and no waiter is called.
    Plain,
    /// M hands the key to the first in its queue.
    Query {
        /// The other masters keep the key for that process.
        reserves: bool,
        /// Until M has answered, the callers of this process query M before they request the key
        /// elsewhere. Otherwise they could overtake the process that M has called.
        presumes: bool,
    },
}

impl Leaving {
    /// Chooses how a process with this knowledge releases a lease.
    pub fn of(known: Known) -> Self {
        let is_long = known.held_for.is_none_or(|held_for| held_for >= fresh_for(known.fan_out));
        let is_due = known.others_wait || known.wait_elsewhere || known.is_unanswered || is_long;
        if is_due || known.was_held && !known.is_unwanted {
            return Self::Query {
                reserves: known.others_wait,
                presumes: is_long || known.others_wait || known.wait_elsewhere,
            };
        }
        Self::Plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOTE: Duration = Duration::from_millis(1);

    fn leaving(held_for: Duration, change: impl FnOnce(&mut Known)) -> Leaving {
        let mut known = Known { held_for: Some(held_for), fan_out: VOTE, ..Known::default() };
        change(&mut known);
        Leaving::of(known)
    }

    #[test]
    fn long_hold_always_queries_the_meeting_point() {
        for held_for in [VOTE * 10, Duration::from_secs(4)] {
            for is_unwanted in [false, true] {
                let long = leaving(held_for, |known| known.is_unwanted = is_unwanted);
                assert_eq!(long, Leaving::Query { reserves: false, presumes: true });
            }
        }
    }

    #[test]
    fn resumed_lease_is_a_long_hold() {
        let resumed = leaving(VOTE, |known| known.held_for = None);
        assert_eq!(resumed, Leaving::Query { reserves: false, presumes: true });
    }

    #[test]
    fn short_hold_is_released_plainly_unless_others_may_wait() {
        let short = VOTE * 9;
        assert_eq!(leaving(short, |_| {}), Leaving::Plain);
        let query = Leaving::Query { reserves: false, presumes: false };
        assert_eq!(leaving(short, |known| known.was_held = true), query);
        assert_eq!(leaving(short, |known| known.is_unanswered = true), query);
        let unwanted = leaving(short, |known| (known.was_held, known.is_unwanted) = (true, true));
        assert_eq!(unwanted, Leaving::Plain);
    }

    #[test]
    fn key_is_reserved_only_if_others_are_known_to_wait() {
        for held_for in [VOTE, VOTE * 10] {
            let leaving = leaving(held_for, |known| known.others_wait = true);
            assert_eq!(leaving, Leaving::Query { reserves: true, presumes: true });
        }
    }
}
