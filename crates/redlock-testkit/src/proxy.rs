//! A TCP proxy that adds faults to the network between a client and one master.

mod connection;
mod faults;
mod pushes;

pub use faults::Direction;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use tokio::net::{TcpListener, TcpStream, ToSocketAddrs, lookup_host};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use crate::RedisServer;
use faults::Faults;

/// A TCP proxy in front of one master, with faults that you can switch while it runs.
///
/// The switches are synchronous, and you can use them from any thread. They take effect
/// immediately, also on open connections. Faults of different kinds add up: bytes that are both
/// held and delayed wait for both, and dropped bytes wait for nothing.
///
/// # What happens to bytes
///
/// Each direction of each connection is a queue in order of arrival. The proxy reads at most 1 MiB
/// ahead of the bytes that it has delivered. If the sender continues, its socket is full, as with a
/// peer that does not read.
///
/// **The end of a stream follows its bytes in the queue.** When a client closes its connection,
/// held or delayed bytes still reach the server, and the server sees the end after them. This is
/// how a server executes a `SET` late, when no client waits for it any longer. Only a reset (or the
/// end of the server or the proxy) discards such bytes.
///
/// A stream that lost bytes delivers nothing more in that direction, not even its end, and not even
/// after [`heal`](Self::heal), because TCP never continues after a gap. The client has to connect
/// again, and [`reset`](Self::reset) makes it do so. For a partition that heals with its
/// connections, as short partitions do by retransmission, use [`hold`](Self::hold) and
/// [`release`](Self::release).
///
/// # Runtime
///
/// The proxy consists of tasks on the runtime that started it. It stops with that runtime, or when
/// it is dropped. On a single-threaded runtime it stops while a test blocks the thread.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    userinfo: String,
    shared: Arc<Shared>,
    _acceptor: AbortOnDrop,
}

/// The state that the proxy and its connections share.
#[derive(Debug)]
struct Shared {
    upstream: SocketAddr,
    faults: watch::Sender<Faults>,
    open: AtomicUsize,
}

impl FaultProxy {
    /// Starts a proxy on a free port of 127.0.0.1 that forwards to `upstream`.
    ///
    /// `upstream` does not have to run yet. Until it does, the proxy resets new connections.
    ///
    /// # Errors
    ///
    /// Fails if `upstream` is not an address, or if there is no port to listen on.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub async fn start(upstream: impl ToSocketAddrs) -> anyhow::Result<Self> {
        let upstream =
            lookup_host(upstream).await.context("resolving the proxy's upstream")?.next();
        let upstream = upstream.context("the proxy's upstream has no address")?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let faults = watch::Sender::new(Faults::default());
        let shared = Arc::new(Shared { upstream, faults, open: AtomicUsize::new(0) });
        let acceptor = tokio::spawn(accept(listener, Arc::clone(&shared)));
        let acceptor = AbortOnDrop(acceptor.abort_handle());
        Ok(Self { address, userinfo: String::new(), shared, _acceptor: acceptor })
    }

    /// Starts a proxy in front of a server. The URL of the proxy has the server's password.
    ///
    /// # Errors
    ///
    /// Fails if there is no port to listen on.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub async fn before(server: &RedisServer) -> anyhow::Result<Self> {
        let proxy = Self::start(server.name()).await?;
        Ok(Self { userinfo: server.userinfo(), ..proxy })
    }

    /// Returns the proxy's URL, `redis://127.0.0.1:PORT`, with the password of the server if it has
    /// one.
    pub fn url(&self) -> String {
        format!("redis://{}{}", self.userinfo, self.name())
    }

    /// `127.0.0.1:PORT` of the proxy.
    pub fn name(&self) -> String {
        self.address.to_string()
    }

    /// Returns the number of open connections to the server, plus connections that were accepted
    /// and never forwarded.
    pub fn connections(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// Delivers each piece of a stream this much after it arrived; zero ends the delay.
    ///
    /// Pieces under way are judged by the delay in force when they are due. Their number is not
    /// limited, so the delay adds to the latency and does not divide the throughput.
    pub fn delay(&self, direction: Direction, delay: Duration) {
        self.change(|faults| faults.each(direction, |lane| lane.delay = delay));
    }

    /// Keeps all bytes, in order, until [`release`](Self::release) or [`heal`](Self::heal).
    pub fn hold(&self, direction: Direction) {
        self.change(|faults| faults.each(direction, |lane| lane.held = true));
    }

    /// Ends a [`hold`](Self::hold), and immediately delivers the held bytes in order.
    pub fn release(&self, direction: Direction) {
        self.change(|faults| faults.each(direction, |lane| lane.held = false));
    }

    /// Loses all bytes, those held and delayed too, until [`heal`](Self::heal).
    ///
    /// In one direction only, this is a one-way partition. New connections are still accepted.
    pub fn drop(&self, direction: Direction) {
        self.change(|faults| {
            faults.each(direction, |lane| {
                lane.dropping = true;
                lane.drops += 1;
            });
        });
    }

    /// Loses the reports of a server that tracked keys have changed (RESP3 pushes), and nothing
    /// else, until [`heal`](Self::heal).
    pub fn drop_pushes(&self) {
        self.change(|faults| faults.to_client.dropping_pushes = true);
    }

    /// Resets all open connections (RST, to both sides); new ones are as good as the other faults
    /// allow.
    pub fn reset(&self) {
        self.change(|faults| faults.resets += 1);
    }

    /// Delivers `bytes` more bytes, summed over all connections, and resets the connection of the
    /// next byte.
    ///
    /// This happens once, and separately for each direction in `direction`. With zero, the next
    /// bytes that arrive cause a reset: the server executed a command, and none of its reply
    /// arrived.
    pub fn reset_after(&self, direction: Direction, bytes: usize) {
        self.change(|faults| faults.each(direction, |lane| lane.reset_after = Some(bytes)));
    }

    /// Sets whether new connections are reset immediately. Open connections are not affected.
    pub fn refuse(&self, refuse: bool) {
        self.change(|faults| faults.refuse = refuse);
    }

    /// Sets whether new connections are accepted but never forwarded. Open connections are not
    /// affected.
    ///
    /// A connection accepted this way stays silent until it is closed.
    pub fn blackhole_new(&self, blackhole: bool) {
        self.change(|faults| faults.blackhole = blackhole);
    }

    /// Ends all faults. Held or delayed bytes are delivered immediately, and lost bytes stay lost.
    pub fn heal(&self) {
        self.change(Faults::heal);
    }

    fn change(&self, change: impl FnOnce(&mut Faults)) {
        self.shared.faults.send_modify(change);
    }
}

/// Accepts connections until the proxy is dropped, which drops the set and so ends them.
async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => {
                    connections.spawn(admit(client, Arc::clone(&shared)));
                }
                // Out of files, most likely: some may be closed soon.
                Err(_) => tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Applies the current faults to a new connection.
async fn admit(client: TcpStream, shared: Arc<Shared>) {
    let faults = *shared.faults.borrow();
    let _open = Open::count(&shared.open);
    let ended = if faults.refuse {
        connection::refuse(client)
    } else if faults.blackhole {
        connection::swallow(client, &shared, faults.resets).await
    } else {
        connection::forward(client, &shared, faults.resets).await
    };
    // A connection that broke is what this proxy is for; both of its sides know it already.
    let _: io::Result<()> = ended;
}

/// Counts one open connection until it is dropped.
struct Open<'a>(&'a AtomicUsize);

impl<'a> Open<'a> {
    fn count(open: &'a AtomicUsize) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(open)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Aborts a task when the value is dropped.
#[derive(Debug)]
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(10);
