//! Certificates and keys of every kind, on servers that speak TLS: each works, or fails with a
//! cause that names the fix.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use redlock_quorum::environment::{Pem, PemFile, PemFiles};
use redlock_quorum::{Redlock, Tls};
use redlock_testkit::{RedisServer, ServerOptions};

use crate::lab::{has_tls, on_all, patient};

/// A folder with a CA that signs certificates.
struct Authority {
    files: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, format!("the CA of {name}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let files = std::env::temp_dir().join(format!("redlock-ca-{name}-{}", std::process::id()));
        fs::create_dir_all(&files).unwrap();
        fs::write(files.join("ca"), params.self_signed(&key).unwrap().pem()).unwrap();
        fs::write(files.join("ca-key"), key.serialize_pem()).unwrap();
        Self { files, issuer: Issuer::new(params, key) }
    }

    fn path(&self, name: &str) -> String {
        self.files.join(name).display().to_string()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.files.join(name)).unwrap()
    }

    /// Signs a certificate with its key in PKCS#8.
    fn sign(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) {
        let mut params = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(self.files.join(name), cert.pem()).unwrap();
        fs::write(self.files.join(format!("{name}-key")), key.serialize_pem()).unwrap();
    }

    /// Signs a certificate for a key that `openssl` makes with these words.
    fn sign_by_openssl(&self, name: &str, key: &str, words: &str) {
        let (key_file, request) = (self.path(&format!("{name}-key")), self.path("request"));
        openssl(&format!("{key} -out {key_file}"));
        openssl(&format!("req -new -key {key_file} -subj /CN={name} -out {request}"));
        let extensions = self.path("extensions");
        fs::write(&extensions, "subjectAltName=IP:127.0.0.1\n").unwrap();
        let (ca, ca_key, cert) = (self.path("ca"), self.path("ca-key"), self.path(name));
        let words = words.replace("EXTENSIONS", &extensions);
        openssl(&format!(
            "x509 -req -in {request} -CA {ca} -CAkey {ca_key} -set_serial 7 -days 2 -out {cert} {words}"
        ));
    }

    /// A server with this certificate, and the URL of its TLS port.
    fn server(&self, cert: &str, clients: &str) -> (RedisServer, String) {
        // OpenSSL would refuse to show what clients refuse.
        let lax = "openssl_conf = all\n[all]\nssl_conf = ssl\n[ssl]\nsystem_default = lax\n\
                   [lax]\nCipherString = DEFAULT:@SECLEVEL=0\n";
        fs::write(self.files.join("lax"), lax).unwrap();
        // If another process takes the port before the server does, another port is tried.
        for _ in 0..20 {
            let probe = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = probe.local_addr().unwrap().port();
            drop(probe);
            let options = ServerOptions::new()
                .variable("OPENSSL_CONF", self.path("lax"))
                .arguments(["--tls-port", &port.to_string(), "--tls-auth-clients", clients])
                .arguments(["--tls-cert-file", &self.path(cert)])
                .arguments(["--tls-key-file", &self.path(&format!("{cert}-key"))])
                .arguments(["--tls-ca-cert-file", &self.path("ca")]);
            if let Ok(server) = RedisServer::with(&options) {
                return (server, format!("rediss://127.0.0.1:{port}"));
            }
        }
        panic!("no server starts with a TLS port: was it built without TLS?");
    }

    fn trusted(&self) -> Tls {
        Tls::new().ca(self.read("ca"))
    }

    fn identity(&self, name: &str) -> Tls {
        self.trusted().identity(self.read(name), self.read(&format!("{name}-key")))
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.files);
    }
}

fn openssl(words: &str) {
    let output = Command::new("openssl").args(words.split_whitespace()).output();
    let output = output.expect("openssl is installed");
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
}

const EC: &str = "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256";

fn handle(url: &str, tls: Tls) -> Redlock {
    patient([url.to_owned()]).tls(tls).build().unwrap()
}

async fn works(redlock: &Redlock) {
    redlock.try_lock("k").await.unwrap().release().await.unwrap();
}

async fn cause(url: &str, tls: Tls) -> String {
    handle(url, tls).try_lock("k").await.unwrap_err().to_string()
}

#[tokio::test]
async fn unusable_server_certificate_is_named_with_the_fix() {
    if !has_tls() {
        return;
    }
    let ca = Authority::new("servers");
    ca.sign("wrong", |params| params.subject_alt_names.clear());
    ca.sign("expired", |params| params.not_after = date_time_ymd(2020, 1, 1));
    ca.sign("early", |params| params.not_before = date_time_ymd(2999, 1, 1));
    ca.sign_by_openssl("v1", EC, "-sha256");
    ca.sign_by_openssl("sha1", EC, "-sha1 -extfile EXTENSIONS");
    for (cert, why) in [
        ("wrong", "is not for the host 127.0.0.1 of the URL"),
        ("expired", "has expired: renew it, or correct the clock"),
        ("early", "is not valid yet: correct the clock"),
        ("v1", "has X.509 version 1"),
        ("sha1", "has an unsupported signature algorithm, such as SHA-1"),
    ] {
        let (_server, url) = ca.server(cert, "no");
        let said = cause(&url, ca.trusted()).await;
        assert!(said.contains("TLS: the server's certificate ") && said.contains(why), "{said}");
    }
}

