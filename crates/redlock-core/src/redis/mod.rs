//! The real Redis, as an implementation of [`Node`]. Only this folder names the Redis client crate.
//!
//! In reading order: `resp` (the language of the server), `address` (the contents of a URL),
//! `beside` (calls that block), `credentials` (the log-in of a connection), `stream` and `dial`
//! (names, TCP and TLS), `namespace` (the keys of one prefix), `marks`, `queues` and `encode`
//! (requests), `reply` (their answers), `ballots` (requests with a ballot or a score), `facts` and
//! `admission` (a server and its record), `handshake` (which server answers), `wire` (requests
//! under way), `pump` (one connection in use, for as long as `stall` lets it), `link` (connecting
//! and reconnecting). Also `conversation` (requests outside of the protocol).

mod address;
mod admission;
mod ballots;
mod beside;
mod conversation;
mod credentials;
mod dial;
mod encode;
mod facts;
mod handshake;
mod link;
mod marks;
mod namespace;
mod pump;
mod queues;
mod reply;
mod resp;
mod stall;
mod stream;
mod tls;
mod wire;

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::admission::Identity;
use crate::{Answer, Clock, Events, Node, Op, VoteSlot};
use address::{Address, Place};
use dial::Resolver;
use link::Link;
use namespace::Namespace;
use wire::Wire;

pub use address::{InvalidUrl, redacted};
pub use conversation::Conversation;
use credentials::Logins;
pub use credentials::{Credentials, CredentialsProvider};
use tls::Connectors;
pub use tls::{InvalidTls, Tls};

/// One real Redis (or Valkey) master, over one connection that is made again when it breaks.
///
/// No connection is made before [`Node::drive`] is polled. Requests submitted before that, or while
/// the master is unreachable, are immediately answered *unknown*.
///
/// On every new connection it logs in, and reads `INFO server` and `INFO replication` for the
/// [`Facts`](crate::Facts) that it reports. If the same server process has answered before, the
/// connection before this one is ended there first (`CLIENT KILL ID`), so that nothing that was
/// still on its way is carried out later; [`Facts::has_barrier`](crate::Facts::has_barrier) reports
/// whether that was possible.
///
/// With a [`namespace`](RedisSetup::namespace) it reads the record in the same batch, and carries
/// out [`AdmissionOp`](crate::admission::AdmissionOp)s and ballots.
///
/// A request with a ballot or a score is several plain commands in one write, and one vote, which
/// is cast when all of them are answered.
///
/// The Redis user needs the rights for these commands: `+set +evalsha +eval +get +del +pttl
/// +pexpire +info +client|id +client|kill`, and `+client|setinfo` from Redis 7.2 on, which 7.0 does
/// not know. A prefix needs `+hgetall` to read the record; `+zcard +hset +hdel +zadd
/// +zrevrangebyscore +time` for the scripts, which otherwise fail and report the missing right;
/// `+zadd +zscore` for ballots; and its keys, `~PREFIXredlock-quorum:1*`. A [shared
/// queue](crate::SharedQueue) needs `+zrange +zrank +zrem +publish +subscribe +pubsub`, besides
/// `+zcard +zadd +zscore +time`, and the channels `&PREFIXredlock-quorum:1:go:*`;
/// [`Facts::no_queue`](crate::Facts::no_queue) has the reason if one is missing. With
/// `+client|tracking +client|caching` the server pushes changes of keys. With `+command|info`, and
/// `+delifeq` (Valkey 9) or `+delex` (Redis 8.4), its releases cost it less.
pub struct RedisNode {
    address: Address,
    logins: Logins,
    resolver: Resolver,
    tls: Option<Connectors>,
    clock: Clock,
    connect_timeout: Duration,
    stall_timeout: Duration,
    /// How often the node has been driven so far.
    links: AtomicU64,
    namespace: Option<Arc<Namespace>>,
    wire: Mutex<Wire>,
}

