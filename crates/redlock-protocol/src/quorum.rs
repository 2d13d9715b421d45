//! How many masters there may be, and how many of them decide.

/// How many masters there may be.
pub const MASTERS_MAX: usize = 15;

/// The least number of grants that wins: more than half of the *configured* masters, reachable or
/// not, so that any two winners share one.
pub fn quorum(masters: usize) -> usize {
    masters / 2 + 1
}