#[tokio::test]
async fn self_signed_certificate_works_unless_marked_as_a_ca() {
    if !has_tls() {
        return;
    }
    let ca = Authority::new("self-signed");
    let own = |is_ca: IsCa| {
        let mut params = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap();
        params.is_ca = is_ca;
        let key = KeyPair::generate().unwrap();
        fs::write(ca.path("own"), params.self_signed(&key).unwrap().pem()).unwrap();
        fs::write(ca.path("own-key"), key.serialize_pem()).unwrap();
        (ca.server("own", "no"), Tls::new().ca(ca.read("own")))
    };
    let ((_server, url), tls) = own(IsCa::ExplicitNoCa);
    works(&handle(&url, tls)).await;
    let ((_server, url), tls) = own(IsCa::Ca(BasicConstraints::Unconstrained));
    let said = cause(&url, tls).await;
    assert!(said.contains("the server shows the certificate of a CA as its own"), "{said}");
}

#[tokio::test]
async fn keys_in_every_form_without_a_passphrase_work() {
    if !has_tls() {
        return;
    }
    let ca = Authority::new("keys");
    ca.sign("server", |_| {});
    let (_server, url) = ca.server("server", "yes");
    ca.sign("pkcs8", |_| {});
    ca.sign_by_openssl("rsa", "genrsa -traditional", "-sha256 -extfile EXTENSIONS");
    ca.sign_by_openssl(
        "sec1",
        "ecparam -genkey -noout -name prime256v1",
        "-sha256 -extfile EXTENSIONS",
    );
    for (name, head) in [
        ("pkcs8", "BEGIN PRIVATE KEY"),
        ("rsa", "BEGIN RSA PRIVATE KEY"),
        ("sec1", "BEGIN EC PRIVATE KEY"),
    ] {
        assert!(ca.read(&format!("{name}-key")).contains(head), "{name}");
        works(&handle(&url, ca.identity(name))).await;
    }
    let said = cause(&url, ca.trusted()).await;
    assert!(said.contains("requires a certificate of the client"), "{said}");
}

#[tokio::test]
async fn unusable_client_identity_is_named_with_the_fix() {
    let ca = Authority::new("identities");
    ca.sign("good", |_| {});
    let (good, key) = (ca.path("good-key"), |name: &str| ca.path(name));
    openssl(&format!("pkcs8 -topk8 -passout pass:x -in {good} -out {}", key("new")));
    openssl(&format!("ec -aes256 -passout pass:x -in {good} -out {}", key("old")));
    for name in ["new", "old"] {
        let tls = ca.trusted().identity(ca.read("good"), ca.read(name));
        let refused = patient(["rediss://127.0.0.1:1".into()]).tls(tls).build().unwrap_err();
        assert!(refused.to_string().contains("is encrypted: write it to a file"), "{refused}");
    }
    ca.sign_by_openssl("v1", EC, "-sha256");
    let refused = patient(["rediss://127.0.0.1:1".into()]).tls(ca.identity("v1")).build();
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("X.509 version 1: replace it"), "{refused}");
}

#[tokio::test]
async fn bundle_with_a_bad_certificate_trusts_the_good_ones() {
    if !has_tls() {
        return;
    }
    let ca = Authority::new("bundle");
    ca.sign("server", |_| {});
    let (_server, url) = ca.server("server", "no");
    let bad = "-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n";
    works(&handle(&url, Tls::new().ca(format!("{bad}{}", ca.read("ca"))))).await;
}

#[tokio::test]
async fn server_without_tls_is_named() {
    let server = RedisServer::start().unwrap();
    let ca = Authority::new("plain");
    let url = server.url().replace("redis://", "rediss://");
    let said = cause(&url, ca.trusted()).await;
    assert!(said.contains("might not speak TLS on this port"), "{said}");
}

/// Files that are read once would end the locks of a program on the day that its certificate does.
#[tokio::test]
async fn rotated_certificates_are_used_for_the_next_connection() {
    if !has_tls() {
        return;
    }
    let (ca, next) = (Authority::new("rotates"), Authority::new("rotated"));
    ca.sign("server", |_| {});
    ca.sign("client", |_| {});
    next.sign("server", |_| {});
    next.sign("client", |_| {});
    let (server, url) = ca.server("server", "yes");
    let file = |name: &str| Some(PemFile { path: ca.path(name).into(), origin: name.into() });
    let files = PemFiles { ca: file("ca"), cert: file("client"), key: file("client-key") };
    let pem: Pem = files.read().unwrap();
    let redlock = patient([url]).pem(&pem).build().unwrap();
    works(&redlock).await;
    for name in ["ca", "client", "client-key", "server", "server-key"] {
        fs::copy(next.path(name), ca.path(name)).unwrap();
    }
    // It reads all of the files again.
    server.command(&["CONFIG", "SET", "tls-cert-file", &ca.path("server")]).unwrap();
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
    on_all(|| redlock.lock("k")).await.release().await.unwrap();
}
