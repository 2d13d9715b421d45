//! `Status`: who holds a resource, by what each master reports.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redlock_core::admission::RecordedSet;
use redlock_core::duration::spelled;
use redlock_core::{Cause, Verdict};
use redlock_protocol::quorum::quorum;

use crate::votes::{NodeVote, holder};

/// The holder of a resource, by the answers of all masters.
///
/// This is a snapshot and not a proof. The masters are read separately, and the state may have
/// changed by the time you read it. To be sure of a lock, hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The state on which a quorum agrees.
    pub state: State,
    /// Each master's answer, in the configured order of masters: [`Verdict::Held`],
    /// [`Verdict::Free`] or [`Verdict::Unknown`]. Includes the answers of masters that are not
    /// admitted, but they do not affect `state`.
    pub nodes: Vec<NodeVote>,
    /// The number of processes in the [queue](crate::RedlockBuilder::queue) of the resource: the
    /// largest number that a master reports. Includes processes that died less than 3 s ago. 0 if
    /// this handle does not queue, or no master reports a number.
    pub waiters: u32,
    /// The recorded set to which most of these masters belong. `None` if no record has one.
    pub set: Option<RecordedSet>,
}

/// The state on which a quorum of masters agrees.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// A quorum of masters has the key with the same token.
    Held {
        /// The token of the holder.
        token: String,
        /// The time until too few masters have it, unless it is extended. `None` if it never
        /// expires.
        ttl: Option<Duration>,
    },
    /// A quorum of masters does not have the key.
    Free,
    /// No client holds the lock. A quorum of masters is free or keeps the key for the next waiter,
    /// which usually takes it within about 50 ms.
    Reserved,
    /// No majority agrees: too few masters answered, or several clients each hold some of them.
    Undecided,
}

impl Status {
    pub(crate) fn new(nodes: Vec<NodeVote>) -> Self {
        Self { state: State::of(&nodes), nodes, waiters: 0, set: None }
    }

    /// Creates the status if no master could be queried, with the reason.
    pub(crate) fn unasked(names: &[Arc<str>], why: &str) -> Self {
        let verdict = Verdict::Unknown(Cause::NotConnected(why.to_owned().into()));
        let node = |name: &Arc<str>| NodeVote::new(name.clone(), verdict.clone(), None);
        Self::new(names.iter().map(node).collect())
    }
}

/// Shows who holds the resource, and each master's answer.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { state, nodes, waiters, .. } = self;
        match state {
            State::Held { token, ttl: Some(ttl) } => {
                write!(f, "held by {token} for {}", spelled(*ttl))?;
            }
            State::Held { token, ttl: None } => write!(f, "held by {token}, never expires")?,
            State::Free => f.write_str("free")?,
            State::Reserved => f.write_str("reserved for the next waiter")?,
            State::Undecided => f.write_str("undecided")?,
        }
        if *waiters > 0 {
            write!(f, ", {waiters} waiting")?;
        }
        for (i, node) in nodes.iter().enumerate() {
            write!(f, "{}{node}", if i == 0 { ": " } else { ", " })?;
        }
        Ok(())
    }
}

impl State {
    fn of(nodes: &[NodeVote]) -> Self {
        let quorum = quorum(nodes.len());
        let is_free = |node: &&NodeVote| node.verdict == Verdict::Free && node.is_admitted();
        if nodes.iter().filter(is_free).count() >= quorum {
            return Self::Free;
        }
        let is_left = |node: &&NodeVote| {
            is_free(node) || node.verdict.reservation().is_some() && node.is_admitted()
        };
        if nodes.iter().filter(is_left).count() >= quorum {
            return Self::Reserved;
        }
        match holder(nodes) {
            None => Self::Undecided,
            Some(token) => Self::Held { token: token.to_owned(), ttl: left(nodes, token, quorum) },
        }
    }
}

