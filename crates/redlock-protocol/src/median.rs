//! One value of several that were measured.

/// The lower median, such as of the masters' clocks: as long as fewer than half are wrong, it lies
/// between two that are right. The values are sorted.
pub fn lower_median<T: Ord + Copy>(values: &mut [T]) -> Option<T> {
    values.sort_unstable();
    values.get(values.len().checked_sub(1)? / 2).copied()
}
