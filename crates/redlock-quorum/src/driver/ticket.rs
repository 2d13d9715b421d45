//! `Ticket`: which entry of which table a vote is for.

use slotmap::{Key, KeyData, new_key_type};

new_key_type! {
    /// One token, from its attempt to its last release.
    pub(crate) struct LockId;
    /// One caller that wants a lock.
    pub(super) struct RequestId;
    /// One question to all masters.
    pub(super) struct InspectionId;
}

/// Names the request that a vote answers. It goes stale with the entry it names: a key of the
/// tables is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ticket {
    /// The attempt to win the lock.
    Attempt(LockId),
    /// The extension of its lease with this number.
    Extension(LockId, u32),
    /// Giving the key back to a master that lost it.
    Readd(LockId),
    /// The release.
    Release(LockId),
    /// An inspection.
    Inspection(InspectionId),
}

impl Ticket {
    /// The ticket as the seam carries it: the kind, the number, the key.
    pub(super) fn pack(self) -> u128 {
        let (kind, number, key) = match self {
            Self::Attempt(lock) => (0, 0, lock.data()),
            Self::Extension(lock, number) => (1, number, lock.data()),
            Self::Readd(lock) => (2, 0, lock.data()),
            Self::Release(lock) => (3, 0, lock.data()),
            Self::Inspection(inspection) => (4, 0, inspection.data()),
        };
        u128::from(key.as_ffi()) | u128::from(number) << 64 | kind << 96
    }

    /// The ticket that was packed.
    pub(super) fn unpack(packed: u128) -> Self {
        // Both are cut to the part of the number that they were made of.
        let (key, number) = (KeyData::from_ffi(packed as u64), (packed >> 64) as u32);
        match packed >> 96 {
            0 => Self::Attempt(key.into()),
            1 => Self::Extension(key.into(), number),
            2 => Self::Readd(key.into()),
            3 => Self::Release(key.into()),
            _ => Self::Inspection(key.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use slotmap::SlotMap;

    use super::*;

    #[test]
    fn what_was_packed_is_unpacked() {
        let mut locks: SlotMap<LockId, ()> = SlotMap::with_key();
        let first = locks.insert(());
        locks.remove(first);
        let lock = locks.insert(());
        let inspection = SlotMap::<InspectionId, ()>::with_key().insert(());
        for ticket in [
            Ticket::Attempt(lock),
            Ticket::Extension(lock, u32::MAX),
            Ticket::Readd(lock),
            Ticket::Release(first),
            Ticket::Inspection(inspection),
        ] {
            assert_eq!(Ticket::unpack(ticket.pack()), ticket);
        }
        assert_ne!(first, lock, "a key that was removed stays stale");
    }
}
