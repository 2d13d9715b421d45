//! `Direct`: a conversation with one master, for what the library does not offer: finding keys,
//! and deleting one whatever it holds.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::{Cmd, FromRedisValue, InfoDict, Value, cmd};
use redlock_quorum::environment::Conversation;
use redlock_quorum::server_error::{self, ServerError};
use redlock_quorum::{Cause, Mark, Reservation, Resource, SharedQueue, Token, printable};
use tokio::time::timeout;

use crate::masters::Masters;

/// A master that is queried directly, each request with [`PATIENCE`].
pub(crate) struct Direct(Conversation);

/// The value of a key on one master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    /// A string: its first bytes, and how long it lives; none when it never expires.
    Text {
        value: Vec<u8>,
        ttl: Option<Duration>,
    },
    /// A key of another type.
    Foreign,
}

/// Keys on one master that prevent locks.
#[derive(Debug, Default)]
pub(crate) struct BadLocks {
    pub(crate) foreign: Vec<String>,
    pub(crate) reservations: Vec<String>,
    pub(crate) endless: Vec<String>,
}

impl Direct {
    /// Returns the name of the master, as in answers.
    pub(crate) fn name(&self) -> &str {
        self.0.name()
    }

    /// The user that its URL names.
    pub(crate) fn user(&self) -> &str {
        self.0.user()
    }

    /// The database of its URL.
    pub(crate) fn database(&self) -> i64 {
        self.0.database()
    }

    /// The replies to each of these commands. An error is a reply.
    async fn ask_all(&mut self, commands: &[Cmd]) -> Result<Vec<Value>, Cause> {
        timeout(PATIENCE, self.0.ask(commands)).await.unwrap_or(Err(Cause::TimedOut))
    }

    async fn ask<T: FromRedisValue>(&mut self, command: Cmd) -> Result<T, Cause> {
        match self.ask_all(&[command]).await?.pop() {
            Some(Value::ServerError(error)) => Err(Cause::of_error_reply(error_text(&error))),
            Some(reply) => T::from_redis_value(reply).map_err(|_| strange()),
            None => Err(strange()),
        }
    }

    /// Returns at most `limit` names of keys that begin with `prefix`, and whether there may be
    /// more. `searched` is incremented by roughly the number of keys that the master has scanned.
    pub(crate) async fn names(
        &mut self,
        prefix: &[u8],
        limit: usize,
        searched: &AtomicUsize,
    ) -> Result<(BTreeSet<Vec<u8>>, bool), Cause> {
        // The library's own keys are not locks, except that marks are listed.
        let marks = [prefix, Mark::PREFIX.as_bytes()].concat();
        let is_wanted = |name: &Vec<u8>| !is_internal(name) || name.starts_with(&marks);
        self.scan(prefix, limit, searched, is_wanted).await
    }

    async fn scan(
        &mut self,
        begin: &[u8],
        limit: usize,
        searched: &AtomicUsize,
        is_wanted: impl Fn(&Vec<u8>) -> bool,
    ) -> Result<(BTreeSet<Vec<u8>>, bool), Cause> {
        let pattern = [&escape(begin)[..], b"*"].concat();
        let (mut names, mut cursor) = (BTreeSet::new(), 0_u64);
        loop {
            let mut scan = cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(SCAN_COUNT);
            let (next, found): (u64, Vec<Vec<u8>>) = self.ask(scan).await?;
            searched.fetch_add(SCAN_COUNT, Ordering::Relaxed);
            names.extend(found.into_iter().filter(&is_wanted));
            cursor = next;
            if cursor == 0 || names.len() > limit {
                return Ok((names, cursor != 0));
            }
        }
    }

    /// Returns at most `limit` keys in the place of marks under a prefix, by the names of the
    /// marks. `None` is a value that is not a mark.
    pub(crate) async fn marks(
        &mut self,
        prefix: &[u8],
        limit: usize,
    ) -> Result<Vec<(String, Option<Mark>)>, Cause> {
        let begin = [prefix, Mark::PREFIX.as_bytes()].concat();
        let (names, _) = self.scan(&begin, limit, &AtomicUsize::new(0), |_| true).await?;
        let names: Vec<Vec<u8>> = names.into_iter().collect();
        let found = self.read_keys(&names).await?;
        let named = |(name, found): (&Vec<u8>, Found)| {
            let mark = match found {
                Found::Nothing => return None,
                Found::Text { value, .. } => Mark::parse(&value),
                Found::Foreign => None,
            };
            Some((Resource::from(&name[begin.len()..]).to_string(), mark))
        };
        Ok(names.iter().zip(found).filter_map(named).collect())
    }

