//! `NodeReport`: the state of one master, for operators.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redlock_core::Cause;
use redlock_core::admission::RecordedSet;

/// The state of one master at this moment.
///
/// Reading it changes nothing on any master.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeReport {
    /// The master: `host:port`, or the path of its socket.
    pub node: Arc<str>,
    /// Whether it votes, and why not.
    pub standing: Standing,
    /// Why its votes do not count; `None` if they do. An admitted master has one if its recorded set
    /// does not fit the list of this handle.
    pub cause: Option<Cause>,
    /// The facts that the server reports; `None` if it could not be asked.
    pub server: Option<ServerReport>,
}

/// The facts that a server reports, and its keys of this namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerReport {
    /// The process: 40 hex digits, new with every start.
    pub run_id: String,
    /// The replication history that its data comes from (40 hex digits), where it was a replica, or
    /// was started from the data of one.
    pub replid: Option<String>,
    /// `a master`, `a replica`, `not a master`.
    pub role: String,
    /// It is a node of a cluster.
    pub is_cluster: bool,
    /// It reads its data from disk.
    pub is_loading: bool,
    /// How long the process has been running; `None` if the server does not report it.
    pub uptime: Option<Duration>,
    /// The largest TTL of the namespace, by its record.
    pub max_ttl: Option<Duration>,
    /// The identity with which it was admitted: a process, or a process and a history, as 40 hex
    /// digits each.
    pub admitted_as: Option<String>,
    /// The set of masters that `redlock init` has recorded there; `None` if none is recorded.
    pub set: Option<RecordedSet>,
    /// The score that its ballots got when it was admitted; `None` if it never was.
    pub floor: Option<u64>,
    /// How many members its ballot set has; 1,024 are complete. `None` if it has no record, or if
    /// the number was not counted.
    pub ballots: Option<u32>,
    /// How long its quarantine lasts at least, by its own clock; `None` if none is under way.
    pub quarantine_left: Option<Duration>,
    /// The server reports changes of keys, and a loss of all data at once. Otherwise it does not
    /// vote for a client without fencing tokens that has a quarantine.
    pub tracks: bool,
    /// Requests of a broken connection are not carried out late. Otherwise the server does not let
    /// us end one (`CLIENT KILL ID`).
    pub has_barrier: bool,
    /// How far its clock is ahead of the median of the masters' clocks, in milliseconds; as exact
    /// as the time that an answer takes.
    pub clock_offset_ms: Option<i64>,
}

/// Whether a master votes, in the words of `redlock init`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Standing {
    /// It votes.
    Admitted,
    /// It is in quarantine.
    Quarantine,
    /// Neither: it has no record, was admitted with another identity, or cannot be admitted.
    None,
    /// It did not answer.
    Unreachable,
}

impl NodeReport {
    /// No master could be asked, for the reason given.
    pub(crate) fn unasked(names: &[Arc<str>], why: &str) -> Vec<Self> {
        let report = |name: &Arc<str>| Self {
            node: name.clone(),
            standing: Standing::Unreachable,
            cause: Some(Cause::NotConnected(why.to_owned().into())),
            server: None,
        };
        names.iter().map(report).collect()
    }
}

impl Standing {
    /// The parts of the cause for which its votes do not count.
    pub(crate) fn of(cause: &Cause) -> Self {
        match cause {
            Cause::NotAdmitted(why) if why.in_quarantine => Self::Quarantine,
            Cause::NotAdmitted(_) | Cause::TwinOf(_) => Self::None,
            _ => Self::Unreachable,
        }
    }

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Quarantine => "quarantine",
            Self::None => "none",
            Self::Unreachable => "unreachable",
        }
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
