//! Tests which of the rights in `docs/OPERATIONS.md` the user of a master lacks. Each test is a
//! command that changes nothing: it only reads, or it has invalid arguments, which servers check
//! after the right.

use futures::future::join_all;
use redis::Value;
use redlock_quorum::commands::{Purpose, SENT, Sent, Uses};
use redlock_quorum::server_error::ServerError;
use redlock_quorum::{Cause, ServerReport};

use crate::answers::said_of_some;
use crate::direct::{self, Direct, PATIENCE, error_text, meaning, strange};
use crate::keys::Keys;
use crate::masters::Masters;

/// Returns `true` if `redlock status` without a key and `redlock release --force` need it, and no
/// lock does.
pub(crate) fn is_for_people(right: &str) -> bool {
    of(right).is_some_and(|sent| sent.purposes == [Purpose::Listing])
}

/// Returns `true` if no lock is acquired or released without it.
pub(crate) fn is_for_locks(right: &str) -> bool {
    of(right).is_some_and(|sent| sent.is_for(Purpose::Locks))
}

/// Returns `true` if no quarantine begins or ends without it.
pub(crate) fn is_for_admission(right: &str) -> bool {
    right.starts_with('~') || of(right).is_some_and(|sent| sent.is_for(Purpose::Admission))
}

/// Returns `true` if clients with these settings need it.
pub(crate) fn is_needed(right: &str, uses: Uses) -> bool {
    of(right).is_some_and(|sent| uses.needs(sent))
}

fn of(right: &str) -> Option<&'static Sent> {
    SENT.iter().find(|sent| sent.right == right)
}

/// The results of the tests.
#[derive(Default)]
pub(crate) struct Tried {
    /// The missing rights, in the form of `ACL SETUSER`.
    pub(crate) missing: Vec<String>,
    /// The right to the keys of all locks, if the user has only some of them. Only operators know
    /// which names their locks have.
    pub(crate) narrow: Option<String>,
    /// The commands that the server does not have.
    pub(crate) unknown: Vec<String>,
    /// The error that every user gets for a write, for example if memory is full.
    pub(crate) refusal: Option<String>,
    /// The error for a script that uses a key which its call does not declare.
    pub(crate) undeclared: Option<String>,
}

pub(crate) async fn tried(master: &mut Direct, keys: &Keys, uses: Uses) -> Result<Tried, Cause> {
    let nobody = keys.nobody();
    let all = probes(keys, &nobody).into_iter().filter(|(right, _)| is_needed(right, uses));
    let (rights, mut probes): (Vec<_>, Vec<_>) = all.unzip();
    if uses.quarantine {
        probes.push(vec![b"EVAL", UNDECLARED_KEY, b"0", &keys.record]);
    }
    let replies = master.probe(&probes).await?;
    if let Some(cause) = replies.iter().find_map(of_every_command) {
        return Err(cause);
    }
    let undeclared = replies.get(rights.len()).and_then(undeclared);
    let refusal = replies.iter().find_map(refusal);
    let mut tried = Tried { refusal, undeclared, ..Tried::default() };
    for (right, reply) in rights.into_iter().zip(&replies) {
        tried.add(lack(right, reply, keys));
    }
    tried.add_keys(master, keys).await?;
    Ok(tried)
}

/// The same, and the right to listen on channels. The connection takes no other commands
/// afterwards.
pub(crate) async fn all_tried(
    master: &mut Direct,
    keys: &Keys,
    uses: Uses,
) -> Result<Tried, Cause> {
    let mut tried = tried(master, keys, uses).await?;
    let last = tried_last(master, keys).await?;
    tried.add(last.filter(|_| uses.queues));
    Ok(tried)
}

