//! `redlock status` without a key: lists the held locks.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::anyhow;
use futures::future::join_all;
use redlock_quorum::{Cause, Mark, Resource, quorum};
use serde::Serialize;

use crate::answers::{self, said_of_some};
use crate::direct::{self, Direct, Found};
use crate::done::Done;
use crate::duration;
use crate::exit::{Failure, UNAVAILABLE};
use crate::global::Global;
use crate::key::Key;
use crate::masters;
use crate::moment;
use crate::output;
use crate::session::{EXAMINE, Session};
use crate::stderr;

/// The output of `status --json` without a key.
#[derive(Serialize)]
struct Listing {
    locks: Vec<Lock>,
    done: Vec<Completed>,
    truncated: bool,
}

/// A lock that one token holds on a majority of the masters.
#[derive(Serialize)]
struct Lock {
    #[serde(flatten)]
    key: Key,
    token: String,
    /// `None` for a key that never expires.
    ttl_ms: Option<u64>,
    /// In milliseconds since 1970, by the clock of the host that acquired the lock. `None` if the
    /// token has no time.
    since_ms: Option<u64>,
}

/// A completed run, merged from the marks of all masters.
#[derive(Serialize)]
struct Completed {
    #[serde(flatten)]
    key: Key,
    #[serde(flatten)]
    done: Done,
}

/// The values on one master of the names found on any master.
type Column = Vec<Found>;

pub(crate) async fn list(global: &Global, as_json: bool) -> Result<u8, Failure> {
    // The answers about any key show which masters may vote. Duplicate addresses must not vote
    // twice.
    let session = Session::new(global, OsStr::new("-"))?;
    let listing = read(&session, masters::prefix(global)).await;
    session.close().await;
    let listing = listing?;
    if listing.truncated {
        stderr::note(&format!("stopped after {KEYS_MAX} keys; narrow the search with --prefix"));
    }
    if listing.locks.iter().any(|lock| lock.ttl_ms.is_none()) {
        stderr::note(&format!("{}: redlock release --force KEY", answers::NEVER_EXPIRES));
    }
    if as_json {
        output::json(&listing)?
    } else {
        output::line(&listing.text())?
    }
    Ok(0)
}

async fn read(session: &Session, prefix: &[u8]) -> Result<Listing, Failure> {
    let voters = voters(session).await?;
    let (names, truncated) = names(&voters, session, prefix).await?;
    let names: Vec<Vec<u8>> = names.into_iter().collect();
    let columns = columns(&voters, session, &names).await?;
    let masters = session.masters.urls().count();
    let locks = (0..names.len()).filter_map(|row| {
        let keys = columns.iter().filter_map(|column| token(&column[row])).collect();
        let (token, ttl) = answers::on_majority(keys, masters)?;
        let key = Resource::from(&names[row][prefix.len()..]);
        key.check().ok()?;
        let (key, since_ms) = (Key::from(&key), answers::since(token).map(moment::millis));
        Some(Lock { key, token: token.to_owned(), ttl_ms: ttl.map(duration::millis), since_ms })
    });
    let begin = [prefix, Mark::PREFIX.as_bytes()].concat();
    let done = (0..names.len()).filter_map(|row| {
        let name = names[row].strip_prefix(&begin[..])?;
        let marks = columns.iter().filter_map(|column| mark(&column[row]));
        let done = Done::from(&marks.reduce(|most, mark| most.raised(&mark))?);
        Some(Completed { key: (&Resource::from(name)).into(), done })
    });
    Ok(Listing { locks: locks.collect(), done: done.collect(), truncated })
}

/// A master that may vote.
struct Voter {
    url: String,
    name: String,
}

/// Returns the masters that may vote.
///
/// # Errors
/// Fails if they are fewer than a quorum.
async fn voters(session: &Session) -> Result<Vec<Voter>, Failure> {
    let status = session.status().await;
    let urls = session.masters.urls().zip(&status.nodes);
    let urls = urls.filter(|(_, node)| answers::is_admitted(node) == Some(true));
    let voters: Vec<_> = urls
        .map(|(url, node)| Voter { url: url.to_owned(), name: node.node.to_string() })
        .collect();
    if voters.len() < quorum(status.nodes.len()) {
        let list = answers::list(&status);
        let cause = anyhow!("too few masters answered to list the locks: {list}");
        let causes = answers::causes(&status.nodes);
        return Err(session.explained(Failure::new(UNAVAILABLE, cause), &causes).await);
    }
    Ok(voters)
}

/// Returns the names on any of the masters, and whether there are more.
async fn names(
    voters: &[Voter],
    session: &Session,
    prefix: &[u8],
) -> Result<(BTreeSet<Vec<u8>>, bool), Failure> {
    let seen = AtomicUsize::new(0);
    let asked = voters.iter().map(|Voter { url, .. }| {
        let names = async |master: &mut Direct| master.names(prefix, KEYS_MAX, &seen).await;
        // The search covers a large database completely, and each single reply has its own limit.
        direct::ask(&session.masters, url, Duration::MAX, names)
    });
    let (mut names, mut truncated) = (BTreeSet::new(), false);
    for (found, more) in answered(with_progress(&seen, asked).await, voters, session)? {
        names.extend(found);
        truncated |= more;
    }
    // No lock has an empty name.
    names.retain(|name| name.len() > prefix.len());
    truncated |= names.len() > KEYS_MAX;
    Ok((names.into_iter().take(KEYS_MAX).collect(), truncated))
}

