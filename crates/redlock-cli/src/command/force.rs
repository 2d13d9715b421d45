//! `redlock release --force`: delete a stuck lock, no matter who holds it.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::anyhow;
use redlock_quorum::{Cause, NodeVote, State, Status, Verdict, quorum};

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
    announce(session, &session.key.to_string(), &targets);
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

/// Prints the deleted values, and on which masters they were.
pub(super) fn announce(session: &Session, what: &str, targets: &[Target]) {
    let said: Vec<_> = targets.iter().map(|target| (&*target.node, target.held.clone())).collect();
    for (who, held) in answers::grouped(&said, session.masters.len()) {
        stderr::note(&format!("deletes {what} on {who}: {held}"));
    }
}

/// Deletes the key, and returns the masters on which it was deleted.
pub(super) async fn delete_all(session: &Session, key: &[u8], targets: Vec<Target>) -> Vec<String> {
    let (mut deleted, mut kept) = (Vec::new(), Vec::new());
    for Target { url, node, value, .. } in targets {
        let delete = async |master: &mut Direct| match &value {
            Some(value) => master.delete(key, value).await,
            None => master.delete_foreign(key).await,
        };
        match direct::ask(&session.masters, &url, PATIENCE * 3, delete).await {
            Ok(true) => deleted.push(node),
            Ok(false) => stderr::note(&format!("{node}: the key has changed; not deleted")),
            Err(why) => kept.push((node, why.to_string())),
        }
    }
    may_keep(session, &kept);
    deleted
}

/// Prints which masters may keep the key, and why.
pub(super) fn may_keep(session: &Session, said: &[(String, String)]) {
    let said: Vec<_> = said.iter().map(|(node, why)| (&**node, why.clone())).collect();
    for (who, why) in answers::grouped(&said, session.masters.len()) {
        stderr::note(&format!("{who} may keep the key: {why}"));
    }
}

/// Returns the keys to delete on the masters that answer.
async fn targets(session: &Session, key: &[u8], status: &Status) -> Vec<Target> {
    let (mut targets, mut kept) = (Vec::new(), Vec::new());
    for (url, node) in session.masters.urls().zip(&status.nodes) {
        match &node.verdict {
            Verdict::Held { .. } => match target(session, key, url, node).await {
                Ok(target) => targets.extend(target),
                Err(why) => kept.push((node.node.to_string(), why.to_string())),
            },
            Verdict::Unknown(why) => kept.push((node.node.to_string(), why.to_string())),
            _ => {}
        }
    }
    may_keep(session, &kept);
    targets
}

/// The key on one master, if it is a string: one of another type is data of something else.
async fn target(
    session: &Session,
    key: &[u8],
    url: &str,
    vote: &NodeVote,
) -> Result<Option<Target>, Cause> {
    let (node, key) = (vote.node.to_string(), key.to_vec());
    let read = async |master: &mut Direct| master.read_keys(&[key]).await;
    let found = direct::ask(&session.masters, url, PATIENCE * 3, read).await;
    match found?.pop() {
        Some(Found::Text { value, .. }) => {
            let (url, value, held) = (url.to_owned(), Some(value), answers::held(vote));
            return Ok(Some(Target { url, node, value, held }));
        }
        Some(Found::Foreign) => {
            stderr::note(&format!("{node} has {}; not deleted", answers::FOREIGN));
        }
        _ => {}
    }
    Ok(None)
}

async fn nothing(session: &Session, status: &Status, args: &Release) -> Result<u8, Failure> {
    let key = session.key.to_string();
    let is_known = answers::answered(status) >= quorum(status.nodes.len());
    let list = answers::list(status);
    let cause = match is_known {
        true => anyhow!("{}; nothing to delete: {list}", answers::verdict(&key, status)),
        false => anyhow!("{key}: nothing was deleted, because too few masters answered: {list}"),
    };
    if args.json {
        output::json(&Forced { key: (&session.key).into(), deleted: Vec::new() })?;
    }
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

/// Checks that a majority is free now.
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
