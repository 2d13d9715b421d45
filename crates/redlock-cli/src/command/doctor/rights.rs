//! Which rights the user of a master lacks, of those that `docs/OPERATIONS.md` lists. Each is tried by a
//! command that changes nothing: it reads, or it is refused for its words, which servers look at
//! behind the test of the right.

use redis::{RedisResult, Value};
use redlock_quorum::server_error::ServerError;

use super::keys::Keys;
use crate::direct::Direct;

/// What the clients of a master do there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Uses {
    pub(super) quarantine: bool,
    pub(super) ballots: bool,
}

impl Uses {
    fn needs(self, right: &str) -> bool {
        match right {
            "+zscore" => self.ballots,
            "+zadd" => self.ballots || self.quarantine,
            "+hset" | "+hdel" | "+zcard" | "+zrevrangebyscore" | "+time" => self.quarantine,
            _ => true,
        }
    }
}

/// Whether `redlock status` without a key and `redlock release --force` need it, and no lock does.
pub(super) fn is_for_people(right: &str) -> bool {
    ["+scan", "+getrange"].contains(&right)
}

/// Whether no quarantine begins or ends without it.
pub(super) fn is_for_admission(right: &str) -> bool {
    const RIGHTS: [&str; 9] = [
        "+eval",
        "+del",
        "+hgetall",
        "+hset",
        "+hdel",
        "+zcard",
        "+zadd",
        "+zrevrangebyscore",
        "+time",
    ];
    right.starts_with('~') || RIGHTS.contains(&right)
}

/// Whether waiters need it to queue for a lock, and nothing else does.
fn is_for_queues(right: &str) -> bool {
    const RIGHTS: [&str; 7] =
        ["+exists", "+publish", "+pubsub", "+subscribe", "+zrange", "+zrank", "+zrem"];
    right.starts_with('&') || RIGHTS.contains(&right)
}

/// What it costs that these are missing.
pub(super) fn costs(missing: &[&str]) -> String {
    let mut costs: Vec<&str> = Vec::new();
    for cost in missing.iter().map(|right| cost(right)) {
        if !costs.contains(&cost) {
            costs.push(cost);
        }
    }
    costs.join("; ")
}

fn cost(right: &str) -> &'static str {
    match right {
        "+zadd" | "+zscore" => "it takes no ballots, so it grants no locks with fencing tokens",
        "+client|id" | "+client|kill" => "late requests are not stopped",
        "+client|tracking" | "+client|caching" => "waiters are not woken",
        "+info" => "it is unknown whether it votes",
        "+set" | "+get" | "+del" | "+pttl" | "+pexpire" | "+eval" | "+evalsha" => {
            "locks are not acquired, extended or released"
        }
        right if is_for_queues(right) => "waiters are not served in the order of their arrival",
        _ => "quarantines are neither begun nor ended",
    }
}

/// What was found out by trying.
pub(super) struct Tried {
    /// The rights that are missing, in the words of `ACL SETUSER`.
    pub(super) missing: Vec<String>,
    /// The commands that the server does not have.
    pub(super) unknown: Vec<String>,
    /// What a write is refused with by every user, such as where memory is full.
    pub(super) refusal: Option<String>,
}

pub(super) fn tried(master: &mut Direct, keys: &Keys, uses: Uses) -> RedisResult<Tried> {
    let nobody = keys.nobody();
    let all = probes(keys, &nobody).into_iter().filter(|(right, _)| uses.needs(right));
    let (rights, probes): (Vec<_>, Vec<_>) = all.unzip();
    let replies = master.probe(&probes)?;
    let (mut missing, mut unknown): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for (right, reply) in rights.into_iter().zip(&replies) {
        let (into, what) = match lack(right, reply, keys) {
            Some(Lack::Command(name)) => (&mut unknown, name),
            Some(Lack::Right(right)) => (&mut missing, right),
            None => continue,
        };
        if !into.contains(&what) {
            into.push(what);
        }
    }
    let refusal = replies.iter().find_map(refusal);
    Ok(Tried { missing, unknown, refusal })
}

