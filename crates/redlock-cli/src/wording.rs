//! What the errors of the library say, in the words of the command: it has options where the
//! library has methods, and long words that several masters have are said once.
//!
//! Each is made of the parts of the error. What has no words of a library is left as it is.

use redlock_quorum::{
    AcquireError, BuildError, ExtendError, InitError, InitNode, InvalidRequest, InvalidTtl,
    ReleaseError, Verdict, Votes,
};

use crate::answers;

/// Why a lock was not acquired.
pub(crate) fn acquire(error: &AcquireError) -> String {
    match error {
        AcquireError::Held { resource, votes } => answers::refusal(&resource.to_string(), votes),
        AcquireError::NoQuorum { resource, votes } => {
            let cures = if votes.may_be_new() { BRAND_NEW } else { "" };
            let said = said(votes);
            format!("no quorum for {resource}, too few masters answered or count: {said}{cures}")
        }
        AcquireError::TooLate { resource, votes } => {
            let said = said(votes);
            format!("a quorum granted {resource} too late, nothing of the lease is left: {said}")
        }
        AcquireError::Invalid(why) => request(why),
        other => other.to_string(),
    }
}

/// Why a lock was not extended.
pub(crate) fn extend(error: &ExtendError) -> String {
    match error {
        ExtendError::NotOurs { resource, votes } => {
            format!("{resource} is not ours: {}", said(votes))
        }
        ExtendError::NoQuorum { resource, votes } if votes.is_outbid() => format!(
            "no quorum to resume {resource}, others got larger ballots for their fencing tokens \
             meanwhile, try again: {}",
            said(votes)
        ),
        ExtendError::NoQuorum { resource, votes } => {
            let said = said(votes);
            format!("no quorum to extend {resource}, too few masters answered or count: {said}")
        }
        ExtendError::TooLate { resource, votes } => {
            let said = said(votes);
            format!("a quorum extended {resource} too late, nothing of the lease is left: {said}")
        }
        ExtendError::Invalid(why) => request(why),
        other => other.to_string(),
    }
}

/// Why a lock is not known to be released.
pub(crate) fn release(error: &ReleaseError) -> String {
    let said = |votes: &Votes| {
        said_as(votes, |verdict| match verdict {
            Verdict::Granted => "released".into(),
            verdict => verdict.to_string(),
        })
    };
    match error {
        ReleaseError::NotOurs { resource, votes } => {
            let what = match error.is_late() {
                true => "was released after its lease had ended",
                false => "was not ours, or not any more",
            };
            format!("{resource} {what}: {}", said(votes))
        }
        ReleaseError::Unconfirmed { resource, votes } => {
            format!("the release of {resource} is not confirmed by a quorum: {}", said(votes))
        }
        ReleaseError::Invalid(why) => request(why),
        other => other.to_string(),
    }
}

/// Why no handle can be built.
pub(crate) fn build(error: &BuildError) -> String {
    match error {
        BuildError::Given { by, error } => format!("{by}: {}", build(error)),
        BuildError::Default(why) => request(why),
        other => other.to_string(),
    }
}

/// Why `init` did not do what it was asked.
pub(crate) fn init(error: &InitError) -> String {
    let list = |nodes: &[InitNode]| {
        answers::said_once(nodes.iter().map(|node| (&*node.node, standing(node))).collect())
    };
    match error {
        InitError::NoQuorum { nodes } => {
            let said = list(nodes);
            format!("fewer than a quorum of masters could be read, nothing was written: {said}")
        }
        InitError::Refused { nodes } if nodes.iter().any(InitNode::is_checked) => format!(
            "masters are being looked at, another init may be at work: type redlock init again in \
             a moment: {}",
            list(nodes)
        ),
        InitError::Refused { nodes } => format!(
            "this namespace was in use, and a master may have forgotten a lock that is alive, or \
             clients without a quarantine use it: wait for the end of a quarantine, or state by \
             --again that no lock is alive: {}",
            list(nodes)
        ),
        InitError::Unread { unread, nodes } => format!(
            "the record of {} was not read, and it may show that this namespace was in use: type \
             redlock init again when every master answers, or state by --again that no lock is \
             alive; nothing was written: {}",
            unread.join(", "),
            list(nodes)
        ),
        InitError::Off => {
            const OFF: &str = "--quarantine off admits no masters: give --quarantine on, or \
                               --again to remove the records of a quarantine";
            OFF.into()
        }
        InitError::Invalid(why) => request(why),
        other => other.to_string(),
    }
}

/// Why a master does not vote, or what it is.
pub(crate) fn standing(node: &InitNode) -> String {
    node.cause.as_ref().map_or_else(|| node.now.to_string(), ToString::to_string)
}

/// What each master said, where waiting does not cure it.
pub(crate) fn hopeless(key: &str, votes: &Votes) -> String {
    format!("no quorum for {key}, and waiting does not cure it: {}", said(votes))
}

fn request(why: &InvalidRequest) -> String {
    match why {
        InvalidRequest::Ttl(InvalidTtl::TooLong { ttl, max }) => format!(
            "a TTL of {ttl:?} is too long; max_ttl is {max:?}: give a shorter --ttl (`run` goes on \
             extending the lock), or raise max_ttl: by --max-ttl while masters have no record of \
             it, by `redlock init --again --max-ttl` once they have"
        ),
        other => other.to_string(),
    }
}

fn said(votes: &Votes) -> String {
    said_as(votes, Verdict::to_string)
}

