//! Findings, derived from the answers. This file sends no requests.

use std::time::Duration;

use redlock_quorum::{Cause, NodeReport, NotAdmitted, ServerReport};

use super::examined::of_probe;
use super::finding::{Finding, Rank};
use super::no_vote::{self, Circumstances, MISTYPED};
use super::probe::Probe;
use super::together;
use crate::answers::without_time;
use crate::duration::spelled;
use crate::lists;

/// Returns the problems of all masters together, and then of each master.
///
/// `quarantine`: how long a master that lost its data does not vote. `None` if this client has no
/// quarantine.
pub(super) fn find(
    nodes: &[NodeReport],
    probes: &[Probe],
    quarantine: Option<Duration>,
) -> Vec<Finding> {
    let mut found: Vec<Finding> = together::find(nodes).collect();
    let may_be_new = NotAdmitted::may_be_new(nodes.iter().map(not_admitted));
    let mistyped = lists::mistyped(nodes);
    for (node, probe) in nodes.iter().zip(probes) {
        let cause = node.cause.as_ref();
        let of_cause = |cause| {
            let is_hindered = probe.hinders_admission();
            let quarantine = quarantine.unwrap_or_default();
            let record = &*probe.record;
            let of = Circumstances { is_hindered, may_be_new, quarantine, record };
            let found = no_vote(cause, of);
            let is_mistyped = mistyped.contains(&&*node.node);
            if is_mistyped { Finding { fix: MISTYPED.into(), ..found } } else { found }
        };
        let of_node = cause.map(of_cause).into_iter();
        let of_node = of_node.chain(node.server.iter().flat_map(of_server));
        let of_node = of_node.chain(of_probe(probe, quarantine));
        found.extend(of_node.map(|finding| finding.of(&node.node, cause.is_none())));
    }
    found
}

fn not_admitted(node: &NodeReport) -> Option<&NotAdmitted> {
    match &node.cause {
        Some(Cause::NotAdmitted(not)) => Some(not),
        _ => None,
    }
}

/// Returns the finding about a master that does not vote.
pub(super) fn no_vote(cause: &Cause, of: Circumstances<'_>) -> Finding {
    let (impact, fix) = no_vote::of(cause, of);
    let rank = match cause {
        Cause::NotAdmitted(_) => Rank::NoVote,
        _ => Rank::Hindrance,
    };
    let problem = without_time(cause).to_string();
    Finding { problem, rank, ..Finding::error(cause.to_string(), impact, fix) }
}

fn of_server(server: &ServerReport) -> Vec<Finding> {
    /// More than a time daemon leaves, and far less than a quarantine takes.
    const OFFSET_MAX_MS: u64 = 1_000;
    let mut found = Vec::new();
    if !server.tracks {
        let impact = "it cannot wake waiting clients, reports data loss late, and does not vote for \
            --plain clients that use a quarantine";
        let fix = "use Redis 6.0 or newer without a proxy and with HELLO, and grant \
            +client|tracking +client|caching";
        found.push(Finding::warning("does not report key changes", impact, fix));
    }
    if let Some(offset) = server.clock_offset_ms.filter(|o| o.unsigned_abs() > OFFSET_MAX_MS) {
        let by = spelled(Duration::from_millis(offset.unsigned_abs()));
        let side = if offset < 0 { "behind" } else { "ahead of" };
        let what = format!("its clock is {by} {side} the median of all");
        let impact = "changing the clock while locks are held ends them too early or too late";
        found.push(Finding::warning(
            what,
            impact,
            "run a time daemon there that slews the clock instead of stepping it",
        ));
    }
    found
}
