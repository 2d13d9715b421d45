//! The recorded set of masters and the list of this command, in words.

use std::borrow::Cow;

use redlock_quorum::{
    Cause, ListDoubt, ListWarning, Lists, Names, NodeReport, NodeVote, NotAdmitted, RecordedSet,
    SetId, Verdict,
};

/// Returns `true` if a master is refused because the list does not fit its set.
pub(crate) fn is_wrong(cause: &Cause) -> bool {
    wrong(cause).is_some()
}

/// Returns `true` if an address leads to a server that the list already has.
pub(crate) fn is_duplicate(cause: &Cause) -> bool {
    matches!(cause, Cause::TwinOf(_))
}

/// The fix for a list with duplicate addresses, which each count as a master.
pub(crate) const LIST_ONCE: &str = "list each server once";

/// Returns why a master is refused, if its set does not fit the list.
fn wrong(cause: &Cause) -> Option<&NotAdmitted> {
    match cause {
        Cause::NotAdmitted(not) if not.why.is_wrong_list() => Some(&**not),
        _ => None,
    }
}

/// Returns both lists of a refused master.
pub(crate) fn of_cause(cause: &Cause) -> Option<&Lists> {
    wrong(cause)?.lists.as_deref()
}

/// The fix for a list that differs from the recorded set. `init` refuses some lists without
/// `--again`, every list while a master may have lost data, and every list with duplicates.
pub(crate) fn fix(lists: &Lists) -> Cow<'static, str> {
    let fix = fix_without_duplicates(lists);
    match lists.duplicates.is_empty() {
        true => fix.into(),
        false => format!("{LIST_ONCE}, and {fix}").into(),
    }
}

/// Returns the fix for the list, if a wrong list is one of these causes.
pub(crate) fn fix_among(causes: &[Cause]) -> Option<Cow<'static, str>> {
    let once = || causes.iter().any(is_duplicate).then_some(LIST_ONCE.into());
    causes.iter().find_map(of_cause).map(fix).or_else(once)
}

fn fix_without_duplicates(lists: &Lists) -> &'static str {
    match lists.needs_again {
        false if lists.are_equal() => "run redlock init when every master votes",
        false => {
            "correct the list of masters; if it is the new list of a change, run redlock init when \
             every master votes"
        }
        true => {
            "correct the list of masters; if it is right and no lock is held, run redlock init \
             --again when every master answers"
        }
    }
}

/// Shows both lists.
pub(crate) fn both(lists: &Lists) -> String {
    let set = lists.set.as_ref().map_or_else(|| "no masters".to_owned(), RecordedSet::to_string);
    format!("the recorded set has {set}, and {}", this(lists))
}

fn this(lists: &Lists) -> String {
    format!("this command lists {}", lists.listed())
}

/// Describes why a list may be wrong although it works, and shows both lists.
pub(crate) fn doubt(warning: &ListWarning) -> String {
    let ListWarning { doubt, node, lists, .. } = warning;
    match doubt {
        ListDoubt::OtherSet => {
            let (member, this) = (lists.membership(), this(lists));
            format!("one master belongs to another set, {node}: {member}, and {this}")
        }
        _ => both_and_unrecorded(lists),
    }
}

/// Names the masters that the set does not contain, and shows both lists.
pub(crate) fn both_and_unrecorded(lists: &Lists) -> String {
    match unrecorded(lists) {
        Some(unrecorded) => format!("{unrecorded}: {}", both(lists)),
        None => both(lists),
    }
}

/// Names the listed masters that the recorded set does not contain, each with the most similar
/// missing name. `None` if the set contains none of the listed names: they may all be spelled in
/// another way.
pub(crate) fn unrecorded(lists: &Lists) -> Option<String> {
    let unlisted = lists.unlisted();
    let one = |name: &&str| match nearest(name, &unlisted) {
        Some(nearest) => {
            format!("{name} is not in the recorded set (the nearest name is {nearest})")
        }
        None => format!("{name} is not in the recorded set"),
    };
    let names = partly_unrecorded(lists);
    (!names.is_empty()).then(|| names.iter().map(one).collect::<Vec<_>>().join(", "))
}

