//! The output: results on stdout, and everything about them on stderr.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::anyhow;
use redlock_quorum::{
    Cause, Guard, NodeVote, Permitted, RecordedSet, Standing, State, Status, Verdict, printable,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use serde::Serialize;
use tokio::time::sleep;

use crate::answers;
use crate::done::Done;
use crate::duration::{about, millis, millis_up};
use crate::exit::{CANNOT_PRINT, Failure};
use crate::key::Key;
use crate::moment;

/// A held lock, as `acquire` and `extend` print it.
#[derive(Serialize)]
pub(crate) struct Held<'a> {
    #[serde(flatten)]
    key: Key,
    token: &'a str,
    fencing_token: Option<u64>,
    ttl_ms: u64,
    validity_ms: u64,
}

impl<'a> Held<'a> {
    pub(crate) fn new(guard: &'a Guard, ttl: Duration) -> Self {
        Self {
            key: guard.resource().into(),
            token: guard.token().as_str(),
            fencing_token: guard.fencing_token().map(|fence| fence.get()),
            ttl_ms: millis(ttl),
            validity_ms: millis(guard.remaining()),
        }
    }

    /// A caller that cannot read this output does not learn the token, so the error is always reported.
    pub(crate) fn print(&self, as_json: bool) -> Result<(), Failure> {
        let fence = fence(self.fencing_token);
        let printed = match as_json {
            true => json(self),
            false => line(&format!("{} {fence} {}", self.token, self.validity_ms)),
        };
        printed.map_err(|failure| Failure { is_quiet: false, ..failure })
    }
}

/// Returns `-` if there is no fencing token, so that every line has three words.
pub(crate) fn fence(token: Option<u64>) -> String {
    token.map_or_else(|| "-".into(), |token| token.to_string())
}

/// The output of `release --json`.
#[derive(Serialize)]
pub(crate) struct Released {
    #[serde(flatten)]
    pub(crate) key: Key,
    pub(crate) released: bool,
}

/// The output of `release --force --json`.
#[derive(Serialize)]
pub(crate) struct Forced {
    #[serde(flatten)]
    pub(crate) key: Key,
    pub(crate) deleted: Vec<String>,
}

/// The recorded set of masters, as `status` and `init` print it.
#[derive(Serialize)]
pub(crate) struct Set {
    id: String,
    size: u8,
    names: Vec<String>,
}

impl Set {
    pub(crate) fn new(set: &RecordedSet) -> Self {
        let names = set.names.iter().map(str::to_owned).collect();
        Self { id: set.id.to_string(), size: set.size, names }
    }
}

/// The output of `status --json`.
#[derive(Serialize)]
pub(crate) struct Report<'a> {
    #[serde(flatten)]
    key: Key,
    state: &'static str,
    token: Option<&'a str>,
    ttl_ms: Option<u64>,
    waiters: u32,
    /// Since 1970, by the clock of the host that took the lock.
    since_ms: Option<u64>,
    done: Option<&'a Done>,
    set: Option<Set>,
    nodes: Vec<NodeReport<'a>>,
}

/// What `status --permits` prints as JSON.
#[derive(Serialize)]
pub(crate) struct PermitReport<'a> {
    #[serde(flatten)]
    key: Key,
    permits: usize,
    waiters: u32,
    slots: Vec<SlotReport<'a>>,
}

#[derive(Serialize)]
struct SlotReport<'a> {
    slot: usize,
    state: &'static str,
    token: Option<&'a str>,
    ttl_ms: Option<u64>,
    since_ms: Option<u64>,
}

impl<'a> PermitReport<'a> {
    pub(crate) fn new(key: Key, permitted: &'a Permitted) -> Self {
        let slots = permitted.slots.iter().enumerate().map(SlotReport::new).collect();
        Self { key, permits: permitted.slots.len(), waiters: permitted.waiters, slots }
    }
}

impl<'a> SlotReport<'a> {
    fn new((slot, status): (usize, &'a Status)) -> Self {
        let (state, token, ttl) = in_fields(&status.state);
        let since_ms = token.and_then(answers::since).map(moment::millis);
        Self { slot, state, token, ttl_ms: ttl.map(millis), since_ms }
    }
}

/// The state, the token and the remaining time.
fn in_fields(state: &State) -> (&'static str, Option<&str>, Option<Duration>) {
    match state {
        State::Held { token, ttl } => ("held", Some(token.as_str()), *ttl),
        State::Free => ("free", None, None),
        State::Reserved => ("reserved", None, None),
        _ => ("undecided", None, None),
    }
}

#[derive(Serialize)]
struct NodeReport<'a> {
    node: &'a str,
    state: &'static str,
    token: Option<&'a str>,
    ttl_ms: Option<u64>,
    latency_us: Option<u64>,
    cause: Option<String>,
    /// None where nothing was heard of it.
    admitted: Option<bool>,
    votes_again_ms: Option<u64>,
}

impl<'a> Report<'a> {
    pub(crate) fn new(key: Key, status: &'a Status, done: Option<&'a Done>) -> Self {
        let (state, token, ttl) = in_fields(&status.state);
        let nodes = status.nodes.iter().map(NodeReport::new).collect();
        let since_ms = token.and_then(answers::since).map(moment::millis);
        let (ttl_ms, waiters) = (ttl.map(millis), status.waiters);
        let set = status.set.as_ref().map(Set::new);
        Self { key, state, token, ttl_ms, waiters, since_ms, done, set, nodes }
    }
}

