//! `Votes`: what each master said, for errors, for guards and for people.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redlock_core::Verdict;

/// What each master said, in the order in which the masters were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Votes(Vec<NodeVote>);

/// What one master said.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeVote {
    /// The master: `host:port`, or the path of its socket.
    pub node: Arc<str>,
    /// What it said; [`Verdict::Pending`] where no answer of it was known when this was made.
    pub verdict: Verdict,
    /// How long its answer took, from before the request was sent; none where the master itself
    /// has not answered. In a [`Status`](crate::Status) a master that is known to be away has one,
    /// too: none means that nothing was known in time.
    pub latency: Option<Duration>,
    /// In a [`Status`](crate::Status): whether the master reports changes of keys, so that callers
    /// that wait are woken by it. Not so before Redis 6.0, behind proxies that know no RESP3, and
    /// where its user may not use `CLIENT TRACKING`. None where there is no connection, and
    /// everywhere but in a status.
    pub tracks: Option<bool>,
}

impl Votes {
    pub(crate) fn new(votes: Vec<NodeVote>) -> Self {
        Self(votes)
    }

    pub(crate) fn into_vec(self) -> Vec<NodeVote> {
        self.0
    }

    /// The votes, one for each master.
    pub fn iter(&self) -> std::slice::Iter<'_, NodeVote> {
        self.0.iter()
    }

    /// How many masters there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no masters. There always are.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many masters have granted.
    pub fn granted(&self) -> usize {
        self.iter().filter(|vote| vote.verdict == Verdict::Granted).count()
    }
}

impl<'a> IntoIterator for &'a Votes {
    type Item = &'a NodeVote;
    type IntoIter = std::slice::Iter<'a, NodeVote>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl NodeVote {
    pub(crate) fn new(node: Arc<str>, verdict: Verdict, latency: Option<Duration>) -> Self {
        Self { node, verdict, latency, tracks: None }
    }
}

impl fmt::Display for Votes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, vote) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{vote}")?;
        }
        Ok(())
    }
}

impl fmt::Display for NodeVote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.node, self.verdict)
    }
}

#[cfg(test)]
mod tests {
    use redlock_core::Cause;

    use super::*;

    #[test]
    fn votes_read_as_one_line() {
        let vote = |node: &str, verdict| NodeVote::new(node.into(), verdict, None);
        let held =
            Verdict::Held { token: Some("tok".into()), ttl: Some(Duration::from_millis(1_500)) };
        let votes = Votes::new(vec![
            vote("a:1", Verdict::Granted),
            vote("b:1", held),
            vote("c:1", Verdict::Unknown(Cause::TimedOut)),
            vote("d:1", Verdict::NotOurs),
        ]);
        assert_eq!(votes.to_string(), "a:1 granted, b:1 held (1.5s), c:1 timed out, d:1 not ours");
    }
}
