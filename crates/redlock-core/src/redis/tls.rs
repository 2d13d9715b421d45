//! TLS: whom to trust, and who we are. Without the feature `tls` all of it is refused.

#[cfg(not(feature = "tls"))]
mod absent;
mod connectors;
#[cfg(feature = "tls")]
mod pem;
#[cfg(feature = "tls")]
mod present;
#[cfg(feature = "tls")]
mod words;

use std::fmt;
use std::io;
use std::sync::Arc;

#[cfg(not(feature = "tls"))]
pub(super) use absent::{Connector, cause, encrypted};
pub(super) use connectors::Connectors;
#[cfg(feature = "tls")]
pub(super) use present::{Connector, encrypted};
#[cfg(feature = "tls")]
pub(super) use words::cause;

/// The certificates for `rediss://` connections: the trusted ones, and the client's own. `Debug`
/// shows no key.
#[derive(Clone, Default)]
pub struct Tls {
    ca: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
    source: Option<Source>,
    /// The files of the CA and of the identity, for errors.
    origins: (Option<String>, Option<String>),
}

type Source = Arc<dyn Fn() -> io::Result<Tls> + Send + Sync>;

/// The reason why certificates or keys cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("TLS: {why}")]
pub struct InvalidTls {
    why: String,
    is_of_ca: bool,
}

impl InvalidTls {
    /// Returns `true` if the error is about trusted certificates, and `false` if it is about the
    /// client's own certificate and its key.
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

    /// Reads all of it again for each new connection. The call may block.
    #[doc(hidden)]
    #[must_use]
    pub fn reread(mut self, read: impl Fn() -> io::Result<Self> + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(read));
        self
    }

    /// Names the sources of the CA and of the identity in errors of connections.
    #[doc(hidden)]
    #[must_use]
    pub fn from_files(mut self, ca: Option<String>, identity: Option<String>) -> Self {
        self.origins = (ca, identity);
        self
    }

    /// Describes an error of these certificates, with its file.
    fn explained(&self, error: &InvalidTls) -> String {
        let origin = if error.is_of_ca { &self.origins.0 } else { &self.origins.1 };
        origin.as_ref().map_or_else(|| error.to_string(), |origin| format!("{origin}: {error}"))
    }

    /// Returns `true` if the settings differ from the default.
    pub(super) fn is_set(&self) -> bool {
        self.ca.is_some() || self.identity.is_some()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_key() {
        let tls = Tls::new().identity("CERT", "SESAME");
        assert!(!format!("{tls:?}").contains("SESAME"));
    }
}
