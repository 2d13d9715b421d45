//! What masters answered, in words: the one place that knows in which form the library gives it.

use std::time::Duration;

use redlock_quorum::{Cause, NodeHolds, NodeStatus, NodeVote, Said, State, Status, Votes};

/// Who holds a lock, where the library names a holder that is a token.
pub(crate) fn holder(status: &Status) -> Option<(&str, Option<Duration>)> {
    match &status.state {
        State::Held { token, ttl } if !is_foreign(token) => Some((token, *ttl)),
        _ => None,
    }
}

/// The token of the key on one master; none of a key of another type.
pub(crate) fn token(state: &NodeHolds) -> Option<&str> {
    match state {
        NodeHolds::Held { token, .. } if !is_foreign(token) => Some(token),
        _ => None,
    }
}

/// Whether what stands for the value is what the server says about a key of another type. A token
/// has no spaces.
fn is_foreign(token: &str) -> bool {
    token.starts_with("WRONGTYPE ")
}

/// What one master has, on one line.
pub(crate) fn held(state: &NodeHolds) -> String {
    match state {
        NodeHolds::Held { ttl, .. } => match token(state) {
            Some(token) => format!("held by {token}, {}", left(*ttl)),
            None => format!("held by {FOREIGN}, {}", left(*ttl)),
        },
        NodeHolds::Free => "free".into(),
        NodeHolds::Unknown(cause) => cause.to_string(),
        _ => "unknown".into(),
    }
}

/// What each master has, on one line for all.
pub(crate) fn list(status: &Status) -> String {
    let majority = holder(status).map(|(token, _)| token);
    let one = |node: &NodeStatus| {
        let brief = match &node.state {
            // The line names the holder already.
            NodeHolds::Held { ttl, .. } if majority.is_some() && token(&node.state) == majority => {
                format!("held{}", brief(*ttl))
            }
            state => held(state),
        };
        format!("{} {brief}", node.node)
    };
    status.nodes.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Who holds a lock, or why nobody can say.
pub(crate) fn verdict(key: &str, status: &Status) -> String {
    match (holder(status), &status.state) {
        (Some((token, ttl)), _) => format!("{key} is held by {token}, {}", left(ttl)),
        (None, State::Free) => format!("{key} is free"),
        (None, State::Held { .. }) => format!("{key} is no lock: it is {FOREIGN}"),
        _ => format!("{key} is undecided: no majority is free, and no token holds one"),
    }
}

/// Who holds a lock and what each master has, on one line.
pub(crate) fn standing(key: &str, status: &Status) -> String {
    let list = list(status);
    if holder(status).is_none() { list } else { format!("{}: {list}", verdict(key, status)) }
}

/// Why a lock was refused: by whom, and what each master said when it was.
pub(crate) fn refusal(key: &str, votes: &Votes) -> String {
    let majority = majority(votes);
    let one = |vote: &NodeVote| match holder_of(vote) {
        // The line names the holder already.
        Some((token, ttl)) if majority.is_none_or(|(of_most, _)| of_most != token) => {
            format!("{} held by {}{}", vote.node, name(token), brief(ttl))
        }
        Some((_, ttl)) => format!("{} held{}", vote.node, brief(ttl)),
        None => vote.to_string(),
    };
    let list = votes.iter().map(one).collect::<Vec<_>>().join(", ");
    match majority {
        Some((token, ttl)) => {
            format!("{key} is held by another: {}, {}; {list}", name(token), left(ttl))
        }
        // It was released in between, or contenders share the masters.
        None => format!("{key} is held by another: {list}"),
    }
}

/// Whose key most masters have, and until when they do: the q-th longest life.
fn majority(votes: &Votes) -> Option<(Option<&str>, Option<Duration>)> {
    let quorum = quorum(votes.len());
    let mut keys: Vec<_> = votes.iter().filter_map(holder_of).collect();
    let life = |ttl: Option<Duration>| ttl.unwrap_or(Duration::MAX);
    keys.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(life(b.1).cmp(&life(a.1))));
    let most = keys.chunk_by(|a, b| a.0 == b.0).find(|same| same.len() >= quorum)?;
    most.get(quorum - 1).copied()
}

/// Whose key a master has: a token's, or none's where it is a key of another type. No answer where
/// the master has none, or did not say whose it is.
fn holder_of(vote: &NodeVote) -> Option<(Option<&str>, Option<Duration>)> {
    match &vote.said {
        Said::Held { token: Some(token), ttl } => {
            Some((Some(token.as_str()).filter(|token| !is_foreign(token)), *ttl))
        }
        _ => None,
    }
}

fn name(token: Option<&str>) -> &str {
    token.unwrap_or(FOREIGN)
}

