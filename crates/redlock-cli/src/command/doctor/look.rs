//! What the library does not ask, over one connection of its own to each master.

use std::time::{SystemTime, UNIX_EPOCH};

use redis::{RedisError, RedisResult};
use redlock_quorum::{FencingToken, NodeReport};
use serde::Serialize;

use crate::direct::{self, Direct, PATIENCE};
use crate::global::{Global, Switch};
use crate::masters;
use crate::session::Session;

/// A score that is so far ahead of the clocks, in microseconds, is followed by no lock while one
/// master shows it: some 71 years.
const FAR_US: u64 = 1 << 51;

/// What one master answered; none where it did not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Look {
    /// What it does when its memory is full; none where it has no limit.
    pub(super) eviction: Option<String>,
    /// Whether each write is on disk before it is answered; none where it does not tell.
    pub(super) keeps_writes: Option<bool>,
    /// Rights that a lock needs and its user lacks.
    pub(super) missing_rights: Vec<&'static str>,
    /// Ballots that no client has written, or that are so far ahead that none follows them, as
    /// `member: score`.
    pub(super) foreign_scores: Vec<String>,
}

/// Asks the masters that the library reached, one after the other.
pub(super) async fn at_all(global: &Global, session: &Session, nodes: &[NodeReport]) -> Vec<Look> {
    let mut looks = Vec::new();
    for (url, node) in session.masters.urls().zip(nodes) {
        let asked = match &node.server {
            Some(server) => {
                let ballots = ballots(global, server.admitted_as.as_deref());
                let look = move |master: &mut Direct| look(master, ballots);
                direct::ask(url, session.masters.pem(), PATIENCE * 3, look).await.ok()
            }
            None => None,
        };
        looks.push(asked.unwrap_or_default());
    }
    looks
}

/// The ballot set of a master that was admitted as `run`; none where locks have no ballots. Its
/// name is on the wire, and fixed for ever.
fn ballots(global: &Global, run: Option<&str>) -> Option<Vec<u8>> {
    let begin = [masters::prefix(global), b"redlock-quorum:1:ballots"].concat();
    match run {
        _ if global.plain => None,
        _ if global.quarantine == Some(Switch::Off) => Some(begin),
        Some(run) => Some([&begin[..], b":", set_name(run).as_bytes()].concat()),
        // Not admitted; what rights it gives is asked all the same.
        None => Some([&begin[..], b":0"].concat()),
    }
}

/// 16 digits of the process, and 16 of the history where there is one.
fn set_name(run: &str) -> String {
    let short = |part: &str| part.get(..16).unwrap_or(part).to_owned();
    run.split(':').map(short).collect::<Vec<_>>().join(".")
}

fn look(master: &mut Direct, ballots: Option<Vec<u8>>) -> RedisResult<Look> {
    let memory = master.info("memory").unwrap_or_default();
    let policy = field(&memory, "maxmemory_policy").map(String::from);
    let is_limited = field(&memory, "maxmemory").is_some_and(|limit| limit != "0");
    Ok(Look {
        eviction: policy.filter(|_| is_limited),
        keeps_writes: master.setting("appendfsync").ok().flatten().map(|fsync| {
            let appends = master.setting("appendonly").ok().flatten();
            appends.as_deref() == Some("yes") && fsync == "always"
        }),
        missing_rights: missing_rights(master, ballots.as_deref()),
        // What cannot be read is a master that does not vote, or a right that is missing.
        foreign_scores: match &ballots {
            Some(set) => foreign_now(master.scores(set).unwrap_or_default()),
            None => Vec::new(),
        },
    })
}

/// Clients write whole numbers, and none that are 71 years ahead of the masters' clocks. By ours
/// they are told apart well enough; one that stands before 1970 tells nothing.
fn foreign_now(scores: Vec<(String, String)>) -> Vec<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    foreign(scores, u64::try_from(now.as_micros()).unwrap_or(u64::MAX))
}

/// The scores that no client has written, at this time in microseconds since 1970.
fn foreign(scores: Vec<(String, String)>, now: u64) -> Vec<String> {
    let end = now.saturating_add(FAR_US).min(FencingToken::MAX.get());
    let is_ours = |score: &str| score.parse::<u64>().is_ok_and(|n| n < end);
    let foreign = scores.into_iter().filter(|(_, score)| !is_ours(score));
    foreign.map(|(member, score)| format!("{member}: {score}")).collect()
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Each command does nothing, and is refused where the right to it is missing.
fn missing_rights(master: &mut Direct, ballots: Option<&[u8]>) -> Vec<&'static str> {
    // Numbers of connections begin at 1 and never come so far.
    const NOBODY: &[u8] = b"9223372036854775807";
    let mut probes: Vec<(&str, Vec<&[u8]>)> = vec![
        ("+client|kill", vec![b"CLIENT", b"KILL", b"ID", NOBODY]),
        ("+eval", vec![b"EVAL", b"return 1", b"0"]),
        ("+time", vec![b"TIME"]),
    ];
    probes.extend(ballots.map(|set| ("+zscore", vec![&b"ZSCORE"[..], set, b"0"])));
    let is_missing = |error: &RedisError| error.code() == Some("NOPERM");
    let probes = probes
        .into_iter()
        .filter(|(_, words)| master.probe(words).is_err_and(|error| is_missing(&error)));
    probes.map(|(right, _)| right).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_not_taken_for_one_whose_name_is_longer() {
        let info =
            "# Memory\r\nmaxmemory_human:0B\r\nmaxmemory:7\r\nmaxmemory_policy:noeviction\r\n";
        assert_eq!(field(info, "maxmemory"), Some("7"));
        assert_eq!(field(info, "maxmemory_policy"), Some("noeviction"));
        assert_eq!(field(info, "max"), None);
    }

    #[test]
    fn a_ballot_set_is_named_after_what_its_master_was_admitted_as() {
        let (run, history) = ("0123456789abcdef".repeat(3), "fedcba9876543210".repeat(3));
        let name = |run: &str| String::from_utf8(ballots(&Global::default(), Some(run)).unwrap());
        assert_eq!(name(&run[..40]).unwrap(), "redlock-quorum:1:ballots:0123456789abcdef");
        let both = format!("{}:{}", &run[..40], &history[..40]);
        let expected = "redlock-quorum:1:ballots:0123456789abcdef.fedcba9876543210";
        assert_eq!(name(&both).unwrap(), expected);
    }

    #[test]
    fn whole_numbers_that_are_not_far_ahead_are_ballots_and_nothing_else_is() {
        const NOW: u64 = 1_767_225_600_000_000;
        let (last, first) = ((NOW + FAR_US - 1).to_string(), (NOW + FAR_US).to_string());
        let scores = ["0", &last, &first, "9007199254740991", "1.5", "-1", "inf", "1e+17"];
        let scores = scores.map(|score| ("7".to_owned(), score.to_owned())).into();
        let found = foreign(scores, NOW);
        let found: Vec<_> = found.iter().map(|one| one.strip_prefix("7: ").unwrap()).collect();
        assert_eq!(found, [&*first, "9007199254740991", "1.5", "-1", "inf", "1e+17"]);
        let late = vec![("7".to_owned(), "9007199254740991".to_owned())];
        assert_eq!(foreign(late, 1 << 53).len(), 1, "no token follows that one");
    }
}
