//! The recorded set of masters and the list of this command, in words.

use redlock_quorum::{Cause, Lists, Names, NodeReport, RecordedSet};

/// The fix for a wrong list.
pub(crate) const FIX: &str = "correct the list of masters, or run redlock init if it is right";

/// Returns `true` if a master is refused because the list does not fit its set.
pub(crate) fn is_wrong(cause: &Cause) -> bool {
    matches!(cause, Cause::NotAdmitted(not) if not.why.is_wrong_list())
}

/// Shows both lists.
pub(crate) fn both(lists: &Lists) -> String {
    let Lists { set, list } = lists;
    let set = set.as_ref().map_or_else(|| "no masters".to_owned(), RecordedSet::to_string);
    format!("the recorded set has {set}, and this command lists {} ({list})", list.len())
}

/// Shows both lists if they differ by one master. The set is that of the master that differs.
pub(crate) fn by_one(lists: &Lists) -> String {
    let Lists { set, list } = lists;
    match set {
        // Another number than the list has, by one: the set as a whole differs.
        Some(set) if usize::from(set.size).abs_diff(list.len()) != 1 => format!(
            "one master belongs to another set, of {set}, and this command lists {} ({list})",
            list.len()
        ),
        _ => both(lists),
    }
}

/// Returns each recorded set of these masters that has other names than they have in this command.
pub(crate) fn others(nodes: &[NodeReport]) -> Vec<Lists> {
    let list = Names::new(nodes.iter().map(|node| node.node.clone()));
    let mut sets: Vec<&RecordedSet> = Vec::new();
    for set in nodes.iter().filter_map(|node| node.server.as_ref()?.set.as_ref()) {
        if !sets.iter().any(|known| known.id == set.id) && !set.names.are_those_of(&list) {
            sets.push(set);
        }
    }
    sets.into_iter().map(|set| Lists { set: Some(set.clone()), list: list.clone() }).collect()
}
