//! `redlock status --watch`: a line for each change, until Ctrl-C or until the reader is gone.

use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use std::time::SystemTime;

use futures::StreamExt;
use redlock_quorum::{Status, printable};
use tokio::signal::ctrl_c;

use crate::answers;
use crate::command::marks;
use crate::exit::{Failure, USAGE};
use crate::global::Global;
use crate::moment;
use crate::output::{self, Report};
use crate::session::Session;

/// Moves to the first column of the first line, and clears the screen from there.
const REDRAW: &str = "\x1b[H\x1b[J";

pub(crate) async fn follow(global: &Global, key: &OsStr, as_json: bool) -> Result<u8, Failure> {
    let session = Session::new(global, key)?;
    session.key.check().map_err(|error| Failure::new(USAGE, error))?;
    let outcome = tokio::select! {
        biased;
        _ = ctrl_c() => Ok(0),
        outcome = show_changes(&session, as_json) => outcome,
        failure = output::until_closed() => Err(failure),
    };
    session.close().await;
    outcome
}

async fn show_changes(session: &Session, as_json: bool) -> Result<u8, Failure> {
    let mut changes = session.redlock.watch(&session.key);
    while let Some(status) = changes.next().await {
        show(session, &status, as_json).await?;
    }
    Ok(0)
}

async fn show(session: &Session, status: &Status, as_json: bool) -> Result<(), Failure> {
    if as_json {
        // Without a quorum, the last run is unknown, as the state is.
        let done = marks::last(session).await.ok().flatten();
        return output::json(&Report::new((&session.key).into(), status, done.as_ref()));
    }
    let key = session.key.to_string();
    let at = moment::date_and_time(SystemTime::now());
    if io::stdout().is_terminal() {
        let people = output::people(&key, status, session.is_verbose);
        let text = format!("{people}\nsince {at}");
        output::program(&format!("{REDRAW}{}", printable::lines(&text)))
    } else {
        output::line(&format!("{at} {}", answers::verdict_and_waiters(&key, status)))
    }
}
