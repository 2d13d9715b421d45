//! Completion marks, for `status` and `release --force --mark`.

use anyhow::anyhow;
use redlock_quorum::{AcquireError, Mark, Status, quorum};

use crate::answers;
use crate::args::Release;
use crate::command::force::{self, Target};
use crate::direct::{self, Direct, Found, PATIENCE};
use crate::done::Done;
use crate::exit::{Failure, NOT_OURS, UNAVAILABLE};
use crate::global::Global;
use crate::masters;
use crate::moment;
use crate::output::{self, Forced};
use crate::session::{EXAMINE, Session};

/// Returns the last completed run under the key of the session.
pub(crate) async fn last(session: &Session) -> Result<Option<Done>, AcquireError> {
    let last = session.redlock.last_run(&session.key).await?;
    Ok(last.map(|last| Done { at_ms: moment::millis(last.at), fire: last.fire, by: last.by }))
}

/// Removes a mark from all masters, so that the job runs again at the next request.
pub(crate) async fn remove(global: &Global, args: &Release) -> Result<u8, Failure> {
    force::may_delete(args)?;
    let session = Session::new(global, &args.key)?;
    session.key.check().map_err(Failure::usage)?;
    let outcome = remove_from_all(global, &session, args).await;
    session.close().await;
    outcome
}

async fn remove_from_all(
    global: &Global,
    session: &Session,
    args: &Release,
) -> Result<u8, Failure> {
    let (name, key) = (session.key.to_string(), Mark::key(masters::prefix(global), &session.key));
    let status = session.status().await;
    let (targets, silent) = targets(session, &key, &status).await;
    if targets.is_empty() {
        if args.json {
            output::json(&Forced { key: (&session.key).into(), deleted: Vec::new() })?;
        }
        let masters = status.nodes.len();
        let cause =
            format!("{name}: nothing to delete, no answering master has its completion mark");
        return Err(match masters - silent >= quorum(masters) {
            true => Failure::new(NOT_OURS, anyhow!(cause)),
            false => Failure::new(UNAVAILABLE, anyhow!("{cause}; {EXAMINE}")),
        });
    }
    force::announce(session, &format!("the completion mark of {name}"), &targets);
    if !args.yes {
        force::agree(&format!("{name} will run again at the next request."))?;
    }
    let deleted = force::delete_all(session, &key, targets).await;
    if args.json {
        output::json(&Forced { key: (&session.key).into(), deleted })?;
    }
    match session.redlock.last_run(&session.key).await {
        Ok(None) => Ok(0),
        Ok(Some(_)) => {
            let cause = anyhow!(
                "{name}: a completion mark remains on at least one master; run \
            this again"
            );
            Err(Failure::new(UNAVAILABLE, cause))
        }
        Err(error) => Err(session.unread(error).await),
    }
}

/// Returns the value of a key in the place of a mark, and a description.
fn value_and_words(found: Found) -> Option<(Option<Vec<u8>>, String)> {
    match found {
        Found::Nothing => None,
        Found::Text { value, .. } => {
            let done = Mark::parse(&value).as_ref().map(Done::from);
            let held = done.map_or_else(|| "not a completion mark".to_owned(), |done| done.text());
            Some((Some(value), held))
        }
        Found::Foreign => Some((None, answers::FOREIGN.to_owned())),
    }
}

/// Returns the value of the mark's key on each master, and how many masters did not answer. A value
/// that is not a valid mark is included, because it takes the place of a mark.
async fn targets(session: &Session, key: &[u8], status: &Status) -> (Vec<Target>, usize) {
    let (mut targets, mut silent) = (Vec::new(), Vec::new());
    for (url, node) in session.masters.urls().zip(&status.nodes) {
        let (node, wanted) = (node.node.to_string(), key.to_vec());
        let read = async |master: &mut Direct| master.read_keys(&[wanted]).await;
        match direct::ask(&session.masters, url, PATIENCE * 3, read).await {
            Ok(found) => {
                let found = found.into_iter().next().and_then(value_and_words);
                let target = |(value, held)| Target { url: url.to_owned(), node, value, held };
                targets.extend(found.map(target));
            }
            Err(why) => silent.push((node, why.to_string())),
        }
    }
    force::may_keep(session, &silent);
    (targets, silent.len())
}
