//! A master: its process, clock and data, and what is owed to its former lives.

use redlock_core::admission::{
    Identity, MEMBERS, Names, Nonce, Record, RecordedSet, ReplId, RunId, Score, SetId,
};
use redlock_protocol::admission::{MasterKind, MasterView};
use redlock_testkit::{Ballots, Data};

use super::part::{Part, TTL};

/// TIME at the start. It is not zero, so that a clock may be behind.
const START: i64 = 20;

/// The history that one mutant has in place of none.
pub(crate) const FLIPPED: ReplId = ReplId::new(digits(999));

/// The number is in the digits that name a ballot set.
const fn digits(number: u64) -> [u8; 20] {
    let [a, b, c, d, e, f, g, h] = number.to_be_bytes();
    [a, b, c, d, e, f, g, h, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Server {
    /// Stopped for good when not.
    pub(crate) up: bool,
    pub(crate) identity: Identity,
    /// How far its clock is ahead.
    pub(crate) ahead: i64,
    pub(crate) data: Data,
    /// The data of its replica or its snapshot.
    pub(crate) saved: Data,
    /// How often it has lost data.
    pub(crate) losses: u8,
    /// It lost data after its latest *begin*.
    pub(crate) lost: bool,
    /// Until when a lock of a former incarnation may be alive and counted.
    pub(crate) owed_until: u64,
    /// The largest ballot handed out that it has accepted in this life.
    pub(crate) accepted: Score,
    /// The largest ballot handed out that it accepted in former lives.
    pub(crate) owed: Score,
    /// The key: who holds it, and until when.
    pub(crate) key: Option<(usize, u64)>,
}

impl Server {
    pub(crate) fn new(part: &Part, index: usize, nonce: Option<Nonce>) -> Self {
        let fresh = index < part.fresh;
        let identity = Identity::of(RunId::new(digits(10 * (index as u64 + 1))));
        let data = if fresh { Data::default() } else { admitted(part, identity, nonce) };
        Self {
            up: true,
            identity,
            ahead: 0,
            saved: data.clone(),
            data,
            losses: 0,
            lost: fresh,
            owed_until: 0,
            accepted: 0,
            owed: 0,
            key: None,
        }
    }

    pub(crate) fn time(&self, now: u64) -> u64 {
        // Strides are smaller than the start.
        (START + self.ahead).max(0) as u64 + now
    }

    pub(crate) fn facts(&self, part: &Part, now: u64) -> MasterView {
        MasterView {
            role: MasterKind::Master,
            identity: self.identity,
            time: self.time(now),
            record: self.data.record.clone(),
            members: part.counted.then(|| self.data.members()),
        }
    }

    /// Returns its true identity, whatever a mutant takes it for.
    pub(crate) fn true_identity(&self) -> Identity {
        let replid = self.identity.replid.filter(|history| *history != FLIPPED);
        Identity { replid, ..self.identity }
    }

    /// Whether it is admitted in truth.
    pub(crate) fn is_admitted(&self) -> bool {
        self.data.record.admits(self.identity) && self.data.members() == MEMBERS
    }

    /// The effects of every loss of data. `counted`: a client may hold a lock there until now.
    pub(crate) fn lose(&mut self, now: u64, counted: bool) {
        if counted {
            // The limit of this master applies, because the holder has read it.
            self.owed_until = now + self.data.record.max_ttl.unwrap_or(TTL);
        }
        self.owed = self.owed.max(self.accepted);
        self.accepted = 0;
        self.losses += 1;
        self.lost = true;
        self.key = None;
    }

    pub(crate) fn next_process(&self) -> Identity {
        let mut next = self.identity.run.bytes();
        next[7] += 1;
        Identity::of(RunId::new(next))
    }

    pub(crate) fn next_history(&self) -> ReplId {
        ReplId::new(digits(u64::from(self.losses)))
    }
}

/// The set of masters that all records name at the start.
fn first_set(part: &Part) -> RecordedSet {
    // There are three masters at most.
    let size = part.masters as u8;
    RecordedSet { id: SetId(1), size, names: Names::default() }
}

/// The data of a master that was admitted long ago.
fn admitted(part: &Part, identity: Identity, nonce: Option<Nonce>) -> Data {
    let floor = 31;
    let record = Record {
        max_ttl: Some(part.held),
        run: Some(identity),
        floor: Some(floor),
        nonce,
        quarantine: None,
        set: Some(first_set(part)),
    };
    let set = (identity, Ballots::new(MEMBERS, floor));
    Data { record, sets: vec![set], off: None }
}

impl Server {
    /// Returns `true` if it votes without a ballot that it may have accepted in a former
    /// incarnation. If its data was lost and it still shows an admission, it got an old copy, and
    /// the first property checks whether a client accepts its vote.
    pub(crate) fn is_behind(&self) -> bool {
        let owed = self.owed.max(self.accepted);
        !self.lost
            && self.is_admitted()
            && self.data.record.run.is_some_and(|run| self.data.highest(run) < owed)
    }
}
