//! `NodeReport`: the state of one master, for operators.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redlock_core::Cause;
use redlock_core::admission::{Millis, RecordedSet};
use redlock_protocol::client::questions::{ReportRow, Server};

/// The current state of one master.
///
/// Reading it changes nothing on any master.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeReport {
    /// The master: `host:port`, or the path of its socket.
    pub node: Arc<str>,
    /// The standing of the master: voting, in quarantine, or neither.
    pub standing: Standing,
    /// The reason why the master does not vote. `None` if it votes. An admitted master can have a
    /// reason as well, if its recorded set does not fit the list of this handle.
    pub cause: Option<Cause>,
    /// The facts that the server reports. `None` if it did not answer.
    pub server: Option<ServerReport>,
}

/// The facts that a server reports, and its keys of this prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerReport {
    /// The process: 40 hex digits, new with every start.
    pub run_id: String,
    /// The replication history of the data (40 hex digits), if the server was a replica, or was
    /// started from a replica's data.
    pub replid: Option<String>,
    /// The role of the server: `a master`, `a replica` or `not a master`.
    pub role: String,
    /// `true` for a node of a Redis Cluster.
    pub is_cluster: bool,
    /// `true` while the server reads its data from disk.
    pub is_loading: bool,
    /// The time since the process started. `None` if the server does not report it.
    pub uptime: Option<Duration>,
    /// The largest TTL of the prefix, by its record.
    pub max_ttl: Option<Duration>,
    /// The identity with which it was admitted: a process, or a process and a history, as 40 hex
    /// digits each.
    pub admitted_as: Option<String>,
    /// The set of masters that `redlock init` has recorded there. `None` if none is recorded.
    pub set: Option<RecordedSet>,
    /// The score of its ballots when it was admitted. All fencing tokens that it accepted since are
    /// larger. `None` if it was never admitted.
    pub floor: Option<u64>,
    /// The number of members in its ballot set, which is complete with 1,024. `None` if it has no
    /// record, or the members were not counted.
    pub ballots: Option<u32>,
    /// The shortest remaining time of its quarantine, by its own clock. `None` if none is under
    /// way.
    pub quarantine_left: Option<Duration>,
    /// `true` if the server immediately reports changes of keys and a loss of all data. Otherwise
    /// it does not vote for a client without fencing tokens that has a quarantine.
    pub tracks: bool,
    /// `true` if the client can cancel requests of a broken connection, which needs the right to
    /// `CLIENT KILL ID`. Otherwise such a request may run late, and leave a key until it expires.
    pub has_barrier: bool,
    /// The lead of its clock over the median of the masters' clocks, in milliseconds. Off by at
    /// most the time that an answer takes.
    pub clock_offset_ms: Option<i64>,
}

/// The standing of a master: voting, in quarantine, or neither, in the words of `redlock init`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Standing {
    /// The master votes.
    Admitted,
    /// The master is in quarantine, and votes afterwards.
    Quarantine,
    /// The master is not admitted, and no quarantine has started: it has no record, was admitted
    /// with a different identity, or cannot be admitted.
    None,
    /// The master did not answer.
    Unreachable,
}

impl NodeReport {
    /// Converts the state of the master with this name.
    pub(crate) fn of(node: Arc<str>, row: ReportRow) -> Self {
        Self {
            node,
            standing: Standing::without(row.why_not.as_ref()),
            cause: row.why_not.or(row.why_no_locks),
            server: row.server.map(ServerReport::of),
        }
    }

    /// Returns the reports if no master could be queried, for the reason given.
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

impl ServerReport {
    fn of(server: Server) -> Self {
        let Server { facts, members, clock_offset_ms } = server;
        let record = facts.record.as_deref().cloned().unwrap_or_default();
        let time = facts.time_us.map_or(0, |micros| micros / 1_000);
        let quarantine = facts.identity.and_then(|identity| record.quarantine_of(identity));
        let left = |until: Millis| Duration::from_millis(until.saturating_sub(time));
        let replid = facts.identity.and_then(|identity| identity.replid);
        Self {
            role: facts.role.to_string(),
            is_cluster: facts.is_cluster,
            is_loading: facts.is_loading(),
            uptime: facts.uptime,
            replid: replid.map(|replid| replid.to_string()),
            max_ttl: record.max_ttl.map(Duration::from_millis),
            admitted_as: record.run.map(|run| run.to_string()),
            set: record.set.clone(),
            floor: record.floor,
            ballots: members.filter(|_| record.run.is_some()),
            quarantine_left: quarantine.map(|quarantine| left(quarantine.until)),
            tracks: facts.tracks,
            has_barrier: facts.has_barrier,
            clock_offset_ms,
            run_id: facts.run_id,
        }
    }
}

impl Standing {
    /// Returns the standing of a master that does not vote for this cause, if any.
    pub(crate) fn without(why_not: Option<&Cause>) -> Self {
        why_not.map_or(Self::Admitted, Self::of)
    }

    /// Returns the part of the cause for which the master's votes are not used.
    pub(crate) fn of(cause: &Cause) -> Self {
        match cause {
            Cause::NotAdmitted(why) if why.in_quarantine => Self::Quarantine,
            Cause::NotAdmitted(_) | Cause::TwinOf(_) => Self::None,
            _ => Self::Unreachable,
        }
    }

    /// Returns the standing as a lower-case word.
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
