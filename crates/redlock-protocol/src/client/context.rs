//! Context of the inputs of a part.

use redlock_core::Instant;

/// The current instant, and the place for what must follow.
#[derive(Debug)]
pub struct Context<'a, T> {
    /// The current instant.
    pub now: Instant,
    /// What must follow elsewhere, in order.
    pub news: &'a mut Vec<T>,
    /// Draws a number that no other client draws, for the names of quarantines and sets.
    pub random: fn() -> u64,
}
