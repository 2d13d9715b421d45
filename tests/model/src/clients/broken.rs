//! The mutants: each breaks one rule, where inputs come from and effects go to.

/// A broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Broken {
    /// A process without callers keeps its place.
    PlaceKept,
    /// The last caller of a process is served before the others.
    LastFirst,
    /// Calls and pushes are not read.
    CallsIgnored,
    /// The alarms of callers that wait are not fired.
    AlarmsIgnored,
    /// A process that is called and has no caller does not pass the call on.
    CallKept,
    /// A lock that no caller takes is not returned.
    UntakenKept,
    /// A caller that gives up is not reported.
    CancelIgnored,
    /// A release leaves nothing to the first in the queue.
    CallsNone,
    /// A process that is shut down keeps its places.
    ShutdownKeepsPlace,
    /// A refusal counts as a vote.
    RefusalGrants,
}

impl Broken {
    /// Mutants that must be found, each within seconds.
    pub const ALL: [Self; 10] = [
        Self::PlaceKept,
        Self::LastFirst,
        Self::CallsIgnored,
        Self::AlarmsIgnored,
        Self::CallKept,
        Self::UntakenKept,
        Self::CancelIgnored,
        Self::CallsNone,
        Self::ShutdownKeepsPlace,
        Self::RefusalGrants,
    ];
}