/// Returns the listed masters that the recorded set does not contain, if it contains others.
pub(crate) fn partly_unrecorded(lists: &Lists) -> Vec<&str> {
    let unrecorded = lists.unrecorded();
    if unrecorded.len() < lists.list.len() { unrecorded } else { Vec::new() }
}

fn nearest<'a>(name: &str, among: &'a [Cow<'_, str>]) -> Option<&'a str> {
    among.iter().map(|other| &**other).min_by_key(|other| distance(name, other))
}

/// Counts the characters to insert, remove or replace between two names.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (place, one) in from.chars().enumerate() {
        let mut before = row[0];
        row[0] = place + 1;
        for column in 0..to.len() {
            let replaced = before + usize::from(to[column] != one);
            before = row[column + 1];
            row[column + 1] = replaced.min(before + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

/// Describes which names `init` adds to the recorded set and which it removes.
pub(crate) fn change(lists: &Lists) -> String {
    let added = lists.unrecorded().into_iter().map(|name| format!("{name} is added"));
    let removed = lists.unlisted().into_iter().map(|name| format!("{name} is removed"));
    let changes: Vec<_> = removed.chain(added).collect();
    match changes.is_empty() {
        true => both(lists),
        false => changes.join(", "),
    }
}

fn process(node: &NodeReport) -> Option<&str> {
    node.server.as_ref().map(|server| &*server.run_id)
}

/// Returns the list of this command, next to no set.
fn of_nodes(nodes: &[NodeReport]) -> Lists {
    // A server has the name that is listed first, whichever of its addresses votes.
    let is_repeated = |(place, node): &(usize, &NodeReport)| {
        let shown = process(node);
        shown.is_some() && nodes[..*place].iter().any(|other| process(other) == shown)
    };
    let (duplicates, masters): (Vec<_>, Vec<_>) = nodes.iter().enumerate().partition(is_repeated);
    let names = |nodes: Vec<(usize, &NodeReport)>| {
        Names::new(nodes.iter().map(|(_, node)| node.node.clone()))
    };
    Lists::new(None, names(masters)).with_duplicates(names(duplicates))
}

/// Shows the list of this command.
pub(crate) fn shown(nodes: &[NodeReport]) -> String {
    this(&of_nodes(nodes))
}

/// Returns each recorded set of these masters that has other names than they have in this command.
pub(crate) fn others(nodes: &[NodeReport]) -> Vec<Lists> {
    let this = of_nodes(nodes);
    let sets = nodes.iter().filter_map(|node| node.server.as_ref()?.set.as_ref());
    let sets = distinct(sets).into_iter().filter(|set| !set.names.are_those_of(&this.list));
    let lists = |set: &RecordedSet| Lists::new(Some(set.clone()), this.list.clone());
    sets.map(|set| lists(set).with_duplicates(this.duplicates.clone())).collect()
}

/// Returns the silent masters whose addresses are not in a recorded set.
pub(crate) fn mistyped(nodes: &[NodeReport]) -> Vec<&str> {
    let others = others(nodes);
    let is_silent = |node: &&NodeReport| node.cause.as_ref().is_some_and(is_silence);
    let is_unrecorded =
        |name: &&str| others.iter().any(|lists| partly_unrecorded(lists).contains(name));
    nodes.iter().filter(is_silent).map(|node| &*node.node).filter(is_unrecorded).collect()
}

/// Returns `true` if nothing answered as a server there.
fn is_silence(cause: &Cause) -> bool {
    let is_refused = matches!(cause, Cause::ConnectionRefused | Cause::ConnectionClosed);
    is_refused || matches!(cause, Cause::TimedOut | Cause::NotConnected(_))
}

/// Returns each set once.
pub(crate) fn distinct<'a>(sets: impl Iterator<Item = &'a RecordedSet>) -> Vec<&'a RecordedSet> {
    let mut known: Vec<&RecordedSet> = Vec::new();
    for set in sets {
        if !known.iter().any(|other| other.id == set.id) {
            known.push(set);
        }
    }
    known
}

/// Shortens the words of masters that are refused because they belong to several sets, so that
/// the list of this client is shown once. Returns that list, or `None` if the masters do not
/// belong to several sets.
pub(crate) fn shortened<'a>(said: &mut [(&'a NodeVote, String)]) -> Option<String> {
    let refused: Vec<Option<&NotAdmitted>> = said.iter().map(|(vote, _)| refused(vote)).collect();
    let lists = |not: &&'a NotAdmitted| not.lists.as_deref();
    let lists: Vec<&Lists> = refused.iter().flatten().filter_map(lists).collect();
    let ids: Vec<SetId> = lists.iter().filter_map(|lists| Some(lists.set.as_ref()?.id)).collect();
    if ids.iter().all(|id| *id == ids[0]) {
        return None;
    }
    let list = lists[0].listed();
    for ((_, words), not) in said.iter_mut().zip(refused) {
        if let Some((not, lists)) = not.and_then(|not| Some((not, not.lists.as_deref()?))) {
            *words = words.replace(&not.to_string(), &lists.membership());
        }
    }
    Some(format!("the masters of this client's list belong to different sets: it lists {list}"))
}

