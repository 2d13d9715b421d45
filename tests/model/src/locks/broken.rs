//! The mutants: each breaks one rule, by a lie at the edge of the machines or of a master.

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Broken {
    /// A clock drifts further than the holder's time is shorter than the key's.
    Drift,
    /// All attempts of a contender have one value.
    OneValue,
    /// A grant counts from its reply, not from before its request was sent.
    FromReply,
    /// A release does not compare.
    ReleaseWithoutCompare,
    /// The masters that can be reached decide, not all that are configured.
    MajorityOfReachable,
    /// An acquire whose outcome is unknown is sent once more.
    SentTwice,
    /// `ZADD` without GT.
    ScoresFall,
    /// `ZADD` without XX, and without the life in the name of the set.
    MembersAreMade,
    /// No `GET` behind the ballot.
    KeyNotRead,
    /// What a master says to the ballot is ignored.
    AnswerIgnored,
    /// One acceptance less than a quorum is enough.
    TooFewBallots,
    /// Acceptances of two ballots add up.
    BallotsAddUp,
    /// `SET` goes behind the ballot.
    SetBehindBallot,
    /// A key that was set again counts at hand-out.
    ReaddedCounts,
    /// A token is handed out whether or not the keys may have expired.
    HandedOutLate,
    /// What counts at hand-out is counted from an extension.
    FromExtension,
    /// A grant whose ballot was refused counts before the master has shown a score.
    RefusedCounts,
    /// An attempt counts what was accepted in the attempt before.
    CarriedOver,
    /// A lease that is taken over keeps its former token.
    FormerToken,
    /// Its token is handed out whether or not the keys may have expired.
    ResumedUnheld,
    /// What accepted its ballot counts from a later extension.
    ResumedFromExtension,
    /// What accepted its ballot counts from the write that carried the next one.
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
    /// A reservation that is found counts as a grant.
    ReservationGrants,
    /// TAKE replaces a token.
    TakeReplaces,
    /// RESERVE does not compare.
    ReserveWithoutCompare,
    /// All attempts of a contender that enters the queue have one value.
    TakenTwice,
    /// What a master has refused proves that no key is there while it is asked again.
    RefusedBefore,
    /// A lease is handed on that is over.
    HandedOnOver,
    /// A lease is handed on once more than there are numbers behind its ballot.
    HandedOnOutside,
    /// The tokens of hand-overs are to have the order of time, whatever clocks do.
    OrderWithoutClocks,
}

impl Broken {
    /// Those that are found within seconds.
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

    /// Those that take longer.
    pub const LONG: [Self; 6] = [
        Self::ReaddedCounts,
        Self::RefusedCounts,
        Self::FromExtension,
        Self::ResumedFromExtension,
        Self::HoldsMerged,
        Self::TakenTwice,
    ];
}
