//! The real Redis behind the [`Node`] seam. Only this folder names the Redis client crate.
//!
//! In reading order: `address` (what a URL says), `stream` (bytes to a server), `handshake` (who
//! answers, and may it vote), `roster` (is it the same server twice), `encode` and `reply` (the
//! wire's form), `wire` (what is on its way), `link` (the connection's life).

mod address;
mod encode;
mod handshake;
mod link;
mod reply;
mod roster;
mod stream;
mod wire;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio_rustls::TlsConnector;

use crate::{Answer, Clock, Node, NodeState, Op, VoteSlot};
use address::{Address, Place};
use wire::Wire;

pub use address::InvalidUrl;
pub use roster::Roster;
pub use stream::{InvalidTls, Tls};

/// One real Redis (or Valkey) master, over one connection that is made again when it breaks.
///
/// Nothing is connected before [`Node::drive`] is polled. What is submitted before that, or while
/// the master cannot be reached, is answered *unknown* at once.
///
/// On every new connection it logs in, reads `INFO server` and `INFO replication`, and refuses
/// replicas, cluster nodes, and a server that votes already under another address. If the same
/// server process has answered before, the connection before this one is ended there first
/// (`CLIENT KILL ID`), so that nothing that was still on its way is carried out later. A user of
/// the server needs the rights to do that: `+set +evalsha +eval +get +del +pttl +pexpire +info
/// +client|id +client|kill +client|setinfo`; with `+command|info`, and `+delifeq` (Valkey 9) or
/// `+delex` (Redis 8.4), its releases cost it less.
pub struct RedisNode {
    address: Address,
    tls: Option<TlsConnector>,
    clock: Clock,
    connect_timeout: Duration,
    roster: Arc<Roster>,
    wire: Mutex<Wire>,
}

/// What the masters of one handle have in common.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RedisSetup {
    /// The clock of the handle.
    pub clock: Clock,
    /// How long setting up a connection may take: name look-up, TCP, TLS, log-in and `INFO`.
    /// A connection that owes an answer for as long as this is replaced.
    pub connect_timeout: Duration,
    /// Certificates and keys for `rediss://` URLs.
    pub tls: Tls,
    /// Finds addresses that lead to the same server.
    pub roster: Arc<Roster>,
}

impl RedisSetup {
    /// A set-up with an empty roster and the operating system's certificates.
    pub fn new(clock: Clock, connect_timeout: Duration) -> Self {
        Self { clock, connect_timeout, tls: Tls::new(), roster: Arc::default() }
    }
}

/// Why a master cannot be set up from what was given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidNode {
    /// The URL is malformed.
    #[error(transparent)]
    Url(#[from] InvalidUrl),
    /// The certificates or keys are of no use.
    #[error(transparent)]
    Tls(#[from] InvalidTls),
}

impl RedisNode {
    /// A master at `url`: `redis://[user:password@]host[:port][/db]`, `rediss://` for TLS, or
    /// `unix:///path?db=..&user=..&pass=..`. Does no input or output.
    ///
    /// # Errors
    /// [`InvalidNode`] when the URL is malformed or the certificates cannot be used.
    pub fn new(url: &str, setup: &RedisSetup) -> Result<Self, InvalidNode> {
        let address = Address::parse(url)?;
        let tls = match address.place {
            Place::Tcp { tls: true, .. } => Some(setup.tls.connector()?),
            _ => None,
        };
        Ok(Self {
            address,
            tls,
            clock: setup.clock.clone(),
            connect_timeout: setup.connect_timeout,
            roster: setup.roster.clone(),
            wire: Mutex::default(),
        })
    }

    /// No code that holds this lock can panic half-way through a change.
    fn wire(&self) -> MutexGuard<'_, Wire> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Node for RedisNode {
    fn name(&self) -> &str {
        &self.address.name
    }

    fn submit(&self, op: Op, slot: VoteSlot) {
        let mut wire = self.wire();
        match wire.obstacle() {
            Some(cause) => {
                drop(wire);
                slot.cast(Answer::unsent(cause));
            }
            None => {
                let waker = wire.push(op, slot);
                drop(wire);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
        }
    }

    fn state(&self) -> NodeState {
        self.wire().state()
    }

    fn drive(
        self: Arc<Self>,
        changed: Arc<dyn Fn() + Send + Sync>,
    ) -> Option<BoxFuture<'static, ()>> {
        // Known from here on, not from the first poll: who asks in between must not take a master
        // that nobody has tried yet for one that is down.
        self.wire().connecting();
        Some(Box::pin(link::run(self, changed)))
    }
}

impl fmt::Debug for RedisNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisNode")
            .field("name", &self.address.name)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