/// The right to listen on channels, where it is missing. A connection that was granted it takes no
/// other commands any more: this is the last one that it is asked.
pub(super) fn tried_last(master: &mut Direct, keys: &Keys) -> RedisResult<Option<Lack>> {
    let (right, probe) = last_probe(keys);
    let replies = master.probe(&[probe])?;
    Ok(replies.first().and_then(|reply| lack(right, reply, keys)))
}

fn last_probe(keys: &Keys) -> (&'static str, Vec<&[u8]>) {
    ("+subscribe", vec![b"SUBSCRIBE", &keys.channels])
}

/// Servers look at these behind the right, and before the words of the command.
fn refusal(reply: &Value) -> Option<String> {
    let Value::ServerError(error) = reply else { return None };
    let is_refused = ["OOM", "MISCONF", "NOREPLICAS"].contains(&error.code());
    is_refused.then(|| format!("{} {}", error.code(), error.details().unwrap_or_default()))
}

/// What keeps a command from being used.
pub(super) enum Lack {
    /// The server does not have it.
    Command(String),
    /// The user lacks this right.
    Right(String),
}

fn lack(right: &str, reply: &Value, keys: &Keys) -> Option<Lack> {
    let Value::ServerError(error) = reply else { return None };
    let text = format!("{} {}", error.code(), error.details().unwrap_or_default());
    match ServerError::of(&text) {
        ServerError::UnknownCommand => Some(Lack::Command(command(right))),
        _ => denial(reply).map(|denied| Lack::Right(denied.right(right, keys))),
    }
}

/// The command that a right is for. A server renames no subcommand alone.
fn command(right: &str) -> String {
    let name = right.trim_start_matches('+');
    name.split('|').next().unwrap_or(name).to_uppercase()
}

/// The right to a command.
pub(super) fn right_of(command: &str) -> String {
    match command {
        "CLIENT" => "+client|id".into(),
        command => format!("+{}", command.to_lowercase()),
    }
}

/// What a user may not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Denied {
    Command,
    /// The command is allowed, and this key is not.
    Key,
    /// The command is allowed, and this channel is not.
    Channel,
}

impl Denied {
    /// What is missing, in the words of `ACL SETUSER`, where this is `command`.
    fn right(self, command: &str, keys: &Keys) -> String {
        match self {
            Self::Command => command.to_owned(),
            Self::Key => format!("~{}*", String::from_utf8_lossy(&keys.record)),
            Self::Channel => format!("&{}*", String::from_utf8_lossy(&keys.channels)),
        }
    }
}

fn denial(reply: &Value) -> Option<Denied> {
    let Value::ServerError(error) = reply else { return None };
    let says = |word| error.details().is_some_and(|why| why.contains(word));
    let denied = match (says("access"), says("channel")) {
        (true, true) => Denied::Channel,
        (true, false) => Denied::Key,
        _ => Denied::Command,
    };
    (error.code() == "NOPERM").then_some(denied)
}

