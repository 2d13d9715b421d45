//! The ids of the entries of a client, and `Ticket`: which entry a vote is for.

use super::table::{Id, ids};

ids! {
    /// One token, from its attempt to its last release.
    LockId,
    /// One caller that wants a lock.
    RequestId,
    /// The callers that wait for one key.
    WaitingId,
    /// One question to all masters.
    InspectionId,
    /// The use of one key that callers of this process request or hold.
    UseId,
}

/// One holder of a lock: the token, and the number of hand-overs of its lease before this holder
/// got it. A request of a former holder has no effect on the lock of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HoldId {
    /// The token.
    pub lock: LockId,
    /// Number of hand-overs of the lease before this one.
    pub hand_overs: u8,
}

/// Names the request that a vote answers. It goes stale with the entry it names: a key of the
/// tables is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ticket {
    /// The attempt to win the lock.
    Attempt(LockId),
    /// The extension of its lease with this number.
    Extension(LockId, u32),
    /// Giving the key back to a master that lost it.
    Readd(LockId),
    /// The release of its key.
    Release(LockId),
    /// A question about a key.
    Inspection(InspectionId),
    /// The watch with this number on a key that callers wait for.
    Watch(WaitingId, u32),
    /// The ballot with this number of the attempt.
    Ballot(LockId, u32),
    /// The score after a refused ballot.
    Score(LockId),
    /// Leaving the queue at the meeting point, which no release waits for.
    Exit(LockId),
    /// The question with this number for a place in the queue there.
    Place(WaitingId, u32),
    /// A question about admission.
    Admission(Asker),
}

impl Ticket {
    /// Encodes the ticket for the seam: kind, number, entry.
    #[inline]
    pub fn pack(self) -> u128 {
        let (kind, number, entry) = match self {
            Self::Attempt(lock) => (0, 0, lock.number()),
            Self::Extension(lock, number) => (1, number, lock.number()),
            Self::Readd(lock) => (2, 0, lock.number()),
            Self::Release(lock) => (3, 0, lock.number()),
            Self::Inspection(inspection) => (4, 0, inspection.number()),
            Self::Watch(waiting, number) => (5, number, waiting.number()),
            Self::Ballot(lock, number) => (6, number, lock.number()),
            Self::Score(lock) => (7, 0, lock.number()),
            Self::Exit(lock) => (8, 0, lock.number()),
            Self::Place(waiting, number) => (9, number, waiting.number()),
            Self::Admission(Asker::Step(master, number)) => (10, number, master as u64),
            Self::Admission(Asker::Init(number)) => (11, number, 0),
            Self::Admission(Asker::Report(number)) => (12, number, 0),
            Self::Admission(Asker::Fresh) => (13, 0, 0),
        };
        u128::from(entry) | u128::from(number) << 64 | kind << 96
    }

    /// Returns the packed ticket.
    #[inline]
    pub fn unpack(packed: u128) -> Self {
        // Both are cut to the part of the number that they were made of.
        let (entry, number) = (packed as u64, (packed >> 64) as u32);
        match packed >> 96 {
            0 => Self::Attempt(LockId::of_number(entry)),
            1 => Self::Extension(LockId::of_number(entry), number),
            2 => Self::Readd(LockId::of_number(entry)),
            3 => Self::Release(LockId::of_number(entry)),
            4 => Self::Inspection(InspectionId::of_number(entry)),
            5 => Self::Watch(WaitingId::of_number(entry), number),
            6 => Self::Ballot(LockId::of_number(entry), number),
            7 => Self::Score(LockId::of_number(entry)),
            8 => Self::Exit(LockId::of_number(entry)),
            9 => Self::Place(WaitingId::of_number(entry), number),
            // A master has one of 15 places.
            10 => Self::Admission(Asker::Step(entry as usize, number)),
            11 => Self::Admission(Asker::Init(number)),
            12 => Self::Admission(Asker::Report(number)),
            _ => Self::Admission(Asker::Fresh),
        }
    }
}

/// The part that queried a master about its admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Asker {
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
    use super::super::table::Table;
    use super::*;

    #[test]
    fn tickets_survive_packing() {
        let mut locks: Table<LockId, ()> = Table::default();
        let first = locks.insert(());
        locks.remove(first);
        let lock = locks.insert(());
        let inspection = Table::<InspectionId, ()>::default().insert(());
        for ticket in [
            Ticket::Attempt(lock),
            Ticket::Extension(lock, u32::MAX),
            Ticket::Readd(lock),
            Ticket::Release(first),
            Ticket::Inspection(inspection),
            Ticket::Watch(Table::<WaitingId, ()>::default().insert(()), 7),
            Ticket::Ballot(lock, u32::MAX),
            Ticket::Score(lock),
            Ticket::Exit(lock),
            Ticket::Place(Table::<WaitingId, ()>::default().insert(()), 7),
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