/// Returns how long a quorum of the keys remains: the q-th longest expiry.
fn left(nodes: &[NodeVote], holder: &str, quorum: usize) -> Option<Duration> {
    let mut lives: Vec<Duration> = nodes
        .iter()
        .filter(|node| node.token() == Some(holder))
        .filter_map(|node| match &node.verdict {
            Verdict::Held { ttl, .. } => Some(ttl.unwrap_or(Duration::MAX)),
            _ => None,
        })
        .collect();
    lives.sort_unstable_by(|a, b| b.cmp(a));
    lives.get(quorum - 1).copied().filter(|life| *life < Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(verdict: Verdict) -> NodeVote {
        NodeVote::new("n".into(), verdict, None)
    }

    fn held(token: &str, ttl: Option<u64>) -> NodeVote {
        node(Verdict::Held { token: Some(token.into()), ttl: ttl.map(Duration::from_millis) })
    }

    fn free() -> NodeVote {
        node(Verdict::Free)
    }

    fn silent() -> NodeVote {
        node(Verdict::Unknown(Cause::TimedOut))
    }

    #[test]
    fn token_on_a_quorum_is_the_holder_until_it_loses_the_quorum() {
        let nodes = vec![held("a", Some(50)), held("a", Some(90)), held("a", Some(70)), free()];
        let status = Status::new([nodes, vec![silent()]].concat());
        let ttl = Some(Duration::from_millis(50));
        assert_eq!(status.state, State::Held { token: "a".into(), ttl });
    }

    #[test]
    fn keys_of_non_admitted_masters_are_ignored() {
        let forgetful = |vote: NodeVote| {
            let why = redlock_core::NotAdmitted::new(redlock_core::WhyNot::Restarted);
            NodeVote { not_admitted: Some(why), ..vote }
        };
        let nodes = vec![free(), forgetful(free()), silent()];
        assert_eq!(Status::new(nodes).state, State::Undecided);
        let nodes = vec![held("a", None), forgetful(held("a", None)), free()];
        assert_eq!(Status::new(nodes).state, State::Undecided);
        let long = forgetful(held("a", Some(90)));
        let nodes = vec![held("a", Some(50)), held("a", Some(40)), long];
        let ttl = Some(Duration::from_millis(40));
        assert_eq!(Status::new(nodes).state, State::Held { token: "a".into(), ttl });
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
    fn key_kept_for_the_next_waiter_is_reserved() {
        let kept = || held(&redlock_core::Reservation { ticket: None }.to_string(), Some(50));
        for (nodes, state) in [
            (vec![kept(), kept(), free()], State::Reserved),
            (vec![kept(), kept(), kept()], State::Reserved),
            (vec![kept(), free(), free()], State::Free),
            (vec![kept(), held("a", None), silent()], State::Undecided),
        ] {
            assert_eq!(Status::new(nodes).state, state);
        }
        let nodes = vec![kept(), held("a", None), held("a", None)];
        assert_eq!(Status::new(nodes).state, State::Held { token: "a".into(), ttl: None });
    }

    #[test]
    fn keys_of_another_type_have_no_holder() {
        let foreign = || node(Verdict::HELD);
        assert_eq!(Status::new(vec![foreign(), foreign(), free()]).state, State::Undecided);
    }

    #[test]
    fn free_quorum_is_free_regardless_of_other_masters() {
        let nodes = vec![free(), free(), free(), held("a", None), silent()];
        assert_eq!(Status::new(nodes).state, State::Free);
    }

    #[test]
    fn lock_without_expiry_has_no_remaining_time() {
        let nodes = vec![held("a", None), held("a", None), held("a", Some(5))];
        assert_eq!(Status::new(nodes).state, State::Held { token: "a".into(), ttl: None });
    }

    #[test]
    fn display_shows_the_state_the_waiters_and_each_answer() {
        let mut status = Status::new(vec![held("a", Some(50)), held("a", Some(50)), silent()]);
        status.waiters = 2;
        let shown = "held by a for 50ms, 2 waiting: n held (50ms), n held (50ms), n timed out";
        assert_eq!(status.to_string(), shown);
        let status = Status::new(vec![free(), free(), free()]);
        assert_eq!(status.to_string(), "free: n free, n free, n free");
    }
}
