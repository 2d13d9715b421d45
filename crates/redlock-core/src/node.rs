//! `Node`: the one seam between the quorum and a master, and `Sink`: where its answers go.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::{Cause, Events, Op, Vote, VoteSlot};

/// One of the N independent masters, real or simulated.
///
/// Requests submitted to one node are carried out in the order of their submission, over a
/// reconnect too: a release never overtakes the acquire it follows. A node has no timeout of its
/// own for a request; the counter of the votes decides how long it waits.
///
/// A node reports facts and judges nothing: what several masters together mean is decided above.
pub trait Node: Send + Sync {
    /// What people call this master: `host:port`, without user or password.
    fn name(&self) -> &str;

    /// Hands over one request. Returns at once; the answer is cast through `slot`, now or later.
    ///
    /// A node that knows it cannot reach the master answers [`Answer::unsent`] at once. An
    /// acquire is never sent twice: after a lost connection its outcome is *unknown*.
    ///
    /// [`Answer::unsent`]: crate::Answer::unsent
    fn submit(&self, op: Op, slot: VoteSlot);

    /// Hands over requests that were made together, in their order, and leaves `requests` empty.
    /// Default: one by one.
    fn submit_all(&self, requests: &mut Vec<(Op, VoteSlot)>) {
        requests.drain(..).for_each(|(op, slot)| self.submit(op, slot));
    }

    /// Connects, and reports to `events` what becomes of the connection. The future is the node's
    /// own input and output, for its owner to poll until it is dropped; none for a node that works
    /// without being polled, which reports [`NodeEvent::Up`] or [`NodeEvent::Down`] at once.
    ///
    /// Dropping the future closes the connection. It may be asked for again after that.
    fn drive(self: Arc<Self>, events: Events) -> Option<BoxFuture<'static, ()>>;

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

/// What happens to the connection of a node.
///
/// On each connection the order is: [`Up`](Self::Up), then votes and pushes in the order in which
/// the server sent them, then *unknown* votes for all that is still unanswered, then
/// [`Down`](Self::Down).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeEvent {
    /// There is a connection, and the server behind it said this about itself.
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
    /// The server pushed that its data may be gone (`invalidate` without a key).
    DataLost,
}

/// What a server said about itself when the connection was made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facts {
    /// The identity of the server process: new with every start.
    pub run_id: String,
    /// Its role in replication.
    pub role: Role,
    /// It is a node of a cluster.
    pub is_cluster: bool,
    /// Requests on an earlier connection to this process cannot be carried out any more: there was
    /// none, or the server ended it (`CLIENT KILL ID`). Otherwise a late SET may still arrive.
    pub is_barred: bool,
    /// It pushes changes: [`Op::watch`] leads to [`NodeEvent::KeyChanged`], and a loss of all data
    /// is reported as [`NodeEvent::DataLost`]. Not so on servers before 6.0, behind proxies that
    /// know no RESP3, and where the user lacks the rights.
    pub tracks: bool,
}

impl Facts {
    /// A standalone master with this identity, which pushes nothing.
    pub fn master(run_id: impl Into<String>) -> Self {
        let (run_id, role) = (run_id.into(), Role::Master);
        Self { run_id, role, is_cluster: false, is_barred: true, tracks: false }
    }
}

/// The role of a server in replication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
