//! The limits of the number of masters, how many decide, and which of their values is right.

/// The largest number of masters.
pub const MASTERS_MAX: usize = 15;

/// Returns the smallest number of grants that wins: more than half of the *configured* masters,
/// reachable or not, so that any two winners share a master.
pub fn quorum(masters: usize) -> usize {
    masters / 2 + 1
}

/// Returns the lower median, such as of the masters' clocks. As long as fewer than half are wrong,
/// it lies between two correct values. Sorts the values.
pub fn lower_median<T: Ord + Copy>(values: &mut [T]) -> Option<T> {
    values.sort_unstable();
    values.get(values.len().checked_sub(1)? / 2).copied()
}
