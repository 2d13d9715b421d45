//! `redlock status`: who holds a lock, by what each master says.

use anyhow::anyhow;
use redlock_quorum::{State, Status as Said};

use crate::args::{Global, Status};
use crate::exit::{Failure, NOT_OURS, UNAVAILABLE, USAGE};
use crate::output::{self, Report};
use crate::session::Session;

pub(crate) async fn status(global: &Global, args: &Status) -> Result<u8, Failure> {
    let session = Session::new(global, &args.key, None)?;
    session.key.check().map_err(|error| Failure::new(USAGE, error))?;
    let (key, status) = (session.key.to_string(), session.redlock.status(&session.key).await);
    let printed = if args.json {
        output::json(&Report::new(key.clone(), &status))
    } else {
        output::line(&output::people(&key, &status))
    };
    session.close().await;
    printed?;
    judge(&key, &status)
}

/// Free and undecided have exit codes of ours, and so a line that says why.
fn judge(key: &str, status: &Said) -> Result<u8, Failure> {
    let nodes =
        status.nodes.iter().map(|node| format!("{} {}", node.node, output::said(&node.state)));
    let nodes = nodes.collect::<Vec<_>>().join(", ");
    match status.state {
        State::Held { .. } => Ok(0),
        State::Free => Err(Failure::new(NOT_OURS, anyhow!("{key} is free: {nodes}"))),
        _ => Err(Failure::new(UNAVAILABLE, anyhow!("no quorum agrees on {key}: {nodes}"))),
    }
}
