//! `Votes`: what each master said, for errors, for guards and for people.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redlock_core::{Answer, Cause, Verdict};

/// What each master said, in the order in which the masters were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Votes(Vec<NodeVote>);

/// What one master said.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeVote {
    /// The master: `host:port`, or the path of its socket.
    pub node: Arc<str>,
    /// What it said.
    pub said: Said,
    /// How long its answer took, from before the request was sent.
    pub latency: Option<Duration>,
}

/// An answer as people read it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Said {
    /// It did what it was asked.
    Granted,
    /// Another holds the resource there.
    Held {
        /// The holder's token, where the master told it: at most its first 512 bytes.
        token: Option<String>,
        /// How long that key still lives, where the master told it.
        ttl: Option<Duration>,
    },
    /// It does not hold our key.
    NotOurs,
    /// Nobody can say whether it did what it was asked, for the reason given.
    Unknown(Cause),
    /// It had not answered when this was written down.
    Pending,
}

impl Votes {
    pub(crate) fn new(votes: Vec<NodeVote>) -> Self {
        Self(votes)
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
        self.iter().filter(|vote| vote.said == Said::Granted).count()
    }
}

impl<'a> IntoIterator for &'a Votes {
    type Item = &'a NodeVote;
    type IntoIter = std::slice::Iter<'a, NodeVote>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Said {
    /// The answer to an acquire: whoever refuses has another holder.
    pub(crate) fn to_acquire(answer: &Answer) -> Self {
        match &answer.verdict {
            Verdict::Granted => Self::Granted,
            Verdict::Refused => Self::held(answer),
            Verdict::Unknown(cause) => Self::Unknown(cause.clone()),
        }
    }

    /// The answer to an extension or a release: who refuses may name another holder or none.
    pub(crate) fn to_holder(answer: &Answer) -> Self {
        match &answer.verdict {
            Verdict::Refused if answer.holder.is_none() => Self::NotOurs,
            _ => Self::to_acquire(answer),
        }
    }

    fn held(answer: &Answer) -> Self {
        let token = answer.holder.as_deref().map(readable);
        Self::Held { token, ttl: answer.ttl }
    }
}

/// A key's value as text; other clients write any bytes.
pub(crate) fn readable(value: &[u8]) -> String {
    match str::from_utf8(value) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => value.escape_ascii().to_string(),
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
        write!(f, "{} {}", self.node, self.said)
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted => f.write_str("granted"),
            Self::Held { ttl: Some(ttl), .. } => write!(f, "held ({ttl:?})"),
            Self::Held { ttl: None, .. } => f.write_str("held"),
            Self::NotOurs => f.write_str("not ours"),
            Self::Unknown(cause) => cause.fmt(f),
            Self::Pending => f.write_str("pending"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn votes_read_as_one_line() {
        let vote = |node: &str, said| NodeVote { node: node.into(), said, latency: None };
        let held = Answer::refused().held_by(b"tok".to_vec(), Some(Duration::from_millis(1_500)));
        let votes = Votes::new(vec![
            vote("a:1", Said::Granted),
            vote("b:1", Said::to_acquire(&held)),
            vote("c:1", Said::Unknown(Cause::TimedOut)),
            vote("d:1", Said::to_holder(&Answer::refused())),
        ]);
        assert_eq!(votes.to_string(), "a:1 granted, b:1 held (1.5s), c:1 timed out, d:1 not ours");
    }

    #[test]
    fn a_holder_of_any_bytes_is_made_readable() {
        assert_eq!(readable(b"plain"), "plain");
        assert_eq!(readable(b"\xff\n"), "\\xff\\n");
    }
}
