//! `PasswordFile`: credentials apart from the URLs.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use redlock_core::{Credentials, CredentialsProvider};

use crate::environment::lookup::Environment;
use crate::environment::reading::read_secret;
use crate::environment::variables::{PASSWORD_FILE, USERNAME};
use crate::settings::BuildError;

/// A file with one password, and the user that it belongs to. It is read for each connection.
#[derive(Clone)]
pub struct PasswordFile {
    username: Option<String>,
    path: PathBuf,
    origin: String,
}

impl PasswordFile {
    /// Returns the values of both variables with their origins. The password file is read once, so
    /// that errors appear before the first connection.
    ///
    /// # Errors
    /// Returns [`BuildError::Variable`] if there is a user without a file, or if the file has no
    /// password.
    pub fn new(
        username: Option<(OsString, String)>,
        file: Option<(PathBuf, String)>,
    ) -> Result<Option<Self>, BuildError> {
        let refused = |name, why: String| Err(BuildError::Variable { name, why });
        let (username, (path, origin)) = match (username, file) {
            (None, None) => return Ok(None),
            (Some((_, name)), None) => {
                let why = format!("it is set without {}", PASSWORD_FILE.name());
                return refused(name, format!("{why}: write the password to a file and name it"));
            }
            (None, Some(file)) => (None, file),
            (Some((user, name)), Some(file)) => match user.into_string() {
                Ok(user) => (Some(user), file),
                Err(_) => return refused(name, "it is not UTF-8".into()),
            },
        };
        let this = Self { username, path, origin };
        this.credentials()?;
        Ok(Some(this))
    }

    fn credentials(&self) -> Result<Credentials, BuildError> {
        let text = read_secret(&self.origin, &self.path)?;
        let password = password(&text).map_err(|(line, why)| {
            let place = line.map(|line| format!("line {line} of ")).unwrap_or_default();
            let why = format!("{place}{}: {why}", self.path.display());
            BuildError::Variable { name: self.origin.clone(), why }
        })?;
        Ok(Credentials::new(self.username.clone(), password.into()))
    }

    /// Reads the file for each connection.
    pub fn provider(&self) -> CredentialsProvider {
        let this = self.clone();
        CredentialsProvider::new(move || this.credentials().map_err(io::Error::other))
    }
}

/// Returns the only line of a text, or the line with a fault, if it has one, and the fault. Servers
/// answer every other password only with "wrong".
fn password(text: &[u8]) -> Result<&str, (Option<usize>, &'static str)> {
    let text = str::from_utf8(text).map_err(|_| (None, "the password is not UTF-8"))?;
    let text = text.strip_suffix('\n').unwrap_or(text);
    let password = text.strip_suffix('\r').unwrap_or(text);
    if password.is_empty() {
        return Err((None, "it has no password; write one line with the password"));
    }
    if password.contains('\n') {
        return Err((Some(2), "a password has one line; remove this line and those after it"));
    }
    Ok(password)
}

impl std::fmt::Debug for PasswordFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PasswordFile").field("origin", &self.origin).finish_non_exhaustive()
    }
}

impl Environment<'_> {
    /// Returns the file that the variables name.
    pub(crate) fn password_file(&self) -> Result<Option<PasswordFile>, BuildError> {
        let username = self.value(&USERNAME)?;
        let username = username.map(|(user, source)| (user, source.origin(USERNAME.name())));
        let file = self.value(&PASSWORD_FILE)?;
        PasswordFile::new(
            username,
            file.map(|(file, source)| (file, source.origin(PASSWORD_FILE.name()))),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_is_the_only_line() {
        for text in ["se same", "se same\n", "se same\r\n"] {
            assert_eq!(password(text.as_bytes()), Ok("se same"), "{text:?}");
        }
        for (text, line, why) in [
            (&b""[..], None, "it has no password"),
            (b"\n", None, "it has no password"),
            (b"\r\n", None, "it has no password"),
            (b"sesame\n\n", Some(2), "one line"),
            (b"sesame\nother", Some(2), "one line"),
            (b"sesame\r\nother\r\n", Some(2), "one line"),
            (b"\nsesame\n", Some(2), "one line"),
            (b"ses\xe4me", None, "not UTF-8"),
        ] {
            let (at, said) = password(text).unwrap_err();
            assert!(at == line && said.contains(why), "{text:?}: {at:?} {said}");
        }
    }
}
