//! `Ticket`: which entry of which table a vote is for.

use slotmap::{Key, KeyData, new_key_type};

new_key_type! {
    /// One token, from its attempt to its last release.
    pub(crate) struct LockId;
    /// One caller that wants a lock.
    pub(super) struct RequestId;
    /// The callers that wait for one key.
    pub(super) struct WaitingId;
    /// One question to all masters.
    pub(super) struct InspectionId;
    /// What is known of one key that callers of this process ask for or hold.
    pub(crate) struct UseId;
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
    /// The look with this number at a key that callers wait for.
    Look(WaitingId, u32),
    /// The ballot with this number of the attempt.
    Ballot(LockId, u32),
    /// The score behind a ballot that was refused.
    Score(LockId),
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
            Self::Look(waiting, number) => (5, number, waiting.data()),
            Self::Ballot(lock, number) => (6, number, lock.data()),
            Self::Score(lock) => (7, 0, lock.data()),
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
            4 => Self::Inspection(key.into()),
            5 => Self::Look(key.into(), number),
            6 => Self::Ballot(key.into(), number),
            _ => Self::Score(key.into()),
        }
    }
}

/// Names what the answer to an order is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OrderTicket {
    /// The step with this number towards the admission of this master.
    Step(usize, u32),
    /// The call of `init` with this number.
    Init(u32),
    /// The report with this number.
    Report(u32),
    /// What was known of the master for a while.
    Fresh,
}

impl OrderTicket {
    /// The ticket as the seam carries it: the number, the master, the kind.
    pub(super) fn pack(self) -> u64 {
        let (kind, master, number) = match self {
            Self::Step(master, number) => (0, master as u64, number),
            Self::Init(number) => (1, 0, number),
            Self::Report(number) => (2, 0, number),
            Self::Fresh => (3, 0, 0),
        };
        u64::from(number) | master << 32 | kind << 48
    }

    /// The ticket that was packed.
    pub(super) fn unpack(packed: u64) -> Self {
        // Each is cut to the part of the number that it was made of.
        let (number, master) = (packed as u32, usize::from((packed >> 32) as u16));
        match packed >> 48 {
            0 => Self::Step(master, number),
            1 => Self::Init(number),
            2 => Self::Report(number),
            _ => Self::Fresh,
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
            Ticket::Look(SlotMap::<WaitingId, ()>::with_key().insert(()), 7),
            Ticket::Ballot(lock, u32::MAX),
            Ticket::Score(lock),
        ] {
            assert_eq!(Ticket::unpack(ticket.pack()), ticket);
        }
        assert_ne!(first, lock, "a key that was removed stays stale");
        for ticket in [
            OrderTicket::Step(14, u32::MAX),
            OrderTicket::Init(u32::MAX),
            OrderTicket::Report(7),
            OrderTicket::Fresh,
        ] {
            assert_eq!(OrderTicket::unpack(ticket.pack()), ticket);
        }
    }
}
