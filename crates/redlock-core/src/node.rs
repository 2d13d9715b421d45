//! `Node`: the one seam between the quorum and a master, and `Sink`: where its answers go.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::admission::{Identity, Record};
use crate::{Call, Cause, Events, Op, Vote, VoteSlot};

/// One of the N independent masters, real or simulated.
///
/// Requests submitted to one node are carried out in the order of their submission, over a
/// reconnect too: a release never overtakes the acquire it follows. A node has no timeout of its
/// own for a request; the counter of the votes decides how long it waits.
///
/// A node reports facts and judges nothing: what several masters together mean is decided above.
pub trait Node: Send + Sync {
    /// The name of this master for people: `host:port`, without user or password.
    fn name(&self) -> &str;

    /// Hands over one request. Returns at once; the answer is cast through `slot`, now or later.
    ///
    /// A node that knows it cannot reach the master answers [`Answer::unsent`] at once. An
    /// acquire is never sent twice: after a lost connection its outcome is *unknown*. A node that
    /// keeps nothing of its [admission](crate::admission) answers questions about that so, too.
    ///
    /// [`Answer::unsent`]: crate::Answer::unsent
    fn submit(&self, op: Op, slot: VoteSlot);

    /// Hands over requests that were made together, in their order, and leaves `requests` empty.
    /// Default: one by one.
    fn submit_all(&self, requests: &mut Vec<(Op, VoteSlot)>) {
        requests.drain(..).for_each(|(op, slot)| self.submit(op, slot));
    }

    /// Sets the identity with which this master is admitted, for the connection that is up; `None`
    /// if it is not admitted. Ballots and scores go to the set with this identity in its name;
    /// before this call they go to no set. A node must not take the identity from its own reads:
    /// only a caller that compares earlier reads with later ones notices that data was lost in
    /// between. Default: without effect, for a node that takes no ballots.
    fn set_admitted(&self, run: Option<Identity>) {
        let _ = run;
    }

    /// Connects, and reports to `events` what becomes of the connection. The future is the node's
    /// own input and output, for its owner to poll until it is dropped; none for a node that works
    /// without being polled, which reports [`NodeEvent::Up`] or [`NodeEvent::Down`] at once.
    ///
    /// Dropping the future closes the connection. It may be asked for again after that.
    fn drive(self: Arc<Self>, events: Events) -> Option<BoxFuture<'static, ()>>;

    /// Returns `true` for a master in virtual time. A handle must get the clock of that time, because
    /// otherwise its leases never end. Default: `false`.
    fn is_in_virtual_time(&self) -> bool {
        false
    }

    /// Whether a new connection is urgent, because a held lease lacks a copy on this master. The
    /// pauses between attempts to connect stay short then. Default: without effect.
    fn set_urgent(&self, urgent: bool) {
        let _ = urgent;
    }
}

/// Where votes and node events go: one place for all masters of a handle.
///
/// It is called where replies are read, on any thread: it must not block, and it must not call
/// back into the node.
pub trait Sink: Send + Sync {
    /// Takes one vote. Every [`VoteSlot`] leads to one, here or in [`votes`](Self::votes).
    fn vote(&self, vote: Vote);

    /// Takes votes that came together, and leaves `votes` empty. Default: takes one by one.
    fn votes(&self, votes: &mut Vec<Vote>) {
        votes.drain(..).for_each(|vote| self.vote(vote));
    }

    /// Takes what happened to the connection of `master`.
    fn event(&self, master: usize, event: NodeEvent);
}

/// An event of a node's connection.
///
/// On each connection the order is: [`Up`](Self::Up), then votes and pushes in the order in which
/// the server sent them, then *unknown* votes for all that is still unanswered, then
/// [`Down`](Self::Down).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeEvent {
    /// There is a connection, and the server behind it reported these facts.
    Up(Facts),
    /// There is no connection.
    Down {
        /// Why.
        cause: Cause,
        /// A new connection is being made at this moment, without a pause before it.
        retries_now: bool,
    },
    /// The server pushed that a watched key has changed.
    KeyChanged(Arc<[u8]>),
    /// The handle was called from the [shared queue](crate::SharedQueue) of this key. It may be a call
    /// for an earlier wait.
    Called(Call, Arc<[u8]>),
    /// The shared queue cannot be used over this connection any more, with the server's reason: a
    /// right was taken away, or `SUBSCRIBE` was refused. See [`Facts::no_queue`].
    NoQueue(String),
    /// The data of the server may be gone: it pushed `invalidate` without a key, or a ballot found
    /// no member.
    DataLost,
    /// How many members the ballot set of the `run` of [`Facts::record`] has; where there is no
    /// `run`, and the client has a quarantine, the set of clients without one, if there is one.
    /// Asked for on each new connection, behind the handshake; nothing waits for it.
    Members(u32),
}

/// What a server reported about itself when the connection was made, or when it was asked again.
///
/// All of it is read in one batch, `INFO` before the record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Facts {
    /// The identity of the server process: new with every start.
    pub run_id: String,
    /// What it may be admitted as: the process, and the history of its data where it was a replica.
    /// `None` if `run_id` or `master_replid` are not 40 hex digits, which no Redis sends.
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
    /// Requests on an earlier connection to this process cannot be carried out any more: there was
    /// none, or the server ended it (`CLIENT KILL ID`). Otherwise a late SET may still arrive.
    pub has_barrier: bool,
    /// The server pushes changes: [`Op::watch`] leads to [`NodeEvent::KeyChanged`], and a loss of
    /// all data is reported as [`NodeEvent::DataLost`]. False on servers before 6.0, behind proxies
    /// that know no RESP3, and where the user lacks the rights.
    pub tracks: bool,
    /// What it answered to a ballot that changes nothing, where it cannot take any: an error that
    /// stays until a person changes something. `None` if it can take ballots, or was not asked.
    pub no_ballots: Option<String>,
    /// Why [shared queues](crate::SharedQueue) cannot be used over this connection, in words for
    /// people: the server pushes nothing, or the user lacks a right. `None` if they can be used, as
    /// far as that shows without subscribing: see [`NodeEvent::NoQueue`].
    pub no_queue: Option<String>,
}

impl Facts {
    /// Why no shared queue can be used at a server that pushes nothing.
    pub const PUSHES_NOTHING: &'static str = "the server pushes nothing: it does not speak RESP3";

    /// A standalone master with this identity, which pushes nothing.
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

    /// Whether the server reads its data from disk. It reports that only when the record is asked
    /// for.
    pub fn is_loading(&self) -> bool {
        self.record == Err(Unread::Loading)
    }
}

/// Why the record could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Unread {
    /// The node has no namespace: see [`RedisSetup::namespace`](crate::RedisSetup::namespace).
    #[error("the record was not asked for")]
    NotAsked,
    /// The server reads its data from disk.
    #[error("it is loading its data")]
    Loading,
    /// The key is no hash.
    #[error("the key of the record is of another type")]
    WrongType,
    /// This field of it is not what we would have written.
    #[error("the record has a field \"{0}\" that is malformed")]
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
