//! `MasterSet`: some of the masters.

use crate::quorum::MASTERS_MAX;

/// A set of masters, as indices into the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MasterSet(u16);

// Every index into the list is a bit.
const _: () = assert!(MASTERS_MAX <= 16);

impl MasterSet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);

    /// Returns the set of the first `masters` masters.
    #[inline]
    pub fn all(masters: usize) -> Self {
        Self(!(u16::MAX << masters))
    }

    /// Returns `true` if the set contains `master`.
    #[inline]
    pub fn contains(self, master: usize) -> bool {
        self.0 & 1 << master != 0
    }

    /// Adds `master`.
    #[inline]
    pub fn insert(&mut self, master: usize) {
        self.0 |= 1 << master;
    }

    /// Removes `master`.
    #[inline]
    pub fn remove(&mut self, master: usize) {
        self.0 &= !(1 << master);
    }

    /// Returns the masters that are not in `other`.
    #[inline]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the masters that are in either set.
    #[inline]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the masters that are in both sets.
    #[inline]
    pub fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the number of masters.
    #[inline]
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns `true` if the set is empty.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the indices of the masters, in rising order.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let first = (left != 0).then(|| left.trailing_zeros() as usize);
            left &= left.wrapping_sub(1);
            first
        })
    }
}

impl FromIterator<usize> for MasterSet {
    #[inline]
    fn from_iter<I: IntoIterator<Item = usize>>(masters: I) -> Self {
        let mut set = Self::EMPTY;
        masters.into_iter().for_each(|master| set.insert(master));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_contains_what_was_inserted() {
        let mut set = MasterSet::all(5);
        set.remove(1);
        set.remove(4);
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 2, 3]);
        assert_eq!((set.len(), set.contains(1), set.contains(2)), (3, false, true));
        assert_eq!(MasterSet::all(5).without(set).iter().collect::<Vec<_>>(), [1, 4]);
        assert_eq!(set.union(MasterSet::all(2)).len(), 4);
        assert_eq!(set.intersection(MasterSet::all(3)).iter().collect::<Vec<_>>(), [0, 2]);
        assert_eq!(MasterSet::all(MASTERS_MAX).len(), MASTERS_MAX);
        assert!(MasterSet::EMPTY.is_empty());
    }
}
