//! `Run`: how long a process keeps a key in a row if no queue works.
//!
//! Without a queue, the next caller of a process sends its request directly after the release, and
//! every other process is later. So after a run of leases, the process stands back for a moment,
//! and then competes like any other. The process cannot see the others that it keeps away, and a
//! process that arrives while it stands back can be gone before it notices. If it notices none four
//! times in a row, it stands back for half as long from then on.

use std::time::Duration;

use redlock_core::Instant;

use crate::retry::APART_MAX;

/// The largest number of leases in a run, including leases passed on to other callers.
const LEASES_MAX: u32 = 32;
const RUN_MAX: Duration = Duration::from_millis(100);
/// The shortest pause, in votes.
const PAUSE_MIN: u32 = 4;
/// After this many pauses without another process, the next ones are half as long.
const PAUSES: u8 = 4;

/// The leases of one key that a process has had in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    begun: Instant,
    ended: Instant,
    leases: u32,
    pause: Duration,
    /// The pauses of this length.
    pauses: u8,
}

impl Default for Run {
    fn default() -> Self {
        let (begun, ended) = (Instant::ORIGIN, Instant::ORIGIN);
        Self { begun, ended, leases: 0, pause: APART_MAX, pauses: 0 }
    }
}

impl Run {
    /// Records that another process has the key, or wants it.
    pub fn others_came(&mut self) {
        (self.leases, self.pause, self.pauses) = (0, APART_MAX, 0);
    }

    /// Records the end of a lease held for `held_for` by `leases` callers. Returns how long the
    /// callers of this process stand back. `fan_out` is the length of a vote.
    pub fn lease_ends(
        &mut self,
        leases: u32,
        held_for: Duration,
        fan_out: Duration,
        now: Instant,
    ) -> Option<Duration> {
        let idle = now.saturating_since(self.ended).saturating_sub(held_for);
        if self.leases == 0 || idle > APART_MAX {
            // Since the last lease, others have had as much time as the longest pause gives them.
            (self.begun, self.leases) = (now, 0);
            self.begun = self.begun.saturating_sub(held_for);
        }
        self.ended = now;
        self.leases = self.leases.saturating_add(leases);
        if self.leases < LEASES_MAX && now.saturating_since(self.begun) < RUN_MAX {
            return None;
        }
        self.leases = 0;
        let pause = self.pause;
        self.pauses += 1;
        if self.pauses == PAUSES {
            self.pause = (pause / 2).max(fan_out * PAUSE_MIN).min(APART_MAX);
            self.pauses = 0;
        }
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOTE: Duration = Duration::from_millis(1);

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// The pauses after so many leases of one length, with this time from one to the next.
    fn pauses(run: &mut Run, leases: u32, held_for: Duration, idle: Duration) -> Vec<Duration> {
        let mut now = Instant::ORIGIN.saturating_add(ms(1_000));
        let ends = (0..leases).filter_map(|_| {
            now = now.saturating_add(held_for);
            let pause = run.lease_ends(1, held_for, VOTE, now);
            now = now.saturating_add(idle);
            pause
        });
        ends.collect()
    }

    #[test]
    fn a_run_ends_after_32_leases_or_100_ms() {
        let count =
            |held_for, leases| pauses(&mut Run::default(), leases, held_for, Duration::ZERO).len();
        assert_eq!([count(ms(0), 31), count(ms(0), 32), count(ms(0), 64)], [0, 1, 2]);
        assert_eq!([count(ms(10), 9), count(ms(10), 10), count(ms(10), 20)], [0, 1, 2]);
        assert_eq!(count(ms(200), 3), 3, "a long lease is a run");
        let handed_on = Run::default().lease_ends(32, ms(1), VOTE, Instant::ORIGIN);
        assert_eq!(handed_on, Some(ms(40)));
    }

    #[test]
    fn leases_with_pauses_between_them_are_not_a_run() {
        assert_eq!(pauses(&mut Run::default(), 1_000, ms(1), ms(41)), []);
        assert!(!pauses(&mut Run::default(), 1_000, ms(1), ms(40)).is_empty());
    }

    #[test]
    fn pauses_are_halved_until_another_process_waits() {
        let mut run = Run::default();
        let of_four: Vec<_> = pauses(&mut run, 24, ms(100), ms(0)).into_iter().step_by(4).collect();
        assert_eq!(of_four, [40, 20, 10, 5, 4, 4].map(ms));
        run.others_came();
        assert_eq!(pauses(&mut run, 5, ms(100), ms(0)), [40, 40, 40, 40, 20].map(ms));
    }
}
