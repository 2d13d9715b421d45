//! `Master`: one master, and the place that named it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::environment::lookup::Environment;
use crate::environment::reading::read;
use crate::environment::source::Source;
use crate::environment::variables::{NODES, NODES_FILE};
use crate::settings::BuildError;

/// One master. `Debug` does not show its URL, which may contain a password.
#[derive(Clone)]
pub struct Master {
    /// The URL of the master.
    pub url: String,
    /// The source of the URL: an option, a variable, or a line of a file.
    pub origin: String,
}

impl std::fmt::Debug for Master {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Master").field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// The configured masters, and the setting that names them.
#[derive(Clone, Debug, Default)]
pub struct Named {
    /// The masters. Empty if no setting names them.
    pub masters: Vec<Master>,
    /// The variable.
    pub name: &'static str,
    /// The place where it was set.
    pub source: Source,
    /// The file, if the variable names one.
    pub file: Option<PathBuf>,
}

impl Environment<'_> {
    /// Returns the masters of `REDLOCK_NODES`, or of the file that `REDLOCK_NODES_FILE` names. Both
    /// variables are one setting: those of the environment precede those of the configuration file.
    ///
    /// # Errors
    /// Returns [`BuildError::Variable`] if the file cannot be read, or if either names no masters.
    pub fn masters(&self) -> Result<Named, BuildError> {
        let variable =
            |name| self.get(name).map(|value| Given { name, value, source: Source::Environment });
        let line = |name| self.of_file(name).map(|(value, source)| Given { name, value, source });
        let given = variable(NODES).or_else(|| variable(NODES_FILE));
        let given = given.or_else(|| line(NODES)).or_else(|| line(NODES_FILE));
        given.map_or_else(|| Ok(Named::default()), Given::named)
    }
}

/// The value of one of the two variables.
struct Given {
    name: &'static str,
    value: OsString,
    source: Source,
}

impl Given {
    fn named(self) -> Result<Named, BuildError> {
        let file = (self.name == NODES_FILE).then(|| PathBuf::from(&self.value));
        let masters = match &file {
            Some(file) => self.of_file(file),
            None => self.of_list(),
        }?;
        Ok(Named { masters, name: self.name, source: self.source, file })
    }

    fn origin(&self) -> String {
        self.source.origin(self.name)
    }

    fn of_list(&self) -> Result<Vec<Master>, BuildError> {
        let text = utf8(self.value.as_bytes(), |_| self.origin())?;
        some(listed(text, |_| self.origin()), || {
            (self.origin(), "it names no masters: write URLs separated by commas".into())
        })
    }

    fn of_file(&self, file: &Path) -> Result<Vec<Master>, BuildError> {
        let text = read(&self.origin(), file)?;
        let place = |line| format!("{}: line {line} of {}", self.origin(), file.display());
        let none = || format!("{} names no masters: write one URL on each line", file.display());
        some(listed(utf8(&text, place)?, place), || (self.origin(), none()))
    }
}

/// Returns the text of a list. A byte that is replaced would lead to another server or user.
fn utf8(list: &[u8], place: impl Fn(usize) -> String) -> Result<&str, BuildError> {
    str::from_utf8(list).map_err(|error| {
        let before = &list[..error.valid_up_to()];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        let why = "it has a byte that is not UTF-8; in a user or password, write it as % and two \
                   hex digits";
        BuildError::Variable { name: place(line), why: why.into() }
    })
}

/// Returns the place of one of these URLs. Several URLs with one place are counted.
pub(crate) fn place_of(places: &[Option<&str>], url: usize) -> Option<String> {
    let place = (*places.get(url)?)?;
    let count =
        |places: &[Option<&str>]| places.iter().filter(|other| **other == Some(place)).count();
    let (number, of) = (count(&places[..=url]), count(places));
    Some(if of > 1 { format!("{place}, URL {number} of {of}") } else { place.into() })
}