async fn columns(
    voters: &[Voter],
    session: &Session,
    names: &[Vec<u8>],
) -> Result<Vec<Column>, Failure> {
    let asked = voters.iter().map(|Voter { url, .. }| {
        let read = async |master: &mut Direct| master.read_keys(names).await;
        direct::ask(&session.masters, url, Duration::MAX, read)
    });
    let seen = AtomicUsize::new(names.len());
    answered(with_progress(&seen, asked).await, voters, session)
}

/// Waits for all, and shows on a terminal how far they are.
async fn with_progress<T>(
    seen: &AtomicUsize,
    asked: impl Iterator<Item = impl Future<Output = T>>,
) -> Vec<T> {
    /// The interval between two updates of the terminal.
    const SHOW_AGAIN: Duration = Duration::from_millis(200);
    let is_terminal = io::stderr().is_terminal();
    let mut answers = pin!(join_all(asked));
    let mut has_shown = false;
    let answers = loop {
        tokio::select! {
            biased;
            answers = &mut answers => break answers,
            () = tokio::time::sleep(SHOW_AGAIN), if is_terminal => {
                has_shown = true;
                show(&format!("{} keys searched ...", seen.load(Ordering::Relaxed)));
            }
        }
    };
    if has_shown {
        show("");
    }
    answers
}

/// Replaces the previous text.
fn show(text: &str) {
    // If the terminal is gone, there is no reader.
    let _ = io::stderr().write_all(format!("\r{text}\x1b[K").as_bytes());
}

/// Returns the answers if they are a quorum, and prints a note for each master that failed.
fn answered<T>(
    answers: Vec<Result<T, Cause>>,
    voters: &[Voter],
    session: &Session,
) -> Result<Vec<T>, Failure> {
    let (mut answered, mut failed) = (Vec::new(), Vec::new());
    for (answer, voter) in answers.into_iter().zip(voters) {
        match answer {
            Ok(answer) => answered.push(answer),
            Err(cause) => failed.push((&*voter.name, cause.to_string())),
        }
    }
    if answered.len() < quorum(session.masters.urls().count()) {
        let cause = anyhow!(
            "too few masters answered to list the locks: {}; {EXAMINE}",
            said_of_some(failed)
        );
        return Err(Failure::new(UNAVAILABLE, cause));
    }
    for (node, why) in failed {
        stderr::note(&format!("{node} is not included: {why}"));
    }
    Ok(answered)
}

fn mark(found: &Found) -> Option<Mark> {
    match found {
        Found::Text { value, .. } => Mark::parse(value),
        _ => None,
    }
}

/// Returns the token and the expiry of a lock. A lock has a token and an expiry, and all other keys
/// under the prefix are other data. However, a text without an expiry blocks the lock of its name.
/// If a majority of independent masters has the same text, an operator or a program has probably
/// put it there for that reason.
fn token(found: &Found) -> Option<(&str, Option<Duration>)> {
    let Found::Text { value, ttl } = found else { return None };
    let text = str::from_utf8(value).ok()?;
    let is_lock = match ttl {
        Some(_) => is_token(text),
        None => text.len() <= TOKEN_LEN_MAX && !text.chars().any(char::is_control),
    };
    is_lock.then_some((text, *ttl))
}

/// A longer value is data rather than a token.
const TOKEN_LEN_MAX: usize = 128;

/// A token of this library (a UUID, then `/label` where there is one) or of another Redlock
/// client: 16 to 128 letters and digits, as base64 and hexadecimal have them. Counters and cached
/// texts are neither.
fn is_token(text: &str) -> bool {
    let (first, label) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
    let is_uuid = first.len() == 36
        && (0..).zip(first.bytes()).all(|(place, byte)| match place {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        });
    let is_label =
        |label: &str| label.bytes().all(|b| b.is_ascii_alphanumeric() || b"._@:-".contains(&b));
    let is_random = (16..=TOKEN_LEN_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/=_-".contains(&b));
    (is_uuid && label.is_none_or(is_label)) || is_random
}

impl Listing {
    /// Returns one line per lock.
    fn text(&self) -> String {
        let widest = self.locks.iter().map(|lock| lock.key.to_string().chars().count()).max();
        let widest = widest.unwrap_or_default();
        let line = |lock: &Lock| {
            let Lock { key, token, ttl_ms, .. } = lock;
            let (key, left) = (key.to_string(), answers::left(ttl_ms.map(Duration::from_millis)));
            let since = answers::since_in_words(token);
            format!("{key:widest$}  held by {token}, {left}{since}")
        };
        let mut lines: Vec<String> = self.locks.iter().map(line).collect();
        if lines.is_empty() {
            lines.push("no lock is held".into());
        }
        let completed = |Completed { key, done }: &Completed| format!("{key}  {}", done.text());
        lines.extend(self.done.iter().map(completed));
        lines.join("\n")
    }
}

/// The maximum number of keys that are examined on each master.
const KEYS_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str, ttl: Option<u64>) -> Found {
        Found::Text { value: value.into(), ttl: ttl.map(Duration::from_millis) }
    }

    const TOKEN: &str = "f81d4fae-7dec-41d0-a765-00a0c91e6bf6/me@host:7";

    #[test]
    fn key_without_a_token_is_a_lock_only_if_it_never_expires() {
        let long = "x".repeat(TOKEN_LEN_MAX + 1);
        for found in [
            text("42", Some(9)),
            text("two words, cached", Some(9)),
            text(&long, None),
            text("two\nlines", None),
        ] {
            assert_eq!(token(&found), None, "{found:?}");
        }
        for held in [TOKEN, "by hand, Ann"] {
            assert_eq!(token(&text(held, None)), Some((held, None)));
        }
        for other in ["0123456789abcdef", "mB1sCTnqYCnB4Ay1JVU9zA==", TOKEN] {
            assert!(is_token(other), "{other}");
        }
    }
}
