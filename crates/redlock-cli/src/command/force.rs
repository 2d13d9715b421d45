//! `redlock release --force`: delete a stuck lock, no matter who holds it.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::anyhow;
use redlock_quorum::{State, Status, Verdict};

use crate::answers::{self, quorum};
use crate::args::Release;
use crate::direct::{self, Direct, Found, PATIENCE};
use crate::exit::{Failure, NOT_OURS, UNAVAILABLE};
use crate::global::Global;
use crate::masters;
use crate::output::{self, Forced};
use crate::session::Session;

/// A string on one master that is to be deleted, with the value that was looked at.
struct Target {
    url: String,
    node: String,
    value: Vec<u8>,
    /// In words.
    held: String,
}

pub(crate) async fn force(global: &Global, args: &Release) -> Result<u8, Failure> {
    let session = Session::new(global, &args.key, None)?;
    session.key.check().map_err(Failure::usage)?;
    let key = [masters::prefix(global), session.key.as_bytes()].concat();
    let outcome = delete(&session, &key, args).await;
    session.close().await;
    outcome
}

async fn delete(session: &Session, key: &[u8], args: &Release) -> Result<u8, Failure> {
    let status = session.status().await;
    let targets = targets(session, key, &status).await;
    if targets.is_empty() {
        return nothing(session, &status, args);
    }
    for target in &targets {
        let (node, held) = (&target.node, &target.held);
        output::note(&format!("deletes {} on {node}: {held}", session.key));
    }
    if !args.yes {
        agree(&session.key.to_string())?;
    }
    let mut deleted = Vec::new();
    for Target { url, node, value, .. } in targets {
        let (pem, key) = (session.masters.pem().clone(), key.to_vec());
        let work = move || Direct::open(&url, &pem)?.delete(&key, &value);
        match direct::ask(PATIENCE * 3, work).await {
            Ok(true) => deleted.push(node),
            Ok(false) => output::note(&format!("{node} has another key by now: left alone")),
            Err(why) => output::note(&format!("{node} may keep the key: {why}")),
        }
    }
    if args.json {
        output::json(&Forced { key: session.key.to_string(), deleted })?;
    }
    confirm(session).await
}

/// What there is to delete: strings, on the masters that answer. A key of another type is data of
/// something else.
async fn targets(session: &Session, key: &[u8], status: &Status) -> Vec<Target> {
    let mut targets = Vec::new();
    for (url, node) in session.masters.urls().zip(&status.nodes) {
        match &node.verdict {
            Verdict::Held { .. } => {}
            Verdict::Unknown(why) => {
                output::note(&format!("{} may keep the key: {why}", node.node));
                continue;
            }
            _ => continue,
        }
        let (url, pem, key) = (url.to_owned(), session.masters.pem().clone(), key.to_vec());
        let opened = url.clone();
        let work = move || Direct::open(&opened, &pem)?.look(&[key]);
        let node_name = node.node.to_string();
        match direct::ask(PATIENCE * 3, work).await.as_deref() {
            Ok([Found::Text { value, .. }]) => targets.push(Target {
                url,
                node: node_name,
                value: value.clone(),
                held: answers::held(node),
            }),
            Ok([Found::Foreign]) => {
                output::note(&format!("{node_name} has {}: left alone", answers::FOREIGN));
            }
            Ok(_) => {}
            Err(why) => output::note(&format!("{node_name} may keep the key: {why}")),
        }
    }
    targets
}

fn nothing(session: &Session, status: &Status, args: &Release) -> Result<u8, Failure> {
    let key = session.key.to_string();
    let cause =
        anyhow!("nothing to delete, {}: {}", answers::verdict(&key, status), answers::list(status));
    if args.json {
        output::json(&Forced { key, deleted: Vec::new() })?;
    }
    let is_known = answers::answered(status) >= quorum(status.nodes.len());
    let code = if is_known { NOT_OURS } else { UNAVAILABLE };
    Err(session.explained(Failure::new(code, cause)))
}

/// Asks on a terminal; elsewhere the answer must have been given before.
fn agree(key: &str) -> Result<(), Failure> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        let cause =
            anyhow!("nothing was deleted: where there is no terminal to ask on, give --yes");
        return Err(Failure::usage(cause));
    }
    let question = format!(
        "If the holder of {key} still works, it loses the lock and may not notice at once.\n\
         Delete? [y/N] "
    );
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
    Err(session.explained(Failure::new(UNAVAILABLE, cause)))
}
