//! `Draws`: the random choices of one client.
//!
//! Each choice follows from the seed, from the entry that it is for, and from its number there. A
//! choice that is left out therefore moves no other one.

use redlock_core::Instant;

use super::ids::{LockId, WaitingId};
use super::table::Id;

/// The seed of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Draws(u64);

/// The entry that a choice is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// The ticket of this client in the queues of all keys.
    QueueTicket,
    /// A pause of the callers that wait for one key.
    Wait(WaitingId),
    /// The pause of a keeper after a failure.
    Keep(LockId),
    /// Whether a released key is left free.
    Leave(LockId),
    /// Pause before requests to masters that refused are repeated.
    TakeAgain(LockId),
    /// How long a slow master is excluded as a meeting point.
    Suspect(usize),
    /// Pause before an unacknowledged release is repeated.
    AskAgain(usize),
    /// The pause before connected masters are probed again.
    Fresh,
    /// The seed of the indexes by key.
    Index,
}

impl Draw {
    /// Returns the kind of the entry, and its id.
    fn entry(self) -> (u64, u64) {
        match self {
            Self::QueueTicket => (0, 0),
            Self::Wait(id) => (1, id.number()),
            Self::Keep(id) => (2, id.number()),
            Self::Leave(id) => (3, id.number()),
            Self::TakeAgain(id) => (4, id.number()),
            Self::Suspect(master) => (5, master as u64),
            Self::AskAgain(master) => (6, master as u64),
            Self::Fresh => (7, 0),
            Self::Index => (8, 0),
        }
    }
}

impl Draws {
    /// Creates the choices of the client with this seed.
    pub fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// Draws a number. The instant is the number of the choice: of two choices for one entry at one
    /// instant, only one has an effect.
    pub fn number(self, draw: Draw, at: Instant) -> u64 {
        let (kind, id) = draw.entry();
        [kind, id, at.as_nanos()].into_iter().fold(self.0, |hash, part| mix(hash ^ part))
    }

    /// Draws from 0 to 1.
    pub fn unit(self, draw: Draw, at: Instant) -> f64 {
        // An `f64` has 53 bits of precision.
        (self.number(draw, at) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Mixes all bits, as the output function of SplitMix64 does.
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn choices_of_different_clients_entries_and_times_differ() {
        let mut drawn = HashSet::new();
        for seed in 0..10 {
            for draw in [Draw::Suspect(1), Draw::Suspect(2), Draw::AskAgain(1), Draw::Fresh] {
                for nanos in 0..10 {
                    let at = Instant::from_nanos(nanos);
                    drawn.insert(Draws::new(seed).number(draw, at));
                    let unit = Draws::new(seed).unit(draw, at);
                    assert!((0.0..1.0).contains(&unit), "{unit}");
                }
            }
        }
        assert_eq!(drawn.len(), 400);
    }

    #[test]
    fn choices_spread_evenly() {
        let draws = Draws::new(1);
        let units = (0..1_000).map(|nanos| draws.unit(Draw::Fresh, Instant::from_nanos(nanos)));
        let mut tenths = [0; 10];
        units.for_each(|unit| tenths[(unit * 10.0) as usize] += 1);
        assert!(tenths.iter().all(|count| (60..140).contains(count)), "{tenths:?}");
    }
}
