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
    if !found.is_empty() {
        return Ok(found);
    }
    let (name, why) = none();
    Err(BuildError::Variable { name: name.into(), why })
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
    fn masters_are_listed_by_commas_or_lines_and_known_by_their_place() {
        let text = "# ours\nredis://a\n\n  redis://b , redis://c,\n#redis://d\n";
        let masters = listed(text, |line| format!("line {line}"));
        let found: Vec<_> = masters.iter().map(|m| (m.url.as_str(), m.origin.as_str())).collect();
        let expected = [("redis://a", "line 2"), ("redis://b", "line 4"), ("redis://c", "line 4")];
        assert_eq!(found, expected);
    }
}
