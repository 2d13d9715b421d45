//! The masters' answers as texts.

use std::time::{Duration, SystemTime};

use redlock_quorum::{
    Cause, NodeVote, NotAdmitted, State, Status, Token, Verdict, Votes, WhyNot, quorum,
};

use crate::duration::about;
use crate::lists;
use crate::moment;

/// Returns `true` if a majority of masters has a key of another type. In a status a master that
/// does not name a holder has one.
pub(crate) fn is_foreign(status: &Status) -> bool {
    let is_foreign = |node: &&NodeVote| {
        let is_kept = node.verdict.reservation().is_some();
        node.is_admitted() && is_held(node) && !is_kept && token(node).is_none()
    };
    let foreign = status.nodes.iter().filter(is_foreign);
    foreign.count() >= quorum(status.nodes.len())
}

fn is_held(vote: &NodeVote) -> bool {
    matches!(vote.verdict, Verdict::Held { .. })
}

/// Returns the token of the key on one master, if the master reported it.
pub(crate) fn token(vote: &NodeVote) -> Option<&str> {
    match &vote.verdict {
        verdict if verdict.reservation().is_some() => None,
        Verdict::Held { token, .. } => token.as_deref(),
        _ => None,
    }
}

/// Describes one master's answer to a status. If the master is not admitted, its key is shown, but
/// is not a vote.
pub(crate) fn held(node: &NodeVote) -> String {
    let has = match &node.verdict {
        verdict if verdict.reservation().is_some() => verdict.to_string(),
        Verdict::Held { token, ttl } => {
            format!("held by {}, {}", token.as_deref().unwrap_or(FOREIGN), left(*ttl))
        }
        verdict => verdict.to_string(),
    };
    but_not_admitted(node, has)
}

fn but_not_admitted(node: &NodeVote, has: String) -> String {
    match not_admitted(node) {
        Some(why) => format!("{why} (it has: {has})"),
        None => has,
    }
}

/// Returns why the answer of a master is not a vote, unless the answer itself shows that.
pub(crate) fn not_admitted(node: &NodeVote) -> Option<String> {
    let why = node.not_admitted.clone().filter(|_| node.verdict.is_clear())?;
    Some(Cause::NotAdmitted(why.into()).to_string())
}

/// Returns why our key on a master was not a vote when its lock was lost, according to the master's
/// last answer. `None` if it was a vote.
pub(crate) fn did_not_count(said: &Verdict) -> Option<NotAdmitted> {
    let is_uncounted =
        matches!(said, Verdict::Unknown(Cause::NotAdmitted(_)) | Verdict::BallotRefused);
    is_uncounted.then(|| NotAdmitted::new(WhyNot::AskedTooEarly))
}

/// Returns whether a master votes. `None` if it did not answer.
pub(crate) fn is_admitted(node: &NodeVote) -> Option<bool> {
    let is_known = node.verdict.is_clear() || !node.is_admitted();
    is_known.then(|| node.is_admitted())
}

/// Describes all masters' answers to a status in one line.
pub(crate) fn list(status: &Status) -> String {
    let one = |node| (node, held_beside(status, node));
    in_one_line(status.nodes.iter().map(one).collect())
}

/// Describes one master's answer in a line that already shows the holder of a majority.
fn held_beside(status: &Status, node: &NodeVote) -> String {
    let holder = match &status.state {
        State::Held { token, .. } => Some(token.as_str()),
        _ => None,
    };
    match &node.verdict {
        Verdict::Held { .. } if node.is_admitted() && holder.is_some() && token(node) == holder => {
            "held".into()
        }
        _ => held(&timeless(node)),
    }
}

/// Joins the answers in one line.
fn in_one_line(mut said: Vec<(&NodeVote, String)>) -> String {
    let list = lists::shortened(&mut said);
    let line = said_once(said.into_iter().map(|(node, words)| (&*node.node, words)).collect());
    match list {
        Some(list) => format!("{line}; {list}"),
        None => line,
    }
}

