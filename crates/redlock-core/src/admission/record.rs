//! The record of a master, as a value: one hash. See rule D6 of `docs/PROTOCOL.md`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::identity::{Identity, RunId};
use super::set::RecordedSet;
use crate::numbers::{Millis, Score, sixteen_digits};

/// The name of one quarantine: 16 random hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nonce(pub u64);

/// The text is not 16 lower-case hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no name of a quarantine: it must be 16 lower-case hex digits")]
pub struct InvalidNonce;

impl FromStr for Nonce {
    type Err = InvalidNonce;

    fn from_str(text: &str) -> Result<Self, InvalidNonce> {
        sixteen_digits(text).map(Self).ok_or(InvalidNonce)
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The members of a complete ballot set.
pub const MEMBERS: u32 = 1024;

/// The largest `max_ttl`. A lock that is needed for longer is extended, not granted for days.
pub const MAX_TTL_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns how long no lock of an earlier incarnation can be valid: the longest TTL, and a tenth
/// more because a server's clock may run fast by as much as the clock guard.
pub fn quarantine_length(max_ttl: Millis) -> Millis {
    max_ttl + max_ttl / 10
}

/// The fields of the hash.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Record {
    /// The longest TTL that any client of the prefix may use.
    pub max_ttl: Option<Millis>,
    /// The identity with which it was admitted. Absent in quarantine.
    pub run: Option<Identity>,
    /// The score that all members got at admission.
    pub floor: Option<Score>,
    /// The name of the latest quarantine or `init`. It stays after the admission.
    pub nonce: Option<Nonce>,
    /// Present in quarantine only.
    pub quarantine: Option<Quarantine>,
    /// The fields `set` and `names`: the masters that an `init` has written here. A quarantine
    /// keeps them.
    pub set: Option<RecordedSet>,
}

/// The fields `q:id`, `q:until`, `q:ballot` and `q:note:RUN_ID`, which come and go together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Quarantine {
    /// The master in quarantine.
    pub id: Identity,
    /// The earliest end, by the TIME of this master.
    pub until: Millis,
    /// The largest ballot found when it began, or 0.
    pub ballot: Score,
    /// The TIME of other masters, by process, read after it began. Sorted by process.
    pub notes: Vec<(RunId, Millis)>,
}

/// The fields that *begin*, `init` and *remove* compare: every field in which two states of a
/// record differ, and every field that they would overwrite. This way no `max_ttl` set by another
/// client in the meantime is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// `max_ttl`.
    pub max_ttl: Option<Millis>,
    /// `run`.
    pub run: Option<Identity>,
    /// `q:id`.
    pub id: Option<Identity>,
    /// `q:nonce`.
    pub nonce: Option<Nonce>,
}

impl Record {
    /// Returns the fields that a script must find unchanged.
    pub fn seen(&self) -> Seen {
        let id = self.quarantine.as_ref().map(|quarantine| quarantine.id);
        Seen { max_ttl: self.max_ttl, run: self.run, id, nonce: self.nonce }
    }

    /// Returns `true` if `run` equals the identity. No other test makes a master vote.
    pub fn admits(&self, present: Identity) -> bool {
        self.run.is_some_and(|run| run.covers(present))
    }

    /// Returns `true` if the master was ever admitted. Every admission leaves a floor, and a
    /// quarantine keeps it.
    pub fn was_admitted(&self) -> bool {
        self.run.is_some() || self.floor.is_some()
    }

    /// Returns the running quarantine of this identity, if any. A quarantine without `max_ttl` has
    /// no length and is ignored, because someone removed the field manually.
    pub fn quarantine_of(&self, present: Identity) -> Option<&Quarantine> {
        let found = self.quarantine.as_ref().filter(|_| self.max_ttl.is_some());
        found.filter(|quarantine| quarantine.id.covers(present))
    }

    /// Returns the length of a quarantine by the `max_ttl` of this record, or 0 without one.
    pub fn length(&self) -> Millis {
        quarantine_length(self.max_ttl.unwrap_or(0))
    }
}

impl Quarantine {
    /// Returns the TIME noted for a process.
    pub fn note(&self, process: RunId) -> Option<Millis> {
        let found = self.notes.iter().find(|(noted, _)| *noted == process);
        found.map(|(_, time)| *time)
    }

    /// Returns `true` if this TIME of a process is worth a note, because there is none, or because
    /// the noted time is in the future after the clock was stepped back.
    pub fn wants(&self, process: RunId, time: Millis) -> bool {
        self.note(process).is_none_or(|noted| noted > time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonce_survives_a_round_trip() {
        for number in [0, 1, 0x0123_4567_89ab_cdef, u64::MAX] {
            let text = Nonce(number).to_string();
            assert_eq!((text.len(), text.parse()), (16, Ok(Nonce(number))));
        }
        for text in ["", "0", "+123456789abcdef", "0123456789ABCDEF", "00000000000000000"] {
            assert_eq!(text.parse::<Nonce>(), Err(InvalidNonce), "{text}");
        }
    }
}
