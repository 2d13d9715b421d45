//! `Master`: one master, and the place that named it.

use std::path::Path;

use crate::environment::lookup::Environment;
use crate::environment::pem::read;
use crate::environment::variables::{NODES, NODES_FILE};
use crate::settings::BuildError;

/// One master. `Debug` does not show its URL, which may contain a password.
#[derive(Clone)]
pub struct Master {
    /// Where it is.
    pub url: String,
    /// The source of the URL: an option, a variable, or a line of a file.
    pub origin: String,
}

impl std::fmt::Debug for Master {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Master").field("origin", &self.origin).finish_non_exhaustive()
    }
}

impl Environment<'_> {
    /// The masters of `REDLOCK_NODES`, else of the file that `REDLOCK_NODES_FILE` names; `None` if
    /// both are unset.
    ///
    /// # Errors
    /// [`BuildError::Variable`] when the file cannot be read, or either names no masters.
    pub fn masters(&self) -> Result<Vec<Master>, BuildError> {
        if let Some(list) = self.get(NODES) {
            let found = listed(&list.to_string_lossy(), |_| NODES.into());
            return some(found, || {
                (NODES, "it names no masters: write URLs separated by commas".into())
            });
        }
        let Some(file) = self.get(NODES_FILE) else { return Ok(Vec::new()) };
        let file = Path::new(&file);
        let text = read(NODES_FILE, file)?;
        let place = |line| format!("{NODES_FILE}: line {line} of {}", file.display());
        let none = || format!("{} names no masters: write one URL on each line", file.display());
        some(listed(&String::from_utf8_lossy(&text), place), || (NODES_FILE, none()))
    }
}

fn some(
    found: Vec<Master>,
    none: impl FnOnce() -> (&'static str, String),
) -> Result<Vec<Master>, BuildError> {
    if let Some(part) = found.iter().find(|master| is_part_of_a_password(master, &found)) {
        let why = "an entry (***) has no scheme such as redis://; if it is part of a password, \
                   write the comma of the password as %2C";
        return Err(BuildError::Variable { name: part.origin.clone(), why: why.into() });
    }
    if !found.is_empty() {
        return Ok(found);
    }
    let (name, why) = none();
    Err(BuildError::Variable { name: name.into(), why })
}

/// Returns `true` if a comma may have cut this entry out of a password. Its text must not be shown.
fn is_part_of_a_password(master: &Master, list: &[Master]) -> bool {
    !master.url.contains("://") && list.iter().any(|other| other.url.contains('@'))
}

/// URLs separated by commas or on lines of their own; `#` at the start of a line is a comment.
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
        let error = some(list, || ("", String::new())).unwrap_err().to_string();
        assert!(error.starts_with("NODES: ") && error.contains("%2C"), "{error}");
        assert!(!error.contains("secret") && !error.contains("12"), "{error}");
        let list = listed("redis://u:p@a,b:7000", |_| "NODES".into());
        assert!(some(list, || ("", String::new())).is_err());
        let list = listed("redis://a,b:7000", |_| "NODES".into());
        assert_eq!(some(list, || ("", String::new())).unwrap().len(), 2);
    }

    #[test]
    fn masters_are_listed_by_commas_or_lines_and_known_by_their_place() {
        let text = "# ours\nredis://a\n\n  redis://b , redis://c,\n#redis://d\n";
        let masters = listed(text, |line| format!("line {line}"));
        let found: Vec<_> = masters.iter().map(|m| (m.url.as_str(), m.origin.as_str())).collect();
        let expected = [("redis://a", "line 2"), ("redis://b", "line 4"), ("redis://c", "line 4")];
        assert_eq!(found, expected);
    }
}