/// Joins the answers of all masters in one line, and shows equal answers once.
pub(crate) fn said_once(said: Vec<(&str, String)>) -> String {
    let masters = said.len();
    said_of(said, masters)
}

/// Joins the answers of some masters in the same way, and names each of them.
pub(crate) fn said_of_some(said: Vec<(&str, String)>) -> String {
    said_of(said, usize::MAX)
}

fn said_of(said: Vec<(&str, String)>, masters: usize) -> String {
    let line = |(who, words): (String, &str)| match who.contains(' ') {
        true => format!("{who}: {words}"),
        false => format!("{who} {words}"),
    };
    grouped(&said, masters).into_iter().map(line).collect::<Vec<_>>().join(", ")
}

/// Returns each different answer, with its master or its masters. The masters have no names if all
/// of them gave this answer.
pub(crate) fn grouped<'a>(said: &'a [(&str, String)], masters: usize) -> Vec<(String, &'a str)> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for (node, words) in said {
        match groups.iter_mut().find(|(other, _)| other == words) {
            Some((_, nodes)) => nodes.push(node),
            None => groups.push((words, vec![node])),
        }
    }
    let who = |nodes: Vec<&str>| match nodes[..] {
        [node] => node.to_owned(),
        _ if nodes.len() == masters => format!("{} masters", nodes.len()),
        _ => format!("{} masters ({})", nodes.len(), nodes.join(", ")),
    };
    groups.into_iter().map(|(words, nodes)| (who(nodes), words)).collect()
}

/// Returns a row for each different answer, or for each master if it is verbose.
pub(crate) fn rows(said: &[(&str, String)], is_verbose: bool) -> Vec<String> {
    let rows: Vec<(String, &str)> = match is_verbose {
        true => said.iter().map(|(node, words)| ((*node).to_owned(), &**words)).collect(),
        false => grouped(said, said.len()),
    };
    let widest = rows.iter().map(|(who, _)| who.len()).max().unwrap_or_default();
    rows.iter().map(|(who, words)| format!("{who:widest$}  {words}")).collect()
}

/// Returns a cause without the time at which its master votes again. Masters rarely share that
/// time, and a line that advises how long to wait needs only one.
pub(crate) fn without_time(cause: &Cause) -> Cause {
    let mut cause = cause.clone();
    if let Cause::NotAdmitted(not) = &mut cause {
        not.votes_again = None;
    }
    cause
}

/// Describes who holds a lock, or why no holder is known.
pub(crate) fn verdict(key: &str, status: &Status) -> String {
    match &status.state {
        State::Held { token, ttl } => {
            format!("{key} is held by {token}, {}{}", left(*ttl), since_in_words(token))
        }
        State::Free => format!("{key} is free"),
        State::Reserved => format!("{key} is reserved for the next waiter"),
        _ if is_foreign(status) => format!("{key} is not a lock: it is {FOREIGN}"),
        _ => format!(
            "{key}: undecided; no client holds a majority of the masters, and no majority is \
                free"
        ),
    }
}

/// The same, and how many wait.
pub(crate) fn verdict_and_waiters(key: &str, status: &Status) -> String {
    let verdict = verdict(key, status);
    match status.waiters {
        0 => verdict,
        1 => format!("{verdict}; 1 process waits for it"),
        waiters => format!("{verdict}; {waiters} processes wait for it"),
    }
}

/// Since when a lock with this token is held, by the clock of the host that took it; `None` if the
/// token has no time.
pub(crate) fn since(token: &str) -> Option<SystemTime> {
    Token::parse(token).ok()?.made_at()
}

/// The same, as a clause that follows other words.
pub(crate) fn since_in_words(token: &str) -> String {
    let words = |at| format!(", since {} by its host's clock", moment::date_and_time(at));
    since(token).map(words).unwrap_or_default()
}

