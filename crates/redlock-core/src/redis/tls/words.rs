//! Describes TLS failures in a sentence that names the cause and the fix. The TLS library's own
//! messages are names from its enums, and contain neither.

use std::io;

use tokio_rustls::rustls::{AlertDescription, CertificateError, Error};

use super::super::stream::{not_connected, unusable};
use crate::{Cause, NoConnection, TlsFault, printable};

/// Returns the cause of an error that TLS has reported. `None` if it comes from below TLS.
pub(in crate::redis) fn cause(error: &io::Error) -> Option<Cause> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    let is_refusal = matches!(error, Error::AlertReceived(alert) if REFUSALS.contains(alert));
    if is_refusal {
        let text = format!("TLS: {}", words(error));
        return Some(unusable(NoConnection::of_tls(TlsFault::Rejected, text)));
    }
    let (why, lasts) = (failed(words(error)), matches!(error, Error::InvalidCertificate(_)));
    Some(if lasts { unusable(why) } else { not_connected(why) })
}

/// The server has ended the connection before TLS was agreed upon.
pub(super) const HUNG_UP: &str = "the server closed the connection during the handshake: it might \
    not speak TLS on this port (redis:// is without TLS), or it rejects this client's certificate";

/// Returns the reason for a failed handshake.
pub(super) fn failed(words: impl std::fmt::Display) -> NoConnection {
    NoConnection::of_tls(TlsFault::Failed, format!("TLS: {words}"))
}

/// The alerts of a server that does not accept this client's certificate: it will not change its
/// mind.
const REFUSALS: [AlertDescription; 8] = [
    AlertDescription::CertificateRequired,
    AlertDescription::UnknownCA,
    AlertDescription::BadCertificate,
    AlertDescription::CertificateUnknown,
    AlertDescription::CertificateExpired,
    AlertDescription::CertificateRevoked,
    AlertDescription::UnsupportedCertificate,
    AlertDescription::AccessDenied,
];

fn words(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(why) => certificate(why),
        Error::AlertReceived(alert) => alerted(*alert),
        Error::InvalidMessage(_) => "the server does not speak TLS on this port: use redis://, or \
                                     the port that speaks TLS"
            .into(),
        Error::PeerIncompatible(_) => {
            "the server and this client have no TLS version or cipher in \
                                       common: let the server accept TLS 1.2 or 1.3"
                .into()
        }
        Error::PeerMisbehaved(why) => {
            format!("the server does not follow the TLS protocol ({})", plain(why))
        }
        other => other.to_string(),
    }
}

fn certificate(why: &CertificateError) -> String {
    use CertificateError as E;
    match why {
        E::UnknownIssuer | E::BadSignature => {
            "no trusted CA has signed the server's certificate: trust the CA that signed it \
             (--tls-ca FILE)"
                .into()
        }
        E::Expired | E::ExpiredContext { .. } => {
            "the server's certificate has expired: renew it, or correct the clock of this host"
                .into()
        }
        E::NotValidYet | E::NotValidYetContext { .. } => {
            "the server's certificate is not valid yet: correct the clock of this host, or replace \
             the certificate"
                .into()
        }
        E::NotValidForName => not_for(None, &[]),
        E::NotValidForNameContext { expected, presented } => {
            not_for(Some(&expected.to_str()), presented)
        }
        E::InvalidPurpose | E::InvalidPurposeContext { .. } => {
            "the server's certificate is not for servers: replace it with a certificate for the \
             purpose serverAuth"
                .into()
        }
        E::Revoked => "the server's certificate was revoked: replace it".into(),
        // The library does not name this one: only its debug output does.
        E::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "the server shows the certificate of a CA as its own: replace it with a certificate \
             that the CA has signed"
                .into()
        }
        other if is_too_old(other) => {
            "the server's certificate has X.509 version 1, which has no alternative names: replace it \
             with a certificate of version 3"
                .into()
        }
        other if is_of_weak_signature(other) => {
            "the server's certificate has an unsupported signature algorithm, such as SHA-1: \
             replace it with a certificate signed with SHA-256"
                .into()
        }
        E::BadEncoding => "the server's certificate is malformed: replace it".into(),
        other => format!("the server's certificate cannot be used ({}): replace it", plain(other)),
    }
}

/// Describes why our own certificate, with its key, cannot be used.
pub(super) fn of_identity(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(why) if is_too_old(why) => "it has X.509 version 1: replace it \
                                                              with a certificate of version 3"
            .into(),
        Error::InconsistentKeys(_) => "the key does not belong to the certificate".into(),
        Error::InvalidCertificate(CertificateError::BadEncoding) => "it is malformed".into(),
        Error::InvalidCertificate(why) => format!("it cannot be used ({})", plain(why)),
        other => other.to_string(),
    }
}

/// Returns `true` if a certificate's version is below 3. The library has no name for this error, so
/// its debug output is searched.
fn is_too_old(why: &CertificateError) -> bool {
    matches!(why, CertificateError::Other(other) if format!("{other:?}").contains("UnsupportedCertVersion"))
}

fn is_of_weak_signature(why: &CertificateError) -> bool {
    format!("{why:?}").starts_with("UnsupportedSignatureAlgorithm")
}

fn not_for(name: Option<&str>, names: &[String]) -> String {
    let name = name.map(|name| format!(" {name}")).unwrap_or_default();
    let names = match names {
        [] => "no name".to_owned(),
        // `DnsName("a")` and `IpAddress(127.0.0.1)` are for programmers.
        names => {
            printable::line(&names.iter().map(|name| bare(name)).collect::<Vec<_>>().join(" and "))
        }
    };
    format!(
        "the server's certificate is not for the host{name} of the URL but for {names}: use such \
         a host, or replace the certificate with one for this host"
    )
}

