//! The keys on real masters, as an outsider sees them. These functions block their thread.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use redis::FromRedisValue;
use tokio::time::{Instant, sleep};

use super::{PATIENCE, ms};
use crate::RedisServer;

/// Returns the keys on a master, without the library's own keys.
///
/// # Panics
/// Panics if the master does not answer, like all functions of this file.
pub fn keys(server: &RedisServer) -> Vec<String> {
    let all: Vec<String> = text(server, &["KEYS", "*"]);
    all.into_iter().filter(|key| !key.contains("redlock-quorum:")).collect()
}

/// Returns the master's answer to a command, converted to the type that the test expects.
pub fn text<T: FromRedisValue>(server: &RedisServer, words: &[&str]) -> T {
    redis::from_redis_value(server.command(words).unwrap()).unwrap()
}

/// Returns the value of a key as text.
pub fn value(server: &RedisServer, key: &str) -> Option<String> {
    text(server, &["GET", key])
}

/// Sets a key for `px` milliseconds, over any holder: what a stranger's `SET` does.
pub fn put(server: &RedisServer, key: &str, value: &str, px: u64) {
    server.command(&["SET", key, value, "PX", &px.to_string()]).unwrap();
}

/// Fills a master with `count` keys of other programs, which expire in ten minutes. Writes some
/// thousand at a time, because a master that is busy for longer than the timeout would look like a
/// failed one.
pub fn fill(server: &RedisServer, count: u32) {
    const AT_A_TIME: u32 = 5_000;
    let fill = "for i = ARGV[1], ARGV[2] do redis.call('SET', 'other-' .. i, i, 'PX', 600000) end";
    for from in (0..count).step_by(AT_A_TIME as usize) {
        let to = (from + AT_A_TIME).min(count) - 1;
        server.command(&["EVAL", fill, "0", &from.to_string(), &to.to_string()]).unwrap();
    }
}

/// Returns the remaining expiry of a key in milliseconds. Negative if the key does not exist or
/// never expires.
pub fn pttl(server: &RedisServer, key: &str) -> i64 {
    text(server, &["PTTL", key])
}

/// Takes the right to `CLIENT TRACKING` from a user with all rights, in the rules of every server. Some
/// cannot remove the right to a subcommand.
pub const NO_TRACKING_RIGHTS: [&str; 4] =
    ["-client", "+client|id", "+client|kill", "+client|caching"];

/// Returns `true` if a server has a command.
pub fn has_command(server: &RedisServer, command: &str) -> bool {
    let about: Vec<redis::Value> = text(server, &["COMMAND", "INFO", command]);
    matches!(&about[..], [redis::Value::Array(about)] if !about.is_empty())
}

/// Returns `true` if a server has a setting of its configuration.
pub fn has_setting(server: &RedisServer, setting: &str) -> bool {
    let found: Vec<String> = text(server, &["CONFIG", "GET", setting]);
    !found.is_empty()
}

/// Returns how often a master has executed a command since it started. Excludes the calls by which
/// each connection of the library finds out the rights of its user. Some servers have no statistics
/// of subcommands. On these, the calls since the first query are returned.
pub fn calls(server: &RedisServer, command: &str) -> u64 {
    const TRIED: [&str; 4] = ["del", "eval", "pexpire", "zscore"];
    let stats: String = text(server, &["INFO", "commandstats"]);
    if let Some((command, subcommand)) = command.split_once('|')
        && !stats.contains("cmdstat_client|")
    {
        return logged(server, [command, subcommand]);
    }
    let all = |command: &str| -> u64 {
        let head = format!("cmdstat_{command}:calls=");
        let calls = stats.lines().find_map(|line| line.strip_prefix(&head)?.split(',').next());
        calls.map_or(0, |calls| calls.parse().unwrap())
    };
    // The library tries each of these once per connection, after its only `HELLO`.
    let connections = if TRIED.contains(&command) { all("hello") } else { 0 };
    all(command).saturating_sub(connections)
}

/// Returns how often the log of commands contains a command that begins with these words.
fn logged(server: &RedisServer, words: [&str; 2]) -> u64 {
    static LOGS: LazyLock<Mutex<HashMap<String, Log>>> = LazyLock::new(Mutex::default);
    text::<()>(server, &["CONFIG", "SET", "slowlog-max-len", "100000"]);
    text::<()>(server, &["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    let info: String = text(server, &["INFO", "server"]);
    let run = info.lines().find(|line| line.starts_with("run_id:")).unwrap();
    let mut logs = LOGS.lock().unwrap_or_else(PoisonError::into_inner);
    let log = logs.entry(run.to_owned()).or_default();
    log.read(server);
    log.calls.get(&words.map(str::to_uppercase)).copied().unwrap_or(0)
}

/// The part of a server's log that was read so far. Each entry is read only once, because a busy
/// server logs faster than the whole log can be read again and again.
#[derive(Default)]
struct Log {
    next: u64,
    calls: HashMap<[String; 2], u64>,
}

/// An entry: its number, time and duration, and the words of the command.
type Entry = (u64, u64, u64, Vec<String>);

impl Log {
    fn read(&mut self, server: &RedisServer) {
        let newest = entries(server, 1).first().map_or(0, |entry| entry.0 + 1);
        let unread = newest.saturating_sub(self.next);
        for (number, _, _, words) in entries(server, unread) {
            let is_new = number >= self.next && number < newest;
            if let [command, subcommand, ..] = &words[..]
                && is_new
            {
                let words = [command, subcommand].map(|word| word.to_uppercase());
                *self.calls.entry(words).or_default() += 1;
            }
        }
        self.next = newest.max(self.next);
    }
}

/// Returns the newest entries of the log of commands.
fn entries(server: &RedisServer, count: u64) -> Vec<Entry> {
    let log: Vec<redis::Value> = text(server, &["SLOWLOG", "GET", &count.to_string()]);
    let first_parts = |entry| {
        let redis::Value::Array(mut parts) = entry else { panic!("no entry: {entry:?}") };
        parts.truncate(4);
        redis::from_redis_value(redis::Value::Array(parts)).unwrap()
    };
    log.into_iter().map(first_parts).collect()
}

/// Returns how many of the answering masters have a key.
pub fn copies(servers: &[RedisServer], key: &str) -> usize {
    servers.iter().filter(can_be_asked).filter(|server| value(server, key).is_some()).count()
}

/// Waits until no key is left on any of the masters that answer.
///
/// # Panics
/// When some are left after [`PATIENCE`].
pub async fn no_key_is_left(servers: &[RedisServer]) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left: Vec<_> = servers.iter().filter(can_be_asked).map(keys).collect();
        if left.iter().all(Vec::is_empty) {
            return;
        }
        assert!(Instant::now() < deadline, "keys are left: {left:?}");
        sleep(ms(10)).await;
    }
}

fn can_be_asked(server: &&RedisServer) -> bool {
    server.is_running() && !server.is_paused()
}
