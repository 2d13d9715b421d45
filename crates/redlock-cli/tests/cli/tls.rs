//! Masters that speak TLS.

use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;
use std::{fs, thread};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use redlock_testkit::RedisServer;
use tokio::runtime::Builder;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use crate::support::{Answer, Scratch, answer_of, bare, poll};

/// A CA, and a certificate of it for servers and clients, as files.
fn pki(name: &str) -> Scratch {
    let files = Scratch::new(name);
    let params = params_of_ca(name);
    let ca_key = KeyPair::generate().unwrap();
    let ca = params.self_signed(&ca_key).unwrap().pem();
    fs::write(files.file("ca-key"), ca_key.serialize_pem()).unwrap();
    let issuer = Issuer::new(params, ca_key);
    let key = KeyPair::generate().unwrap();
    let cert = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap();
    let cert = cert.signed_by(&key, &issuer).unwrap().pem();
    for (file, pem) in [("ca", ca), ("cert", cert), ("key", key.serialize_pem())] {
        fs::write(files.file(file), pem).unwrap();
    }
    files
}

fn params_of_ca(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    // With the name that certificates have by default, the server would take it for its own CA.
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

/// Starts a server behind a TLS proxy that requires client certificates, and returns its URL. Not
/// every installed server supports TLS itself.
fn server(files: &Scratch) -> (RedisServer, String) {
    let server = RedisServer::start().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("rediss://{}", listener.local_addr().unwrap());
    let (acceptor, port) = (acceptor(files), server.port());
    // It ends with the process of the test.
    thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(serve(listener, acceptor, port));
    });
    (server, url)
}

fn acceptor(files: &Scratch) -> TlsAcceptor {
    let pem = |name| fs::read(files.file(name)).unwrap();
    let certificates = |name| -> Vec<_> {
        CertificateDer::pem_slice_iter(&pem(name))
            .map(Result::unwrap)
            .map(|c| c.into_owned())
            .collect()
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates("ca"));
    let provider = Arc::new(ring::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients.build().unwrap())
        .with_single_cert(certificates("cert"), PrivateKeyDer::from_pem_slice(&pem("key")).unwrap())
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, port: u16) {
    listener.set_nonblocking(true).unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    loop {
        let (client, _) = listener.accept().await.unwrap();
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            // A client that does not trust us disconnects, which the test expects.
            let Ok(mut client) = acceptor.accept(client).await else { return };
            let mut server = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
        });
    }
}

fn redlock(url: &str, ca: &Scratch, ours: &Scratch) -> Command {
    let mut command = bare(["--node", url]);
    command.arg("--tls-ca").arg(ca.file("ca")).arg("--tls-cert").arg(ours.file("cert"));
    command.arg("--tls-key").arg(ours.file("key"));
    command
}

#[test]
fn locks_are_listed_and_deleted_over_tls_with_our_certificate() {
    let files = pki("tls-list");
    let (_server, url) = server(&files);
    let ask = |words: &[&str]| -> Answer { answer_of(redlock(&url, &files, &files).args(words)) };
    ask(&["acquire", "k"]).success();
    assert!(ask(&["status"]).success().starts_with("k  held by "));
    ask(&["release", "--force", "k", "--yes"]).success();
    assert_eq!(ask(&["status"]).success(), "no lock is held");
}

#[test]
fn untrusted_certificate_ends_the_wait_and_names_the_file() {
    let (theirs, ours) = (pki("tls-theirs"), pki("tls-ours"));
    let (_server, url) = server(&theirs);
    let mut command = redlock(&url, &ours, &theirs);
    let answer = answer_of(command.args(["acquire", "k", "--wait", "forever"]));
    assert_eq!(answer.code, 69, "{answer:?}");
    let said = "not connected: TLS: no trusted CA has signed the server's certificate: ";
    assert!(answer.cause().contains(said), "{answer:?}");
    let file = ours.file("ca").display().to_string();
    let trusted = format!("; redlock trusts the CA certificates of --tls-ca {file}; ");
    assert!(answer.cause().contains(&trusted), "{answer:?}");
}

