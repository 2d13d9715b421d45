//! Findings, derived from the answers. This file sends no requests.

use std::borrow::Cow;
use std::time::Duration;

use redlock_quorum::commands::Purpose;
use redlock_quorum::{Cause, NodeReport, NotAdmitted, ServerReport, Standing, quorum};
use serde::Serialize;

use super::no_vote::{self, Circumstances, FOREIGN_CURE, MISTYPED, NO_TOKEN};
use super::probe::Probe;
use crate::answers::without_time;
use crate::duration::spelled;
use crate::lists;
use crate::rights;

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

    fn error(
        what: String,
        impact: impl Into<Cow<'static, str>>,
        fix: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(Severity::Error, what, impact, fix)
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

    fn ranked(self, rank: Rank) -> Self {
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
    let of_all = [no_quorum(nodes), even(nodes.len()), one_host(nodes), limits_differ(nodes)];
    let mut found: Vec<Finding> = of_all.into_iter().flatten().collect();
    let may_be_new = NotAdmitted::may_be_new(nodes.iter().map(not_admitted));
    let mistyped = lists::mistyped(nodes);
    for (node, probe) in nodes.iter().zip(probes) {
        let cause = node.cause.as_ref();
        let of_cause = |cause| {
            let is_hindered = probe.hinders_admission();
            let quarantine = quarantine.unwrap_or_default();
            let found = no_vote(cause, Circumstances { is_hindered, may_be_new, quarantine });
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

fn no_quorum(nodes: &[NodeReport]) -> Option<Finding> {
    let votes = nodes.iter().filter(|node| node.standing == Standing::Admitted).count();
    let needed = quorum(nodes.len());
    (votes < needed).then(|| {
        let what = format!("no quorum: {votes} of {} masters vote, {needed} needed", nodes.len());
        let fix = "fix the non-voting masters";
        Finding::error(what, "no lock is granted or extended", fix).ranked(Rank::NoQuorum)
    })
}

/// One master more of an even number is one more that can fail, and helps no quorum.
fn even(masters: usize) -> Option<Finding> {
    let spare = masters - quorum(masters);
    match masters {
        2 => {
            let what = "2 masters tolerate no failure".to_owned();
            Some(Finding::warning(
                what,
                "losing either one stops all locking",
                "use three or five masters",
            ))
        }
        _ if masters.is_multiple_of(2) => {
            let what =
                format!("{masters} masters: {spare} can fail, the same as with {}", masters - 1);
            let impact = "an even number adds a machine that can fail, but tolerates no additional \
                failure";
            let fix = format!("use {} masters, of which {} can fail", masters + 1, spare + 1);
            Some(Finding::info(what, impact, fix))
        }
        _ => None,
    }
}

fn one_host(nodes: &[NodeReport]) -> Option<Finding> {
    let host = |node: &NodeReport| node.node.rsplit_once(':').map(|(host, _)| host.to_owned());
    let hosts: Vec<String> = nodes.iter().filter_map(host).collect();
    let count = |host: &String| hosts.iter().filter(|other| *other == host).count();
    let host = hosts.iter().find(|host| count(host) > 1)?;
    let what = format!("{} masters are on {host}", count(host));
    let impact = "they fail together, and one wrong clock affects all of them";
    Some(Finding::info(what, impact, "run each master on a separate machine"))
}

fn limits_differ(nodes: &[NodeReport]) -> Option<Finding> {
    let limits = nodes.iter().filter_map(|node| node.server.as_ref()?.max_ttl);
    let mut limits: Vec<_> = limits.collect();
    limits.sort_unstable();
    let (least, most) = (limits.first()?, limits.last()?);
    (least != most).then(|| {
        let what = format!(
            "max_ttl is {} on one master and {} on another",
            spelled(*least),
            spelled(*most)
        );
        let impact = "each client uses the smallest value it has read, so limits can differ between \
            clients";
        Finding::warning(what, impact, "run `redlock init` to raise all of them to the largest")
    })
}

/// Returns the finding about a master that does not vote.
pub(super) fn no_vote(cause: &Cause, of: Circumstances) -> Finding {
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

pub(super) fn of_probe(probe: &Probe, quarantine: Option<Duration>) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(policy) = probe.eviction.as_ref().filter(|policy| *policy != "noeviction") {
        let what = format!("evicts keys when its memory is full: {policy}");
        let impact = "an evicted lock can be granted to another client while it is held";
        found.push(Finding::warning(what, impact, "set maxmemory-policy noeviction"));
    }
    if let Some(policy) = probe.idle_eviction.as_ref().filter(|policy| *policy != "noeviction") {
        let what = format!("its eviction policy is {policy}, inactive while maxmemory is 0");
        let impact = "setting maxmemory later would start evicting locks";
        found.push(Finding::info(what, impact, "set maxmemory-policy noeviction"));
    }
    if probe.keeps_writes == Some(false) && quarantine.is_none() {
        let impact = "without a quarantine, a restarted master may grant a lock while a client still holds it";
        let fix = "set appendonly yes and appendfsync always, or use --quarantine on";
        found.push(Finding::warning("may lose acknowledged writes", impact, fix));
    }
    if let Some(one) = probe.foreign_scores.first() {
        let what = format!(
            "{} of its ballots were not written by redlock, for example {one}",
            probe.foreign_scores.len()
        );
        found.push(Finding::error(what, NO_TOKEN, FOREIGN_CURE).ranked(Rank::Hindrance));
    }
    found.extend(probe.future_marks.iter().map(|mark| future_mark(mark)));
    found.extend(probe.foreign_queues.iter().map(|key| foreign_queue(key)));
    found.extend(probe.foreign_keys.iter().map(|key| foreign_key(key, quarantine)));
    found.extend(probe.write_refusal.as_ref().map(write_refusal));
    found.extend(missing_rights(probe));
    found.extend(missing_commands(probe));
    found.extend(probe.undeclared.as_deref().map(undeclared));
    found.extend(probe.unexamined.as_deref().map(unexamined));
    found.extend(failed_queries(&probe.failed_queries));
    found
}

fn future_mark(mark: &str) -> Finding {
    let what = format!("has an invalid completion mark: {mark}");
    let impact = "a clock was ahead when the mark was written, --fire was not in seconds, or another \
        program wrote it; until the mark is removed, the job runs every time or never";
    Finding::warning(
        what,
        impact,
        "run `redlock release --force --mark NAME`, which removes it from all masters",
    )
}

fn foreign_queue(key: &str) -> Finding {
    let what = format!("its key {key} has the wrong type, so no client can queue there");
    let impact = "clients of this lock queue at another master, or wait without a queue and in no \
        particular order";
    Finding::warning(what, impact, format!("delete the key {key}"))
}

fn write_refusal(error: &String) -> Finding {
    let impact = "it cannot grant locks, or start or finish a quarantine";
    let fix = match error.starts_with("NOREPLICAS") {
        true => "set min-replicas-to-write to 0",
        false => "check its memory and its disk",
    };
    Finding::error(format!("refuses writes: {error}"), impact, fix).ranked(Rank::Hindrance)
}

fn foreign_key(key: &str, quarantine: Option<Duration>) -> Finding {
    let what = format!("its key {key} has the wrong type, so redlock does not write to it");
    if quarantine.is_some() && key.ends_with(":ballots") {
        let impact = "clients with a quarantine do not use it, but no quarantine can start or finish \
            while it exists";
        let fix = format!("delete the key {key}");
        return Finding::warning(what, impact, fix).ranked(Rank::Hindrance);
    }
    let impact = "redlock stores its own data under this name; until the key is deleted, the master \
        cannot be admitted again";
    let then = quarantine.map(|quarantine| {
        format!("; that master then does not vote for {} (1.1 × max_ttl)", spelled(quarantine))
    });
    let fix = format!("delete the key {key}{}", then.unwrap_or_default());
    Finding::error(what, impact, fix).ranked(Rank::Hindrance)
}

/// Nothing is known of its settings, rights and keys.
fn unexamined(why: &str) -> Finding {
    let impact = "problems of its settings, rights and keys are not reported";
    let fix = "make it accept a second connection with the same URL and certificates, then run \
               doctor again";
    Finding::warning(format!("could not be examined: {why}"), impact, fix)
}

/// The rest of the master was examined.
fn failed_queries(failed: &[String]) -> Option<Finding> {
    let what = format!("could not be examined in part: {}", failed.join(", "));
    let impact = "problems that these queries show are not reported";
    let fix = "allow its user these queries, or fix what the errors name, then run doctor again";
    (!failed.is_empty()).then(|| Finding::warning(what, impact, fix))
}

fn undeclared(error: &str) -> Finding {
    let what = format!("its scripts may not use keys that a call does not declare: {error}");
    let fix = "allow undeclared keys in its configuration, or use another server; without \
               quarantines (--quarantine off), no script needs them";
    Finding::error(what, Purpose::Admission.cost(), fix).ranked(Rank::Hindrance)
}

/// A right cannot bring back a command that the configuration takes away.
fn missing_commands(probe: &Probe) -> Vec<Finding> {
    let right = |name: &String| rights::right_of(name);
    let (for_people, needed): (Vec<&String>, Vec<&String>) =
        probe.missing_commands.iter().partition(|name| rights::is_for_people(right(name)));
    let said = |names: &[&String]| {
        let names = names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" ");
        format!("its server lacks {names} (renamed, or too old)")
    };
    let fix = "remove rename-command from its configuration and restart it, or upgrade it";
    let mut found = Vec::new();
    if !needed.is_empty() {
        let costs = probe.uses.costs(needed.iter().map(|name| right(name)));
        found.push(Finding::error(said(&needed), costs, fix).ranked(Rank::Hindrance));
    }
    if !for_people.is_empty() {
        found.push(Finding::warning(said(&for_people), unexamined_keys(), fix));
    }
    found
}

/// Without these, locks work, but this command has not examined everything.
fn unexamined_keys() -> String {
    format!("{}, and doctor cannot check its queues and marks", Purpose::Listing.cost())
}

fn missing_rights(probe: &Probe) -> Vec<Finding> {
    let missing = probe.missing_rights.iter().map(String::as_str);
    let (for_people, needed): (Vec<&str>, Vec<&str>) =
        missing.partition(|right| rights::is_for_people(right));
    let mut found = Vec::new();
    let said = |rights: &[&str]| {
        let rights = rights.join(" ");
        let fix = format!("run: ACL SETUSER {} {rights}", probe.user);
        (format!("its user lacks {rights}"), fix)
    };
    if !needed.is_empty() {
        let ((what, fix), costs) = (said(&needed), probe.uses.costs(needed.iter().copied()));
        found.push(Finding::warning(what, costs, fix).ranked(Rank::Hindrance));
    }
    if !for_people.is_empty() {
        let (what, fix) = said(&for_people);
        found.push(Finding::warning(what, unexamined_keys(), fix));
    }
    if let Some(narrow) = &probe.narrow {
        let (what, fix) = said(&[narrow]);
        let impact = "it can only use locks whose names its key patterns allow";
        let fix = format!("if other locks are used, {fix}");
        found.push(Finding::info(what, impact, fix));
    }
    found
}
