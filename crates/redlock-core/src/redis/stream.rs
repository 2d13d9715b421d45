//! The byte stream to a master: TCP, TLS over TCP, or a Unix socket.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::{Cause, NoConnection};

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// How long a connection that does not take bytes any more is read: an error that the server sent
/// before it closed the connection explains more than the closing does.
pub(super) const LAST_WORDS: Duration = Duration::from_millis(100);
pub(super) fn not_connected(why: impl Into<NoConnection>) -> Cause {
    Cause::NotConnected(why.into())
}

pub(super) fn unusable(why: impl Into<NoConnection>) -> Cause {
    Cause::Unusable(why.into())
}

/// A connection whose end the server has closed, with the bytes that it sent before.
#[cfg(test)]
pub(super) struct Closed(pub(super) &'static [u8]);

#[cfg(test)]
mod closed {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::ReadBuf;

    use super::{AsyncRead, AsyncWrite, Closed};

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