/// Handmade certificates are often CA certificates, and are trusted as such.
#[test]
fn server_showing_its_ca_certificate_is_reported() {
    let files = pki("tls-ca-as-server");
    let mut params = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let ca = params.self_signed(&key).unwrap().pem();
    for (file, pem) in [("ca", &ca), ("cert", &ca), ("key", &key.serialize_pem())] {
        fs::write(files.file(file), pem).unwrap();
    }
    let (_server, url) = server(&files);
    let answer = answer_of(redlock(&url, &files, &files).args(["status", "k"]));
    assert_eq!(answer.code, 69, "{answer:?}");
    let said = "TLS: the server shows the certificate of a CA as its own: replace it";
    assert!(answer.cause().contains(said), "{answer:?}");
}

#[test]
fn server_requiring_a_certificate_is_reported() {
    let files = pki("tls-no-cert");
    let (_server, url) = server(&files);
    let mut command = bare(["--node", &url, "status", "k"]);
    let answer = answer_of(command.arg("--tls-ca").arg(files.file("ca")));
    assert_eq!(answer.code, 69, "{answer:?}");
    let said = "the server requires a certificate of the client: use --tls-cert FILE";
    assert!(answer.cause().contains(said), "{answer:?}");
}

#[test]
fn invalid_private_key_is_named_with_its_file() {
    let files = pki("tls-key");
    fs::write(files.file("key"), "no key").unwrap();
    let mut command = redlock("rediss://127.0.0.1:1", &files, &files);
    let answer = answer_of(command.args(["status", "k"]));
    assert_eq!(answer.code, 64, "{answer:?}");
    let [cert, key] = ["cert", "key"].map(|name| files.file(name).display().to_string());
    let said =
        format!("redlock: --tls-cert {cert}, --tls-key {key}: TLS: the client's private key: ");
    assert!(answer.cause().starts_with(&said), "{answer:?}");
}

/// Neither a name of the TLS library nor the contents are shown.
#[test]
fn damaged_ca_is_named_with_file_and_certificate() {
    let files = pki("tls-damaged");
    let ca = fs::read_to_string(files.file("ca")).unwrap();
    let damaged = ca.replacen("\nM", "\n*", 1);
    fs::write(files.file("ca"), format!("{ca}{damaged}")).unwrap();
    let answer = answer_of(redlock("rediss://127.0.0.1:1", &files, &files).arg("doctor"));
    assert_eq!(answer.code, 64, "{answer:?}");
    let said = format!(
        "redlock: --tls-ca {}: TLS: the CA: certificate 2 in it is damaged: a character between",
        files.file("ca").display()
    );
    assert!(answer.cause().starts_with(&said), "{answer:?}");
}

#[test]
fn rejected_certificate_of_the_client_is_named_with_its_file() {
    let (files, other) = (pki("tls-client"), pki("tls-other"));
    let (_server, url) = server(&files);
    let answer = answer_of(redlock(&url, &files, &other).args(["status", "k"]));
    assert_eq!(answer.code, 69, "{answer:?}");
    let cert = other.file("cert").display().to_string();
    let shown = format!("; redlock shows the certificate of --tls-cert {cert}");
    assert!(answer.cause().ends_with(&shown), "{answer:?}");
    for name in ["UnknownCA", "DecryptError", "BadCertificate", "CertificateUnknown"] {
        assert!(!answer.err.contains(name), "{answer:?}");
    }
}

#[test]
fn expired_certificate_of_the_client_is_reported() {
    let files = pki("tls-expired");
    let (_server, url) = server(&files);
    let key = fs::read_to_string(files.file("ca-key")).unwrap();
    let issuer = Issuer::new(params_of_ca("tls-expired"), KeyPair::from_pem(&key).unwrap());
    let mut params = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap();
    (params.not_before, params.not_after) =
        (rcgen::date_time_ymd(2001, 1, 1), rcgen::date_time_ymd(2002, 1, 1));
    let ours = pki("tls-expired-ours");
    let key = KeyPair::generate().unwrap();
    fs::write(ours.file("cert"), params.signed_by(&key, &issuer).unwrap().pem()).unwrap();
    fs::write(ours.file("key"), key.serialize_pem()).unwrap();
    let answer = answer_of(redlock(&url, &files, &ours).args(["status", "k"]));
    assert!(answer.cause().contains("because it has expired or is not valid yet"), "{answer:?}");
    assert!(!answer.err.contains("CertificateExpired"), "{answer:?}");
}

