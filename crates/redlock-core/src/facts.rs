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
    /// The time by its clock, in microseconds since 1970. `None` before Redis 6.2, which does not
    /// report it.
    pub time_us: Option<u64>,
    /// The uptime of the process, in whole seconds. `None` if the server does not report it.
    pub uptime: Option<Duration>,
    /// The record under the prefix, empty if there is no such key.
    pub record: Result<Box<Record>, Unread>,
    /// The role in replication.
    pub role: Role,
    /// `true` for a node of a cluster.
    pub is_cluster: bool,
    /// `true` if no request on an earlier connection to this process can run later: there was no
    /// such connection, or the server closed it (`CLIENT KILL ID`). Otherwise a late SET may still
    /// arrive.
    pub has_barrier: bool,
    /// `true` if the server pushes changes: [`Op::watch`](crate::Op::watch) leads to
    /// [`NodeEvent::KeyChanged`](crate::NodeEvent::KeyChanged), and a loss of all data is reported
    /// as [`NodeEvent::DataLost`](crate::NodeEvent::DataLost). `false` on servers before 6.0,
    /// behind proxies without RESP3, and if the user lacks the rights.
    pub tracks: bool,
    /// The lasting error with which it answered a ballot that changes nothing, if it cannot take
    /// any. An operator has to change something. `None` if it can take ballots, or was not tested.
    pub no_ballots: Option<String>,
    /// The reason why [shared queues](crate::SharedQueue) cannot be used over this connection, for
    /// logs and status: the server pushes nothing, or the user lacks a right. `None` if they can be
    /// used, as far as that shows without subscribing. See
    /// [`NodeEvent::NoQueue`](crate::NodeEvent::NoQueue).
    pub no_queue: Option<String>,
}

impl Facts {
    /// The reason why a Sentinel is not a master.
    pub const SENTINEL: &'static str =
        "it is a Sentinel, which stores no keys: use independent masters";
    /// The reason why a server that pushes nothing has no shared queue.
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

/// The reason why the record could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Unread {
    /// No prefix is set for the node. See [`RedisSetup::namespace`](crate::RedisSetup::namespace).
    #[error("the record was not requested")]
    NotAsked,
    /// The server is still reading its data from disk.
    #[error("it is loading its data")]
    Loading,
    /// The key is not a hash.
    #[error("the key of the record has the wrong type")]
    WrongType,
    /// This field has a value that no client writes.
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
    /// A master, which accepts writes.
    Master,
    /// A replica, which follows another server.
    Replica,
    /// Something else.
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