/// The settings that the masters of one handle share.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RedisSetup {
    /// The clock of the handle.
    pub clock: Clock,
    /// How long setting up a connection may take: name look-up, TCP, TLS, log-in and `INFO`.
    pub connect_timeout: Duration,
    /// The longest time that a request can be unanswered before its connection is replaced.
    /// Defaults to the connect timeout. Must be at least as long as callers wait for answers.
    pub stall_timeout: Duration,
    /// Certificates and keys for `rediss://` URLs.
    pub tls: Tls,
    /// Called for each connection to a URL without credentials. Default none.
    pub credentials: Option<CredentialsProvider>,
    /// The prefix of the keys of [`admission`](crate::admission). Default none: no record is read.
    pub namespace: Option<Arc<[u8]>>,
    /// Whether masters have a quarantine under this prefix. Default: yes. Then ballots go to the
    /// set that is named after what a master was admitted as, see [`Node::set_admitted`]. Without
    /// one there is a single set, which is not bound to any admission.
    pub quarantine: bool,
    /// Whether ballots will be sent. Defaults to `true`. With a prefix, each server is then
    /// tested for support of ballots; see [`Facts::no_ballots`](crate::Facts::no_ballots).
    pub fenced: bool,
    /// Whether shared queues will be used. Defaults to `true`. With a prefix, each server is
    /// then tested for the rights they need; see [`Facts::no_queue`](crate::Facts::no_queue).
    pub queues: bool,
}

impl RedisSetup {
    /// Returns a set-up that uses the operating system's certificates.
    pub fn new(clock: Clock, connect_timeout: Duration) -> Self {
        Self {
            clock,
            connect_timeout,
            stall_timeout: connect_timeout,
            tls: Tls::new(),
            credentials: None,
            namespace: None,
            quarantine: true,
            fenced: true,
            queues: true,
        }
    }
}

/// The reason why a master cannot be set up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidNode {
    /// The URL is malformed.
    #[error(transparent)]
    Url(#[from] InvalidUrl),
    /// The certificates or keys cannot be used.
    #[error(transparent)]
    Tls(#[from] InvalidTls),
}

impl RedisNode {
    /// Creates a master from a URL: `redis://[user:password@]host[:port][/db]`, `rediss://` for
    /// TLS, or `unix:///path?db=..&user=..&pass=..`. Does no input or output.
    ///
    /// # Errors
    /// Returns [`InvalidNode`] if the URL is malformed or the certificates cannot be used.
    pub fn new(url: &str, setup: &RedisSetup) -> Result<Self, InvalidNode> {
        let address = Address::parse(url)?;
        let tls = connectors(&address, &setup.tls)?;
        let namespace = setup.namespace.as_ref().map(|prefix| {
            let RedisSetup { quarantine, fenced, queues, .. } = *setup;
            Arc::new(Namespace::new(prefix, quarantine, fenced, queues))
        });
        Ok(Self {
            logins: Logins::new(address.login.clone(), setup.credentials.as_ref()),
            address,
            resolver: Resolver::default(),
            tls,
            clock: setup.clock.clone(),
            connect_timeout: setup.connect_timeout,
            stall_timeout: setup.stall_timeout,
            links: AtomicU64::new(0),
            wire: Mutex::new(Wire::new(namespace.clone())),
            namespace,
        })
    }

    /// No code that holds this lock can panic half-way through a change.
    fn wire(&self) -> MutexGuard<'_, Wire> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the TLS connectors for an address, or `None` if its connections are not encrypted.
fn connectors(address: &Address, tls: &Tls) -> Result<Option<Connectors>, InvalidTls> {
    match address.place {
        Place::Tcp { tls: true, .. } => Connectors::new(tls).map(Some),
        // A build without TLS ignores no certificate silently.
        _ if cfg!(not(feature = "tls")) && tls.is_set() => Connectors::new(tls).map(Some),
        _ => Ok(None),
    }
}

impl Node for RedisNode {
    fn name(&self) -> &str {
        &self.address.name
    }

    fn submit(&self, op: Op, slot: VoteSlot) {
        self.submit_all(&mut vec![(op, slot)]);
    }

    fn submit_all(&self, requests: &mut Vec<(Op, VoteSlot)>) {
        let (mut refused, mut waker) = (Vec::new(), None);
        let mut wire = self.wire();
        for (op, slot) in requests.drain(..) {
            match wire.why_refused(&op) {
                None => waker = wire.push(op, slot).or(waker),
                Some(cause) => {
                    waker = wire.test_release(slot.sent_at()).or(waker);
                    refused.push((slot, cause));
                }
            }
        }
        drop(wire);
        refused.into_iter().for_each(|(slot, cause)| slot.cast(Answer::unsent(cause)));
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn set_admitted(&self, run: Option<Identity>) {
        self.wire().name_set(run);
    }

    fn drive(self: Arc<Self>, events: Events) -> Option<BoxFuture<'static, ()>> {
        Some(Box::pin(Link::new(self, events).run()))
    }

    fn set_urgent(&self, urgent: bool) {
        let waker = self.wire().set_urgent(urgent);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl fmt::Debug for RedisNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisNode")
            .field("name", &self.address.name)
            .field("state", &self.wire().state())
            .finish_non_exhaustive()
    }
}
