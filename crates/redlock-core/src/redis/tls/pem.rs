//! Certificates and keys in PEM, and what is wrong with them. No text shows any of their contents.

use tokio_rustls::rustls::pki_types::pem::{Error, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Returns the certificates in a file. `what` names its purpose.
pub(super) fn certificates(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let mut found = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let place = found.len() + 1;
        found.push(certificate.map_err(|error| format!("{what}: {}", damage(place, &error)))?);
    }
    match found.is_empty() {
        true => Err(format!("{what}: there is no certificate in the PEM text")),
        false => Ok(found),
    }
}

/// Returns the private key in a file.
pub(super) fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    let of_key = |why: &str| format!("the client's private key: {why}");
    if is_encrypted(pem) {
        return Err(ENCRYPTED.into());
    }
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        Error::NoItemsFound => of_key("there is no private key in the PEM text"),
        error => of_key(&format!("{}; copy the file again", fault(&error))),
    })
}

/// Describes the certificate at this place of a file that cannot be read.
fn damage(place: usize, error: &Error) -> String {
    format!("certificate {place} in it is damaged: {}; remove it or copy it again", fault(error))
}

fn fault(error: &Error) -> &'static str {
    match error {
        Error::MissingSectionEnd { .. } => {
            "its -----END line is missing, or is not a separate line"
        }
        Error::IllegalSectionStart { .. } => "its -----BEGIN line does not end with five dashes",
        Error::Base64Decode(_) => "a character between its -----BEGIN and -----END is not base64",
        Error::SectionTooLarge => "it is too large",
        _ => "it cannot be read",
    }
}

const ENCRYPTED: &str = "the client's private key is encrypted: write it to a file without a \
                         passphrase (openssl pkey -in KEY -out NEW), which only this user can read";

/// Both forms of PEM for an encrypted key have the word in their head.
fn is_encrypted(pem: &[u8]) -> bool {
    const WORD: &[u8] = b"ENCRYPTED";
    pem.windows(WORD.len()).any(|word| word == WORD)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";

    #[test]
    fn damaged_certificate_is_named_by_its_place() {
        for (damaged, why) in [
            ("-----BEGIN CERTIFICATE-----\nM*A=\n-----END CERTIFICATE-----\n", "is not base64"),
            ("-----BEGIN CERTIFICATE-----\nMAA=\n", "its -----END line is missing"),
            ("-----BEGIN CERTIFICATE---\nMAA=\n", "does not end with five dashes"),
        ] {
            let refused = certificates("the CA", &[WHOLE, damaged].concat().into_bytes());
            let refused = refused.unwrap_err();
            let begin = "the CA: certificate 2 in it is damaged: ";
            assert!(refused.starts_with(begin) && refused.contains(why), "{refused}");
        }
        assert_eq!(certificates("the CA", WHOLE.repeat(2).as_bytes()).unwrap().len(), 2);
    }

    #[test]
    fn damaged_key_is_not_shown() {
        for key in ["-----BEGIN PRIVATE KEY-----c2VzYW1l", "-----BEGIN PRIVATE KEY-----\nc2*\n"] {
            let refused = private_key(key.as_bytes()).unwrap_err();
            assert!(refused.ends_with("; copy the file again"), "{refused}");
            let bytes = format!("{:?}", b"c2");
            assert!(!refused.contains("c2") && !refused.contains(bytes.trim_matches(['[', ']'])));
        }
    }
}