impl Tried {
    /// Tests whether one key of each kind may be read and written.
    async fn add_keys(&mut self, master: &mut Direct, keys: &Keys) -> Result<(), Cause> {
        let (of_locks, reserved) = keys.of_each_kind();
        let all = reserved.iter().chain([&of_locks]);
        let commands: Vec<Vec<&[u8]>> =
            all.flat_map(|key| [vec![b"GET", &key[..]], impossible_set(key)]).collect();
        let replies = master.probe(&commands).await?;
        if replies.iter().any(|reply| !matches!(reply, Value::Nil | Value::ServerError(_))) {
            return Err(strange());
        }
        let is_denied = |reply: &Value| denial(reply) == Some(Denied::Key);
        let Some((reserved, lock)) = replies.split_last_chunk::<2>() else { return Ok(()) };
        let of_reserved = || Lack::Right(Denied::Key.right("", keys));
        self.add(reserved.iter().any(is_denied).then(of_reserved));
        self.narrow = lock.iter().any(is_denied).then(|| keys.right_to_locks());
        Ok(())
    }

    /// Returns `true` if the server stores no keys, such as a Sentinel.
    pub(crate) fn stores_no_keys(&self) -> bool {
        ["SET", "GET"].iter().all(|name| self.unknown.iter().any(|it| it == name))
    }

    pub(crate) fn add(&mut self, lack: Option<Lack>) {
        let (into, what) = match lack {
            Some(Lack::Command(name)) => (&mut self.unknown, name),
            Some(Lack::Right(right)) => (&mut self.missing, right),
            None => return,
        };
        if !into.contains(&what) {
            into.push(what);
        }
    }
}

/// Returns the commands and rights that masters lack, with their costs. Leaves out unreachable
/// masters, because requests report them.
pub(crate) async fn lacking(masters: &Masters, prefix: &[u8], uses: Uses) -> String {
    let keys = Keys::of(prefix, &ServerReport::default());
    let of_one = async |master: &mut Direct| {
        let tried = all_tried(master, &keys, uses).await?;
        // Requests report what it is.
        if tried.stores_no_keys() {
            return Ok(None);
        }
        Ok(tried.in_words(uses).map(|words| (master.name().to_owned(), words)))
    };
    let all = masters.urls().map(|url| direct::ask(masters, url, PATIENCE, of_one));
    let lacking: Vec<(String, String)> =
        join_all(all).await.into_iter().flatten().flatten().collect();
    said_of_some(lacking.iter().map(|(name, words)| (name.as_str(), words.clone())).collect())
}

impl Tried {
    /// Names the missing commands and rights, with their cost.
    fn in_words(&self, uses: Uses) -> Option<String> {
        let commands = self.unknown.iter().filter(|name| !is_for_people(right_of(name)));
        let commands: Vec<&str> = commands.map(String::as_str).collect();
        let missing = self.missing.iter().map(String::as_str);
        let missing: Vec<&str> = missing.filter(|right| !is_for_people(right)).collect();
        let mut lacks = Vec::new();
        if !commands.is_empty() {
            lacks.push(format!("has no {} (renamed, or too old)", commands.join(" ")));
        }
        if !missing.is_empty() {
            lacks.push(format!("denies its user {}", missing.join(" ")));
        }
        let rights = commands.iter().map(|name| right_of(name)).chain(missing);
        let costs = uses.costs(rights);
        (!lacks.is_empty()).then(|| format!("{}: {costs}", lacks.join(" and ")))
    }
}

/// Tests the right to listen on channels. A connection that has this right accepts no other
/// commands afterwards, so this is its last test.
pub(crate) async fn tried_last(master: &mut Direct, keys: &Keys) -> Result<Option<Lack>, Cause> {
    let (right, probe) = last_probe(keys);
    let replies = master.probe(&[probe]).await?;
    Ok(replies.first().and_then(|reply| lack(right, reply, keys)))
}

fn last_probe(keys: &Keys) -> (&'static str, Vec<&[u8]>) {
    ("+subscribe", vec![b"SUBSCRIBE", &keys.channels])
}

/// Returns the cause if the server replies to every command with this error.
fn of_every_command(reply: &Value) -> Option<Cause> {
    let Value::ServerError(error) = reply else { return None };
    meaning(error).is_of_every_command().then(|| Cause::of_error_reply(error_text(error)))
}