/// A command for each right. `SET` and `ZADD` get options that exclude each other, `HSET` a field
/// without a value, and `PEXPIRE` no number. There is no such key, field, script or connection as
/// the others name.
fn probes<'a>(keys: &'a Keys, nobody: &'a [u8]) -> Vec<(&'static str, Vec<&'a [u8]>)> {
    // Numbers of connections begin at 1 and never come so far.
    const LAST: &[u8] = b"9223372036854775807";
    const NO_SCRIPT: &[u8] = &[b'0'; 40];
    let (record, set) = (&keys.record[..], &keys.off[..]);
    vec![
        ("+set", vec![b"SET", nobody, b"none", b"NX", b"XX"]),
        ("+get", vec![b"GET", nobody]),
        ("+del", vec![b"DEL", nobody]),
        ("+pttl", vec![b"PTTL", nobody]),
        ("+pexpire", vec![b"PEXPIRE", nobody, b"none"]),
        ("+eval", vec![b"EVAL", b"return 1", b"0"]),
        ("+evalsha", vec![b"EVALSHA", NO_SCRIPT, b"0"]),
        ("+getrange", vec![b"GETRANGE", nobody, b"0", b"0"]),
        ("+scan", vec![b"SCAN", b"0", b"COUNT", b"1"]),
        ("+info", vec![b"INFO", b"server"]),
        ("+client|id", vec![b"CLIENT", b"ID"]),
        ("+client|kill", vec![b"CLIENT", b"KILL", b"ID", LAST]),
        ("+client|tracking", vec![b"CLIENT", b"TRACKING", b"OFF"]),
        ("+client|caching", vec![b"CLIENT", b"CACHING", b"YES"]),
        ("+hgetall", vec![b"HGETALL", record]),
        ("+hset", vec![b"HSET", record, b"none", b"none", b"none"]),
        ("+hdel", vec![b"HDEL", record, b"none"]),
        ("+zcard", vec![b"ZCARD", set]),
        ("+zadd", vec![b"ZADD", set, b"NX", b"XX", b"0", b"none"]),
        ("+zscore", vec![b"ZSCORE", set, b"none"]),
        ("+zrevrangebyscore", vec![b"ZREVRANGEBYSCORE", set, b"(0", b"(0"]),
        ("+time", vec![b"TIME"]),
        ("+exists", vec![b"EXISTS", set]),
        ("+zrange", vec![b"ZRANGE", set, b"0", b"0"]),
        ("+zrank", vec![b"ZRANK", set, b"none"]),
        ("+zrem", vec![b"ZREM", set, b"none"]),
        ("+pubsub", vec![b"PUBSUB", b"NUMSUB", &keys.channels]),
        ("+publish", vec![b"PUBLISH", &keys.channels, b""]),
    ]
}

#[cfg(test)]
mod tests {
    use redlock_quorum::ServerReport;

    use super::*;

    #[test]
    fn what_is_missing_is_said_to_cost_what_it_is_needed_for() {
        assert_eq!(
            costs(&["+zadd"]),
            "it takes no ballots, so it grants no locks with fencing tokens"
        );
        let two = costs(&["+set", "+get", "+client|kill"]);
        assert_eq!(
            two,
            "locks are not acquired, extended or released; late requests are not stopped"
        );
    }

    /// Operators copy the line of the document.
    #[test]
    fn all_rights_of_the_guide_are_tried_and_no_other() {
        let document = include_str!("../../../../../docs/OPERATIONS.md");
        let line = document.lines().find(|line| line.starts_with("ACL SETUSER redlock on "));
        let listed = line.unwrap().split(' ').filter(|word| word.starts_with('+'));
        let mut listed: Vec<_> = listed.collect();
        let keys = Keys::of(b"", &ServerReport::default());
        let mut tried: Vec<_> = probes(&keys, b"").into_iter().map(|(right, _)| right).collect();
        tried.push(last_probe(&keys).0);
        listed.sort_unstable();
        tried.sort_unstable();
        assert_eq!(tried, listed);
    }

    #[test]
    fn a_key_that_is_denied_is_told_from_a_command() {
        let said = |error: &str| denial(&redis::parse_redis_value(error.as_bytes()).unwrap());
        for command in [
            "-NOPERM this user has no permissions to run the 'hset' command\r\n",
            "-NOPERM User few has no permissions to run the 'hset' command\r\n",
        ] {
            assert_eq!(said(command), Some(Denied::Command), "{command}");
        }
        for key in [
            "-NOPERM this user has no permissions to access one of the keys used as arguments\r\n",
            "-NOPERM No permissions to access a key\r\n",
        ] {
            assert_eq!(said(key), Some(Denied::Key), "{key}");
        }
        for channel in [
            "-NOPERM this user has no permissions to access one of the channels used as \
             arguments\r\n",
            "-NOPERM No permissions to access a channel\r\n",
        ] {
            assert_eq!(said(channel), Some(Denied::Channel), "{channel}");
        }
        for other in ["-ERR syntax error\r\n", "-READONLY a replica\r\n", "+OK\r\n"] {
            assert_eq!(said(other), None, "{other}");
        }
    }
}
