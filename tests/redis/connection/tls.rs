//! Masters with TLS, which only clients that know their CA can use.

use std::net::TcpListener;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use redlock_quorum::{AcquireError, Cause, Tls, Verdict};
use redlock_testkit::{RedisServer, ServerOptions};

use crate::lab::{has_tls, patient};

/// A CA, a certificate that it has signed, and the files in which a server wants them.
struct Pki {
    ca: String,
    cert: String,
    key: String,
    files: PathBuf,
}

impl Pki {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // With the name that certificates have by default, the server would take it for its own CA.
        params.distinguished_name.push(DnType::CommonName, "a CA for tests");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_key = KeyPair::generate().unwrap();
        let ca = params.self_signed(&ca_key).unwrap().pem();
        let issuer = Issuer::new(params, ca_key);
        let key = KeyPair::generate().unwrap();
        let names = vec!["127.0.0.1".into(), "localhost".into()];
        let cert = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
        let files = std::env::temp_dir().join(format!("redlock-tls-{name}-{}", std::process::id()));
        let pki = Self { ca, cert: cert.pem(), key: key.serialize_pem(), files };
        std::fs::create_dir_all(&pki.files).unwrap();
        for (file, pem) in [("ca", &pki.ca), ("cert", &pki.cert), ("key", &pki.key)] {
            std::fs::write(pki.file(file), pem).unwrap();
        }
        pki
    }

    fn file(&self, name: &str) -> PathBuf {
        self.files.join(name)
    }

    /// A server with a TLS port, and that port.
    fn server(&self, clients_need_certificates: bool) -> (RedisServer, u16) {
        // If another process takes the port before the server does, another port is tried.
        for _ in 0..20 {
            let probe = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = probe.local_addr().unwrap().port();
            drop(probe);
            let auth = if clients_need_certificates { "yes" } else { "no" };
            let path = |path: &Path| path.display().to_string();
            let options = ServerOptions::new()
                .arguments(["--tls-port", &port.to_string(), "--tls-auth-clients", auth])
                .arguments(["--tls-cert-file", &path(&self.file("cert"))])
                .arguments(["--tls-key-file", &path(&self.file("key"))])
                .arguments(["--tls-ca-cert-file", &path(&self.file("ca"))]);
            if let Ok(server) = RedisServer::with(&options) {
                return (server, port);
            }
        }
        panic!("no server starts with a TLS port: was it built without TLS?");
    }
}

impl Drop for Pki {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.files);
    }
}

fn urls(servers: &[(RedisServer, u16)]) -> Vec<String> {
    servers.iter().map(|(_, port)| format!("rediss://127.0.0.1:{port}")).collect()
}

#[tokio::test]
async fn client_trusting_the_ca_locks_over_tls() {
    if !has_tls() {
        return;
    }
    let pki = Pki::new("trust");
    let servers: Vec<_> = (0..3).map(|_| pki.server(false)).collect();
    let redlock = patient(urls(&servers)).tls(Tls::new().ca(pki.ca.as_str())).build().unwrap();
    let guard = redlock.lock("a").await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn untrusted_server_gets_no_request() {
    if !has_tls() {
        return;
    }
    let (pki, other) = (Pki::new("theirs"), Pki::new("ours"));
    let servers = [pki.server(false)];
    let redlock = patient(urls(&servers)).tls(Tls::new().ca(other.ca.as_str())).build().unwrap();
    let error = redlock.try_lock("a").await.unwrap_err();
    let AcquireError::NoQuorum { votes, .. } = &error else { panic!("{error}") };
    let said = &votes.iter().next().unwrap().verdict;
    let Verdict::Unknown(Cause::Unusable(why)) = said else { panic!("{said}") };
    assert!(why.as_str().contains("certificate"), "{why}");
}

#[tokio::test]
async fn client_certificate_is_sent_on_request() {
    if !has_tls() {
        return;
    }
    let pki = Pki::new("mutual");
    let servers = [pki.server(true)];
    let ours = Tls::new().ca(pki.ca.as_str()).identity(pki.cert.as_str(), pki.key.as_str());
    let redlock = patient(urls(&servers)).tls(ours).build().unwrap();
    redlock.try_lock("a").await.unwrap().release().await.unwrap();
    let unknown = patient(urls(&servers)).tls(Tls::new().ca(pki.ca.as_str())).build().unwrap();
    let error = unknown.try_lock("a").await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
}
