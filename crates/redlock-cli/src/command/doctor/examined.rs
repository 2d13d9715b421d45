//! Findings about an examined master: its settings, rights and commands.

use std::time::Duration;

use redlock_quorum::commands::Purpose;

use super::finding::{Finding, Rank};
use super::keys;
use super::probe::Probe;
use crate::rights;

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
    found.extend(unread_persistence(probe));
    found.extend(replicas(probe.replicas, quarantine));
    found.extend(keys::of_probe(probe, quarantine));
    found.extend(probe.write_refusal.as_ref().map(write_refusal));
    found.extend(missing_rights(probe));
    found.extend(missing_commands(probe));
    found.extend(probe.undeclared.as_deref().map(undeclared));
    found.extend(probe.unexamined.as_deref().map(unexamined));
    found.extend(failed_queries(&probe.failed_queries));
    found.extend(withheld(&probe.withheld));
    found
}

/// Without a quarantine, operators have to check what this user must not read.
fn unread_persistence(probe: &Probe) -> Option<Finding> {
    let why = probe.unread_persistence.as_ref()?;
    let what = format!("does not show whether it may lose acknowledged writes ({why})");
    let impact = "without a quarantine, a restarted master that lost writes may grant a lock while \
        a client still holds it";
    let fix = "check that appendonly is yes and appendfsync is always there";
    Some(Finding::info(what, impact, fix))
}

/// With a quarantine, a promoted replica is not admitted, because it is another server.
fn replicas(replicas: u64, quarantine: Option<Duration>) -> Option<Finding> {
    let what = match replicas {
        0 => return None,
        1 => "has 1 connected replica".to_owned(),
        many => format!("has {many} connected replicas"),
    };
    let fix = "remove it, and Sentinel as well: independent masters need no failover";
    Some(match quarantine {
        Some(_) => {
            let impact = "redlock does not use it, and a promoted replica does not vote until its \
                quarantine has ended";
            Finding::info(what, impact, fix)
        }
        None => {
            let impact = "without a quarantine, a promoted replica that lacks the latest locks \
                grants them again";
            Finding::warning(what, impact, fix)
        }
    })
}

fn write_refusal(error: &String) -> Finding {
    let impact = "it cannot grant locks, or start or finish a quarantine";
    let fix = match error.starts_with("NOREPLICAS") {
        true => "set min-replicas-to-write to 0",
        false => "check its memory and its disk",
    };
    Finding::error(format!("refuses writes: {error}"), impact, fix).ranked(Rank::Hindrance)
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

/// The user of `redlock acl` has only the rights that clients need.
fn withheld(queries: &[String]) -> Option<Finding> {
    let what = format!("does not show its user: {}", queries.join(", "));
    let impact = "problems that these queries show are not reported";
    let fix = "clients do not need it; to see more, run doctor as a user with more rights";
    (!queries.is_empty()).then(|| Finding::info(what, impact, fix))
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
        let is_for_locks = needed.iter().any(|right| rights::is_for_locks(right));
        let found_one = match is_for_locks {
            true => Finding::error(what, costs, fix),
            false => Finding::warning(what, costs, fix),
        };
        found.push(found_one.ranked(Rank::Hindrance));
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
