//! How many masters there may be, how many of them decide, and which of their values is right.

/// How many masters there may be.
pub const MASTERS_MAX: usize = 15;

/// The least number of grants that wins: more than half of the *configured* masters, reachable or
/// not, so that any two winners share one.
pub fn quorum(masters: usize) -> usize {
    masters / 2 + 1
}

/// The lower median, such as of the masters' clocks: as long as fewer than half are wrong, it lies
/// between two that are right. The values are sorted.
pub fn lower_median<T: Ord + Copy>(values: &mut [T]) -> Option<T> {
    values.sort_unstable();
    values.get(values.len().checked_sub(1)? / 2).copied()
}