impl<'a> NodeReport<'a> {
    fn new(node: &'a NodeVote) -> Self {
        let token = answers::token(node);
        let (state, ttl, cause) = match &node.verdict {
            verdict @ Verdict::Held { ttl, .. } if verdict.reservation().is_some() => {
                ("reserved", *ttl, None)
            }
            Verdict::Held { token: Some(_), ttl } => ("held", *ttl, None),
            Verdict::Held { token: None, ttl } => ("held", *ttl, Some(answers::FOREIGN.to_owned())),
            Verdict::Free => ("free", None, None),
            verdict => ("unknown", None, Some(verdict.to_string())),
        };
        let latency_us = answers::latency(node).map(micros);
        let cause = cause.or_else(|| answers::not_admitted(node));
        let admitted = answers::is_admitted(node);
        let votes_again_ms = node.votes_again().map(millis_up);
        let (node, ttl_ms) = (&*node.node, ttl.map(millis));
        Self { node, state, token, ttl_ms, latency_us, cause, admitted, votes_again_ms }
    }
}

/// Returns the same as text: the masters' answers, then the answer of a majority.
pub(crate) fn people(key: &str, status: &Status, is_verbose: bool) -> String {
    format!("{}\n{}", table(status, is_verbose), answers::verdict_and_waiters(key, status))
}

/// One line per master, or per different answer. Only verbose lines have latencies, and repeat equal
/// answers.
pub(crate) fn table(status: &Status, is_verbose: bool) -> String {
    let words = |node: &NodeVote| {
        let mut text = answers::held(node);
        if let Some(latency) = answers::latency(node).filter(|_| is_verbose) {
            text.push_str(&format!("  {}", about(latency)));
        }
        if node.tracks == Some(false) {
            text.push_str("  (cannot wake waiting clients)");
        }
        text
    };
    let said: Vec<(&str, String)> =
        status.nodes.iter().map(|node| (&*node.node, words(node))).collect();
    answers::rows(&said, is_verbose).join("\n")
}

/// Why nothing can be printed.
pub(crate) const STDOUT_CLOSED: &str = "the result cannot be printed: stdout is closed";

/// Prints an object for a program. A closed stdout is an error, unlike for text, because the exit
/// code has the answer.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    if !has_reader() {
        return Err(Failure::new(CANNOT_PRINT, anyhow!(STDOUT_CLOSED)));
    }
    let text = serde_json::to_string(value).map_err(|error| Failure::new(CANNOT_PRINT, error))?;
    program(&text)
}

/// Prints the result. Succeeds once the operating system has taken it. A reader that has closed the
/// pipe, such as `head`, gets no error line.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    program(&printable::lines(text))
}

/// The same for a text that another program reads, or that clears the screen.
pub(crate) fn program(text: &str) -> Result<(), Failure> {
    printed(&format!("{text}\n")).map_err(unprinted)
}

/// Prints help. It is not an error if a reader closes the pipe early, as `head` does.
pub(crate) fn help(text: &str) -> Result<(), Failure> {
    match printed(text) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.map_err(unprinted),
    }
}

fn printed(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
}

fn unprinted(error: io::Error) -> Failure {
    let is_quiet = error.kind() == io::ErrorKind::BrokenPipe;
    let cause = anyhow::Error::new(error).context("the result cannot be printed");
    Failure { is_quiet, ..Failure::new(CANNOT_PRINT, cause) }
}

/// Resolves with the failure of the next line once the reader of a pipe has closed it, as `head`
/// does after its last line.
pub(crate) async fn until_closed() -> Failure {
    const CHECK_AGAIN: Duration = Duration::from_millis(200);
    while !is_closed() {
        sleep(CHECK_AGAIN).await;
    }
    unprinted(io::ErrorKind::BrokenPipe.into())
}

fn is_closed() -> bool {
    let stdout = io::stdout();
    let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
    let outcome = poll(&mut fds, Some(&Timespec::default()));
    outcome.is_ok() && fds[0].revents().contains(PollFlags::ERR)
}

/// Returns `true` if stdout has a reader. If stdout was closed, Rust's runtime has opened
/// `/dev/null` in its place before `main`, for reading and writing, and every line would seem to be
/// printed. A shell opens `>/dev/null` only for writing, which is a reader.
pub(crate) fn has_reader() -> bool {
    let is_null = |stat: rustix::fs::Stat| {
        rustix::fs::stat("/dev/null").is_ok_and(|null| null.st_rdev == stat.st_rdev)
    };
    let stdout = io::stdout();
    let is_both_ways =
        rustix::fs::fcntl_getfl(&stdout).is_ok_and(|flags| flags & OFlags::ACCMODE == OFlags::RDWR);
    !(is_both_ways && rustix::fs::fstat(&stdout).is_ok_and(is_null))
}

/// Returns the state of a master. A master that replies with an error, such as WRONGPASS, was
/// reached.
pub(crate) fn state(standing: Standing, cause: Option<&Cause>) -> &'static str {
    match (standing, cause) {
        (Standing::Unreachable, Some(Cause::ErrorReply(_))) => "refused",
        (standing, _) => standing.as_str(),
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
