//! The recorded sets of masters next to the list of this command.

use std::borrow::Cow;
use std::collections::BTreeMap;

use redlock_quorum::{ListDoubt, ListWarning, Lists, NodeReport, RecordedSet, Standing};

use super::finding::Finding;
use super::probe::Probe;
use crate::lists;

/// Shows each recorded set with the list of this command. Empty if no set is recorded.
pub(super) fn shown(nodes: &[NodeReport]) -> Vec<String> {
    let mut counted: BTreeMap<u64, (&RecordedSet, Vec<&str>)> = BTreeMap::new();
    for (node, set) in nodes.iter().filter_map(|node| Some((node, set_of(node)?))) {
        counted.entry(set.id.0).or_insert((set, Vec::new())).1.push(&node.node);
    }
    let is_one = counted.len() == 1;
    let line = |(set, masters): &(&RecordedSet, Vec<&str>)| {
        let of = if is_one { String::new() } else { format!(" of {}", masters.join(", ")) };
        format!("recorded set{of}: {set}; {}", lists::shown(nodes))
    };
    counted.values().map(line).collect()
}

/// Finds differences that keep no master from voting. `warning`: the list may be wrong, as far as
/// the handle has judged.
pub(super) fn find(nodes: &[NodeReport], warning: Option<ListWarning>) -> Vec<Finding> {
    let needs_again = warning.as_ref().is_some_and(|warning| warning.lists.needs_again);
    // Names are compared below, also those of masters that show the same set.
    let judged = warning.filter(|warning| warning.doubt != ListDoubt::Names);
    let is_judged = judged.is_some() || nodes.iter().any(has_wrong_list);
    let named = lists::others(nodes).into_iter().filter(|_| !is_judged);
    let fix_of = |lists: Lists| match needs_again {
        true => lists::fix(&lists.with_again(true)),
        false => fix(nodes).into(),
    };
    let named: Vec<_> = named.map(|lists| other_names(&lists, fix_of(lists.clone()))).collect();
    judged.iter().map(may_be_wrong).chain(named).chain(without_set(nodes)).collect()
}

fn may_be_wrong(warning: &ListWarning) -> Finding {
    Finding::warning(
        format!("the list of masters may be wrong: {}", lists::doubt(warning)),
        "a change of the list may be under way; if the list is wrong, two clients can hold the \
         same lock",
        lists::fix(&warning.lists),
    )
}

/// Finds a list whose URLs name different databases. Names do not contain the database, so the set
/// does not show such a list.
pub(super) fn databases(nodes: &[NodeReport], probes: &[Probe]) -> Option<Finding> {
    let named = nodes.iter().zip(probes).filter_map(|(node, probe)| Some((node, probe.database?)));
    let named: Vec<(&NodeReport, i64)> = named.collect();
    let first = named.first()?.1;
    let one = |(node, database): &(&NodeReport, i64)| format!("{} {database}", node.node);
    named.iter().any(|(_, database)| *database != first).then(|| {
        let shown = named.iter().map(one).collect::<Vec<_>>().join(", ");
        Finding::warning(
            format!("the URLs name different databases: {shown}"),
            "locks in different databases do not exclude each other, so two clients can hold the \
             same lock",
            "use the same database in every URL, on every client",
        )
    })
}

/// Returns the finding for names that differ. If all differ, another spelling is more likely than
/// another list.
fn other_names(lists: &Lists, fix: Cow<'static, str>) -> Finding {
    let shown = lists::both_and_unrecorded(lists);
    match lists::partly_unrecorded(lists).is_empty() {
        true => Finding::info(
            format!("the recorded set has other names: {shown}"),
            "names are not compared, so another spelling is harmless, but a wrong master is not \
             noticed",
            fix,
        ),
        false => Finding::warning(
            format!("the list of masters may be wrong: {shown}"),
            "if it is another master and not another spelling, two clients can hold the same lock",
            fix,
        ),
    }
}

/// `init` refuses while a master may have lost data, or is away.
fn fix(nodes: &[NodeReport]) -> &'static str {
    match nodes.iter().all(|node| node.standing == Standing::Admitted) {
        true => "check the list of masters; if it is right, run redlock init",
        false => {
            "check the list of masters; if it is right, run redlock init when every master votes"
        }
    }
}

/// Skips masters in quarantine, which get their set with their admission, and masters that did not
/// answer this report.
fn without_set(nodes: &[NodeReport]) -> Option<Finding> {
    let is_read = |node: &&NodeReport| node.standing == Standing::Admitted && node.server.is_some();
    let admitted = nodes.iter().filter(is_read);
    let (with, without): (Vec<_>, Vec<_>) = admitted.partition(|node| set_of(node).is_some());
    let names = without.iter().map(|node| &*node.node).collect::<Vec<_>>().join(", ");
    let (impact, fix) = ("a wrong list of masters is not noticed there", fix(nodes));
    match (with.is_empty(), without.is_empty()) {
        (_, true) => None,
        (true, false) => Some(Finding::info("no set of masters is recorded".into(), impact, fix)),
        (false, false) => {
            let what = format!("no set of masters is recorded on {names}");
            Some(Finding::warning(what, impact, fix))
        }
    }
}

pub(super) fn set_of(node: &NodeReport) -> Option<&RecordedSet> {
    node.server.as_ref()?.set.as_ref()
}

fn has_wrong_list(node: &NodeReport) -> bool {
    node.cause.as_ref().is_some_and(lists::is_wrong)
}

#[cfg(test)]
mod tests {
    use redlock_quorum::Redlock;

    use super::*;

    /// The connection of an admitted master broke after the handshake.
    #[tokio::test]
    async fn silent_masters_are_not_reported_to_lack_a_set() {
        let redlock = Redlock::connect(["redis://127.0.0.1:1"]).unwrap();
        let mut nodes = redlock.inspect().await;
        assert_eq!((nodes[0].standing, &nodes[0].server), (Standing::Unreachable, &None));
        nodes[0].standing = Standing::Admitted;
        assert_eq!(find(&nodes, None).len(), 0);
    }
}
