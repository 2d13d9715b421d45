//! The byte stream to a master: TCP, TLS over TCP, or a Unix socket.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use super::address::Place;
use super::dial::{self, Resolver};
use crate::Cause;
use crate::vote::TLS;

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// How long a connection that does not take bytes any more is read: an error that the server sent
/// before it hung up says more than the end does.
pub(super) const LAST_WORDS: Duration = Duration::from_millis(100);
/// After this long without a sign of life the kernel asks whether the peer is still there.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// Bytes that are not acknowledged for this long end the connection.
const USER_TIMEOUT: Duration = Duration::from_secs(20);

/// How much of the connect timeout there is for connecting and TLS: a server that says nothing to
/// that is told from one that says nothing at all before the time for both is over.
const TLS_SHARE: f64 = 0.9;
/// A server without TLS waits for more of what it takes for a request.
const SPEAKS_NO_TLS: &str =
    "no answer to the TLS handshake, the server may not speak TLS there (redis:// is without)";

/// Whom to trust, and who we are, on `rediss://` connections. `Debug` shows no key.
#[derive(Clone, Default)]
pub struct Tls {
    ca: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// Why certificates or keys cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("TLS: {why}")]
pub struct InvalidTls {
    why: String,
    is_of_ca: bool,
}

impl InvalidTls {
    /// Whether it is about whom to trust; else it is about our own certificate and its key.
    pub fn is_of_ca(&self) -> bool {
        self.is_of_ca
    }

    fn of_ca(why: impl fmt::Display) -> Self {
        Self { why: why.to_string(), is_of_ca: true }
    }

    fn of_identity(why: impl fmt::Display) -> Self {
        Self { why: why.to_string(), is_of_ca: false }
    }
}

impl Tls {
    /// Trust what the operating system trusts (`SSL_CERT_FILE` and `SSL_CERT_DIR` are heeded),
    /// and show no certificate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trust the certificates in this PEM text, and no others.
    #[must_use]
    pub fn ca(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca = Some(pem.into());
        self
    }

    /// Show this certificate chain to the master, with its private key; both in PEM.
    #[must_use]
    pub fn identity(mut self, cert: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.identity = Some((cert.into(), key.into()));
        self
    }

    pub(super) fn connector(&self) -> Result<TlsConnector, InvalidTls> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(InvalidTls::of_ca)?
            .with_root_certificates(self.roots()?);
        let config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let of_key = |error| format!("the client's private key: {error}");
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|error| InvalidTls::of_identity(of_key(error)))?;
                let cert = certificates("the client certificate", cert);
                let cert = cert.map_err(InvalidTls::of_identity)?;
                let of_both = |error| format!("the client certificate with its key: {error}");
                builder
                    .with_client_auth_cert(cert, key)
                    .map_err(|error| InvalidTls::of_identity(of_both(error)))?
            }
        };
        Ok(TlsConnector::from(Arc::new(config)))
    }

    fn roots(&self) -> Result<RootCertStore, InvalidTls> {
        let (trusted, unusable) = match &self.ca {
            Some(pem) => (
                certificates("the CA", pem).map_err(InvalidTls::of_ca)?,
                "the CA: no certificate in it is usable",
            ),
            None => (
                rustls_native_certs::load_native_certs().certs,
                "the system has no usable CA certificate: name a CA file",
            ),
        };
        let mut roots = RootCertStore::empty();
        // One bad certificate among a system's many must not cut off the good ones.
        roots.add_parsable_certificates(trusted);
        if roots.is_empty() {
            return Err(InvalidTls::of_ca(unusable));
        }
        Ok(roots)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("ca", &self.ca.is_some())
            .field("identity", &self.identity.is_some())
            .finish()
    }
}

fn certificates(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(format!("{what}: there is no certificate in the PEM text")),
        Err(error) => Err(format!("{what}: {error}")),
    }
}

pub(super) async fn connect(
    place: &Place,
    resolver: &Resolver,
    tls: Option<&TlsConnector>,
    limit: Duration,
) -> Result<Box<dyn Stream>, Cause> {
    match place {
        Place::Unix(path) => unix(path).await,
        Place::Tcp { host, port, .. } => {
            let begun = Instant::now();
            let stream = dial::tcp(resolver, host, *port, limit).await;
            let stream = stream.and_then(tuned).map_err(|error| cause(&error))?;
            match tls {
                None => Ok(Box::new(stream)),
                Some(connector) => {
                    let left = limit.mul_f64(TLS_SHARE).saturating_sub(begun.elapsed());
                    let encrypted = timeout(left, encrypted(connector, host, stream)).await;
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

async fn unix(path: &Path) -> Result<Box<dyn Stream>, Cause> {
    match UnixStream::connect(path).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => Err(cause(&error)),
    }
}

async fn encrypted(
    connector: &TlsConnector,
    host: &str,
    stream: TcpStream,
) -> Result<Box<dyn Stream>, Cause> {
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| unusable("the host name cannot be in a certificate"))?;
    match connector.connect(name, stream).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) if is_distrust(&error) => Err(unusable(format!("{TLS}{error}"))),
        Err(error) => Err(not_connected(format!("{TLS}{error}"))),
    }
}

/// Whether we do not trust the certificate that the server has shown.
fn is_distrust(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    matches!(error, Some(rustls::Error::InvalidCertificate(_)))
}

/// An operating system's error in our words.
pub(super) fn cause(error: &io::Error) -> Cause {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pem_without_a_certificate_is_refused() {
        for pem in ["", "no pem", "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n"] {
            assert!(Tls::new().ca(pem).connector().is_err(), "{pem:?}");
        }
    }

    #[test]
    fn debug_shows_no_key() {
        let tls = Tls::new().identity("CERT", "SESAME");
        assert!(!format!("{tls:?}").contains("SESAME"));
    }
}

/// A connection whose end the server has closed, with what it said before.
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
