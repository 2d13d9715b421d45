//! `redlock release --force`: delete a stuck lock, no matter who holds it.

use std::fmt::Display;
use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::anyhow;
use redlock_quorum::{NodeVote, State, Status, Verdict, quorum};

use crate::answers;
use crate::args::Release;
use crate::direct::{self, Direct, Found, PATIENCE};
use crate::exit::{Failure, NOT_OURS, UNAVAILABLE};
use crate::global::Global;
use crate::masters;
use crate::output::{self, Forced};
use crate::session::Session;
use crate::stderr;

/// A key on one master to delete, with its value as read.
pub(super) struct Target {
    pub(super) url: String,
    pub(super) node: String,
    /// `None` for a key of another type.
    pub(super) value: Option<Vec<u8>>,
    /// In words.
    pub(super) held: String,
}

pub(crate) async fn force(global: &Global, args: &Release) -> Result<u8, Failure> {
    may_delete(args)?;
    let session = Session::new(global, &args.key)?;
    session.key.check().map_err(Failure::usage)?;
    let key = [masters::prefix(global), session.key.as_bytes()].concat();
    let outcome = delete(&session, &key, args).await;
    session.close().await;
    outcome
}

/// Fails if a confirmation is required and there is no terminal to prompt on.
pub(super) fn may_delete(args: &Release) -> Result<(), Failure> {
    if args.yes || has_terminal() {
        return Ok(());
    }
    let cause = anyhow!("refused, nothing was deleted: no terminal to confirm on; use --yes");
    Err(Failure::usage(cause))
}

async fn delete(session: &Session, key: &[u8], args: &Release) -> Result<u8, Failure> {
    let status = session.status().await;
    let targets = targets(session, key, &status).await;
    if targets.is_empty() {
        return nothing(session, &status, args).await;
    }
    for Target { node, held, .. } in &targets {
        stderr::note(&format!("deletes {} on {node}: {held}", session.key));
    }
    if !args.yes {
        let key = &session.key;
        agree(&format!(
            "If the holder of {key} is still running, it will lose the lock and might not notice \
                immediately."
        ))?;
    }
    let deleted = delete_all(session, key, targets).await;
    if args.json {
        output::json(&Forced { key: (&session.key).into(), deleted })?;
    }
    confirm(session).await
}

/// The masters on which the key was deleted.
pub(super) async fn delete_all(session: &Session, key: &[u8], targets: Vec<Target>) -> Vec<String> {
    let mut deleted = Vec::new();
    for Target { url, node, value, .. } in targets {
        let delete = async |master: &mut Direct| match &value {
            Some(value) => master.delete(key, value).await,
            None => master.delete_foreign(key).await,
        };
        match direct::ask(&session.masters, &url, PATIENCE * 3, delete).await {
            Ok(true) => deleted.push(node),
            Ok(false) => stderr::note(&format!("{node}: the key has changed; not deleted")),
            Err(why) => may_keep(&node, &why),
        }
    }
    deleted
}

pub(super) fn may_keep(node: &str, why: &dyn Display) {
    stderr::note(&format!("{node} may keep the key: {why}"));
}

/// Returns the keys to delete on the masters that answer.
async fn targets(session: &Session, key: &[u8], status: &Status) -> Vec<Target> {
    let mut targets = Vec::new();
    for (url, node) in session.masters.urls().zip(&status.nodes) {
        match &node.verdict {
            Verdict::Held { .. } => targets.extend(target(session, key, url, node).await),
            Verdict::Unknown(why) => may_keep(&node.node, why),
            _ => {}
        }
    }
    targets
}

/// The key on one master, if it is a string: one of another type is data of something else.
async fn target(session: &Session, key: &[u8], url: &str, vote: &NodeVote) -> Option<Target> {
    let (node, key) = (vote.node.to_string(), key.to_vec());
    let read = async |master: &mut Direct| master.read_keys(&[key]).await;
    let found = direct::ask(&session.masters, url, PATIENCE * 3, read).await;
    match found.map(|mut found| found.pop()) {
        Ok(Some(Found::Text { value, .. })) => {
            let (url, value, held) = (url.to_owned(), Some(value), answers::held(vote));
            return Some(Target { url, node, value, held });
        }
        Ok(Some(Found::Foreign)) => {
            stderr::note(&format!("{node} has {}; not deleted", answers::FOREIGN));
        }
        Ok(_) => {}
        Err(why) => may_keep(&node, &why),
    }
    None
}

async fn nothing(session: &Session, status: &Status, args: &Release) -> Result<u8, Failure> {
    let key = session.key.to_string();
    let cause =
        anyhow!("{}; nothing to delete: {}", answers::verdict(&key, status), answers::list(status));
    if args.json {
        output::json(&Forced { key: (&session.key).into(), deleted: Vec::new() })?;
    }
    let is_known = answers::answered(status) >= quorum(status.nodes.len());
    let code = if is_known { NOT_OURS } else { UNAVAILABLE };
    let failure = Failure::new(code, cause);
    Err(session.explained(failure, &answers::causes(&status.nodes)).await)
}

fn has_terminal() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Prints the consequence, and prompts for confirmation.
pub(super) fn agree(what: &str) -> Result<(), Failure> {
    let question = format!("{what}\nDelete? [y/N] ");
    let mut answer = String::new();
    // No answer is a no.
    let _ = io::stderr().write_all(question.as_bytes());
    let _ = io::stdin().lock().read_line(&mut answer);
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::new(NOT_OURS, anyhow!("nothing was deleted"))),
    }
}

/// Whether a majority is free now.
async fn confirm(session: &Session) -> Result<u8, Failure> {
    let status = session.status().await;
    if status.state == State::Free {
        return Ok(0);
    }
    let list = answers::list(&status);
    let cause = anyhow!("{} is not free on a majority of the masters: {list}", session.key);
    let failure = Failure::new(UNAVAILABLE, cause);
    Err(session.explained(failure, &answers::causes(&status.nodes)).await)
}
