//! Context of the inputs of a part.

use redlock_core::Instant;

use super::moment::Moment;

/// The current instant, and the place for what must follow.
#[derive(Debug)]
pub struct Context<'a, T> {
    /// The current instant.
    pub now: Instant,
    /// The consequences for other parts, in order.
    pub news: &'a mut Vec<T>,
    /// Draws the names of quarantines and sets.
    pub moment: &'a mut dyn Moment,
}
