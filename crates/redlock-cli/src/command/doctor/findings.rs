//! Findings, from what was asked. Nothing is asked here.

use std::time::Duration;

use redlock_quorum::{Cause, NodeReport, ServerReport, Standing, WhyNot};
use serde::Serialize;

use super::look::Look;
use crate::answers::quorum;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    /// None where it concerns all masters.
    pub(super) node: Option<String>,
    pub(super) what: String,
    pub(super) why: &'static str,
    pub(super) cure: &'static str,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// Locks are not granted, or one may have two holders.
    Error,
    /// The next failure may lead to that.
    Warning,
    /// It is well known where it is meant, such as on the machine of a developer or of CI. It does
    /// not count for the exit code: a check that is red there all the time is not looked at.
    Info,
}

impl Finding {
    /// The problem in one part of a line.
    pub(super) fn line(&self) -> String {
        match &self.node {
            Some(node) => format!("{node} {}", self.what),
            None => self.what.clone(),
        }
    }

    pub(super) fn people(&self) -> String {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Info => "info",
        };
        format!("{severity}: {}\n  why:  {}\n  cure: {}", self.line(), self.why, self.cure)
    }

    fn error(what: String, why: &'static str, cure: &'static str) -> Self {
        Self { severity: Severity::Error, node: None, what, why, cure }
    }

    fn warning(what: impl Into<String>, why: &'static str, cure: &'static str) -> Self {
        Self { severity: Severity::Warning, node: None, what: what.into(), why, cure }
    }

    fn info(what: String, why: &'static str, cure: &'static str) -> Self {
        Self { severity: Severity::Info, node: None, what, why, cure }
    }

    /// Whether something has to be done about it.
    pub(super) fn is_problem(&self) -> bool {
        self.severity != Severity::Info
    }

    fn of(self, node: &NodeReport) -> Self {
        Self { node: Some(node.node.to_string()), ..self }
    }
}

/// What is wrong with all, then with each.
pub(super) fn find(nodes: &[NodeReport], looks: &[Look], has_quarantine: bool) -> Vec<Finding> {
    let mut found: Vec<Finding> =
        [no_quorum(nodes), one_host(nodes), limits_differ(nodes)].into_iter().flatten().collect();
    for (node, look) in nodes.iter().zip(looks) {
        let of_node = no_vote(node).into_iter().chain(node.server.iter().flat_map(of_server));
        let of_node = of_node.chain(of_look(look, has_quarantine));
        found.extend(of_node.map(|finding| finding.of(node)));
    }
    found
}

fn no_quorum(nodes: &[NodeReport]) -> Option<Finding> {
    let votes = nodes.iter().filter(|node| node.standing == Standing::Admitted).count();
    let needed = quorum(nodes.len());
    (votes < needed).then(|| {
        let what =
            format!("no quorum: {votes} of {} masters vote, {needed} are needed", nodes.len());
        Finding::error(what, "no lock is granted or extended", "cure the masters that do not vote")
    })
}

fn one_host(nodes: &[NodeReport]) -> Option<Finding> {
    let host = |node: &NodeReport| node.node.rsplit_once(':').map(|(host, _)| host.to_owned());
    let hosts: Vec<String> = nodes.iter().filter_map(host).collect();
    let count = |host: &String| hosts.iter().filter(|other| *other == host).count();
    let host = hosts.iter().find(|host| count(host) > 1)?;
    let what = format!("{} masters are on {host}", count(host));
    let why = "they fail together, and share a clock: if it is wrong, they are wrong together";
    Some(Finding::info(what, why, "run each master on a machine of its own"))
}

fn limits_differ(nodes: &[NodeReport]) -> Option<Finding> {
    let limits = nodes.iter().filter_map(|node| node.server.as_ref()?.max_ttl);
    let mut limits: Vec<_> = limits.collect();
    limits.sort_unstable();
    let (least, most) = (limits.first()?, limits.last()?);
    (least != most).then(|| {
        let what = format!("max_ttl is {least:?} on one master and {most:?} on another");
        let why = "the smallest that a client reads is its limit, so clients may differ";
        Finding::warning(what, why, "redlock init raises all to the largest")
    })
}

/// Why it does not vote. A master that cannot be reached is missed, one that forgot is waited for.
fn no_vote(node: &NodeReport) -> Option<Finding> {
    let cause = node.cause.as_ref()?;
    let (why, cure) = match cause {
        Cause::TwinOf(_) => ("one server has one vote", "list each server once"),
        Cause::NotAdmitted(not_admitted) => not_admitted_for(not_admitted.why),
        Cause::ErrorReply(_) => {
            ("it does not vote", "see to the password and the rights of the user in its URL")
        }
        // The cause is text. What comes from TLS has the word in it.
        Cause::NotConnected(words) | Cause::Unusable(words) if words.contains("TLS") => (
            "it does not vote, and one failure less is survived",
            "if this port does not speak TLS, write redis://, or give the port that does; if it \
             does, see to its certificate, and to --tls-ca, --tls-cert and --tls-key",
        ),
        _ => (
            "it does not vote, and one failure less is survived",
            "see to the server and the network",
        ),
    };
    Some(Finding::error(cause.to_string(), why, cure))
}