#[test]
fn plain_url_of_a_tls_server_is_reported() {
    let files = pki("tls-plain");
    let (_server, url) = server(&files);
    let url = url.replace("rediss://", "redis://");
    for words in [&["status", "k"][..], &["acquire", "k"], &["doctor"]] {
        let answer = answer_of(redlock(&url, &files, &files).args(words));
        let said = format!("{}{}", answer.out, answer.err);
        assert!(said.contains("TLS on this port") && said.contains("rediss://"), "{answer:?}");
    }
    let doctor = answer_of(redlock(&url, &files, &files).arg("doctor"));
    assert!(doctor.out.contains("fix:    if this port speaks TLS, use rediss://"), "{doctor:?}");
}

#[test]
fn server_without_tls_is_reported() {
    let server = RedisServer::start().unwrap();
    let files = pki("tls-none");
    let url = format!("rediss://127.0.0.1:{}", server.port());
    let redlock = |words: &[&str]| {
        let mut command = redlock(&url, &files, &files);
        // Longer than it takes to give the handshake up.
        answer_of(command.env("REDLOCK_NODE_TIMEOUT", "5s").args(words))
    };
    // If the machine stalls between the ends of the handshake and of the connection, both have timed out.
    let until = |words: &[&str], said: &str| {
        poll(said, || {
            let answer = redlock(words);
            assert_ne!(answer.code, 0, "{answer:?}");
            format!("{}{}", answer.out, answer.err).contains(said).then_some(())
        });
    };
    until(
        &["status", "k"],
        "not connected: no answer to the TLS handshake: the server might not speak TLS on this port",
    );
    until(
        &["doctor"],
        "fix:    if this port does not speak TLS, use redis://, or the port that does;",
    );
}

/// CA bundles contain certificates that no library can read. The others in the bundle still apply.
#[test]
fn bundle_with_an_unusable_certificate_is_trusted() {
    let files = pki("tls-bundle");
    let (_server, url) = server(&files);
    let ca = fs::read_to_string(files.file("ca")).unwrap();
    let unusable = "-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n";
    fs::write(files.file("ca"), format!("{unusable}{ca}")).unwrap();
    let ask = |words: &[&str]| -> Answer { answer_of(redlock(&url, &files, &files).args(words)) };
    ask(&["acquire", "k"]).success();
    assert!(ask(&["status"]).success().starts_with("k  held by "));
    let doctor = ask(&["doctor", "--json"]);
    assert_eq!(doctor.json()["nodes"][0]["unexamined"], serde_json::Value::Null, "{doctor:?}");
    ask(&["release", "--force", "k", "--yes"]).success();
}

#[test]
fn private_key_in_place_of_its_file_is_not_shown() {
    const KEY: &str = "-----BEGIN PRIVATE KEY-----\nsesame\n-----END PRIVATE KEY-----";
    for words in [&["doctor"][..], &["doctor", "--json"], &["acquire", "k"]] {
        for has_options in [false, true] {
            let mut command = bare([]);
            command.args(words).env("REDLOCK_NODES", "rediss://127.0.0.1:1");
            match has_options {
                true => command.args(["--tls-cert", "/dev/null", "--tls-key", KEY]),
                false => command.env("REDLOCK_TLS_CERT", "/dev/null").env("REDLOCK_TLS_KEY", KEY),
            };
            let answer = answer_of(&mut command);
            let shown = format!("{answer:?}");
            assert!(answer.code != 0 && !shown.contains("sesame"), "{words:?}: {shown}");
        }
    }
}
