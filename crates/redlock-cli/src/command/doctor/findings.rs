//! Findings, derived from the answers. This file sends no requests.

use std::borrow::Cow;
use std::time::Duration;

use redlock_quorum::{Cause, NodeReport, NotAdmitted, ServerReport};
use serde::Serialize;

use super::examined::of_probe;
use super::no_vote::{self, Circumstances, MISTYPED};
use super::probe::Probe;
use super::together;
use crate::answers::without_time;
use crate::duration::spelled;
use crate::lists;

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    /// None where it concerns all masters.
    pub(super) node: Option<String>,
    pub(super) what: String,
    pub(super) impact: Cow<'static, str>,
    pub(super) fix: Cow<'static, str>,
    /// The same as `what`, without the remaining time, which differs between masters with the same
    /// problem.
    #[serde(skip)]
    pub(super) problem: String,
    #[serde(skip)]
    pub(super) rank: Rank,
}

/// How bad it is, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// Locks are not granted, or one may have two holders.
    Error,
    /// The next failure may lead to that.
    Warning,
    /// A common state in places such as a developer's machine or CI. It does not affect the exit
    /// code, because operators ignore a check that always fails.
    Info,
}

/// The position of a finding among others. Effects follow their causes, whose fix also fixes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// A problem that keeps a master from voting: the master is unreachable, or a right or a key is
    /// wrong.
    Hindrance,
    /// A master answered, and does not vote.
    NoVote,
    /// Too few masters vote.
    NoQuorum,
    /// A problem that keeps no master from voting.
    Rest,
}

impl Finding {
    fn new(
        severity: Severity,
        what: String,
        impact: impl Into<Cow<'static, str>>,
        fix: impl Into<Cow<'static, str>>,
    ) -> Self {
        let (problem, impact, fix) = (what.clone(), impact.into(), fix.into());
        Self { severity, node: None, what, impact, fix, problem, rank: Rank::Rest }
    }

    pub(super) fn error(
        what: impl Into<String>,
        impact: impl Into<Cow<'static, str>>,
        fix: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(Severity::Error, what.into(), impact, fix)
    }

    pub(super) fn warning(
        what: impl Into<String>,
        impact: impl Into<Cow<'static, str>>,
        fix: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(Severity::Warning, what.into(), impact, fix)
    }

    pub(super) fn info(
        what: String,
        impact: impl Into<Cow<'static, str>>,
        fix: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(Severity::Info, what, impact, fix)
    }

    /// Returns `true` if something has to be done about it.
    pub(super) fn is_problem(&self) -> bool {
        self.severity != Severity::Info
    }

    pub(super) fn ranked(self, rank: Rank) -> Self {
        Self { rank, ..self }
    }

    /// Assigns the finding to a master. Nothing hinders a voting master.
    pub(super) fn of(self, node: &str, votes: bool) -> Self {
        let rank = if votes { Rank::Rest } else { self.rank };
        Self { node: Some(node.to_owned()), rank, ..self }
    }
}

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
