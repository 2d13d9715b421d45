//! Why `init` did nothing, or not all.

use anyhow::anyhow;
use redlock_quorum::{Cause, InitError, InitNode, ListWarning, Lists, WhyNot};

use crate::answers;
use crate::exit::{Failure, UNAVAILABLE};
use crate::lists::{self, LIST_ONCE};

pub(super) const TOO_FEW: &str = "nothing was written, because too few masters answered";

/// Returns why nothing was done, or not all. `warning`: the list may be wrong. `step`: the next
/// step if too few masters answered.
pub(super) fn refused(error: InitError, warning: Option<&ListWarning>, step: &str) -> Failure {
    let said = |nodes: &[InitNode]| {
        answers::said_once(nodes.iter().map(|node| (&*node.node, standing(node))).collect())
    };
    match error {
        InitError::NoQuorum { nodes } => {
            Failure::new(UNAVAILABLE, anyhow!("{TOO_FEW}: {}; {step}", said(&nodes)))
        }
        InitError::Shutdown => Failure::new(UNAVAILABLE, error),
        // A confirmation would be about a state that no client has checked.
        InitError::Refused { nodes } if nodes.iter().any(InitNode::is_checked) => {
            Failure::usage(anyhow!(
                "masters are still being checked, perhaps by another init; run `redlock init` \
                again shortly: {}",
                said(&nodes)
            ))
        }
        InitError::Refused { nodes } => {
            in_use(nodes.iter().any(is_without_quarantine), &said(&nodes))
        }
        InitError::OtherSet { lists, nodes } => other_set(&lists, &said(&nodes)),
        InitError::FarFloor { limit } => Failure::usage(anyhow!(
            "refused, nothing was written: --floor is more than a minute ahead of the masters' clocks \
             (limit {limit}). With --far-floor it is accepted, but if all masters ever restart empty, \
             you must pass a floor above every token issued"
        )),
        InitError::Unread { unread: names, nodes } => {
            let is_unread = |node: &&InitNode| names.contains(&node.node);
            let masters = nodes.iter().filter(is_unread);
            let masters = masters.map(|node| (&*node.node, node.cause.as_ref()));
            unread(&masters.collect::<Vec<_>>(), warning, &said(&nodes))
        }
        // The arguments are valid, and a retry may succeed.
        InitError::MaxTtl { .. } | InitError::Moved { .. } => Failure::new(UNAVAILABLE, error),
        InitError::Off => Failure::usage(anyhow!(
            "--quarantine off admits no masters; use --quarantine on, or --again to remove the \
             records of a quarantine"
        )),
        InitError::Invalid(why) => why.into(),
        error => Failure::usage(error),
    }
}

/// The records of these masters were not read.
pub(super) fn unread(
    masters: &[(&str, Option<&Cause>)],
    warning: Option<&ListWarning>,
    said: &str,
) -> Failure {
    if masters.iter().any(|(_, cause)| cause.is_some_and(lists::is_duplicate)) {
        let what = "refused, nothing was written: the list has duplicate addresses";
        return Failure::usage(anyhow!("{what}: {said}; {LIST_ONCE}"));
    }
    let names: Vec<&str> = masters.iter().map(|(name, _)| *name).collect();
    let unrecorded = warning.and_then(|warning| {
        let unrecorded = lists::partly_unrecorded(&warning.lists);
        names.iter().any(|name| unrecorded.contains(name)).then_some(&warning.lists)
    });
    let names = names.join(", ");
    let fix = match unrecorded.and_then(lists::unrecorded) {
        Some(unrecorded) => format!("{unrecorded}; correct the list, or start that master"),
        None => {
            "run `redlock init` again once every master answers, or pass --again if no lock is \
            held"
                .into()
        }
    };
    Failure::usage(anyhow!(
        "refused, nothing was written: could not read the admission record of {names}, which may show \
         that this prefix is in use: {said}; {fix}"
    ))
}

/// The list differs from the recorded set by more than one master.
pub(super) fn other_set(lists: &Lists, said: &str) -> Failure {
    Failure::usage(anyhow!(
        "refused, nothing was written: {}, which differ by more than one master: {said}; correct \
         the list, change it one master at a time, or pass --again if no lock is held",
        lists::both(lists)
    ))
}

/// Creates the error for a prefix in use. `is_mixed`: clients without a quarantine use it.
pub(super) fn in_use(is_mixed: bool, said: &str) -> Failure {
    let failure = Failure::usage(anyhow!(
        "refused: this prefix is in use, and a master may have lost a lock that is still held (or \
         clients without a quarantine use it): {said}"
    ));
    match is_mixed {
        // The answers of these masters end with the fix.
        true => failure,
        false => {
            failure.with_hint("wait for the quarantine to end, or pass --again if no lock is held")
        }
    }
}

fn is_without_quarantine(node: &InitNode) -> bool {
    let cause = node.cause.as_ref();
    matches!(cause, Some(Cause::NotAdmitted(not)) if not.why == WhyNot::UsedWithoutQuarantine)
}

/// Returns why a master does not vote, or what it is.
pub(super) fn standing(node: &InitNode) -> String {
    node.cause.as_ref().map_or_else(|| node.now.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use redlock_quorum::NotAdmitted;

    use super::*;
    use crate::command::lab::nodes;
    use crate::exit::USAGE;

    #[tokio::test]
    async fn master_being_checked_does_not_suggest_again() {
        let mut nodes = nodes().await;
        let said = |nodes: &[InitNode]| {
            let failure = refused(InitError::Refused { nodes: nodes.to_vec() }, None, "");
            (failure.code, format!("{:#}", failure.cause))
        };
        let (code, words) = said(&nodes);
        assert!(code == USAGE && words.contains("--again"), "{words}");
        let why = NotAdmitted::new(WhyNot::Checked);
        nodes[1].cause = Some(Cause::NotAdmitted(why.into()));
        let (code, words) = said(&nodes);
        assert_eq!(code, USAGE, "{words}");
        assert!(words.contains("run `redlock init` again shortly"), "{words}");
        assert!(!words.contains("--again"), "{words}");
    }
}
