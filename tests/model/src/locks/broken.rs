//! The mutants: each breaks one rule, by a lie at the edge of the machines or of a master.

/// A broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Broken {
    /// A clock drifts further than the holder's time is shorter than the key's.
    Drift,
    /// All attempts of a contender have one value.
    OneValue,
    /// The validity of a grant starts with its reply instead of its request.
    FromReply,
    /// A release does not compare.
    ReleaseWithoutCompare,
    /// The reachable masters decide, instead of all configured masters.
    MajorityOfReachable,
    /// An acquire whose outcome is unknown is sent once more.
    SentTwice,
    /// `ZADD` without GT.
    ScoresFall,
    /// `ZADD` without XX, and without the life in the name of the set.
    MembersAreMade,
    /// No `GET` follows the ballot.
    KeyNotRead,
    /// The answer to the ballot is ignored.
    AnswerIgnored,
    /// One acceptance less than a quorum is enough.
    TooFewBallots,
    /// Acceptances of two ballots add up.
    BallotsAddUp,
    /// `SET` follows the ballot.
    SetBehindBallot,
    /// A key that was set again is valid at hand-out.
    ReaddedCounts,
    /// A token is handed out whether or not the keys may have expired.
    HandedOutLate,
    /// The validity at hand-out starts with an extension.
    FromExtension,
    /// A grant with a refused ballot is valid before the master has shown a score.
    RefusedCounts,
    /// An attempt includes acceptances of the previous attempt.
    CarriedOver,
    /// A lease that is taken over keeps its former token.
    FormerToken,
    /// Its token is handed out whether or not the keys may have expired.
    ResumedUnheld,
    /// Acceptances of its ballot are valid from a later extension on.
    ResumedFromExtension,
    /// Acceptances of its ballot are valid from the write that carried the next ballot.
    HoldsMerged,
    /// Acceptances of two of its ballots add up.
    ResumedAddsUp,
    /// Its ballot is carried out ahead of the extension, and apart from it.
    BallotAhead,
    /// One acceptance less than a quorum is enough for it.
    ResumedByTooFew,
    /// One other master is enough for the floor.
    FloorFromTooFew,
    /// The floor is read before the quarantine is over.
    FloorEarly,
    /// A reservation is taken as a grant.
    ReservationGrants,
    /// TAKE replaces a token.
    TakeReplaces,
    /// RESERVE does not compare.
    ReserveWithoutCompare,
    /// All attempts of a contender that enters the queue have one value.
    TakenTwice,
    /// An earlier refusal proves that there is no key while the master is queried again.
    RefusedBefore,
    /// An expired lease is passed on.
    HandedOnOver,
    /// A lease is passed on more often than there are numbers after its ballot.
    HandedOnOutside,
    /// The tokens of passed-on locks must be in the order of time, whatever clocks do.
    OrderWithoutClocks,
}

impl Broken {
    /// Mutants that are found within seconds.
    pub const ALL: [Self; 29] = [
        Self::Drift,
        Self::OneValue,
        Self::FromReply,
        Self::ReleaseWithoutCompare,
        Self::MajorityOfReachable,
        Self::SentTwice,
        Self::ScoresFall,
        Self::MembersAreMade,
        Self::KeyNotRead,
        Self::AnswerIgnored,
        Self::TooFewBallots,
        Self::BallotsAddUp,
        Self::SetBehindBallot,
        Self::HandedOutLate,
        Self::CarriedOver,
        Self::FormerToken,
        Self::ResumedUnheld,
        Self::ResumedAddsUp,
        Self::BallotAhead,
        Self::ResumedByTooFew,
        Self::FloorFromTooFew,
        Self::FloorEarly,
        Self::ReservationGrants,
        Self::TakeReplaces,
        Self::ReserveWithoutCompare,
        Self::RefusedBefore,
        Self::HandedOnOver,
        Self::HandedOnOutside,
        Self::OrderWithoutClocks,
    ];

    /// Mutants that take longer.
    pub const LONG: [Self; 6] = [
        Self::ReaddedCounts,
        Self::RefusedCounts,
        Self::FromExtension,
        Self::ResumedFromExtension,
        Self::HoldsMerged,
        Self::TakenTwice,
    ];
}
