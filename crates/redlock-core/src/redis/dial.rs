//! From the place in a URL to a byte stream: name look-up, TCP and TLS, or a Unix socket.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::address::Place;
use super::beside::Beside;
use super::stream::{Stream, not_connected};
use super::tls::{self, Connector};
use crate::{Cause, NoConnection, TlsFault};

type Lookup = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// How long after the one before the next address of a name is tried, at most.
const STAGGER: Duration = Duration::from_millis(250);

/// After this long without any bytes, the kernel probes the peer.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// Bytes that are not acknowledged for this long end the connection.
const USER_TIMEOUT: Duration = Duration::from_secs(20);

/// The share of the connect timeout for connecting and TLS. It is less than the whole, so that a
/// server that does not speak TLS is reported before the time for both is over, and is not mistaken
/// for a silent one.
const TLS_SHARE: f64 = 0.9;
/// A server without TLS waits for more of what it takes for a request.
const SPEAKS_NO_TLS: &str = "no answer to the TLS handshake: the server might not speak TLS on this port (redis:// is without \
     TLS)";

pub(super) async fn connect(
    place: &Place,
    resolver: &Resolver,
    tls: Option<&Connector>,
    limit: Duration,
) -> Result<Box<dyn Stream>, Cause> {
    match place {
        Place::Unix(path) => {
            let stream = UnixStream::connect(path).await.map_err(|error| cause(&error))?;
            Ok(Box::new(stream))
        }
        Place::Tcp { host, port, .. } => {
            let begun = Instant::now();
            let stream = tcp(resolver, host, *port, limit).await;
            let stream = stream.and_then(tuned).map_err(|error| cause(&error))?;
            match tls {
                None => Ok(Box::new(stream)),
                Some(connector) => {
                    let left = limit.mul_f64(TLS_SHARE).saturating_sub(begun.elapsed());
                    let encrypted = timeout(left, tls::encrypted(connector, host, stream)).await;
                    encrypted.unwrap_or_else(|_| {
                        let why = NoConnection::of_tls(TlsFault::Unanswered, SPEAKS_NO_TLS);
                        Err(not_connected(why))
                    })
                }
            }
        }
    }
}

fn tuned(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    Ok(stream)
}

/// Describes an error of the operating system, or of TLS, in our words.
pub(super) fn cause(error: &io::Error) -> Cause {
    if let Some(cause) = tls::cause(error) {
        return cause;
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Cause::ConnectionRefused,
        io::ErrorKind::TimedOut => Cause::TimedOut,
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => Cause::ConnectionClosed,
        _ => not_connected(error.to_string()),
    }
}

/// Connects to the first of the host's addresses that accepts, within `limit`.
async fn tcp(resolver: &Resolver, host: &str, port: u16, limit: Duration) -> io::Result<TcpStream> {
    let addresses = match host.parse::<IpAddr>() {
        Ok(ip) => vec![SocketAddr::new(ip, port)],
        Err(_) => resolver.resolve(host, port).await?,
    };
    first_of(addresses, limit).await
}

/// Tries the addresses in parallel. Each attempt starts a little after the previous one, or as soon
/// as one has failed, so that a silent address does not use up the time of the others.
async fn first_of(addresses: Vec<SocketAddr>, limit: Duration) -> io::Result<TcpStream> {
    let count = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    let stagger = STAGGER.min(limit / count.saturating_add(1));
    let mut untried = addresses.into_iter();
    let mut trying = FuturesUnordered::new();
    let mut error = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
    loop {
        trying.extend(untried.next().map(TcpStream::connect));
        let patience = if untried.len() > 0 { stagger } else { Duration::MAX };
        match timeout(patience, trying.next()).await {
            Ok(Some(Ok(stream))) => return Ok(stream),
            Ok(Some(Err(failed))) => error = failed,
            Ok(None) => return Err(error),
            Err(_next) => {}
        }
    }
}

/// Looks up the addresses of one master. The operating system's look-up blocks its thread.
pub(super) struct Resolver {
    lookup: Arc<Lookup>,
    beside: Beside<Vec<SocketAddr>>,
}

impl Default for Resolver {
    fn default() -> Self {
        Self::new(|host, port| Ok((host, port).to_socket_addrs()?.collect()))
    }
}

