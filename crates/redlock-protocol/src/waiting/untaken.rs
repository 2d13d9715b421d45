//! `Untaken`: leases that no caller took, and when other processes go first because of them.
//!
//! A lease goes to a caller that may have stopped to poll its future. Nothing is extended for it,
//! and the lease ends by itself after a TTL. A process that keeps many such futures would have the
//! key for one TTL after the other: its next caller sends its request directly after each release,
//! and a process that waits at another master, or without a queue, is always later.
//!
//! So after three such leases in a row, the process stands back for a moment. It gives up its place
//! in the shared queue, M hands the key to the first of the others, and the next caller of this
//! process enters the queue after the pause. Another process waits for three TTLs at most, unless
//! yet others are served before it.

use std::time::Duration;

use super::pauses::SLEEP_MAX;

/// So many leases in a row that no caller took, and others go first.
const IN_A_ROW: u8 = 3;
/// The pause is half as long as the last of these leases.
const PART: u32 = 2;
/// The longest pause. It equals a waiter's longest sleep, because nothing wakes the waiter if the
/// process had no key at the master at which it waits.
const PAUSE_MAX: Duration = SLEEP_MAX;

/// The leases of one key that have ended in a row without a caller that took them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Untaken {
    in_a_row: u8,
}

impl Untaken {
    /// Records that a caller took the lease.
    pub fn taken(&mut self) {
        self.in_a_row = 0;
    }

    /// Records that no caller took the lease that ends after `held_for`. Returns how long the
    /// callers of this process stand back, which is at least `reservation`, the time that M gives
    /// to a called process.
    pub fn untaken(&mut self, held_for: Duration, reservation: Duration) -> Option<Duration> {
        self.in_a_row += 1;
        if self.in_a_row < IN_A_ROW {
            return None;
        }
        self.in_a_row = 0;
        Some((held_for / PART).max(reservation).min(PAUSE_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESERVATION: Duration = Duration::from_millis(50);
    const TTL: Duration = Duration::from_secs(2);

    /// Returns the numbers of the leases after which the process stands back. An `x` is a lease
    /// that no caller took.
    fn stands_back(leases: &str) -> Vec<usize> {
        let mut untaken = Untaken::default();
        let ends = leases.chars().enumerate();
        let pauses = ends.filter(|(_, lease)| match lease {
            'x' => untaken.untaken(TTL, RESERVATION).is_some(),
            _ => {
                untaken.taken();
                false
            }
        });
        pauses.map(|(number, _)| number + 1).collect()
    }

    #[test]
    fn process_pauses_after_three_untaken_leases_in_a_row() {
        assert_eq!(stands_back("xx"), []);
        assert_eq!(stands_back("xxxxxxxx"), [3, 6]);
        assert_eq!(stands_back("xx.xx.x.xx"), []);
        assert_eq!(stands_back("x.xxx.xxxx"), [5, 9]);
    }

    #[test]
    fn pause_is_half_a_lease_and_at_least_a_reservation() {
        let pause = |held_for| {
            let mut untaken = Untaken { in_a_row: IN_A_ROW - 1 };
            untaken.untaken(held_for, RESERVATION)
        };
        assert_eq!(pause(Duration::ZERO), Some(RESERVATION));
        assert_eq!(pause(TTL), Some(TTL / 2));
        assert_eq!(pause(TTL * 100), Some(PAUSE_MAX));
    }
}