    /// The keys in the place of queues that are of another type, of at most `limit` keys.
    pub(crate) async fn foreign_queues(
        &mut self,
        prefix: &[u8],
        limit: usize,
    ) -> Result<Vec<String>, Cause> {
        let begin = [prefix, SharedQueue::PREFIX.as_bytes()].concat();
        let (names, _) = self.scan(&begin, limit, &AtomicUsize::new(0), |_| true).await?;
        let (names, mut foreign) = (names.into_iter().collect::<Vec<_>>(), Vec::new());
        for some in names.chunks(KEYS_A_REQUEST) {
            let counts: Vec<Cmd> = some.iter().map(|name| cmd("ZCARD").arg(name).clone()).collect();
            for (name, reply) in some.iter().zip(self.ask_all(&counts).await?) {
                match reply {
                    Value::ServerError(error) if is_of_another_type(&error) => {
                        foreign.push(Resource::from(&name[..]).to_string());
                    }
                    Value::ServerError(error) => {
                        return Err(Cause::of_error_reply(error_text(&error)));
                    }
                    _ => {}
                }
            }
        }
        Ok(foreign)
    }

    /// Returns the keys in the place of locks, of at most `limit`, that are of another type or never
    /// expire.
    ///
    /// Without a prefix, other programs may own a string that never expires, unless its value is a
    /// token of this library or a reservation.
    pub(crate) async fn bad_locks(
        &mut self,
        prefix: &[u8],
        limit: usize,
    ) -> Result<BadLocks, Cause> {
        let is_wanted = |name: &Vec<u8>| !is_internal(name);
        let (names, _) = self.scan(prefix, limit, &AtomicUsize::new(0), is_wanted).await?;
        let names: Vec<Vec<u8>> = names.into_iter().take(limit).collect();
        let found = self.read_keys(&names).await?;
        let mut bad = BadLocks::default();
        for (name, found) in names.into_iter().zip(found) {
            let name = Resource::from(name).to_string();
            match found {
                Found::Foreign => bad.foreign.push(name),
                Found::Text { value, ttl: None } if Reservation::is_one(&value) => {
                    bad.reservations.push(name);
                }
                Found::Text { value, ttl: None } if !prefix.is_empty() || is_our_token(&value) => {
                    bad.endless.push(name);
                }
                _ => {}
            }
        }
        Ok(bad)
    }

    /// Returns those of the keys that expire, with their remaining time.
    pub(crate) async fn expiring(
        &mut self,
        keys: &[Vec<u8>],
    ) -> Result<Vec<(String, Duration)>, Cause> {
        let reads: Vec<Cmd> = keys.iter().map(|key| cmd("PTTL").arg(key).clone()).collect();
        let mut expiring = Vec::new();
        for (key, reply) in keys.iter().zip(self.ask_all(&reads).await?) {
            match reply {
                Value::Int(left) => expiring.extend(u64::try_from(left).ok().map(|left| {
                    (Resource::from(&key[..]).to_string(), Duration::from_millis(left))
                })),
                Value::ServerError(error) => {
                    return Err(Cause::of_error_reply(error_text(&error)));
                }
                _ => return Err(strange()),
            }
        }
        Ok(expiring)
    }

    /// Returns the master's time, in milliseconds since 1970.
    pub(crate) async fn time(&mut self) -> Result<u64, Cause> {
        let (seconds, micros): (u64, u64) = self.ask(cmd("TIME")).await?;
        Ok(seconds.saturating_mul(1_000) + micros / 1_000)
    }

    /// Returns the value of each key.
    pub(crate) async fn read_keys(&mut self, keys: &[Vec<u8>]) -> Result<Vec<Found>, Cause> {
        let mut found = Vec::with_capacity(keys.len());
        for some in keys.chunks(KEYS_A_REQUEST) {
            let read = |key: &Vec<u8>| {
                let begin = cmd("GETRANGE").arg(key).arg(0).arg(VALUE_MAX - 1).clone();
                [cmd("PTTL").arg(key).clone(), begin]
            };
            let reads: Vec<Cmd> = some.iter().flat_map(read).collect();
            for pair in self.ask_all(&reads).await?.chunks(2) {
                found.push(Found::of(pair)?);
            }
        }
        Ok(found)
    }

    /// Returns one section of the master's INFO.
    pub(crate) async fn info(&mut self, section: &str) -> Result<InfoDict, Cause> {
        self.ask(cmd("INFO").arg(section).clone()).await
    }

    /// The value of one of its settings; `None` if it has no such setting.
    pub(crate) async fn setting(&mut self, name: &str) -> Result<Option<String>, Cause> {
        let pair: Vec<String> = self.ask(cmd("CONFIG").arg("GET").arg(name).clone()).await?;
        Ok(pair.into_iter().nth(1).map(|value| printable::line(&value)))
    }

