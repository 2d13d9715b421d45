//! A fleet in one thread: many clients over simulated masters, without a runtime.
//!
//! A [`Story`] follows from one seed. It is played one event after the other, with the client that
//! ships, and a judge decides whether what its callers see keeps the promises. Of a story that does
//! not, all faults are left out that are not needed for it.
//!
//! In reading order: `story` (the fleet and its faults), `streams` (its random numbers); `fleet`
//! (masters, clients and callers, one event after the other), `faults` (what they do), `callers`
//! (what users do), `judge` (whether the promises are kept); `shell` (one client in one process),
//! `cell` (what a holder knows), `mail`; `flaws` (clients that must be caught), `shrink` and `report`.
//!
//! It cannot show what lies outside of the client and the masters' rules: threads, runtimes,
//! sockets and scripts. See `docs/TESTING.md`.

mod callers;
mod cell;
mod faults;
mod flaws;
mod fleet;
mod judge;
mod mail;
mod report;
mod shell;
mod shrink;
mod story;
mod streams;

pub use flaws::Flaw;
pub use fleet::Outcome;
pub use judge::Violation;
pub use report::{Found, Sum};
pub use story::Story;

impl Story {
    /// Plays the story with the client that ships.
    pub fn play(&self) -> Outcome {
        fleet::play(self, None)
    }

    /// Plays the story with clients that all have this flaw.
    pub fn play_broken(&self, flaw: Flaw) -> Outcome {
        fleet::play(self, Some(flaw))
    }
}
