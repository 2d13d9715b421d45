//! The mutants: each breaks one rule, by a lie at the edge of the machine or of a script.

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Broken {
    /// *Begin* admits at once.
    NoQuarantine,
    /// TIME of the master alone ends a quarantine.
    TimeAlone,
    /// Known since the identity is, instead of since the nonce is.
    IdentityKnown,
    /// Notes hold TIMEs that were read before the nonce was.
    TimesBeforeNonce,
    /// *Note* does not test the nonce.
    NoteWithoutNonce,
    /// Only the first notes are written.
    NoLaterNotes,
    /// An end far ahead is not begun anew.
    FarAheadStands,
    /// The client judges the end, by an old TIME.
    UntilByClient,
    /// *Admit* removes the nonce.
    NonceForgotten,
    /// *Begin* keeps `run`.
    RunKept,
    /// The identity is the process alone.
    WithoutReplid,
    /// A client forgets what it has seen of a process.
    OutdatedTaken,
    /// A null push is ignored.
    PushIgnored,
    /// One other master is enough for the floor.
    FloorFromTooFew,
    /// The floor is read when the quarantine begins.
    FloorEarly,
    /// The floor is read behind the proof of who it is from.
    FloorProvenBefore,
    /// The proof behind the scores need not be of the life whose set was read.
    ProofOfAnotherLife,
    /// A namespace is new when no master that answers has a record.
    NewWithoutRecord,
    /// The order of an `init` acts whenever it arrives.
    InitActsLate,
    /// A plain `init` takes a record that it cannot read for an empty one.
    UnreadIsEmpty,
    /// `init` does what was decided from what was read, and does not compare.
    InitWithoutCompare,
    /// `init` lowers members.
    InitLowers,
    /// `R` is another identity than `R:X`, where it was that once.
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
    /// What a record allowed is forgotten when its connection breaks.
    LengthForgotten,
    /// The records of the others were read before the loss.
    LengthFromBefore,
    /// What a person gave a client as `max_ttl` counts for nothing beside records that are old.
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

    /// Those that must be found, each within seconds.
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

    /// One that must be found too, which takes minutes.
    pub const LONG: [Self; 1] = [Self::ProofOfAnotherLife];

    /// Those that are not found within their bounds: another rule stands behind each.
    pub const SECOND_LINES: [Self; 2] = [Self::AdmitWithoutIdentity, Self::NotedWithoutMore];
}