fn some(
    found: Vec<Master>,
    none: impl FnOnce() -> (String, String),
) -> Result<Vec<Master>, BuildError> {
    if let Some(part) = found.iter().position(|master| is_part_of_a_password(master, &found)) {
        let why = "an entry (***) has no scheme such as redis://; if it is part of a password, \
                   write the comma of the password as %2C";
        let places: Vec<_> = found.iter().map(|master| Some(&*master.origin)).collect();
        let name = place_of(&places, part);
        return Err(BuildError::Variable { name: name.unwrap_or_default(), why: why.into() });
    }
    if !found.is_empty() {
        return Ok(found);
    }
    let (name, why) = none();
    Err(BuildError::Variable { name, why })
}

/// Returns `true` if a comma may have cut this entry out of a password. Its text must not be shown.
/// A single entry was not cut.
fn is_part_of_a_password(master: &Master, list: &[Master]) -> bool {
    let has_scheme = master.url.contains("://") || master.url.starts_with("unix:/");
    !has_scheme && list.len() > 1 && list.iter().any(|other| other.url.contains('@'))
}

/// Splits URLs at commas and line ends. A line that starts with `#` is a comment.
fn listed(text: &str, origin: impl Fn(usize) -> String) -> Vec<Master> {
    let lines = (1..).zip(text.lines().map(str::trim));
    let lines = lines.filter(|(_, line)| !line.starts_with('#'));
    let urls = lines.flat_map(|(number, line)| line.split(',').map(move |url| (number, url)));
    let urls = urls.map(|(number, url)| (number, url.trim())).filter(|(_, url)| !url.is_empty());
    urls.map(|(number, url)| Master { url: url.to_owned(), origin: origin(number) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_with_comma_is_not_shown() {
        let list = listed("redis://u:12,secret,x@h:1", |_| "NODES".into());
        let error = some(list, Default::default).unwrap_err().to_string();
        assert!(error.starts_with("NODES, URL 2 of 3: ") && error.contains("%2C"), "{error}");
        assert!(!error.contains("secret") && !error.contains("12"), "{error}");
        let list = listed("redis://u:p@a,b:7000", |_| "NODES".into());
        assert!(some(list, Default::default).is_err());
        let list = listed("unix:/path?pass=a@b", |_| "NODES".into());
        assert_eq!(some(list, Default::default).unwrap().len(), 1, "it has a scheme");
        let list = listed("me:secret@h", |_| "NODES".into());
        assert!(some(list, Default::default).is_ok(), "the parser of URLs names its fault");
        let list = listed("redis://a,b:7000", |_| "NODES".into());
        assert_eq!(some(list, Default::default).unwrap().len(), 2);
    }

    #[test]
    fn invalid_utf8_is_refused_with_its_line() {
        let place = |line| format!("line {line}");
        let list = b"redis://a\n\nredis://:ses\xe4me@b\n\xff";
        let refused = utf8(list, place).unwrap_err().to_string();
        assert!(refused.starts_with("line 3: it has a byte that is not UTF-8;"), "{refused}");
        assert!(!refused.contains("ses"), "{refused}");
        assert_eq!(utf8("redis://\u{e4}\n".as_bytes(), place), Ok("redis://\u{e4}\n"));
    }

    #[test]
    fn urls_from_one_place_are_numbered() {
        let places = [Some("list"), Some("line 1"), None, Some("list")];
        let found = (0..5).map(|url| place_of(&places, url)).collect::<Vec<_>>();
        let found: Vec<_> = found.iter().map(Option::as_deref).collect();
        let expected =
            [Some("list, URL 1 of 2"), Some("line 1"), None, Some("list, URL 2 of 2"), None];
        assert_eq!(found, expected);
    }

    #[test]
    fn masters_are_separated_by_commas_or_lines() {
        let text = "# ours\nredis://a\n\n  redis://b , redis://c,\n#redis://d\n";
        let masters = listed(text, |line| format!("line {line}"));
        let found: Vec<_> = masters.iter().map(|m| (m.url.as_str(), m.origin.as_str())).collect();
        let expected = [("redis://a", "line 2"), ("redis://b", "line 4"), ("redis://c", "line 4")];
        assert_eq!(found, expected);
    }
}
