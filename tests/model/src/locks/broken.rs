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
}

impl Broken {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Drift,
        Self::OneValue,
        Self::FromReply,
        Self::ReleaseWithoutCompare,
        Self::MajorityOfReachable,
        Self::SentTwice,
    ];
}
