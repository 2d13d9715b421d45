//! What the library does not ask, over one connection of its own to each master.

use redis::{RedisError, RedisResult};
use redlock_quorum::NodeReport;
use serde::Serialize;

use crate::direct::{self, Direct, PATIENCE};
use crate::session::Session;

/// What one master answered; none where it did not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Look {
    /// What it does when its memory is full; none where it has no limit.
    pub(super) eviction: Option<String>,
    /// Whether each write is on disk before it is answered; none where it does not tell.
    pub(super) keeps_writes: Option<bool>,
    /// Rights that a lock needs and its user lacks.
    pub(super) missing_rights: Vec<&'static str>,
}

/// Asks the masters that the library reached, one after the other.
pub(super) async fn at_all(session: &Session, nodes: &[NodeReport]) -> Vec<Look> {
    let mut looks = Vec::new();
    for (url, node) in session.masters.urls().zip(nodes) {
        let asked = match node.server {
            Some(_) => direct::ask(url, session.masters.pem(), PATIENCE * 3, look).await.ok(),
            None => None,
        };
        looks.push(asked.unwrap_or_default());
    }
    looks
}

fn look(master: &mut Direct) -> RedisResult<Look> {
    let memory = master.info("memory").unwrap_or_default();
    let policy = field(&memory, "maxmemory_policy").map(String::from);
    let is_limited = field(&memory, "maxmemory").is_some_and(|limit| limit != "0");
    Ok(Look {
        eviction: policy.filter(|_| is_limited),
        keeps_writes: master.setting("appendfsync").ok().flatten().map(|fsync| {
            let appends = master.setting("appendonly").ok().flatten();
            appends.as_deref() == Some("yes") && fsync == "always"
        }),
        missing_rights: missing_rights(master),
    })
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Each command does nothing, and is refused where the right to it is missing.
fn missing_rights(master: &mut Direct) -> Vec<&'static str> {
    // Numbers of connections begin at 1 and never come so far.
    const NOBODY: &str = "9223372036854775807";
    let probes: [(&str, &[&str]); 3] = [
        ("+client|kill", &["CLIENT", "KILL", "ID", NOBODY]),
        ("+eval", &["EVAL", "return 1", "0"]),
        ("+time", &["TIME"]),
    ];
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
}
