//! The notes after a successful `init`: changes, and how long clients must wait.

use std::time::Duration;

use redlock_quorum::{InitNode, InitReport, Lists, RecordedSet, RedlockBuilder, Standing};

use crate::duration::spelled;
use crate::lists;
use crate::stderr;

/// Clients with the former list work for as long as it differs by one master.
pub(super) fn a_new_set(nodes: &[InitNode]) {
    let changed = |node: &InitNode| {
        let (former, set) = (node.former_set.clone()?, node.set.clone()?);
        (former.id != set.id).then_some((former, set))
    };
    let changes: Vec<(RecordedSet, RecordedSet)> = nodes.iter().filter_map(changed).collect();
    let max_ttl = nodes.iter().filter_map(|node| node.max_ttl).max().unwrap_or_default();
    let quarantine = RedlockBuilder::quarantine_of(max_ttl);
    for former in lists::distinct(changes.iter().map(|(former, _)| former)) {
        let set = changes.iter().find(|(other, _)| other.id == former.id).map(|(_, set)| set);
        // `former` is from `changes`.
        let Some(set) = set else { continue };
        let lists = Lists::new(Some(former.clone()), set.names.clone());
        // Only the id differs, so no client with either list is refused.
        if lists.are_equal() {
            continue;
        }
        stderr::note(&format!(
            "the recorded set has changed from {former} to {set}: {}; wait for {} (1.1 × max_ttl) \
             before the next change of the list",
            lists::change(&lists),
            spelled(quarantine)
        ));
    }
}

/// The records keep the sets that they had.
pub(super) fn an_unrecorded_set(report: &InitReport) {
    if !report.unanswered.is_empty() {
        let names = report.unanswered.join(", ");
        stderr::note(&format!(
            "no set of masters was recorded, because {names} did not answer; run redlock init \
             again when every master answers"
        ));
    }
}

/// A floor is written with an admission, but its user expects it on every master.
pub(super) fn those_without_floor(nodes: &[InitNode]) {
    let before = nodes.iter().filter(|node| node.was == Standing::Admitted);
    let before: Vec<&str> = before.map(|node| &*node.node).collect();
    if !before.is_empty() {
        let nodes = before.join(", ");
        stderr::note(&format!(
            "--floor has no effect on {nodes}, which were already admitted and keep their \
            ballots"
        ));
    }
}

/// A record with a larger one is left as it is: a quarantine that is under way may rest on it.
pub(super) fn a_larger_max_ttl(nodes: &[InitNode], given: Duration, again: bool) {
    let held = nodes.iter().filter_map(|node| node.max_ttl).max();
    let Some(held) = held.filter(|held| *held > given) else { return };
    let cure = match again {
        true => "lowering it requires every master to answer".to_owned(),
        false => {
            format!(
                "to lower it, run redlock init --again --max-ttl {} while every master answers",
                spelled(given)
            )
        }
    };
    stderr::note(&format!("max_ttl stays at {}, the value on the masters: {cure}", spelled(held)));
}

/// Clients read the records from time to time, and use the previous value until then.
pub(super) fn a_former_max_ttl(nodes: &[InitNode]) {
    /// How long a client that runs takes to read the records again, and some more.
    const READ_AGAIN: Duration = Duration::from_secs(60);
    let limits = nodes.iter().filter_map(|node| node.max_ttl.zip(node.former_max_ttl));
    let former = limits.filter(|(now, former)| now < former).map(|(_, former)| former).max();
    let Some(former) = former else { return };
    let rest = former + former / 10 + READ_AGAIN;
    stderr::note(&format!(
        "max_ttl was {}. Connected clients may keep using it for about a minute, so do not \
        restart any master for {} (1.1 × the old max_ttl plus one minute)",
        spelled(former),
        spelled(rest)
    ));
}
