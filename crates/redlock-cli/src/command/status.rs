//! `redlock status`: shows who holds a lock, by each master's answer.

use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;

use anyhow::anyhow;
use redlock_quorum::{AcquireError, NodeVote, State, Verdict};

use crate::answers;
use crate::args::Status;
use crate::command::{follow, list, marks, permits};
use crate::dashes::quoted;
use crate::done::Done;
use crate::exit::{Failure, NOT_OURS, UNAVAILABLE, USAGE};
use crate::global::Global;
use crate::output::{self, Report};
use crate::session::Session;
use crate::stderr;

pub(crate) async fn status(global: &Global, args: &Status) -> Result<u8, Failure> {
    match &args.key {
        Some(key) if args.watch => follow::follow(global, key, args.json).await,
        Some(key) if let Some(count) = args.permits => {
            permits::permits(global, key, count, args.json).await
        }
        Some(key) => one(global, key, args.json).await,
        None => list::list(global, args.json).await,
    }
}

async fn one(global: &Global, key: &OsStr, as_json: bool) -> Result<u8, Failure> {
    let session = Session::new(global, key)?;
    let is_verbose = session.is_verbose;
    session.key.check().map_err(|error| Failure::new(USAGE, error))?;
    let (status, done) = tokio::join!(session.status(), marks::last(&session));
    let key = session.key.to_string();
    notes(&session, &status).iter().for_each(|note| stderr::note(note));
    let judged = judge(&key, &status, !as_json && is_one_screen());
    let done = match done {
        Ok(done) => done,
        Err(error) => {
            note_unread(&session, error, &judged).await;
            None
        }
    };
    let printed = match &judged {
        _ if as_json => output::json(&Report::new((&session.key).into(), &status, done.as_ref())),
        Err(_) if is_one_screen() => {
            output::line(&and_done(output::table(&status, is_verbose), done))
        }
        _ => output::line(&and_done(output::people(&key, &status, is_verbose), done)),
    };
    let judged = match judged {
        Ok(code) => Ok(code),
        Err(failure) => Err(session.explained(failure, &answers::causes(&status.nodes)).await),
    };
    session.close().await;
    printed?;
    judged
}

/// The meaning of a reservation without an expiry, and the fix.
const NEVER_ENDS: &str = "this reservation never expires, so this master grants the lock \
    to no other client; delete it once you know that no client holds the lock";

/// The meaning of a key of another type, and the fix.
const FOREIGN_KEY: &str = "this key is not a lock, so this master grants no lock of this \
    name; find out what wrote it and delete it, or use another name for the lock";

/// Returns a note for each bad key of the masters, with the fix.
fn notes(session: &Session, status: &redlock_quorum::Status) -> Vec<String> {
    let name = quoted(OsStr::from_bytes(session.key.as_bytes()));
    let force = format!("redlock release --force {name}");
    if let State::Held { ttl: None, .. } = &status.state {
        return vec![format!("{}: {force}", answers::NEVER_EXPIRES)];
    }
    let of_node = |node: &NodeVote| match &node.verdict {
        verdict @ Verdict::Held { ttl: None, .. } if verdict.reservation().is_some() => {
            Some(format!("{}: {force}", NEVER_ENDS))
        }
        Verdict::Held { token: Some(_), ttl: None } => {
            Some(format!("{}: {force}", answers::NEVER_EXPIRES))
        }
        Verdict::Held { token: None, .. } => Some(FOREIGN_KEY.to_owned()),
        _ => None,
    };
    let said: Vec<(&str, String)> =
        status.nodes.iter().filter_map(|node| Some((&*node.node, of_node(node)?))).collect();
    let line = |(who, note): (String, &str)| format!("{who}: {note}");
    answers::grouped(&said, status.nodes.len()).into_iter().map(line).collect()
}

/// Reports that the last run is unknown, unless the status is unknown as well, with its reason.
async fn note_unread(session: &Session, error: AcquireError, judged: &Result<u8, Failure>) {
    if judged.as_ref().err().is_none_or(|failure| failure.code != UNAVAILABLE) {
        stderr::note(&format!("the last run is unknown: {}", session.unread(error).await.cause));
    }
}

/// Adds the last completed run, if there is one.
fn and_done(text: String, done: Option<Done>) -> String {
    done.map_or_else(|| text.clone(), |done| format!("{text}\n{}", done.text()))
}

/// Returns `true` if stdout and stderr share one terminal. A line on one is then not repeated on
/// the other.
fn is_one_screen() -> bool {
    io::stdout().is_terminal() && io::stderr().is_terminal()
}

/// Returns the exit code for a status. Codes other than 0 come with an error line, which includes
/// the masters' answers unless the same terminal already shows them.
fn judge(key: &str, status: &redlock_quorum::Status, is_listed: bool) -> Result<u8, Failure> {
    let list = if is_listed { String::new() } else { format!(": {}", answers::list(status)) };
    let verdict = answers::verdict(key, status);
    match status.state {
        State::Held { .. } => Ok(0),
        State::Free | State::Reserved => Err(Failure::new(NOT_OURS, anyhow!("{verdict}{list}"))),
        _ if answers::is_foreign(status) => {
            Err(Failure::new(UNAVAILABLE, anyhow!("{verdict}{list}")))
        }
        _ => Err(Failure::new(UNAVAILABLE, anyhow!("{key}: no quorum agrees on its holder{list}"))),
    }
}
