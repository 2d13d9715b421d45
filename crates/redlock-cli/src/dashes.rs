//! A missing `--` before the command of `redlock run`.

use std::ffi::{OsStr, OsString};

use clap::error::ErrorKind;

use crate::definition::definition;

/// Describes the error, with a corrected line of the user's own words. `None` if the error has
/// another reason.
pub(crate) fn missing(words: &[OsString], kind: ErrorKind) -> Option<String> {
    let may_be = [ErrorKind::MissingRequiredArgument, ErrorKind::UnknownArgument].contains(&kind);
    if !may_be || words.iter().any(|word| word == "--") {
        return None;
    }
    let keys = keys(words)?;
    let line =
        |words: &[OsString]| words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
    match &keys[..] {
        [key, program, ..] => {
            let at = place(words, key)?;
            let at = at + place(&words[at..], program)?;
            let (before, command) = (line(&words[1..at]), line(&words[at..]));
            Some(format!("`--` is missing before the command: redlock {before} -- {command}"))
        }
        [_] if kind == ErrorKind::MissingRequiredArgument => {
            let before = line(&words[1..]);
            Some(format!("the command is missing: redlock {before} -- COMMAND"))
        }
        _ => None,
    }
}

/// Returns the words that `run` took as its KEYs: all words that are not options, up to the first
/// unknown one.
fn keys(words: &[OsString]) -> Option<Vec<OsString>> {
    let parsed = definition().ignore_errors(true).try_get_matches_from(words).ok()?;
    let run = parsed.subcommand_matches("run")?;
    Some(run.get_many("keys")?.cloned().collect())
}

/// Returns the first position of this word after `run` or after a KEY.
fn place(words: &[OsString], word: &OsStr) -> Option<usize> {
    let found = words.iter().skip(1).position(|other| other == word)?;
    Some(found + 1)
}

/// Quotes a word for a shell.
pub(crate) fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.into_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &[&str]) -> Option<String> {
        let words: Vec<OsString> = line.iter().map(OsString::from).collect();
        missing(&words, ErrorKind::MissingRequiredArgument)
    }

    #[test]
    fn word_with_a_space_stays_one_word() {
        let said = said(&["redlock", "run", "k", "echo", "it's"]).unwrap();
        assert!(said.ends_with(r"redlock run k -- echo 'it'\''s'"), "{said}");
    }

    #[test]
    fn other_mistakes_have_other_reasons() {
        assert_eq!(said(&["redlock", "run"]), None);
        assert_eq!(said(&["redlock", "run", "k", "--"]), None);
        assert_eq!(said(&["redlock", "status", "k", "true"]), None);
    }
}
