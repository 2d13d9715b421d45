//! Lines on stderr: causes, notes, and what a quiet command holds back.

use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Prints an informational line on stderr. It never starts with `redlock:`, which marks causes.
pub(crate) fn note(text: &str) {
    let line = redact(&format!("note: {text}"));
    match held_back().as_mut() {
        Some(lines) => lines.push(line),
        None => complain(&line),
    }
}

/// A [`note`] that cannot wait for the end of a quiet command.
pub(crate) fn note_now(text: &str) {
    complain(&redact(&format!("note: {text}")));
}

/// The notes of a quiet command, until it is known whether it succeeds.
static HELD_BACK: Mutex<Option<Vec<String>>> = Mutex::new(None);

fn held_back() -> MutexGuard<'static, Option<Vec<String>>> {
    HELD_BACK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Holds back each [`note`] from now on.
pub(crate) fn hold_notes_back() {
    *held_back() = Some(Vec::new());
}

/// Prints the notes that were held back, or drops them if the command has succeeded.
pub(crate) fn end_holding_back(has_succeeded: bool) {
    let lines = held_back().take().unwrap_or_default();
    lines.iter().filter(|_| !has_succeeded).for_each(|line| complain(line));
}

/// Writes a whole text to stderr in one piece. Otherwise the lines of parallel commands, such as
/// cron jobs, could mix.
pub(crate) fn complain(text: &str) {
    // There is nothing left to be done about a closed stderr.
    let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Hides the part between `://` and the last `@` of each word, which may be a password typed in the
/// wrong place. The general form of a URL is not a secret.
pub(crate) fn redact(text: &str) -> String {
    const FORM: &str = "redis://[user:password@]host";
    let word = |word: &str| match (word.find("://"), word.rfind('@')) {
        (Some(start), Some(end)) if start + 3 <= end => {
            format!("{}***{}", &word[..start + 3], &word[end..])
        }
        _ => word.to_owned(),
    };
    let part = |part: &str| part.split_inclusive(char::is_whitespace).map(word).collect::<String>();
    text.split(FORM).map(part).collect::<Vec<_>>().join(FORM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_hidden_in_any_argument() {
        let text = "found 'redis://me:ses@me@h:1' and\nrediss://:x@h2, not a@b";
        let redacted = redact(text);
        assert_eq!(redacted, "found 'redis://***@h:1' and\nrediss://***@h2, not a@b");
    }

    #[test]
    fn the_form_of_a_url_is_shown() {
        let advice = "write redis://[user:password@]host[:port][/db], rediss://... for TLS";
        assert_eq!(redact(advice), advice);
    }
}