/// Servers check these conditions after the right, and before the arguments.
fn refusal(reply: &Value) -> Option<String> {
    let Value::ServerError(error) = reply else { return None };
    (meaning(error) == ServerError::Refusing).then(|| error_text(error))
}

/// The scripts of admission find the names of their keys in the record.
const UNDECLARED_KEY: &[u8] = b"return #redis.call('HGETALL', ARGV[1])";

fn undeclared(reply: &Value) -> Option<String> {
    let Value::ServerError(error) = reply else { return None };
    (meaning(error) == ServerError::UndeclaredKey).then(|| error_text(error))
}

/// An obstacle to the use of a command.
pub(crate) enum Lack {
    /// The server does not have it.
    Command(String),
    /// The user lacks this right.
    Right(String),
}

fn lack(right: &str, reply: &Value, keys: &Keys) -> Option<Lack> {
    let Value::ServerError(error) = reply else { return None };
    match meaning(error) {
        ServerError::UnknownCommand => of(right).map(|sent| Lack::Command(sent.name())),
        _ => denial(reply).map(|denied| Lack::Right(denied.right(right, keys))),
    }
}

/// The right to a command.
pub(crate) fn right_of(command: &str) -> &'static str {
    Sent::named(command).map_or("", |sent| sent.right)
}

/// An action that a user has no right to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Denied {
    Command,
    /// The command is allowed, and this key is not.
    Key,
    /// The command is allowed, and this channel is not.
    Channel,
}

impl Denied {
    /// Returns the missing right in the form of `ACL SETUSER`, for this `command`.
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
    (meaning(error) == ServerError::Denied).then_some(denied)
}

/// Returns a command for each right. `SET` and `ZADD` get options that exclude each other, `HSET` a
/// field without a value, and `PEXPIRE` a text instead of a number. The other commands name keys,
/// fields, scripts and connections that do not exist.
fn probes<'a>(keys: &'a Keys, nobody: &'a [u8]) -> Vec<(&'static str, Vec<&'a [u8]>)> {
    // Numbers of connections begin at 1 and never come so far.
    const LAST: &[u8] = b"9223372036854775807";
    const NO_SCRIPT: &[u8] = &[b'0'; 40];
    let (record, set) = (&keys.record[..], &keys.off[..]);
    vec![
        ("+set", impossible_set(nobody)),
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
        ("+zrange", vec![b"ZRANGE", set, b"0", b"0"]),
        ("+zrank", vec![b"ZRANK", set, b"none"]),
        ("+zrem", vec![b"ZREM", set, b"none"]),
        ("+pubsub", vec![b"PUBSUB", b"NUMSUB", &keys.channels]),
        ("+publish", vec![b"PUBLISH", &keys.channels, b""]),
    ]
}

/// Options that exclude each other: the server checks the right to write the key before them.
fn impossible_set(key: &[u8]) -> Vec<&[u8]> {
    vec![b"SET", key, b"none", b"NX", b"XX"]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operators copy the line of the document.
    #[test]
    fn exactly_the_rights_of_the_guide_are_tested() {
        let document = include_str!("../../../docs/OPERATIONS.md");
        let line = document.lines().find(|line| line.starts_with("ACL SETUSER redlock on "));
        let listed = line.unwrap().split(' ').filter(|word| word.starts_with('+'));
        let mut listed: Vec<_> = listed.collect();
        let keys = Keys::of(b"", &ServerReport::default());
        let mut tried: Vec<_> = probes(&keys, b"").into_iter().map(|(right, _)| right).collect();
        tried.push(last_probe(&keys).0);
        listed.sort_unstable();
        tried.sort_unstable();
        assert_eq!(tried, listed);
        let mut sent = SENT.map(|sent| sent.right);
        sent.sort_unstable();
        assert_eq!(tried, sent);
    }

    #[test]
    fn denied_key_differs_from_a_denied_command() {
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