impl Resolver {
    fn new(
        lookup: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Self {
        Self { lookup: Arc::new(lookup), beside: Beside::new("redlock-dns") }
    }

    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let call = || {
            let (host, lookup) = (host.to_owned(), self.lookup.clone());
            move || lookup(&host, port)
        };
        self.beside.run(call).await
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Sender, channel};
    use std::thread;

    use socket2::{Domain, Socket, Type};

    use super::*;

    /// Longer than anything here takes on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(20);

    fn anywhere() -> SocketAddr {
        (Ipv4Addr::LOCALHOST, 0).into()
    }

    /// An address at which connecting is neither accepted nor refused.
    fn black_hole() -> (SocketAddr, impl Sized) {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&anywhere().into()).unwrap();
        socket.listen(0).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        let connect = || std::net::TcpStream::connect_timeout(&address, Duration::from_millis(100));
        let waiting: Vec<_> = std::iter::repeat_with(connect).map_while(Result::ok).collect();
        (address, (socket, waiting))
    }

    fn listener() -> (SocketAddr, std::net::TcpListener) {
        let listener = std::net::TcpListener::bind(anywhere()).unwrap();
        (listener.local_addr().unwrap(), listener)
    }

    fn refusing() -> SocketAddr {
        listener().0
    }

    /// A name whose look-up hangs until the sender is dropped, and how often it was looked up.
    fn hanging() -> (Resolver, Arc<AtomicUsize>, Sender<()>) {
        let (hold, held) = channel();
        let (calls, held) = (Arc::new(AtomicUsize::new(0)), Mutex::new(held));
        let counted = calls.clone();
        let resolver = Resolver::new(move |_, _| {
            counted.fetch_add(1, Ordering::Relaxed);
            let _ = held.lock().unwrap().recv();
            Ok(vec![refusing()])
        });
        (resolver, calls, hold)
    }

    #[tokio::test]
    async fn unresponsive_address_does_not_block_the_next() {
        let ((dead, _hole), (alive, _listener)) = (black_hole(), listener());
        for limit in [Duration::from_secs(3), PATIENCE] {
            let resolver = Resolver::new(move |_, _| Ok(vec![dead, refusing(), dead, alive]));
            let stream = timeout(limit, tcp(&resolver, "name.invalid", 1, limit)).await;
            assert_eq!(stream.expect("in time").unwrap().peer_addr().unwrap(), alive);
        }
    }

    #[tokio::test]
    async fn refusal_is_reported_if_all_addresses_refuse() {
        let resolver = Resolver::new(|_, _| Ok(vec![refusing(), refusing()]));
        let refused = tcp(&resolver, "name.invalid", 1, PATIENCE).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        let resolver = Resolver::new(|_, _| Ok(Vec::new()));
        let nowhere = tcp(&resolver, "name.invalid", 1, PATIENCE).await.unwrap_err();
        assert_eq!(nowhere.kind(), io::ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn an_ip_address_is_not_looked_up() {
        let (alive, _listener) = listener();
        let resolver = Resolver::new(|_, _| panic!("it needs no look-up"));
        let stream = tcp(&resolver, "127.0.0.1", alive.port(), PATIENCE).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), alive);
    }

    #[tokio::test]
    async fn hanging_lookup_is_shared_by_later_attempts() {
        let (resolver, calls, hold) = hanging();
        for _ in 0..3 {
            let hung = timeout(Duration::from_millis(20), resolver.resolve("name.invalid", 1));
            assert!(hung.await.is_err());
        }
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        drop(hold);
        let found = timeout(PATIENCE, resolver.resolve("name.invalid", 1)).await;
        assert_eq!(found.expect("it ends").unwrap().len(), 1);
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        resolver.resolve("name.invalid", 1).await.unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), 2, "each attempt looks again");
    }

    #[test]
    fn hanging_lookup_does_not_block_runtime_shutdown() {
        let (resolver, _calls, hold) = hanging();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let hung = timeout(Duration::from_millis(20), resolver.resolve("name.invalid", 1));
            assert!(hung.await.is_err());
        });
        let begun = Instant::now();
        let (ended, end) = channel();
        thread::spawn(move || {
            drop(runtime);
            ended.send(()).unwrap();
        });
        end.recv_timeout(PATIENCE).expect("the runtime ends");
        assert!(begun.elapsed() < PATIENCE);
        drop(hold);
    }
}
