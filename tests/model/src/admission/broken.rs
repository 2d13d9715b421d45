//! The mutants: each breaks one rule, by a lie at the edge of the machine or of a script.

/// A broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Broken {
    /// *Begin* admits immediately.
    NoQuarantine,
    /// Only TIME of the master ends a quarantine.
    TimeAlone,
    /// Known since the identity is, instead of since the nonce is.
    IdentityKnown,
    /// Notes hold TIMEs that were read before the nonce was.
    TimesBeforeNonce,
    /// *Note* does not test the nonce.
    NoteWithoutNonce,
    /// Only the first notes are written.
    NoLaterNotes,
    /// A quarantine whose end is far ahead is not started again.
    FarAheadStands,
    /// The client judges the end, by an old TIME.
    UntilByClient,
    /// *Admit* removes the nonce.
    NonceForgotten,
    /// *Begin* keeps `run`.
    RunKept,
    /// The identity consists only of the process.
    WithoutReplid,
    /// A client forgets what it has seen of a process.
    OutdatedTaken,
    /// A null push is ignored.
    PushIgnored,
    /// One other master is enough for the floor.
    FloorFromTooFew,
    /// The floor is read when the quarantine begins.
    FloorEarly,
    /// The floor is read after the proof of its source.
    FloorProvenBefore,
    /// The proof after the scores may belong to another process than the set that was read.
    ProofOfAnotherLife,
    /// A prefix is new if no answering master has a record.
    NewWithoutRecord,
    /// The order of an `init` acts whenever it arrives.
    InitActsLate,
    /// A plain `init` takes a record that it cannot read for an empty one.
    UnreadIsEmpty,
    /// `init` writes the decision from its reads without comparing again.
    InitWithoutCompare,
    /// `init` lowers members.
    InitLowers,
    /// `R` is a different identity than `R:X`, even if it once was the same.
    FlipBegins,
    /// *Begin* keeps the notes of a former quarantine.
    NotesKept,
    /// *Begin* does not compare.
    BeginWithoutCompare,
    /// *Admit* does not test the nonce.
    AdmitWithoutNonce,
    /// *Admit* does not test the identity.
    AdmitWithoutIdentity,
    /// A quarantine is begun as soon as q masters have answered.
    BeginAtQuorum,
    /// A client forgets the limit in a record when its connection breaks.
    LengthForgotten,
    /// The records of the others were read before the loss.
    LengthFromBefore,
    /// The `max_ttl` that an operator set in a client does not apply if old records exist.
    GivenIgnored,
    /// *Begin* removes the set of masters.
    SetRemoved,
    /// By notes, the end of the quarantine itself is enough, without its length more.
    NotedWithoutMore,
}

impl Broken {
    /// Whether it goes by what a handshake said.
    pub(crate) fn looks_back(self) -> bool {
        matches!(
            self,
            Self::IdentityKnown
                | Self::TimesBeforeNonce
                | Self::UntilByClient
                | Self::LengthFromBefore
        )
    }

    /// Mutants that must be found, each within seconds.
    pub const ALL: [Self; 30] = [
        Self::NoQuarantine,
        Self::TimeAlone,
        Self::IdentityKnown,
        Self::TimesBeforeNonce,
        Self::NoteWithoutNonce,
        Self::NoLaterNotes,
        Self::FarAheadStands,
        Self::UntilByClient,
        Self::NonceForgotten,
        Self::RunKept,
        Self::WithoutReplid,
        Self::OutdatedTaken,
        Self::PushIgnored,
        Self::FloorFromTooFew,
        Self::FloorEarly,
        Self::FloorProvenBefore,
        Self::NewWithoutRecord,
        Self::InitActsLate,
        Self::UnreadIsEmpty,
        Self::InitWithoutCompare,
        Self::InitLowers,
        Self::FlipBegins,
        Self::NotesKept,
        Self::BeginWithoutCompare,
        Self::AdmitWithoutNonce,
        Self::BeginAtQuorum,
        Self::LengthForgotten,
        Self::LengthFromBefore,
        Self::GivenIgnored,
        Self::SetRemoved,
    ];

    /// A mutant that must be found as well, which takes minutes.
    pub const LONG: [Self; 1] = [Self::ProofOfAnotherLife];

    /// Mutants that are not found within their bounds, because another rule has the same effect.
    pub const SECOND_LINES: [Self; 2] = [Self::AdmitWithoutIdentity, Self::NotedWithoutMore];
}
