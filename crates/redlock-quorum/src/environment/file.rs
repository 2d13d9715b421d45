//! `File`: the settings of a host, from one file.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::environment::reading::{contents, read};
use crate::environment::variables::{CONFIG, SETTINGS};
use crate::settings::BuildError;

/// The configuration file that is read unless [`CONFIG`] names another one.
pub const DEFAULT_FILE: &str = "/etc/redlock/config";

/// The lines of a configuration file. The default has none.
#[derive(Clone, Default)]
pub(crate) struct File {
    path: PathBuf,
    lines: Vec<Line>,
}

#[derive(Clone)]
struct Line {
    number: usize,
    name: &'static str,
    value: OsString,
}

impl File {
    /// Reads the file that [`CONFIG`] names, else the one of this host, which may be missing.
    pub(crate) fn of(named: Option<OsString>) -> Result<Self, BuildError> {
        match named {
            Some(path) => Self::parse(Path::new(&path), &read(CONFIG, Path::new(&path))?),
            None => Self::of_host(Path::new(DEFAULT_FILE)),
        }
    }

    fn of_host(path: &Path) -> Result<Self, BuildError> {
        match contents(path) {
            Ok(text) => Self::parse(path, &text),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => {
                let name = path.display().to_string();
                Err(BuildError::Variable { name, why: format!("cannot be read: {error}") })
            }
        }
    }

    fn parse(path: &Path, text: &[u8]) -> Result<Self, BuildError> {
        let mut this = Self { path: path.to_owned(), lines: Vec::new() };
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.starts_with(b"#") || line.trim_ascii().is_empty() {
                continue;
            }
            let line = this.line(number, line).map_err(|why| {
                let name = place(number, path);
                BuildError::Variable { name, why }
            })?;
            this.lines.push(line);
        }
        Ok(this)
    }

    fn line(&self, number: usize, line: &[u8]) -> Result<Line, String> {
        let equals = line.iter().position(|byte| *byte == b'=');
        let Some((name, value)) = equals.map(|at| (&line[..at], &line[at + 1..])) else {
            return Err("it has no `=`; write NAME=VALUE".into());
        };
        let is_named = |known: &&'static str| known.as_bytes() == name && *known != CONFIG;
        let Some(name) = SETTINGS.iter().map(|one| one.name).find(is_named) else {
            return Err(unknown(name));
        };
        if let Some(first) = self.lines.iter().find(|line| line.name == name) {
            let first = first.number;
            return Err(format!("{name} is already set on line {first}; remove one of them"));
        }
        if value.contains(&0) {
            return Err(format!("the value of {name} has a zero byte; remove it"));
        }
        Ok(Line { number, name, value: OsStr::from_bytes(value).to_owned() })
    }

    /// Returns the value of a variable that the file sets to a non-empty text, with its place.
    pub(crate) fn get(&self, name: &str) -> Option<(OsString, String)> {
        let line = self.lines.iter().find(|line| line.name == name)?;
        (!line.value.is_empty()).then(|| (line.value.clone(), place(line.number, &self.path)))
    }
}

fn place(number: usize, path: &Path) -> String {
    format!("line {number} of {}", path.display())
}

/// Describes a line without a name. It may begin with a secret, so only a plausible name is shown.
fn unknown(name: &[u8]) -> String {
    if name == CONFIG.as_bytes() {
        return format!("{CONFIG} names this file and is not allowed in it; remove the line");
    }
    let bare = name.strip_prefix(b"export ").unwrap_or(name).trim_ascii();
    if let Some(known) = SETTINGS.iter().find(|one| one.name.as_bytes() == bare) {
        let known = known.name;
        return format!("write {known}=VALUE, without `export` and without spaces around the `=`");
    }
    let is_name = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
    let shown = match !name.is_empty() && name.iter().all(is_name) {
        true => String::from_utf8_lossy(name),
        false => "***".into(),
    };
    format!("unknown name {shown}; write NAME=VALUE with a variable of `redlock --help`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<File, String> {
        File::parse(Path::new("/c"), text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn lines_are_names_with_values_without_quotes_or_expansion() {
        let text = "# ours\n\n \t\nREDLOCK_PREFIX=\"$HOME\" # =x \nREDLOCK_LABEL=\r\n\
                    REDLOCK_MAX_TTL=2m\r\n";
        let file = parsed(text).unwrap();
        let (prefix, place) = file.get("REDLOCK_PREFIX").unwrap();
        assert_eq!((prefix.to_str().unwrap(), &*place), ("\"$HOME\" # =x ", "line 4 of /c"));
        assert_eq!(file.get("REDLOCK_LABEL"), None, "an empty value is ignored");
        assert_eq!(file.get("REDLOCK_MAX_TTL").unwrap().0, "2m");
        assert_eq!(file.get("REDLOCK_PLAIN"), None);
    }

    #[test]
    fn bad_lines_are_refused_with_file_and_line_and_without_secrets() {
        for (line, why) in [
            ("REDLOCK_PREFIXES=x", "unknown name REDLOCK_PREFIXES;"),
            ("REDLOCK_TOKEN=x", "unknown name REDLOCK_TOKEN;"),
            ("REDLOCK_CONFIG=/x", "REDLOCK_CONFIG names this file"),
            ("REDLOCK_PREFIX=ses\0ame", "the value of REDLOCK_PREFIX has a zero byte;"),
            ("REDLOCK_MAX_TTL=1m", "REDLOCK_MAX_TTL is already set on line 2"),
            ("redis://:sesame@h?a=b", "unknown name ***;"),
            (" REDLOCK_PREFIX=x", "write REDLOCK_PREFIX=VALUE, without `export` and"),
            ("REDLOCK_PREFIX = x", "write REDLOCK_PREFIX=VALUE, without `export` and"),
            ("export REDLOCK_PREFIX=x", "write REDLOCK_PREFIX=VALUE, without `export` and"),
            ("=sesame", "unknown name ***;"),
            ("sesame", "it has no `=`"),
        ] {
            let refused = parsed(&format!("#\nREDLOCK_MAX_TTL=2m\n{line}\n")).err().unwrap();
            assert!(refused.starts_with(&format!("line 3 of /c: {why}")), "{refused}");
            assert!(!refused.contains("sesame"), "{refused}");
        }
    }

    #[test]
    fn only_the_file_of_the_host_may_be_missing() {
        let missing = File::of_host(Path::new("/nowhere/config")).unwrap();
        assert!(missing.lines.is_empty());
        let refused = File::of_host(Path::new("/")).err().unwrap().to_string();
        assert!(refused.starts_with("/: cannot be read: "), "{refused}");
        let refused = File::of(Some("/nowhere/config".into())).err().unwrap().to_string();
        assert!(refused.starts_with("REDLOCK_CONFIG: reading /nowhere/config: "), "{refused}");
    }
}
