//! `Facts`: what a server reports about itself.

use std::fmt;
use std::time::Duration;

use crate::Cause;
use crate::admission::{Identity, Record};

/// The facts that a server reported about itself when the connection was made, or at a later read.
///
/// All of it is read in one batch, `INFO` before the record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Facts {
    /// The identity of the server process: new with every start.
    pub run_id: String,
    /// The identity it may be admitted with: the process, and the history of its data if it was a
    /// replica. `None` if `run_id` or `master_replid` are not 40 hex digits, which no Redis sends.
    pub identity: Option<Identity>,
    /// Its clock, in microseconds since 1970. `None` before Redis 6.2, which does not report it.
    pub time_us: Option<u64>,
    /// How long the process has been running, in whole seconds; `None` if it does not report that.
    pub uptime: Option<Duration>,
    /// The record of the namespace; empty where there is no such key.
    pub record: Result<Box<Record>, Unread>,
    /// Its role in replication.
    pub role: Role,
    /// It is a node of a cluster.
    pub is_cluster: bool,
    /// Whether no request on an earlier connection to this process can be carried out later: there
    /// was no such connection, or the server closed it (`CLIENT KILL ID`). Otherwise a late SET may
    /// still arrive.
    pub has_barrier: bool,
    /// The server pushes changes: [`Op::watch`](crate::Op::watch) leads to
    /// [`NodeEvent::KeyChanged`](crate::NodeEvent::KeyChanged), and a loss of all data is reported
    /// as [`NodeEvent::DataLost`](crate::NodeEvent::DataLost). False on servers before 6.0, behind
    /// proxies that know no RESP3, and where the user lacks the rights.
    pub tracks: bool,
    /// The lasting error with which it answered a ballot that changes nothing, if it cannot take
    /// any. An operator has to change something. `None` if it can take ballots, or was not tested.
    pub no_ballots: Option<String>,
    /// Why [shared queues](crate::SharedQueue) cannot be used over this connection, as a text for
    /// logs and status: the server pushes nothing, or the user lacks a right. `None` if they can be
    /// used, as far as that shows without subscribing: see
    /// [`NodeEvent::NoQueue`](crate::NodeEvent::NoQueue).
    pub no_queue: Option<String>,
}

impl Facts {
    /// Why no shared queue can be used at a server that pushes nothing.
    pub const PUSHES_NOTHING: &'static str = "the server pushes nothing: it does not speak RESP3";

    /// Creates the facts of a standalone master with this identity, which pushes nothing.
    pub fn master(run_id: impl Into<String>) -> Self {
        let run_id = run_id.into();
        Self {
            identity: run_id.parse().ok().map(Identity::of),
            run_id,
            time_us: None,
            uptime: None,
            record: Err(Unread::NotAsked),
            role: Role::Master,
            is_cluster: false,
            has_barrier: true,
            tracks: false,
            no_ballots: None,
            no_queue: Some(Self::PUSHES_NOTHING.into()),
        }
    }

    /// Returns `true` if the server is reading its data from disk. The server reports that only
    /// when the record is read.
    pub fn is_loading(&self) -> bool {
        self.record == Err(Unread::Loading)
    }
}

/// Why the record could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Unread {
    /// The node has no namespace: see [`RedisSetup::namespace`](crate::RedisSetup::namespace).
    #[error("the record was not requested")]
    NotAsked,
    /// The server reads its data from disk.
    #[error("it is loading its data")]
    Loading,
    /// The key is not a hash.
    #[error("the key of the record has the wrong type")]
    WrongType,
    /// This field of it is not what we would have written.
    #[error("the record has a malformed field \"{0}\"")]
    Malformed(String),
    /// The server refuses to read it, for example because the user lacks the right to `HGETALL`.
    #[error("the record cannot be read: {0}")]
    Refused(Cause),
}

/// The role of a server in replication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// It takes writes.
    Master,
    /// It follows another server.
    Replica,
    /// Something else, such as a sentinel.
    Other,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Master => "a master",
            Self::Replica => "a replica",
            Self::Other => "not a master",
        })
    }
}