fn not_admitted_for(why: WhyNot) -> (&'static str, &'static str) {
    const FORGOT: &str = "it may have forgotten a lock that is alive";
    match why {
        WhyNot::New => {
            let cure = "all brand new? run redlock init; else wait for the end of its quarantine, \
                        which begins when a client asks for a lock";
            (FORGOT, cure)
        }
        WhyNot::Emptied | WhyNot::Restarted | WhyNot::Incomplete => {
            let cure = "wait; its quarantine begins when a client asks for a lock, and ends by a \
                        client that stays or by the clocks of two masters";
            (FORGOT, cure)
        }
        WhyNot::Replica | WhyNot::NotMaster | WhyNot::Cluster => {
            ("what it has follows another server", "give independent masters")
        }
        WhyNot::Denied => {
            ("whether it forgot cannot be told", "give its user +info and +hgetall; see to the key")
        }
        WhyNot::ScoreTooLarge => (NO_TOKEN, FOREIGN_CURE),
        WhyNot::NoBallots => (
            "it takes no part in locks with fencing tokens",
            "Redis 6.2 or newer, and +zadd +zscore for its user; or --plain, for clients that need \
             no tokens",
        ),
        WhyNot::UsedWithoutQuarantine => (
            "clients with and without a quarantine do not mix",
            "--quarantine off or REDLOCK_QUARANTINE=off for this client; or redlock init --again, \
             which converts the namespace, when the others are gone; or another --prefix",
        ),
        WhyNot::UsedWithQuarantine => (
            "clients with and without a quarantine do not mix",
            "--quarantine on for this client; or redlock init --again, which converts the \
             namespace, when the others are gone; or another --prefix",
        ),
        WhyNot::Loading => (
            "it may have a record that cannot be read yet: others wait for it before they begin a \
             quarantine, for as long as one lasts",
            "wait until it has its data, or stop it",
        ),
        _ => ("it does not vote now", "run doctor again in a moment"),
    }
}

fn of_server(server: &ServerReport) -> Vec<Finding> {
    /// More than a time daemon leaves, and far less than a quarantine takes.
    const OFFSET_MAX_MS: u64 = 1_000;
    let mut found = Vec::new();
    if !server.tracks {
        let why = "it wakes no waiters, and each lock costs it two more commands";
        let cure = "Redis 6.0 or newer, without a proxy, and +client|tracking +client|caching";
        found.push(Finding::warning("reports no changes of keys", why, cure));
    }
    if let Some(offset) = server.clock_offset_ms.filter(|o| o.unsigned_abs() > OFFSET_MAX_MS) {
        let by = Duration::from_millis(offset.unsigned_abs());
        let side = if offset < 0 { "behind" } else { "ahead of" };
        let what = format!("its clock is {by:?} {side} the median of all");
        let why = "a clock that is set while locks are held ends them early or late";
        found.push(Finding::warning(
            what,
            why,
            "run a time daemon there, which slews and does not step",
        ));
    }
    found
}

const NO_TOKEN: &str = "no fencing token follows, so it does not vote on some locks";
const FOREIGN_CURE: &str = "find out who writes there, delete the ballot set of this master before \
                            another one is admitted, and wait for its quarantine";

fn of_look(look: &Look, has_quarantine: bool) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(policy) = look.eviction.as_ref().filter(|policy| *policy != "noeviction") {
        let what = format!("evicts keys when its memory is full: {policy}");
        let why = "a lock that is evicted is given away while it is held";
        found.push(Finding::warning(what, why, "maxmemory-policy noeviction"));
    }
    if look.keeps_writes == Some(false) && !has_quarantine {
        let why = "without a quarantine a master that restarts grants again what is held";
        let cure = "appendonly yes and appendfsync always, or --quarantine on";
        found.push(Finding::warning("may forget what it has answered", why, cure));
    }
    if let Some(one) = look.foreign_scores.first() {
        let what =
            format!("{} of its ballots are foreign, such as {one}", look.foreign_scores.len());
        found.push(Finding::error(what, NO_TOKEN, FOREIGN_CURE));
    }
    if !look.missing_rights.is_empty() {
        let what = format!("its user lacks {}", look.missing_rights.join(" "));
        let why =
            "locks are not extended or released, quarantines not ended, late requests not stopped";
        found.push(Finding::warning(what, why, "ACL SETUSER with the rights of docs/GUIDE.md"));
    }
    found
}