/// Describes who holds a lock, and each master's answer, in one line. `ours` are the tokens of this
/// process, whose keys do not belong to another client.
pub(crate) fn standing(key: &str, status: &Status, ours: &[String]) -> String {
    let is_ours = |token: &str| ours.iter().any(|our| our == token);
    let one = |node: &NodeVote| match &node.verdict {
        Verdict::Held { token: Some(token), ttl } if is_ours(token) => {
            but_not_admitted(node, format!("our key{}", brief(*ttl)))
        }
        _ => held_beside(status, node),
    };
    let list = in_one_line(status.nodes.iter().map(|node| (node, one(node))).collect());
    match &status.state {
        State::Held { token, .. } if is_ours(token) => {
            format!("our key is still on a majority of the masters: {list}")
        }
        State::Held { .. } => format!("{}: {list}", verdict(key, status)),
        _ => list,
    }
}

/// Describes each master's answer to a request.
pub(crate) fn said(votes: &Votes) -> String {
    in_one_line(votes.iter().map(|vote| (vote, words(&vote.verdict))).collect())
}

/// The same, without the times at which masters vote again.
pub(crate) fn said_without_times(votes: &Votes) -> String {
    in_one_line(votes.iter().map(|vote| (vote, words(&timeless(vote).verdict))).collect())
}

/// Describes an answer. A remaining time is rounded, so that answers of several masters are equal.
fn words(verdict: &Verdict) -> String {
    match verdict {
        verdict if verdict.reservation().is_some() => verdict.to_string(),
        Verdict::Held { ttl, .. } => format!("held{}", brief(*ttl)),
        verdict => verdict.to_string(),
    }
}

/// Returns an answer without the time at which its master votes again.
fn timeless(node: &NodeVote) -> NodeVote {
    let mut node = node.clone();
    if let Verdict::Unknown(cause) = &mut node.verdict {
        *cause = without_time(cause);
    }
    if let Some(not) = &mut node.not_admitted {
        not.votes_again = None;
    }
    node
}

/// The error replies among these votes, such as MISCONF; `None` if there are none. A status, which
/// only reads, does not show them.
pub(crate) fn errors(votes: &Votes) -> Option<String> {
    let is_error = |vote: &&NodeVote| matches!(&vote.verdict, Verdict::Unknown(cause) if cause.is_error_reply());
    let errors: Vec<_> =
        votes.iter().filter(is_error).map(|vote| (&*vote.node, vote.verdict.to_string())).collect();
    (!errors.is_empty()).then(|| said_of_some(errors))
}

/// Describes each master's answer to a release, which grants nothing.
pub(crate) fn released(votes: &Votes) -> String {
    let one = |vote: &NodeVote| match &vote.verdict {
        Verdict::Granted => "released".into(),
        verdict => verdict.to_string(),
    };
    in_one_line(votes.iter().map(|vote| (vote, one(vote))).collect())
}

/// Returns the causes of answers that are unknown, or are not votes.
pub(crate) fn causes<'a>(nodes: impl IntoIterator<Item = &'a NodeVote>) -> Vec<Cause> {
    let cause = |node: &'a NodeVote| match (&node.verdict, &node.not_admitted) {
        (Verdict::Unknown(cause), _) => Some(cause.clone()),
        (_, not) => not.clone().map(|not| Cause::NotAdmitted(not.into())),
    };
    nodes.into_iter().filter_map(cause).collect()
}

/// Describes each master's answer to a refused request. Leaves out the token of the holder of a
/// majority, because the rest of the line shows it.
pub(crate) fn refused(votes: &Votes) -> String {
    let holder = holder(votes);
    let one = |vote: &NodeVote| match (&vote.verdict, token(vote)) {
        (verdict, _) if verdict.reservation().is_some() => verdict.to_string(),
        // The line shows the holder of a majority and its remaining time already.
        (Verdict::Held { .. }, Some(token)) if holder.is_some_and(|(of, _)| of == token) => {
            "held".into()
        }
        (Verdict::Held { ttl, .. }, Some(token)) => format!("held by {token}{}", brief(*ttl)),
        (Verdict::Held { ttl, .. }, None) => format!("held{}", brief(*ttl)),
        (verdict, _) => verdict.to_string(),
    };
    in_one_line(votes.iter().map(|vote| (vote, one(vote))).collect())
}