fn bare(name: &str) -> &str {
    let inner = name.split_once('(').map_or(name, |(_, inner)| inner.trim_end_matches(')'));
    inner.trim_matches('"')
}

fn alerted(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => {
            "the server requires a certificate of the client: use --tls-cert FILE and --tls-key \
             FILE"
                .into()
        }
        AlertDescription::UnknownCA => {
            "the server does not trust the CA that signed this client's certificate: use a \
             certificate of a CA that it trusts, or add the CA to its tls-ca-cert-file"
                .into()
        }
        AlertDescription::CertificateExpired => {
            "the server rejects this client's certificate, because it has expired or is not valid \
             yet: renew it, or correct the clocks of both hosts"
                .into()
        }
        alert if REFUSALS.contains(&alert) => format!(
            "the server rejects this client's certificate ({}): use --tls-cert FILE and --tls-key \
             FILE of a CA that the server trusts",
            plain(alert)
        ),
        other => format!(
            "the server rejects the connection ({}): its log says why, and it may require a \
             certificate of the client (--tls-cert, --tls-key)",
            plain(other)
        ),
    }
}

/// Returns a name of the TLS library as ordinary words: `BadCertificate { .. }` is *bad
/// certificate*.
fn plain(name: impl std::fmt::Debug) -> String {
    let name = format!("{name:?}");
    let end = name.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(name.len());
    let mut words = String::new();
    for letter in name[..end].chars() {
        if letter.is_ascii_uppercase() && words.ends_with(|c: char| c.is_ascii_lowercase()) {
            words.push(' ');
        }
        words.push(letter);
    }
    words.to_lowercase()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio_rustls::rustls::pki_types::ServerName;
    use tokio_rustls::rustls::{OtherError, PeerIncompatible, PeerMisbehaved};

    use super::*;

    fn said(why: CertificateError) -> String {
        let error = io::Error::new(io::ErrorKind::InvalidData, Error::InvalidCertificate(why));
        cause(&error).unwrap().to_string()
    }

    #[derive(Debug)]
    struct CaUsedAsEndEntity;
    impl std::fmt::Display for CaUsedAsEndEntity {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "{self:?}")
        }
    }
    impl std::error::Error for CaUsedAsEndEntity {}

    #[test]
    fn unusable_certificate_is_reported_with_a_fix() {
        let other = CertificateError::Other(OtherError(Arc::new(CaUsedAsEndEntity)));
        let said_of_ca = said(other);
        assert!(said_of_ca.contains("that the CA has signed"), "{said_of_ca}");
        assert!(!said_of_ca.contains("CaUsed"), "{said_of_ca}");
        #[derive(Debug)]
        struct UnsupportedCertVersion;
        impl std::fmt::Display for UnsupportedCertVersion {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{self:?}")
            }
        }
        impl std::error::Error for UnsupportedCertVersion {}
        let old = CertificateError::Other(OtherError(Arc::new(UnsupportedCertVersion)));
        assert!(of_identity(&Error::InvalidCertificate(old.clone())).starts_with("it has X.509"));
        assert!(said(old).contains("has X.509 version 1"));
        assert!(said(CertificateError::UnknownIssuer).contains("--tls-ca FILE"));
        let expected = ServerName::try_from("redis.example").unwrap();
        let presented = vec!["DnsName(\"other.example\")".into(), "IpAddress(10.0.0.1)".into()];
        let said = said(CertificateError::NotValidForNameContext { expected, presented });
        assert!(
            said.contains("the host redis.example of the URL but for other.example and 10.0.0.1:"),
            "{said}"
        );
    }

    #[test]
    fn alert_is_reported_with_a_fix_and_is_permanent() {
        let alert = Error::AlertReceived(AlertDescription::CertificateRequired);
        let cause = cause(&io::Error::new(io::ErrorKind::InvalidData, alert)).unwrap();
        assert!(!cause.is_curable() && cause.tls() == Some(TlsFault::Rejected));
        assert!(cause.to_string().contains("--tls-cert FILE"), "{cause}");
    }

    #[test]
    fn no_text_has_a_name_of_the_tls_library() {
        use AlertDescription as Alert;
        for (error, name) in [
            (Error::AlertReceived(Alert::UnknownCA), "UnknownCA"),
            (Error::AlertReceived(Alert::CertificateExpired), "CertificateExpired"),
            (Error::AlertReceived(Alert::BadCertificate), "BadCertificate"),
            (Error::AlertReceived(Alert::HandshakeFailure), "HandshakeFailure"),
            (Error::InvalidCertificate(CertificateError::BadEncoding), "BadEncoding"),
            (Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered), "Tls12NotOffered"),
            (Error::PeerMisbehaved(PeerMisbehaved::TooMuchEarlyDataReceived), "TooMuchEarly"),
        ] {
            assert!(!words(&error).contains(name), "{}", words(&error));
        }
        let unusable = Error::InvalidCertificate(CertificateError::UnhandledCriticalExtension);
        assert!(words(&unusable).contains("(unhandled critical extension)"));
        assert_eq!(of_identity(&unusable), "it cannot be used (unhandled critical extension)");
    }

    #[test]
    fn errors_below_tls_have_other_words() {
        assert_eq!(cause(&io::ErrorKind::ConnectionReset.into()), None);
    }
}
