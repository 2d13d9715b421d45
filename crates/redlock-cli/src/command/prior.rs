//! Why a plain `init` will be refused, found out before a person is asked for a statement.

use std::time::{Duration, Instant};

use anyhow::anyhow;
use redlock_quorum::{Cause, InitError, Lists, NodeReport, Quarantine, Standing, WhyNot, quorum};

use super::refusals::{in_use, other_set, refused};
use crate::answers;
use crate::exit::{Failure, UNAVAILABLE};
use crate::global::Global;
use crate::session::Session;

/// What the masters are, where nothing speaks against an `init`; `init` itself judges again.
///
/// # Errors
/// The refusal that `init` would end with.
pub(super) async fn check(session: &Session, global: &Global) -> Result<Vec<NodeReport>, Failure> {
    /// As long as `init` waits for masters, and for another `init`.
    const PATIENCE: Duration = Duration::from_secs(3);
    const PAUSE: Duration = Duration::from_millis(100);
    if global.quarantine() == Quarantine::Off {
        return Err(refused(InitError::Off));
    }
    let until = Instant::now() + PATIENCE;
    loop {
        let nodes = session.redlock.inspect().await;
        match refusal(&nodes) {
            None => return Ok(nodes),
            Some(failure) if Instant::now() >= until => {
                let causes: Vec<_> = nodes.iter().filter_map(|node| node.cause.as_ref()).collect();
                return Err(session.with_hints(failure, &causes));
            }
            Some(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

fn refusal(nodes: &[NodeReport]) -> Option<Failure> {
    let why = |node: &NodeReport| {
        node.cause.as_ref().map_or_else(|| node.standing.to_string(), ToString::to_string)
    };
    let said = || answers::said_once(nodes.iter().map(|n| (&*n.node, why(n))).collect());
    let (read, unread): (Vec<_>, Vec<_>) = nodes.iter().partition(|node| node.server.is_some());
    if read.len() < quorum(nodes.len()) {
        let what = "fewer than a quorum of masters could be read, nothing was written";
        return Some(Failure::new(UNAVAILABLE, anyhow!("{what}: {}", said())));
    }
    if !unread.is_empty() {
        let names: Vec<&str> = unread.iter().map(|node| &*node.node).collect();
        return Some(Failure::usage(anyhow!(
            "the record of {} was not read, and it may show that this namespace was in use: type \
             redlock init again when every master answers, or state by --again that no lock is \
             held; nothing was written: {}",
            names.join(", "),
            said()
        )));
    }
    // Any smaller difference is judged by `init` itself.
    if let Some(lists) = nodes.iter().find_map(other_size) {
        return Some(other_set(lists, &said()));
    }
    let is_mixed = nodes.iter().any(is_without_quarantine);
    (is_mixed || has_lost(nodes)).then(|| in_use(is_mixed, &said()))
}

/// Whether a master was admitted before, and some master does not vote: it may have lost a lock.
fn has_lost(nodes: &[NodeReport]) -> bool {
    let was_admitted =
        |node: &NodeReport| node.server.as_ref().is_some_and(|server| server.floor.is_some());
    nodes.iter().any(was_admitted) && nodes.iter().any(|node| node.standing != Standing::Admitted)
}

/// Both lists, if the number of masters in the set of this one differs from the list by two or more.
fn other_size(node: &NodeReport) -> Option<&Lists> {
    match &node.cause {
        Some(Cause::NotAdmitted(not)) if not.why == WhyNot::SetSize => not.lists.as_deref(),
        _ => None,
    }
}

fn is_without_quarantine(node: &NodeReport) -> bool {
    matches!(&node.cause, Some(Cause::NotAdmitted(not)) if not.why == WhyNot::UsedWithoutQuarantine)
}