/// Returns why a lock was refused: by whom, and what each master said when it was.
pub(crate) fn refusal(key: &str, votes: &Votes) -> String {
    let list = refused(votes);
    if votes.is_outbid() {
        return format!("{key} was not acquired, {}: {list}", votes.why_outbid());
    }
    let is_reserved = |vote: &&NodeVote| vote.verdict.reservation().is_some();
    if votes.iter().filter(is_reserved).count() >= quorum(votes.len()) {
        return format!("{key} is reserved for the next waiter: {list}");
    }
    match holder(votes) {
        Some((token, ttl)) => {
            format!("{key} is held by another client: {token}, {}; {list}", left(ttl))
        }
        // It was released in between, or contenders share the masters.
        None => format!("{key} is held by other clients: {list}"),
    }
}

/// Returns the token on a majority of masters, if they reported it, and its remaining time there.
pub(crate) fn holder(votes: &Votes) -> Option<(&str, Option<Duration>)> {
    let keys = votes.iter().filter_map(|vote| match &vote.verdict {
        Verdict::Held { ttl, .. } => Some((token(vote)?, *ttl)),
        _ => None,
    });
    on_majority(keys.collect(), votes.len())
}

/// The token that is on a majority of so many masters, and until when it is on one: the q-th
/// longest life. None is a key that never expires.
pub(crate) fn on_majority(
    mut keys: Vec<(&str, Option<Duration>)>,
    masters: usize,
) -> Option<(&str, Option<Duration>)> {
    let quorum = quorum(masters);
    let life = |ttl: Option<Duration>| ttl.unwrap_or(Duration::MAX);
    keys.sort_unstable_by(|a, b| a.0.cmp(b.0).then(life(b.1).cmp(&life(a.1))));
    let most = keys.chunk_by(|a, b| a.0 == b.0).find(|same| same.len() >= quorum)?;
    most.get(quorum - 1).copied()
}

fn brief(ttl: Option<Duration>) -> String {
    ttl.map_or_else(String::new, |ttl| format!(" ({})", about(ttl)))
}

/// The meaning of a key without an expiry, and the fix.
pub(crate) const NEVER_EXPIRES: &str = "this key never expires, so redlock did not create it; \
    delete it once you know that no process relies on it";

pub(crate) fn left(ttl: Option<Duration>) -> String {
    match ttl {
        Some(ttl) => format!("expires in {}", about(ttl)),
        None => "never expires".into(),
    }
}

/// Returns how many masters have answered a status, whatever they have.
pub(crate) fn answered(status: &Status) -> usize {
    status.nodes.iter().filter(|node| node.verdict.is_clear()).count()
}

/// Describes one vote, with its latency if the master itself answered.
pub(crate) fn timed(vote: &NodeVote) -> String {
    match latency(vote) {
        Some(latency) => format!("{vote} in {}", about(latency)),
        None => vote.to_string(),
    }
}

/// Returns how long an answer took; silence has no latency.
pub(crate) fn latency(vote: &NodeVote) -> Option<Duration> {
    vote.latency.filter(|_| vote.verdict.is_clear())
}

/// A master that cannot vote on any request, and the cause.
pub(crate) struct Incurable<'a> {
    pub(crate) node: &'a str,
    pub(crate) cause: &'a Cause,
}

/// Returns the masters that cannot vote, for reasons that waiting does not fix.
pub(crate) fn incurable<'a>(votes: impl IntoIterator<Item = &'a NodeVote>) -> Vec<Incurable<'a>> {
    votes.into_iter().filter_map(Incurable::of).collect()
}

impl<'a> Incurable<'a> {
    fn of(vote: &'a NodeVote) -> Option<Self> {
        match &vote.verdict {
            Verdict::Unknown(cause) if !cause.is_curable() => {
                Some(Self { node: &vote.node, cause })
            }
            _ => None,
        }
    }
}

/// How a key is called that is not a string.
pub(crate) const FOREIGN: &str = "a key of another type";

#[cfg(test)]
mod tests;
