//! The recorded sets of masters next to the list of this command.

use std::collections::BTreeMap;

use redlock_quorum::{Lists, NodeReport, RecordedSet, Standing};

use super::findings::Finding;
use crate::lists;

/// Shows each recorded set with the list of this command. Empty if no set is recorded.
pub(super) fn shown(nodes: &[NodeReport]) -> Vec<String> {
    let mut counted: BTreeMap<u64, (&RecordedSet, Vec<&str>)> = BTreeMap::new();
    for (node, set) in nodes.iter().filter_map(|node| Some((node, set_of(node)?))) {
        counted.entry(set.id.0).or_insert((set, Vec::new())).1.push(&node.node);
    }
    let names: Vec<&str> = nodes.iter().map(|node| &*node.node).collect();
    let is_one = counted.len() == 1;
    let line = |(set, masters): &(&RecordedSet, Vec<&str>)| {
        let of = if is_one { String::new() } else { format!(" of {}", masters.join(", ")) };
        let list = names.join(", ");
        format!("recorded set{of}: {set}; this command lists {} ({list})", names.len())
    };
    counted.values().map(line).collect()
}

/// Finds differences that keep no master from voting. `warning`: the set and the list differ by one
/// master, as far as the handle has judged.
pub(super) fn find(nodes: &[NodeReport], warning: Option<Lists>) -> Vec<Finding> {
    let by_one = warning.as_ref().map(differs_by_one);
    let is_judged = by_one.is_some() || nodes.iter().any(has_wrong_list);
    let named = lists::others(nodes).into_iter().filter(|_| !is_judged);
    let named: Vec<_> = named.map(|lists| other_names(&lists)).collect();
    by_one.into_iter().chain(named).chain(without_set(nodes)).collect()
}

fn differs_by_one(lists: &Lists) -> Finding {
    Finding::warning(
        format!(
            "the list of masters differs from the recorded set by one: {}",
            lists::by_one(lists)
        ),
        "a change of the list may be under way; if the list is wrong, two clients can hold the \
         same lock",
        "finish the change with redlock init, or correct the list of this client",
    )
}

fn other_names(lists: &Lists) -> Finding {
    Finding::info(
        format!("the recorded set has other names: {}", lists::both(lists)),
        "names are not compared, so another spelling is harmless, but a wrong master is not noticed",
        "check the list of this client; if it is right, redlock init records its names",
    )
}

/// Skips masters in quarantine, which get their set with their admission, and masters that did not
/// answer this report.
fn without_set(nodes: &[NodeReport]) -> Option<Finding> {
    let is_read = |node: &&NodeReport| node.standing == Standing::Admitted && node.server.is_some();
    let admitted = nodes.iter().filter(is_read);
    let (with, without): (Vec<_>, Vec<_>) = admitted.partition(|node| set_of(node).is_some());
    let names = without.iter().map(|node| &*node.node).collect::<Vec<_>>().join(", ");
    let (impact, fix) = ("a wrong list of masters is not noticed there", "run redlock init");
    match (with.is_empty(), without.is_empty()) {
        (_, true) => None,
        (true, false) => Some(Finding::info("no set of masters is recorded".into(), impact, fix)),
        (false, false) => {
            let what = format!("no set of masters is recorded on {names}");
            Some(Finding::warning(what, impact, fix))
        }
    }
}

fn set_of(node: &NodeReport) -> Option<&RecordedSet> {
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
    async fn masters_that_did_not_answer_are_not_reported_to_lack_a_set() {
        let redlock = Redlock::connect(["redis://127.0.0.1:1"]).unwrap();
        let mut nodes = redlock.inspect().await;
        assert_eq!((nodes[0].standing, &nodes[0].server), (Standing::Unreachable, &None));
        nodes[0].standing = Standing::Admitted;
        assert_eq!(find(&nodes, None).len(), 0);
    }
}
