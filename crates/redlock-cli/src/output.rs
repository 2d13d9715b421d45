//! What is printed: results on stdout, everything about them on stderr.

use std::io::{self, Write};
use std::time::Duration;

use redlock_quorum::{Guard, NodeHolds, NodeStatus, State, Status};
use serde::Serialize;

use crate::exit::{CANNOT_PRINT, Failure};

/// A held lock, as `acquire` and `extend` print it.
#[derive(Serialize)]
pub(crate) struct Held<'a> {
    key: String,
    token: &'a str,
    fencing_token: Option<u64>,
    ttl_ms: u64,
    validity_ms: u64,
}

impl<'a> Held<'a> {
    pub(crate) fn new(guard: &'a Guard, ttl: Duration) -> Self {
        Self {
            key: guard.resource().to_string(),
            token: guard.token().as_str(),
            fencing_token: guard.fencing_token().map(|fence| fence.get()),
            ttl_ms: millis(ttl),
            validity_ms: millis(guard.remaining()),
        }
    }

    pub(crate) fn print(&self, as_json: bool) -> Result<(), Failure> {
        if as_json {
            return json(self);
        }
        let fence = fence(self.fencing_token);
        line(&format!("{} {fence} {}", self.token, self.validity_ms))
    }
}

/// `-` where there is no fencing token, so that every line has three words.
pub(crate) fn fence(token: Option<u64>) -> String {
    token.map_or_else(|| "-".into(), |token| token.to_string())
}

/// What `release` prints as JSON.
#[derive(Serialize)]
pub(crate) struct Released {
    pub(crate) key: String,
    pub(crate) released: bool,
}

/// What `status` prints as JSON.
#[derive(Serialize)]
pub(crate) struct Report<'a> {
    key: String,
    state: &'static str,
    token: Option<&'a str>,
    ttl_ms: Option<u64>,
    nodes: Vec<NodeReport<'a>>,
}

#[derive(Serialize)]
struct NodeReport<'a> {
    node: &'a str,
    state: &'static str,
    token: Option<&'a str>,
    ttl_ms: Option<u64>,
    latency_us: Option<u64>,
    cause: Option<String>,
}

impl<'a> Report<'a> {
    pub(crate) fn new(key: String, status: &'a Status) -> Self {
        let (state, token, ttl) = match &status.state {
            State::Held { token, ttl } => ("held", Some(token.as_str()), *ttl),
            State::Free => ("free", None, None),
            _ => ("undecided", None, None),
        };
        let nodes = status.nodes.iter().map(NodeReport::new).collect();
        Self { key, state, token, ttl_ms: ttl.map(millis), nodes }
    }
}

impl<'a> NodeReport<'a> {
    fn new(node: &'a NodeStatus) -> Self {
        let (state, token, ttl, cause) = match &node.state {
            NodeHolds::Held { token, ttl } => ("held", Some(token.as_str()), *ttl, None),
            NodeHolds::Free => ("free", None, None, None),
            NodeHolds::Unknown(cause) => ("unknown", None, None, Some(cause.to_string())),
            _ => ("unknown", None, None, None),
        };
        let latency_us = latency(node).map(micros);
        Self { node: &node.node, state, token, ttl_ms: ttl.map(millis), latency_us, cause }
    }
}

/// The same for people: one line a master, then what a majority agrees on.
pub(crate) fn people(key: &str, status: &Status) -> String {
    let widest = status.nodes.iter().map(|node| node.node.len()).max().unwrap_or_default();
    let mut text = String::new();
    for node in &status.nodes {
        text.push_str(&format!("{:widest$}  {}", node.node, said(&node.state)));
        if let Some(latency) = latency(node) {
            text.push_str(&format!("  {latency:.1?}"));
        }
        text.push('\n');
    }
    text + &verdict(key, &status.state)
}

/// How long an answer took; silence has no latency.
fn latency(node: &NodeStatus) -> Option<Duration> {
    node.latency.filter(|_| !matches!(node.state, NodeHolds::Unknown(_)))
}

fn verdict(key: &str, state: &State) -> String {
    match state {
        State::Held { token, ttl } => format!("{key} is held by {token}, {}", left(*ttl)),
        State::Free => format!("{key} is free"),
        _ => format!("{key} is undecided: no majority is free, and no token holds one"),
    }
}

/// What one master said, on one line.
pub(crate) fn said(state: &NodeHolds) -> String {
    match state {
        NodeHolds::Held { token, ttl } => format!("held by {token}, {}", left(*ttl)),
        NodeHolds::Free => "free".into(),
        NodeHolds::Unknown(cause) => cause.to_string(),
        _ => "unknown".into(),
    }
}

fn left(ttl: Option<Duration>) -> String {
    match ttl {
        Some(ttl) => format!("expires in {ttl:.1?}"),
        None => "never expires".into(),
    }
}

pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(|error| Failure::new(CANNOT_PRINT, error))?;
    line(&text)
}

/// Prints the result. It counts as printed when the operating system has taken it.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    let printed = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
    printed.map_err(|error| {
        Failure::new(CANNOT_PRINT, anyhow::Error::new(error).context("printing the result"))
    })
}

/// One more line for people, on stderr. It never starts with `redlock:`: that is for causes.
pub(crate) fn note(text: &str) {
    // Nobody is left to be told that stderr is closed.
    let _ = writeln!(io::stderr(), "note: {text}");
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Hides what stands between `://` and the last `@` of each word: passwords that were typed where
/// the command line expects something else.
pub(crate) fn redact(text: &str) -> String {
    let word = |word: &str| match (word.find("://"), word.rfind('@')) {
        (Some(start), Some(end)) if start + 3 <= end => {
            format!("{}***{}", &word[..start + 3], &word[end..])
        }
        _ => word.to_owned(),
    };
    text.split_inclusive(char::is_whitespace).map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_hidden_wherever_they_were_typed() {
        let text = "found 'redis://me:ses@me@h:1' and\nrediss://:x@h2, not a@b";
        let redacted = redact(text);
        assert_eq!(redacted, "found 'redis://***@h:1' and\nrediss://***@h2, not a@b");
    }
}
