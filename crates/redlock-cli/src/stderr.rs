//! Lines on stderr: causes, notes, and what a quiet command holds back.

use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use redlock_quorum::printable;

/// Prints an informational line on stderr. It never starts with `redlock:`, which marks causes.
pub(crate) fn note(text: &str) {
    let line = format!("note: {text}");
    match held_back().as_mut() {
        Some(lines) => lines.push(line),
        None => complain(&line),
    }
}

/// A [`note`] that cannot wait for the end of a quiet command.
pub(crate) fn note_now(text: &str) {
    complain(&format!("note: {text}"));
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

/// Writes a whole text to stderr in one piece, without passwords. Otherwise the lines of parallel
/// commands, such as cron jobs, could mix.
pub(crate) fn complain(text: &str) {
    let text = printable::lines(text);
    let text = printable::without_credentials(&text);
    // There is nothing left to be done about a closed stderr.
    let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
}
