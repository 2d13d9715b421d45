//! Requests to one master about its data, besides its locks, and the answers.
//!
//! It goes the way of every request: see [`Op::admission`](crate::Op::admission).

use super::identity::{Identity, RunId};
use super::record::{Nonce, Record, Seen};
use super::set::RecordedSet;
use crate::Facts;
use crate::numbers::{Millis, Score};

/// A request that is not about one lock's key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AdmissionOp {
    /// Read the master's identity, TIME, role and record, after everything submitted so far, and
    /// then count members. Answered with [`AdmissionReply::Facts`].
    ReadFacts,
    /// Read TIME and the process that reports it. Answered with [`AdmissionReply::Time`].
    ReadTime,
    /// Read the highest score below 2^53 of the set with this identity in its name, or of the set
    /// of clients without quarantine, and then everything that [`AdmissionOp::ReadFacts`] reads
    /// except the members. Answered with [`AdmissionReply::Scores`].
    ReadScores(Option<Identity>),
    /// Make the ballot set of clients without quarantine, with one member, unless it has that one:
    /// a client that sends no ballots shows by it that it uses the prefix. Answered with
    /// [`AdmissionReply::Shown`].
    ShowUse,
    /// Answered with [`AdmissionReply::Script`], as the four that follow.
    Begin(Begin),
    /// See [`Note`].
    Note(Note),
    /// See [`Admit`].
    Admit(Admit),
    /// See [`Init`].
    Init(Init),
    /// See [`Remove`].
    Remove(Remove),
}

/// *Begin*: puts a master into quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Begin {
    /// The record as this client read it. If it has changed since, nothing is written.
    pub expect: Seen,
    /// The identity that this connection read.
    pub identity: Identity,
    /// The name of the new quarantine.
    pub nonce: Nonce,
    /// The longest TTL that a lock may have had, as far as this client knows. A quarantine that is
    /// under way with a shorter one becomes longer.
    pub max_ttl: Millis,
    /// The record is older than a record that this client has read before from the same process,
    /// because a copy of the data was restored. Such a record proves nothing about the data, so the
    /// quarantine begins whether or not this record is admitted, or has a quarantine.
    pub is_outdated: bool,
    /// TIME of this master until which the script may act. A record does not show its age: an empty
    /// record may be from before a loss or from after it. After `until` the script writes nothing.
    pub until: Millis,
}

/// *Note*: writes down the TIME of other masters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Note {
    /// The quarantine that it belongs to.
    pub nonce: Nonce,
    /// TIME of other masters, by process.
    pub times: Vec<(RunId, Millis)>,
    /// See [`Begin::until`].
    pub until: Millis,
}

/// How a client knows that a quarantine is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// The client has known the nonce for the whole length, by its own clock.
    Known,
    /// The clock of another master has advanced by twice the length since its note.
    Noted,
}

/// *Admit*: ends a quarantine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Admit {
    /// The quarantine to end.
    pub nonce: Nonce,
    /// The identity that this connection read.
    pub identity: Identity,
    /// How the client knows that it is over.
    pub way: Way,
    /// The score that all members get.
    pub floor: Score,
    /// The set of the masters that vote, if they all have the same one. Otherwise the record keeps
    /// the set that it has, or none.
    pub set: Option<RecordedSet>,
    /// See [`Begin::until`].
    pub until: Millis,
}

/// *Init*: an operator asserts that no lock of an earlier incarnation is still held.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Init {
    /// The record as this client read it. If it has changed since, nothing is written.
    pub expect: Seen,
    /// The identity that this connection read.
    pub identity: Identity,
    /// The name of this `init`, if it admits.
    pub nonce: Nonce,
    /// The longest TTL that any client of the prefix may use.
    pub max_ttl: Millis,
    /// Whether `max_ttl` may become smaller: `--again` with a `--max-ttl`.
    pub lower: bool,
    /// The score of all members if the master is not admitted.
    pub floor: Score,
    /// The score to which lower members are lifted if it is admitted.
    pub level: Score,
    /// Whether the ballots of clients without quarantine are taken over, and their set removed:
    /// `--again`. Otherwise nothing is written where they are.
    pub converts: bool,
    /// The set that the record gets. `None` leaves the set that it has.
    pub set: Option<SetChange>,
    /// See [`Begin::until`].
    pub until: Millis,
}

/// What *init* does to the set of a record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SetChange {
    /// The set in the record when it was read. If it has changed, nothing is written.
    pub from: Option<RecordedSet>,
    /// The set that the record gets.
    pub to: RecordedSet,
}

/// *Remove*: the change that a client without quarantine makes to the record of clients with one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Remove {
    /// The record as this client read it. If it has changed since, nothing is written.
    pub expect: Seen,
    /// `None` removes only the record of a master that was never admitted. `Some` removes any
    /// record and its ballot sets, because an operator ordered it, and raises every member of the
    /// set of clients without quarantine to this score at least, and to every score found here.
    pub start: Option<Score>,
    /// See [`Begin::until`].
    pub until: Millis,
}

/// The reply of a script.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reply {
    /// The outcome of the script.
    pub outcome: Outcome,
    /// TIME of the master, in ms.
    pub time: Millis,
    /// The record as the script left it.
    pub record: Record,
    /// `ZCARD` of the set of `run`.
    pub members: u32,
}

/// The outcome of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The script wrote, or there was nothing to write.
    Done,
    /// The record has changed since it was read. Nothing was written.
    Moved,
    /// By the TIME of this master the quarantine is not over. Nothing was written.
    Early,
    /// Clients without quarantine use this prefix. Nothing was written.
    Mixed,
    /// The floor is not below 2^53. Nothing was written.
    TooLarge,
    /// The script came too late. Nothing was written.
    Late,
}

/// The answer of a master to an [`AdmissionOp`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AdmissionReply {
    /// To [`AdmissionOp::ReadFacts`].
    Facts {
        /// The server's own report.
        facts: Facts,
        /// The number of members in the set of `run`. Without a `run`, a client with a quarantine
        /// counts the set of clients without one. `None` if the user lacks the right to `ZCARD`.
        members: Option<u32>,
    },
    /// To [`AdmissionOp::ReadTime`].
    Time {
        /// The process that reported it.
        process: RunId,
        /// Its TIME.
        time: Millis,
    },
    /// To [`AdmissionOp::ReadScores`].
    Scores {
        /// `None` if there is no such set, or no member of it has a score below 2^53.
        highest: Option<Score>,
        /// The server's own report, read after the score.
        facts: Facts,
    },
    /// To [`AdmissionOp::ShowUse`].
    Shown,
    /// To [`AdmissionOp::Begin`], [`AdmissionOp::Note`], [`AdmissionOp::Admit`],
    /// [`AdmissionOp::Init`] and [`AdmissionOp::Remove`].
    Script(Reply),
}
