//! `Pem`: certificates and keys, from the files that an option or a variable names.

use std::io;
use std::path::PathBuf;

use redlock_core::Tls;

use crate::environment::lookup::Environment;
use crate::environment::reading::{read_again, shown};
use crate::environment::source::Source;
use crate::environment::variables::{TLS_CA, TLS_CERT, TLS_KEY, Variable};
use crate::settings::BuildError;

/// A file, and the setting that names it.
#[derive(Clone, Debug)]
pub struct PemFile {
    /// The path of the file.
    pub path: PathBuf,
    /// The source of the file name: an option or a variable.
    pub origin: String,
}

/// The files of a TLS set-up, as far as they are configured.
#[derive(Clone, Debug, Default)]
pub struct PemFiles {
    /// The trusted certificates.
    pub ca: Option<PemFile>,
    /// The certificate of this client.
    pub cert: Option<PemFile>,
    /// The private key of the certificate.
    pub key: Option<PemFile>,
}

/// The contents of the files, and their sources. `Debug` shows no key.
#[derive(Clone, Default)]
pub struct Pem {
    /// The trusted certificates. `None` for those of the system.
    pub ca: Option<Vec<u8>>,
    /// The certificate of this client and its private key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The sources of the CA and of the identity, with their files.
    pub(crate) origins: (Option<String>, Option<String>),
    /// The files, which are read again for each connection.
    files: PemFiles,
}

impl Environment<'_> {
    /// Returns the files that the variables name.
    pub(crate) fn pem_files(&self) -> Result<PemFiles, BuildError> {
        let file = |variable: &Variable<PathBuf>| -> Result<_, BuildError> {
            let given = self.value(variable)?;
            let named = |(path, source): (_, Source)| PemFile {
                path,
                origin: source.origin(variable.name()),
            };
            Ok(given.map(named))
        };
        Ok(PemFiles { ca: file(&TLS_CA)?, cert: file(&TLS_CERT)?, key: file(&TLS_KEY)? })
    }
}

impl PemFiles {
    /// Reads the files. Their contents are checked when a handle is built.
    ///
    /// # Errors
    /// Returns [`BuildError::Variable`] if a file cannot be read, or if a certificate or its key is
    /// missing.
    pub fn read(&self) -> Result<Pem, BuildError> {
        let ca = self.ca.as_ref().map(PemFile::read).transpose()?;
        let identity = match (&self.cert, &self.key) {
            (None, None) => None,
            (Some(cert), Some(key)) => Some((cert.read()?, key.read()?)),
            (Some(cert), None) => return Err(cert.alone(&TLS_CERT, &TLS_KEY)),
            (None, Some(key)) => return Err(key.alone(&TLS_KEY, &TLS_CERT)),
        };
        let both = self.cert.as_ref().zip(self.key.as_ref());
        let of_identity = both.map(|(cert, key)| format!("{}, {}", cert.named(), key.named()));
        let origins = (self.ca.as_ref().map(PemFile::named), of_identity);
        Ok(Pem { ca, identity, origins, files: self.clone() })
    }
}

impl PemFile {
    /// Returns the source, and the path of the file.
    pub fn named(&self) -> String {
        format!("{} {}", self.origin, shown(&self.path))
    }

    fn read(&self) -> Result<Vec<u8>, BuildError> {
        read_again(&self.origin, &self.path)
    }

    /// Returns the error for a missing counterpart, which is named in the same way as this file: by
    /// its variable, or as an option.
    fn alone(&self, own: &Variable<PathBuf>, missing: &Variable<PathBuf>) -> BuildError {
        let is_variable = self.origin.starts_with(own.name());
        let missing = if is_variable { missing.name().into() } else { missing.option() };
        let why = format!("it is set without {missing}; set both, or neither");
        BuildError::Variable { name: self.origin.clone(), why }
    }
}

impl Pem {
    /// Returns the TLS settings for a builder. They follow changes of the files.
    pub fn tls(&self) -> Tls {
        let files = self.files.clone();
        if files.ca.is_none() && files.cert.is_none() {
            return self.contents();
        }
        let reread = move || Ok(files.read().map_err(io::Error::other)?.contents());
        self.contents().reread(reread)
    }

    fn contents(&self) -> Tls {
        let (ca, identity) = self.origins.clone();
        let mut tls = Tls::new().from_files(ca, identity);
        if let Some(ca) = &self.ca {
            tls = tls.ca(ca.as_slice());
        }
        match &self.identity {
            Some((cert, key)) => tls.identity(cert.as_slice(), key.as_slice()),
            None => tls,
        }
    }
}

impl std::fmt::Debug for Pem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pem").field("origins", &self.origins).finish_non_exhaustive()
    }
}