fn said_as(votes: &Votes, word: fn(&Verdict) -> String) -> String {
    answers::said_once(votes.iter().map(|vote| (&*vote.node, word(&vote.verdict))).collect())
}

/// What cures masters that never were admitted, in the words that programs get, too.
const BRAND_NEW: &str = "; brand new? run `redlock init`, call `redlock.init()`, or build with \
                         `Quarantine::Off` (--quarantine off)";

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::time::Duration;

    use redlock_quorum::{Cause, NotAdmitted, Redlock, Resource, WhyNot};
    use redlock_testkit::SimNodes;

    use super::*;

    /// What the library says, and what the command says in its place. All other words are the
    /// same, but for a lock whose holder is known: the command names it.
    const DIFFERENCES: [(&str, &str); 7] = [
        ("with `Quarantine::Off`", "with `Quarantine::Off` (--quarantine off)"),
        ("say again that", "state by --again that"),
        ("call it again", "type redlock init again"),
        (
            "the handle has Quarantine::Off: build one with Quarantine::On, or say again to",
            "--quarantine off admits no masters: give --quarantine on, or --again to",
        ),
        (
            "take a shorter one and let the keeper extend it",
            "give a shorter --ttl (`run` goes on extending the lock)",
        ),
        ("`.max_ttl(..)` of the builder (`--max-ttl`)", "by --max-ttl"),
        ("of it, `redlock init", "of it, by `redlock init"),
    ];

    fn is_same(words: String, error: &impl Error) {
        let say = |text: String, (theirs, ours): &(&str, &str)| text.replace(theirs, ours);
        assert_eq!(words, DIFFERENCES.iter().fold(error.to_string(), say));
    }

    fn all_of_acquire(resource: Resource, votes: Votes) {
        let same = |error: AcquireError| is_same(acquire(&error), &error);
        same(AcquireError::Held { resource: resource.clone(), votes: votes.clone() });
        same(AcquireError::NoQuorum { resource: resource.clone(), votes: votes.clone() });
        same(AcquireError::TooLate { resource, votes });
        same(AcquireError::Invalid(too_long()));
    }

    fn all_of_extend(resource: Resource, votes: Votes) {
        let same = |error: ExtendError| is_same(extend(&error), &error);
        same(ExtendError::NotOurs { resource: resource.clone(), votes: votes.clone() });
        same(ExtendError::NoQuorum { resource: resource.clone(), votes: votes.clone() });
        same(ExtendError::TooLate { resource, votes });
        same(ExtendError::Invalid(too_long()));
    }

    fn all_of_release(resource: Resource, votes: Votes) {
        let same = |error: ReleaseError| is_same(release(&error), &error);
        same(ReleaseError::NotOurs { resource: resource.clone(), votes: votes.clone() });
        same(ReleaseError::Unconfirmed { resource, votes });
        same(ReleaseError::Invalid(too_long()));
    }

    fn all_of_init(nodes: Vec<InitNode>) {
        let same = |error: InitError| is_same(init(&error), &error);
        same(InitError::NoQuorum { nodes: nodes.clone() });
        same(InitError::Refused { nodes: nodes.clone() });
        same(InitError::Unread { unread: vec![nodes[0].node.clone()], nodes: nodes.clone() });
        same(InitError::Refused { nodes: checked(nodes) });
        same(InitError::Off);
        same(InitError::Invalid(too_long()));
    }

    /// The last one is being looked at.
    fn checked(mut nodes: Vec<InitNode>) -> Vec<InitNode> {
        let why = NotAdmitted::new(WhyNot::Checked);
        nodes.last_mut().unwrap().cause = Some(Cause::NotAdmitted(why.into()));
        nodes
    }

    #[tokio::test]
    async fn who_meets_another_init_is_not_told_to_say_again_that_no_lock_is_alive() {
        let masters = SimNodes::new(3, 1);
        let redlock = Redlock::builder().masters(masters.nodes()).clock(masters.clock());
        let nodes = redlock.build().unwrap().init().await.unwrap().nodes;
        let refused = InitError::Refused { nodes: checked(nodes) };
        for words in [init(&refused), refused.to_string()] {
            assert!(words.contains("again in a moment: ") && !words.contains("alive"), "{words}");
        }
    }

    fn too_long() -> InvalidRequest {
        let (ttl, max) = (Duration::from_secs(90), Duration::from_secs(60));
        InvalidTtl::TooLong { ttl, max }.into()
    }

    /// Two masters: what three say would be said once.
    #[tokio::test]
    async fn errors_have_the_words_of_the_library_but_for_options_and_methods() {
        let masters = SimNodes::new(2, 1);
        let redlock = Redlock::builder().masters(masters.nodes()).clock(masters.clock());
        let redlock = redlock.build().unwrap();
        let refused = redlock.try_lock("k").await.unwrap_err();
        let brand_new = refused.votes().unwrap().clone();
        assert!(brand_new.may_be_new(), "{brand_new}");
        let nodes = redlock.init().await.unwrap().nodes;
        let guard = redlock.lock("k").min_copies(2).await.unwrap();
        for votes in [brand_new, guard.votes()] {
            all_of_acquire("k".into(), votes.clone());
            all_of_extend("k".into(), votes.clone());
            all_of_release("k".into(), votes);
        }
        all_of_init(nodes);
        let refused = BuildError::Default(too_long());
        is_same(build(&refused), &refused);
        guard.release().await.unwrap();
    }
}