    /// Each member of a sorted set with its score, as the master writes it.
    pub(crate) async fn scores(&mut self, set: &[u8]) -> Result<Vec<(String, String)>, Cause> {
        let mut scores = cmd("ZREVRANGEBYSCORE");
        let scores = scores.arg(set).arg("+inf").arg("-inf").arg("WITHSCORES").clone();
        let scores: Vec<(Vec<u8>, String)> = self.ask(scores).await?;
        let shown = |(member, score): (Vec<u8>, _)| (Resource::from(member).to_string(), score);
        Ok(scores.into_iter().map(shown).collect())
    }

    /// The reply to each of these commands. An error is a reply.
    pub(crate) async fn probe(&mut self, commands: &[Vec<&[u8]>]) -> Result<Vec<Value>, Cause> {
        let command = |words: &Vec<&[u8]>| Cmd::new().arg(&words[..]).clone();
        self.ask_all(&commands.iter().map(command).collect::<Vec<_>>()).await
    }

    /// Deletes a key that is not a string, unless it has become one since.
    pub(crate) async fn delete_foreign(&mut self, key: &[u8]) -> Result<bool, Cause> {
        let script = "local read = redis.pcall('GETRANGE', KEYS[1], 0, 0) \
             if type(read) == 'table' and string.find(read.err, 'WRONGTYPE', 1, true) then \
             return redis.call('DEL', KEYS[1]) end return 0";
        self.ask(cmd("EVAL").arg(script).arg(1).arg(key).clone()).await
    }

    /// Deletes a string if its value has not changed. A lock acquired since then is not
    /// deleted.
    pub(crate) async fn delete(&mut self, key: &[u8], value: &[u8]) -> Result<bool, Cause> {
        let script = format!(
            "if redis.call('GETRANGE', KEYS[1], 0, {}) == ARGV[1] then \
             return redis.call('DEL', KEYS[1]) end return 0",
            VALUE_MAX - 1
        );
        self.ask(cmd("EVAL").arg(script).arg(1).arg(key).arg(value).clone()).await
    }
}

impl Found {
    fn of(pair: &[Value]) -> Result<Self, Cause> {
        match pair {
            [Value::Int(-2), _] => Ok(Self::Nothing),
            [Value::Int(left), Value::BulkString(value)] => {
                let ttl = u64::try_from(*left).ok().map(Duration::from_millis);
                Ok(Self::Text { value: value.clone(), ttl })
            }
            [Value::ServerError(error), _] => Err(Cause::of_error_reply(error_text(error))),
            [_, Value::ServerError(error)] if is_of_another_type(error) => Ok(Self::Foreign),
            [_, Value::ServerError(error)] => Err(Cause::of_error_reply(error_text(error))),
            _ => Err(strange()),
        }
    }
}

/// Connects to the master at `url` for some work, and gives up if both take longer than `patience`.
pub(crate) async fn ask<T>(
    masters: &Masters,
    url: &str,
    patience: Duration,
    work: impl AsyncFnOnce(&mut Direct) -> Result<T, Cause>,
) -> Result<T, Cause> {
    let work = async { work(&mut Direct(masters.open(url, PATIENCE).await?)).await };
    timeout(patience, work).await.unwrap_or(Err(Cause::TimedOut))
}

/// An error reply as one line of text, with its code.
pub(crate) fn error_text(error: &redis::ServerError) -> String {
    server_error::message(error.code(), error.details())
}

/// The meaning of an error reply.
pub(crate) fn meaning(error: &redis::ServerError) -> ServerError {
    ServerError::of(&error_text(error))
}

/// Returns `true` if the command is for keys of another type.
pub(crate) fn is_of_another_type(error: &redis::ServerError) -> bool {
    meaning(error) == ServerError::WrongType
}

/// Returns the cause of a reply that no Redis server sends.
pub(crate) fn strange() -> Cause {
    Cause::Unusable("its reply is not one of a Redis server".into())
}

fn is_our_token(value: &[u8]) -> bool {
    let token = str::from_utf8(value).ok().and_then(|text| Token::parse(text).ok());
    token.is_some_and(|token| token.made_at().is_some())
}

fn is_internal(name: &[u8]) -> bool {
    let reserved = Resource::RESERVED.as_bytes();
    name.windows(reserved.len()).any(|part| part == reserved)
}

/// Escapes a prefix for a pattern.
fn escape(prefix: &[u8]) -> Vec<u8> {
    let one = |byte: &u8| if b"\\*?[]^-".contains(byte) { vec![b'\\', *byte] } else { vec![*byte] };
    prefix.iter().flat_map(one).collect()
}

/// For connecting, and for each reply.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// How many bytes of a value are read. A token has at most 256 bytes.
const VALUE_MAX: usize = 512;
/// How many keys a server walks over for one reply: a millisecond or so.
const SCAN_COUNT: usize = 1_000;
const KEYS_A_REQUEST: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_in_a_prefix_are_escaped() {
        assert_eq!(escape(b"a*[b]?\\:"), b"a\\*\\[b\\]\\?\\\\:");
    }
}
