//! `Ticket`: which entry of which table a vote is for.

use slotmap::{Key, KeyData, new_key_type};

new_key_type! {
    /// One token, from its attempt to its last release.
    pub(crate) struct LockId;
    /// One caller that wants a lock.
    pub(crate) struct RequestId;
    /// The callers that wait for one key.
    pub(super) struct WaitingId;
    /// One question to all masters.
    pub(super) struct InspectionId;
    /// The use of one key that callers of this process ask for or hold.
    pub(crate) struct UseId;
}

/// One holder of a lock: the token, and how often its lease had been handed on when this one got
/// it. A request of a former holder has no effect on the lock of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HoldId {
    pub(super) lock: LockId,
    pub(super) hand_overs: u8,
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
    Release(LockId),
    Inspection(InspectionId),
    /// The watch with this number on a key that callers wait for.
    Watch(WaitingId, u32),
    /// The ballot with this number of the attempt.
    Ballot(LockId, u32),
    /// The score behind a ballot that was refused.
    Score(LockId),
    /// Leaving the queue at the meeting point, which no release waits for.
    Exit(LockId),
    /// The question with this number for a place in the queue there.
    Place(WaitingId, u32),
    /// A question about admission.
    Admission(Asker),
}

impl Ticket {
    /// The ticket as the seam carries it: the kind, the number, the key.
    pub(super) fn pack(self) -> u128 {
        let (kind, number, key) = match self {
            Self::Attempt(lock) => (0, 0, lock.data().as_ffi()),
            Self::Extension(lock, number) => (1, number, lock.data().as_ffi()),
            Self::Readd(lock) => (2, 0, lock.data().as_ffi()),
            Self::Release(lock) => (3, 0, lock.data().as_ffi()),
            Self::Inspection(inspection) => (4, 0, inspection.data().as_ffi()),
            Self::Watch(waiting, number) => (5, number, waiting.data().as_ffi()),
            Self::Ballot(lock, number) => (6, number, lock.data().as_ffi()),
            Self::Score(lock) => (7, 0, lock.data().as_ffi()),
            Self::Exit(lock) => (8, 0, lock.data().as_ffi()),
            Self::Place(waiting, number) => (9, number, waiting.data().as_ffi()),
            Self::Admission(Asker::Step(master, number)) => (10, number, master as u64),
            Self::Admission(Asker::Init(number)) => (11, number, 0),
            Self::Admission(Asker::Report(number)) => (12, number, 0),
            Self::Admission(Asker::Fresh) => (13, 0, 0),
        };
        u128::from(key) | u128::from(number) << 64 | kind << 96
    }

    /// The ticket that was packed.
    pub(super) fn unpack(packed: u128) -> Self {
        // Both are cut to the part of the number that they were made of.
        let (low, number) = (packed as u64, (packed >> 64) as u32);
        let key = KeyData::from_ffi(low);
        match packed >> 96 {
            0 => Self::Attempt(key.into()),
            1 => Self::Extension(key.into(), number),
            2 => Self::Readd(key.into()),
            3 => Self::Release(key.into()),
            4 => Self::Inspection(key.into()),
            5 => Self::Watch(key.into(), number),
            6 => Self::Ballot(key.into(), number),
            7 => Self::Score(key.into()),
            8 => Self::Exit(key.into()),
            9 => Self::Place(key.into(), number),
            // A master has one of 15 places.
            10 => Self::Admission(Asker::Step(low as usize, number)),
            11 => Self::Admission(Asker::Init(number)),
            12 => Self::Admission(Asker::Report(number)),
            _ => Self::Admission(Asker::Fresh),
        }
    }
}

/// Who asked a master about its admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    /// The step with this number towards the admission of this master.
    Step(usize, u32),
    /// The call of `init` with this number.
    Init(u32),
    /// The report with this number.
    Report(u32),
    /// The probe of a master whose facts are old.
    Fresh,
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
            Ticket::Watch(SlotMap::<WaitingId, ()>::with_key().insert(()), 7),
            Ticket::Ballot(lock, u32::MAX),
            Ticket::Score(lock),
            Ticket::Exit(lock),
            Ticket::Place(SlotMap::<WaitingId, ()>::with_key().insert(()), 7),
            Ticket::Admission(Asker::Step(14, u32::MAX)),
            Ticket::Admission(Asker::Init(u32::MAX)),
            Ticket::Admission(Asker::Report(7)),
            Ticket::Admission(Asker::Fresh),
        ] {
            assert_eq!(Ticket::unpack(ticket.pack()), ticket);
        }
        assert_ne!(first, lock, "a key that was removed stays stale");
    }
}
