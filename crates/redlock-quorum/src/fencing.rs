//! `FencingToken`: a number for stores that refuse late writes.

/// A number that grows with every lease of a resource, for stores that refuse smaller ones.
///
/// Locks do not carry one yet: [`Guard::fencing_token`](crate::Guard::fencing_token) is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    /// The token with this number; none from 2^53 on.
    pub fn new(number: u64) -> Option<Self> {
        (number < 1 << 53).then_some(Self(number))
    }

    /// The number, below 2^53.
    pub fn get(self) -> u64 {
        self.0
    }
}