fn brief(ttl: Option<Duration>) -> String {
    ttl.map_or_else(String::new, |ttl| format!(" ({ttl:.1?})"))
}

/// How many masters are a majority.
pub(crate) fn quorum(masters: usize) -> usize {
    masters / 2 + 1
}

/// One vote with the time it took, where the master itself said so.
pub(crate) fn timed(vote: &NodeVote) -> String {
    match (&vote.said, vote.latency) {
        (Said::Granted | Said::Held { .. } | Said::NotOurs, Some(latency)) => {
            format!("{vote} in {latency:.1?}")
        }
        _ => vote.to_string(),
    }
}

/// Whether some master has still to answer.
pub(crate) fn is_pending(votes: &Votes) -> bool {
    votes.iter().any(|vote| vote.said == Said::Pending)
}

/// A master that can't vote, and why, whatever it is asked.
pub(crate) struct Barred {
    pub(crate) node: String,
    pub(crate) cause: Cause,
}

/// The masters that can't vote in a way that waiting does not cure.
pub(crate) fn barred(votes: &Votes) -> Vec<Barred> {
    let unknown = votes.iter().filter_map(|vote| match &vote.said {
        Said::Unknown(cause) => Some((&vote.node, cause)),
        _ => None,
    });
    unknown.filter(|(_, cause)| is_incurable(cause)).map(Barred::new).collect()
}

/// The same, by what they answered to a question. A master that may not be asked about a key may
/// let it be acquired.
pub(crate) fn barred_by_status(status: &Status) -> Vec<Barred> {
    let unknown = status.nodes.iter().filter_map(|node| match &node.state {
        NodeHolds::Unknown(cause) => Some((&node.node, cause)),
        _ => None,
    });
    let is_barred = |cause: &Cause| is_incurable(cause) && !is_denial(cause);
    unknown.filter(|(_, cause)| is_barred(cause)).map(Barred::new).collect()
}

impl Barred {
    fn new((node, cause): (&std::sync::Arc<str>, &Cause)) -> Self {
        Self { node: node.to_string(), cause: cause.clone() }
    }
}

/// Whether waiting can't cure it: a password, a right or the list of masters has to be changed.
/// What comes and goes by itself (silence, loading, a full memory) is not among these.
fn is_incurable(cause: &Cause) -> bool {
    let begins = |text: &str, words: &[&str]| words.iter().any(|word| text.starts_with(word));
    match cause {
        Cause::TwinOf(_) => true,
        Cause::ErrorReply(error) => begins(error, &INCURABLE_REPLIES),
        Cause::NotAdmitted(why) => begins(why, &["it is a replica", "it is in cluster mode"]),
        Cause::NotConnected(why) => begins(why, &INCURABLE_CONNECTIONS),
        _ => false,
    }
}

fn is_denial(cause: &Cause) -> bool {
    matches!(cause, Cause::ErrorReply(error) if error.starts_with("NOPERM"))
}

fn left(ttl: Option<Duration>) -> String {
    match ttl {
        Some(ttl) => format!("expires in {ttl:.1?}"),
        None => "never expires".into(),
    }
}

/// How a key is called that is not a string.
pub(crate) const FOREIGN: &str = "a key of another type";

const INCURABLE_REPLIES: [&str; 10] = [
    "WRONGPASS",
    "NOAUTH",
    "NOPERM",
    "READONLY",
    "MOVED",
    "ERR AUTH",
    "ERR Client sent AUTH",
    "ERR invalid password",
    "ERR invalid DB index",
    "ERR DB index",
];
const INCURABLE_CONNECTIONS: [&str; 3] =
    ["not a Redis", "the host name cannot be in a certificate", "TLS: invalid peer certificate"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_to_be_changed_is_told_apart_from_what_comes_and_goes() {
        let reply = |error: &str| Cause::ErrorReply(error.into());
        for cause in [
            reply("WRONGPASS invalid username-password pair or user is disabled."),
            reply("NOAUTH Authentication required."),
            reply("NOPERM this user has no permissions to run the 'set' command"),
            Cause::TwinOf("a:1".into()),
            Cause::NotAdmitted("it is a replica, give independent masters".into()),
            Cause::NotConnected("not a Redis, it said \"HTTP/1.1\"".into()),
        ] {
            assert!(is_incurable(&cause), "{cause}");
        }
        for cause in [
            reply("LOADING Redis is loading the dataset in memory"),
            reply("OOM command not allowed"),
            reply("MISCONF errors writing to the AOF file"),
            Cause::TimedOut,
            Cause::ConnectionRefused,
            Cause::NotAdmitted("it has lost its data and votes again in 40s".into()),
            Cause::NotConnected("TLS: unexpected end of file".into()),
        ] {
            assert!(!is_incurable(&cause), "{cause}");
        }
    }
}
