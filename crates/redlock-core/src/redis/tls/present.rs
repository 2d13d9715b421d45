//! TLS over TCP, by rustls.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::super::stream::{Stream, not_connected, unusable};
use super::{InvalidTls, Tls, words};
use crate::Cause;
use crate::vote::TLS;

/// What makes encrypted streams of TCP connections.
pub(in crate::redis) type Connector = TlsConnector;

impl Tls {
    pub(in crate::redis) fn connector(&self) -> Result<Connector, InvalidTls> {
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

fn certificates(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(format!("{what}: there is no certificate in the PEM text")),
        Err(error) => Err(format!("{what}: {error}")),
    }
}

pub(in crate::redis) async fn encrypted(
    connector: &Connector,
    host: &str,
    stream: TcpStream,
) -> Result<Box<dyn Stream>, Cause> {
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| unusable("the host name cannot be in a certificate"))?;
    match connector.connect(name, stream).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Err(not_connected(words::HUNG_UP))
        }
        Err(error) => Err(words::cause(&error)
            .unwrap_or_else(|| not_connected(format!("{TLS}the handshake failed: {error}")))),
    }
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
}
