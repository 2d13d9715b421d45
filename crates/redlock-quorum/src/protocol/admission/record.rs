//! The record of a master, as a value: one hash, and the ballot sets beside it.

use super::identity::{Identity, RunId};

/// Milliseconds: a length, an instant of our own clock, or a master's TIME since 1970.
pub(crate) type Millis = u64;

/// A score of a ballot set.
pub(crate) type Score = u64;

/// What names one quarantine: 16 random hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Nonce(pub(crate) u64);

/// The members of a complete ballot set.
pub(crate) const MEMBERS: u32 = 1024;

/// Scores below this are ours. Doubles are exact up to here.
pub(crate) const SCORE_END: Score = 1 << 53;

/// How long no lock of a former life may count: the longest TTL, and a tenth of it because the
/// clock of a server may run fast by the clock guard.
pub(crate) fn quarantine_length(max_ttl: Millis) -> Millis {
    max_ttl + max_ttl / 10
}

/// The fields of the hash.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Record {
    /// The longest TTL that any client of the namespace may use.
    pub(crate) max_ttl: Option<Millis>,
    /// What it was admitted as. Absent in quarantine.
    pub(crate) run: Option<Identity>,
    /// The score that all members got at admission.
    pub(crate) floor: Option<Score>,
    /// The name of the latest quarantine or `init`. It stays after the admission.
    pub(crate) nonce: Option<Nonce>,
    /// Present in quarantine only.
    pub(crate) quarantine: Option<Quarantine>,
}

/// The fields `q:id`, `q:until`, `q:ballot` and `q:note:RUN_ID`, which come and go together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Quarantine {
    /// Who is in quarantine.
    pub(crate) id: Identity,
    /// Until when at least, by the TIME of this master.
    pub(crate) until: Millis,
    /// The largest ballot found when it began, or 0.
    pub(crate) ballot: Score,
    /// The TIME of other masters, by process, read after it began. Sorted by process.
    pub(crate) notes: Vec<(RunId, Millis)>,
}

/// What *begin* and `init` compare: all that tells two states of a record apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Seen {
    pub(crate) run: Option<Identity>,
    pub(crate) id: Option<Identity>,
    pub(crate) nonce: Option<Nonce>,
}

/// One ballot set: how many members it has, and the highest score among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ballots {
    pub(crate) members: u32,
    pub(crate) highest: Score,
}

/// All that one master keeps for the namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Data {
    pub(crate) record: Record,
    /// The ballot sets, by the identity in their name.
    pub(crate) sets: Vec<(Identity, Ballots)>,
    /// Whether the set of the clients without quarantine is there. The two do not mix.
    pub(crate) off: bool,
}

impl Record {
    /// What a script must find unchanged.
    pub(crate) fn seen(&self) -> Seen {
        let id = self.quarantine.as_ref().map(|quarantine| quarantine.id);
        Seen { run: self.run, id, nonce: self.nonce }
    }

    /// Whether `run` equals the identity. No other test makes a master vote.
    pub(crate) fn admits(&self, present: Identity) -> bool {
        self.run.is_some_and(|run| run.covers(present))
    }

    /// The quarantine of this identity, where one is under way. Without `max_ttl` it has no
    /// length and is none: a field was removed by hand.
    pub(crate) fn quarantine_of(&self, present: Identity) -> Option<&Quarantine> {
        let found = self.quarantine.as_ref().filter(|_| self.max_ttl.is_some());
        found.filter(|quarantine| quarantine.id.covers(present))
    }

    /// The length of a quarantine by the `max_ttl` of this record; 0 where it has none.
    pub(crate) fn length(&self) -> Millis {
        quarantine_length(self.max_ttl.unwrap_or(0))
    }
}

impl Quarantine {
    /// The TIME noted for a process.
    pub(crate) fn note(&self, process: RunId) -> Option<Millis> {
        let found = self.notes.iter().find(|(noted, _)| *noted == process);
        found.map(|(_, time)| *time)
    }

    /// Whether this TIME of a process is worth a note: it has none, or one that lies ahead,
    /// because its clock was stepped back.
    pub(crate) fn wants(&self, process: RunId, time: Millis) -> bool {
        self.note(process).is_none_or(|noted| noted > time)
    }
}

impl Data {
    /// The ballot set with this identity in its name.
    pub(crate) fn ballots(&self, id: Identity) -> Option<Ballots> {
        let found = self.sets.iter().find(|(name, _)| *name == id);
        found.map(|(_, ballots)| *ballots)
    }

    /// `ZCARD` of the set of `run`.
    pub(crate) fn members(&self) -> u32 {
        let ballots = self.record.run.and_then(|run| self.ballots(run));
        ballots.map_or(0, |ballots| ballots.members)
    }

    /// The highest score of a set that is ours; 0 where there is none.
    pub(crate) fn highest(&self, id: Identity) -> Score {
        let score = self.ballots(id).map_or(0, |ballots| ballots.highest);
        if score < SCORE_END { score } else { 0 }
    }

    pub(super) fn remove_set(&mut self, id: Identity) {
        self.sets.retain(|(name, _)| *name != id);
    }

    pub(super) fn write_set(&mut self, id: Identity, floor: Score) {
        self.remove_set(id);
        self.sets.push((id, Ballots { members: MEMBERS, highest: floor }));
        self.sets.sort_unstable_by_key(|(name, _)| *name);
    }

    /// `ZADD XX GT` of one member, which stands for the highest: whether the ballot was accepted.
    pub(crate) fn accept(&mut self, id: Identity, ballot: Score) -> bool {
        let found = self.sets.iter_mut().find(|(name, _)| *name == id);
        match found {
            Some((_, ballots)) if ballots.members > 0 && ballots.highest < ballot => {
                ballots.highest = ballot;
                true
            }
            _ => false,
        }
    }
}
