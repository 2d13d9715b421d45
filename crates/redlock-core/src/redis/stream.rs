//! The byte stream to a master: TCP, TLS over TCP, or a Unix socket.

use std::borrow::Cow;
use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout};

use super::address::Place;
use super::dial::{self, Resolver};
use super::tls::{self, Connector};
use crate::Cause;

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// How long a connection that does not take bytes any more is read: an error that the server sent
/// before it closed the connection explains more than the closing does.
pub(super) const LAST_WORDS: Duration = Duration::from_millis(100);
/// After this long without any bytes the kernel asks whether the peer is still there.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// Bytes that are not acknowledged for this long end the connection.
const USER_TIMEOUT: Duration = Duration::from_secs(20);

/// How much of the connect timeout there is for connecting and TLS: a server that does not answer
/// TLS is distinguished from one that sends nothing at all before the time for both is over.
const TLS_SHARE: f64 = 0.9;
/// A server without TLS waits for more of what it takes for a request.
const SPEAKS_NO_TLS: &str = "no answer to the TLS handshake: the server may not speak TLS on this port (redis:// is without \
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
            let stream = dial::tcp(resolver, host, *port, limit).await;
            let stream = stream.and_then(tuned).map_err(|error| cause(&error))?;
            match tls {
                None => Ok(Box::new(stream)),
                Some(connector) => {
                    let left = limit.mul_f64(TLS_SHARE).saturating_sub(begun.elapsed());
                    let encrypted = timeout(left, tls::encrypted(connector, host, stream)).await;
                    encrypted.unwrap_or_else(|_| Err(not_connected(SPEAKS_NO_TLS)))
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

/// An error of the operating system, or of TLS, in our words.
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

pub(super) fn not_connected(why: impl Into<Cow<'static, str>>) -> Cause {
    Cause::NotConnected(why.into())
}

pub(super) fn unusable(why: impl Into<Cow<'static, str>>) -> Cause {
    Cause::Unusable(why.into())
}

/// A connection whose end the server has closed, with the bytes that it sent before.
#[cfg(test)]
pub(super) struct Closed(pub(super) &'static [u8]);

#[cfg(test)]
mod closed {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::ReadBuf;

    use super::{AsyncRead, AsyncWrite, Closed, io};

    impl AsyncRead for Closed {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            into: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if self.0.is_empty() {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            into.put_slice(std::mem::take(&mut self.0));
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Closed {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }
}
