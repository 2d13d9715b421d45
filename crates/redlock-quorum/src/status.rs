//! `Status`: who holds a resource, by what each master says.

use std::sync::Arc;
use std::time::Duration;

use redlock_core::{Answer, Cause, Verdict};

use crate::tally::quorum;
use crate::votes::readable;

/// Who holds a resource, by what each master says.
///
/// A snapshot taken from masters one by one and not a proof: by the time it is read the answer may
/// be another. To be sure of a lock, hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// What a quorum agrees on.
    pub state: State,
    /// What each master said, in the order in which the masters were given.
    pub nodes: Vec<NodeStatus>,
}

/// What a quorum of masters agrees on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// One token is on a quorum of masters.
    Held {
        /// The token of the holder.
        token: String,
        /// How long it still is on a quorum, if it is not extended; none when it never expires.
        ttl: Option<Duration>,
    },
    /// A quorum of masters is free.
    Free,
    /// Neither: too few masters answered, or several tokens share them.
    Undecided,
}

/// What one master said about a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStatus {
    /// The master.
    pub node: Arc<str>,
    /// What it has.
    pub state: NodeHolds,
    /// How long it took until this was known; none when it was not in time.
    pub latency: Option<Duration>,
}

/// What one master has under a resource's key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeHolds {
    /// A key, signed with this token.
    Held {
        /// The token: at most the first 512 bytes of the key's value.
        token: String,
        /// How long it still lives there; none when it never expires.
        ttl: Option<Duration>,
    },
    /// No key.
    Free,
    /// Nobody can say, for the reason given.
    Unknown(Cause),
}

impl Status {
    pub(crate) fn new(nodes: Vec<NodeStatus>) -> Self {
        Self { state: State::of(&nodes), nodes }
    }

    /// No master could be asked, for the reason given.
    pub(crate) fn unasked(names: &[Arc<str>], why: &str) -> Self {
        let answer = Answer::unsent(Cause::NotConnected(why.to_owned().into()));
        let node = |name: &Arc<str>| NodeStatus {
            latency: None,
            ..NodeStatus::new(name.clone(), Some(&(answer.clone(), Duration::ZERO)))
        };
        Self::new(names.iter().map(node).collect())
    }
}

impl NodeStatus {
    pub(crate) fn new(node: Arc<str>, answer: Option<&(Answer, Duration)>) -> Self {
        let state = match answer.map(|(answer, _)| answer) {
            None => NodeHolds::Unknown(Cause::TimedOut),
            Some(answer) => match &answer.verdict {
                Verdict::Granted => NodeHolds::Free,
                Verdict::Unknown(cause) => NodeHolds::Unknown(cause.clone()),
                Verdict::Refused => NodeHolds::Held {
                    token: answer.holder.as_deref().map(readable).unwrap_or_default(),
                    ttl: answer.ttl,
                },
            },
        };
        Self { node, state, latency: answer.map(|(_, latency)| *latency) }
    }

    fn token(&self) -> Option<&str> {
        match &self.state {
            NodeHolds::Held { token, .. } => Some(token),
            NodeHolds::Free | NodeHolds::Unknown(_) => None,
        }
    }
}

impl State {
    fn of(nodes: &[NodeStatus]) -> Self {
        let quorum = quorum(nodes.len());
        if nodes.iter().filter(|node| node.state == NodeHolds::Free).count() >= quorum {
            return Self::Free;
        }
        let holder = nodes.iter().filter_map(NodeStatus::token).find(|token| {
            nodes.iter().filter(|node| node.token() == Some(token)).count() >= quorum
        });
        match holder {
            None => Self::Undecided,
            Some(token) => Self::Held { token: token.to_owned(), ttl: left(nodes, token, quorum) },
        }
    }
}

/// Until a quorum of keys is not there any more: the q-th longest life.
fn left(nodes: &[NodeStatus], holder: &str, quorum: usize) -> Option<Duration> {
    let mut lives: Vec<Duration> = nodes
        .iter()
        .filter_map(|node| match &node.state {
            NodeHolds::Held { token, ttl } if token == holder => Some(ttl.unwrap_or(Duration::MAX)),
            _ => None,
        })
        .collect();
    lives.sort_unstable_by(|a, b| b.cmp(a));
    lives.get(quorum - 1).copied().filter(|life| *life < Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(token: &str, ttl: Option<u64>) -> NodeStatus {
        let answer = Answer::refused().held_by(token.into(), ttl.map(Duration::from_millis));
        NodeStatus::new("n".into(), Some(&(answer, Duration::ZERO)))
    }

    fn free() -> NodeStatus {
        NodeStatus::new("n".into(), Some(&(Answer::granted(), Duration::ZERO)))
    }

    fn silent() -> NodeStatus {
        NodeStatus::new("n".into(), None)
    }

    #[test]
    fn one_token_on_a_quorum_is_the_holder_for_as_long_as_it_stays_one() {
        let nodes = vec![held("a", Some(50)), held("a", Some(90)), held("a", Some(70)), free()];
        let status = Status::new([nodes, vec![silent()]].concat());
        let ttl = Some(Duration::from_millis(50));
        assert_eq!(status.state, State::Held { token: "a".into(), ttl });
    }

    #[test]
    fn a_split_vote_and_a_silent_majority_are_undecided() {
        for nodes in [
            vec![held("a", None), held("a", None), held("b", None), held("b", None), free()],
            vec![silent(), silent(), silent(), free(), free()],
            vec![held("a", None), held("a", None), free(), free(), silent()],
        ] {
            assert_eq!(Status::new(nodes).state, State::Undecided);
        }
    }

    #[test]
    fn a_free_quorum_is_free_whatever_the_others_hold() {
        let nodes = vec![free(), free(), free(), held("a", None), silent()];
        assert_eq!(Status::new(nodes).state, State::Free);
    }

    #[test]
    fn a_lock_that_never_expires_is_held_without_end() {
        let nodes = vec![held("a", None), held("a", None), held("a", Some(5))];
        assert_eq!(Status::new(nodes).state, State::Held { token: "a".into(), ttl: None });
    }
}
