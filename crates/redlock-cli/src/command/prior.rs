//! Checks whether a plain `init` would be refused, before the prompt.

use std::time::{Duration, Instant};

use anyhow::anyhow;
use redlock_quorum::{Cause, InitError, NodeReport, Quarantine, Standing, WhyNot, quorum};

use super::refusals::{self, TOO_FEW, in_use, other_set, refused};
use crate::answers::said_once;
use crate::exit::{Failure, UNAVAILABLE};
use crate::global::Global;
use crate::lists;
use crate::session::{EXAMINE, Session};

/// Returns the masters if nothing prevents an `init`, which then judges again.
///
/// # Errors
/// Returns the refusal that `init` would return.
pub(super) async fn check(session: &Session, global: &Global) -> Result<Vec<NodeReport>, Failure> {
    /// As long as `init` waits for masters, and for another `init`.
    const PATIENCE: Duration = Duration::from_secs(3);
    const PAUSE: Duration = Duration::from_millis(100);
    if global.quarantine() == Quarantine::Off {
        return Err(refused(InitError::Off, None, EXAMINE));
    }
    let until = Instant::now() + PATIENCE;
    loop {
        let nodes = session.redlock.inspect().await;
        match refusal(session, &nodes) {
            None => return Ok(nodes),
            Some(failure) if Instant::now() >= until => return Err(failure),
            Some(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// The refusal of a list that `init` never accepts as it is: it has duplicate or unrecorded
/// addresses, or differs from a recorded set by more than one master.
pub(super) fn wrong_list(session: &Session, nodes: &[NodeReport]) -> Option<Failure> {
    let warning = session.redlock.list_warning();
    let mistyped = lists::mistyped(nodes);
    let is_unusable = |node: &&NodeReport| is_duplicate(node) || mistyped.contains(&&*node.node);
    let unusable = said(nodes.iter().filter(is_unusable));
    if !unusable.is_empty() {
        return Some(refusals::unread(&unusable, warning.as_ref(), &answers(nodes)));
    }
    let mut refused = nodes.iter().filter_map(|node| lists::of_cause(node.cause.as_ref()?));
    let lists = refused.next().cloned().or_else(|| warning.map(|warning| warning.lists));
    let lists = lists.filter(|lists| lists.needs_again)?;
    Some(other_set(&lists, &answers(nodes)))
}

fn refusal(session: &Session, nodes: &[NodeReport]) -> Option<Failure> {
    let is_read = |node: &&NodeReport| node.server.is_some() && !is_duplicate(node);
    let (read, unread): (Vec<_>, Vec<_>) = nodes.iter().partition(is_read);
    if read.len() < quorum(nodes.len()) && !nodes.iter().any(is_duplicate) {
        let causes: Vec<_> = nodes.iter().filter_map(|node| node.cause.clone()).collect();
        let cause = anyhow!("{TOO_FEW}: {}; {}", answers(nodes), session.next_step(&causes));
        return Some(Failure::new(UNAVAILABLE, cause));
    }
    if let Some(failure) = wrong_list(session, nodes) {
        return Some(failure);
    }
    if !unread.is_empty() {
        return Some(refusals::unread(&said(unread), None, &answers(nodes)));
    }
    let is_mixed = nodes.iter().any(is_without_quarantine);
    (is_mixed || has_lost(nodes)).then(|| in_use(is_mixed, &answers(nodes)))
}

/// The name of each master, and why it does not vote.
fn said<'a>(nodes: impl IntoIterator<Item = &'a NodeReport>) -> Vec<(&'a str, Option<&'a Cause>)> {
    nodes.into_iter().map(|node| (&*node.node, node.cause.as_ref())).collect()
}

/// Describes each master in one line. The recorded set and the list are shown elsewhere.
fn answers(nodes: &[NodeReport]) -> String {
    let why = |node: &NodeReport| {
        let cause = node.cause.as_ref().filter(|cause| !lists::is_wrong(cause));
        cause.map_or_else(|| node.standing.to_string(), ToString::to_string)
    };
    said_once(nodes.iter().map(|node| (&*node.node, why(node))).collect())
}

fn is_duplicate(node: &NodeReport) -> bool {
    node.cause.as_ref().is_some_and(lists::is_duplicate)
}

/// Returns `true` if a master was admitted before, and some master does not vote: it may have lost
/// a lock.
fn has_lost(nodes: &[NodeReport]) -> bool {
    let was_admitted =
        |node: &NodeReport| node.server.as_ref().is_some_and(|server| server.floor.is_some());
    nodes.iter().any(was_admitted) && nodes.iter().any(|node| node.standing != Standing::Admitted)
}

fn is_without_quarantine(node: &NodeReport) -> bool {
    matches!(&node.cause, Some(Cause::NotAdmitted(not)) if not.why == WhyNot::UsedWithoutQuarantine)
}
