//! `News`: consequences of an input of `Masters` for other parts.

use redlock_core::admission::{AdmissionOp, Identity};
use redlock_core::{Cause, ListWarning};

use crate::client::ids::Asker;

/// One thing that must follow. All of them are rare.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum News {
    /// Send this request about admission to a master.
    Ask(usize, Box<AdmissionOp>, Asker),
    /// Use the ballot set of this identity for the requests of the node.
    Admitted(usize, Option<Identity>),
    /// Change the urgency of a new connection.
    Urgent(usize, bool),

    /// The server process of a master has exited, and all requests on their way to it are gone.
    ProcessEnded(usize),
    /// The grants of a master are invalid, for this reason.
    Disowned(usize, Cause),
    /// Only the keys on a master can prove that its data is there. For this reason, its grants that
    /// are not part of a lease are invalid.
    Suspected(usize, Cause),
    /// A suspected master has had the time to prove that it has its keys.
    Unproven(usize),
    /// A master has proven that its data is there.
    Proven(usize),
    /// A master votes now and did not vote before.
    Voting(usize),
    /// Callers that pause for want of votes make one attempt each.
    PausesOver,
    /// A master can be reached.
    Reached(usize),
    /// The connection to a master, or its data, is lost.
    LostSight(usize),

    // For logs and numbers.
    /// There is a connection.
    Up(usize),
    /// There is no connection. The flag is `false` if it was already down for this reason.
    Down(usize, Cause, bool),
    /// The answers of a master are not valid, for this reason.
    NotCounting(usize, Cause),
    /// The answers of a master are valid from now on.
    Counting(usize),
    /// A master has a weakness that its users should know.
    Weak(usize, Weakness),
    /// Callers that wait at a master have no shared queue, for this reason.
    NoQueue(usize, String),
    /// The list of this client works and may be wrong since now.
    ListDoubt(Box<ListWarning>),
    /// Why the list of this client may be wrong although it works.
    ListWarning(Option<Box<ListWarning>>),
}

/// A weakness of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Weakness {
    /// It is admitted with ballots that depend on the masters' clocks, because too few other
    /// masters answered.
    FloorByClock,
    /// A broken connection cannot be ended at the server.
    NoBarrier,
    /// It does not report changes of keys.
    NoPushes,
}