/// Returns why a master is refused, if its set does not fit the list.
fn refused(vote: &NodeVote) -> Option<&NotAdmitted> {
    match (&vote.verdict, &vote.not_admitted) {
        (Verdict::Unknown(cause), _) => wrong(cause),
        (_, Some(not)) => Some(not).filter(|not| not.why.is_wrong_list()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(set: &[&str], list: &[&str]) -> Lists {
        let (names, size) = (Names::new(set.to_vec()), set.len() as u8);
        let set = RecordedSet { id: SetId(1), size, names };
        Lists::new(Some(set), Names::new(list.to_vec()))
    }

    #[test]
    fn mistyped_address_is_named_with_the_nearest_recorded_one() {
        let said = |set: &[&str], list: &[&str]| unrecorded(&lists(set, list));
        let recorded = ["10.0.0.1:6379", "10.0.0.2:6379", "10.0.1.12:6380"];
        assert_eq!(
            said(&recorded, &["10.0.0.1:6379", "10.0.1.2:6380", "10.0.0.2:6379"]).unwrap(),
            "10.0.1.2:6380 is not in the recorded set (the nearest name is 10.0.1.12:6380)"
        );
        let two = said(&recorded, &["10.0.0.1:6379", "10.0.1.2:6380", "10.0.0.3:6379"]).unwrap();
        let nearest =
            "10.0.0.3:6379 is not in the recorded set (the nearest name is 10.0.0.2:6379)";
        assert!(two.contains(nearest), "{two}");
        assert_eq!(said(&recorded, &["a", "b", "c"]), None, "all are spelled differently");
        let longer = said(&["a"], &["a", "b"]).unwrap();
        assert_eq!(longer, "b is not in the recorded set");
    }

    #[test]
    fn distance_counts_insertions_removals_and_replacements() {
        for (from, to, wanted) in
            [("", "", 0), ("", "ab", 2), ("ab", "", 2), ("abc", "axc", 1), ("kitten", "sitting", 3)]
        {
            assert_eq!(distance(from, to), wanted, "{from} {to}");
        }
    }

    #[test]
    fn change_names_what_is_removed_and_added() {
        assert_eq!(change(&lists(&["a", "b"], &["a", "c"])), "b is removed, c is added");
    }

    #[test]
    fn fix_of_a_list_that_init_refuses_needs_again() {
        let lists = lists(&["a"], &["a", "b", "c"]);
        assert!(!fix(&lists).contains("--again"));
        assert!(fix(&lists.with_again(true)).contains("redlock init --again"));
    }
}
