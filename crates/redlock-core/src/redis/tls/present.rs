//! TLS over TCP, by rustls.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::super::stream::{Stream, not_connected, unusable};
use super::{InvalidTls, Tls, pem, words};
use crate::Cause;

/// Turns TCP connections into encrypted streams.
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
                let key = pem::private_key(key).map_err(InvalidTls::of_identity)?;
                let cert = pem::certificates("the client certificate", cert);
                let cert = cert.map_err(InvalidTls::of_identity)?;
                let of_both = |error| {
                    let why = words::of_identity(&error);
                    InvalidTls::of_identity(format!("the client certificate with its key: {why}"))
                };
                builder.with_client_auth_cert(cert, key).map_err(of_both)?
            }
        };
        Ok(TlsConnector::from(Arc::new(config)))
    }

    fn roots(&self) -> Result<RootCertStore, InvalidTls> {
        let (trusted, unusable) = match &self.ca {
            Some(ca) => (
                pem::certificates("the CA", ca).map_err(InvalidTls::of_ca)?,
                "the CA: no certificate in it is usable",
            ),
            None => (
                rustls_native_certs::load_native_certs().certs,
                "the system has no usable CA certificate: set a CA file",
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
            Err(not_connected(words::failed(words::HUNG_UP)))
        }
        Err(error) => Err(words::cause(&error).unwrap_or_else(|| {
            let why = format!("the handshake failed: {error}");
            not_connected(words::failed(why))
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encrypted_keys_are_named_with_the_fix() {
        let new =
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n";
        let old = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\n\
                   MAA=\n-----END RSA PRIVATE KEY-----\n";
        for key in [new, old] {
            let refused = Tls::new().identity("CERT", key).connector().err().unwrap().to_string();
            assert!(refused.contains("is encrypted: write it to a file"), "{refused}");
        }
    }

    #[test]
    fn file_without_a_key_is_refused_with_a_reason() {
        for key in ["", "no key", "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"]
        {
            let refused = Tls::new().identity("CERT", key).connector().err().unwrap().to_string();
            let said = "TLS: the client's private key: there is no private key in the PEM text";
            assert_eq!(refused, said, "{key:?}");
        }
    }

    #[test]
    fn pem_without_a_certificate_is_refused() {
        for pem in ["", "no pem", "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n"] {
            assert!(Tls::new().ca(pem).connector().is_err(), "{pem:?}");
        }
    }
}
