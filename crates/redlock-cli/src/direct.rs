//! `Direct`: a conversation with one master, for what the library does not offer: finding keys,
//! and deleting one whatever it holds.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::{
    Client, Cmd, Connection, ConnectionInfo, InfoDict, IntoConnectionInfo, Pipeline,
    ProtocolVersion, RedisError, RedisResult, Value, cmd,
};
use redlock_quorum::environment::{Pem, literal_url};
use redlock_quorum::{Mark, Resource};
use tokio::task::spawn_blocking;

/// A master that is asked directly. Every call blocks its thread, at most for [`PATIENCE`] a
/// request.
pub(crate) struct Direct(Connection);

/// What one master has under a key.
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

impl Direct {
    /// Connects with the same URL and certificates as the library.
    fn open(url: &str, pem: &Pem) -> RedisResult<Self> {
        let info = literal_url(url).into_connection_info()?;
        // Naming itself to a silent server would cost a patience of its own.
        // The replies that are read here are those of RESP2, whatever the URL says.
        let settings = info.redis_settings().clone().set_skip_set_lib_name();
        let settings = settings.set_protocol(ProtocolVersion::RESP2);
        let info = info.set_redis_settings(settings);
        let connection = client(info, pem)?.get_connection_with_timeout(PATIENCE)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        connection.set_write_timeout(Some(PATIENCE))?;
        Ok(Self(connection))
    }

    /// The names of the keys that begin with `prefix`, `limit` at most, and whether there may be
    /// more. `searched` counts, roughly, all keys that the master has walked over so far.
    pub(crate) fn names(
        &mut self,
        prefix: &[u8],
        limit: usize,
        searched: &AtomicUsize,
    ) -> RedisResult<(BTreeSet<Vec<u8>>, bool)> {
        // The keys that this library keeps for itself are no locks, and marks are of interest.
        let marks = [prefix, Mark::PREFIX.as_bytes()].concat();
        let is_wanted = |name: &Vec<u8>| !is_internal(name) || name.starts_with(&marks);
        self.scan(prefix, limit, searched, is_wanted)
    }

    fn scan(
        &mut self,
        begin: &[u8],
        limit: usize,
        searched: &AtomicUsize,
        is_wanted: impl Fn(&Vec<u8>) -> bool,
    ) -> RedisResult<(BTreeSet<Vec<u8>>, bool)> {
        let pattern = [&escape(begin)[..], b"*"].concat();
        let (mut names, mut cursor) = (BTreeSet::new(), 0_u64);
        loop {
            let mut scan = cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(SCAN_COUNT);
            let (next, found): (u64, Vec<Vec<u8>>) = scan.query(&mut self.0)?;
            searched.fetch_add(SCAN_COUNT, Ordering::Relaxed);
            names.extend(found.into_iter().filter(&is_wanted));
            cursor = next;
            if cursor == 0 || names.len() > limit {
                return Ok((names, cursor != 0));
            }
        }
    }

    /// The marks of a namespace, `limit` at most, by their names.
    pub(crate) fn marks(
        &mut self,
        prefix: &[u8],
        limit: usize,
    ) -> RedisResult<Vec<(String, Mark)>> {
        let begin = [prefix, Mark::PREFIX.as_bytes()].concat();
        let (names, _) = self.scan(&begin, limit, &AtomicUsize::new(0), |_| true)?;
        let names: Vec<Vec<u8>> = names.into_iter().collect();
        let found = self.read_keys(&names)?;
        let named = |(name, found): (&Vec<u8>, Found)| {
            let Found::Text { value, .. } = found else { return None };
            Some((Resource::from(&name[begin.len()..]).to_string(), Mark::parse(&value)?))
        };
        Ok(names.iter().zip(found).filter_map(named).collect())
    }

    /// Its clock, in milliseconds since 1970.
    pub(crate) fn time(&mut self) -> RedisResult<u64> {
        let (seconds, micros): (u64, u64) = cmd("TIME").query(&mut self.0)?;
        Ok(seconds.saturating_mul(1_000) + micros / 1_000)
    }

    /// What is under each of these keys.
    pub(crate) fn read_keys(&mut self, keys: &[Vec<u8>]) -> RedisResult<Vec<Found>> {
        let mut found = Vec::with_capacity(keys.len());
        for some in keys.chunks(KEYS_A_REQUEST) {
            let mut pipe = Pipeline::with_capacity(2 * some.len());
            // An error is the answer about one key, not the end of the request.
            pipe.ignore_errors();
            for key in some {
                pipe.cmd("PTTL").arg(key).cmd("GETRANGE").arg(key).arg(0).arg(VALUE_MAX - 1);
            }
            let replies: Vec<Value> = pipe.query(&mut self.0)?;
            for pair in replies.chunks(2) {
                found.push(Found::of(pair)?);
            }
        }
        Ok(found)
    }

    /// One section of what the master says about itself.
    pub(crate) fn info(&mut self, section: &str) -> RedisResult<InfoDict> {
        cmd("INFO").arg(section).query(&mut self.0)
    }

    /// The value of one of its settings; none where it has no such.
    pub(crate) fn setting(&mut self, name: &str) -> RedisResult<Option<String>> {
        let pair: Vec<String> = cmd("CONFIG").arg("GET").arg(name).query(&mut self.0)?;
        Ok(pair.into_iter().nth(1))
    }

    /// Each member of a sorted set with its score, as the master writes it.
    pub(crate) fn scores(&mut self, set: &[u8]) -> RedisResult<Vec<(String, String)>> {
        let mut scores = cmd("ZREVRANGEBYSCORE");
        scores.arg(set).arg("+inf").arg("-inf").arg("WITHSCORES").query(&mut self.0)
    }

    /// A field of a hash; none where there is no such field or hash.
    pub(crate) fn field(&mut self, hash: &[u8], name: &str) -> RedisResult<Option<String>> {
        cmd("HGET").arg(hash).arg(name).query(&mut self.0)
    }

    /// What is answered to each of these commands. An error is an answer.
    pub(crate) fn probe(&mut self, commands: &[Vec<&[u8]>]) -> RedisResult<Vec<Value>> {
        let mut pipe = Pipeline::with_capacity(commands.len());
        pipe.ignore_errors();
        for words in commands {
            pipe.add_command(words.iter().fold(Cmd::new(), |mut probe, word| {
                probe.arg(word);
                probe
            }));
        }
        pipe.query(&mut self.0)
    }

    /// Deletes a string, if it still has the value that was looked at: a lock that was acquired
    /// since is left alone.
    pub(crate) fn delete(&mut self, key: &[u8], value: &[u8]) -> RedisResult<bool> {
        let script = format!(
            "if redis.call('GETRANGE', KEYS[1], 0, {}) == ARGV[1] then \
             return redis.call('DEL', KEYS[1]) end return 0",
            VALUE_MAX - 1
        );
        Cmd::new().arg("EVAL").arg(script).arg(1).arg(key).arg(value).query(&mut self.0)
    }
}

impl Found {
    fn of(pair: &[Value]) -> RedisResult<Self> {
        match pair {
            [Value::Int(-2), _] => Ok(Self::Nothing),
            [Value::Int(left), Value::BulkString(value)] => {
                let ttl = u64::try_from(*left).ok().map(Duration::from_millis);
                Ok(Self::Text { value: value.clone(), ttl })
            }
            [Value::ServerError(error), _] => Err(error.clone().into()),
            [_, Value::ServerError(error)] if error.code() == "WRONGTYPE" => Ok(Self::Foreign),
            [_, Value::ServerError(error)] => Err(error.clone().into()),
            _ => Err((redis::ErrorKind::UnexpectedReturnType, "not a Redis").into()),
        }
    }
}

/// Asks the master at `url` on a thread that may block, and gives up when that takes longer than
/// `patience`.
pub(crate) fn ask<T, W>(
    url: &str,
    pem: &Pem,
    patience: Duration,
    work: W,
) -> impl Future<Output = Result<T, String>> + Send + use<T, W>
where
    T: Send + 'static,
    W: FnOnce(&mut Direct) -> RedisResult<T> + Send + 'static,
{
    let (url, pem) = (url.to_owned(), pem.clone());
    async move {
        let work = spawn_blocking(move || work(&mut Direct::open(&url, &pem)?));
        match tokio::time::timeout(patience, work).await {
            Ok(Ok(outcome)) => outcome.map_err(|error| words(&error)),
            Ok(Err(panic)) => Err(panic.to_string()),
            Err(_) => Err("timed out".into()),
        }
    }
}

fn is_internal(name: &[u8]) -> bool {
    let reserved = Resource::RESERVED.as_bytes();
    name.windows(reserved.len()).any(|part| part == reserved)
}

/// What went wrong, in the words of the other commands.
fn words(error: &RedisError) -> String {
    if error.is_connection_refusal() {
        "connection refused".into()
    } else if error.is_timeout() {
        "timed out".into()
    } else if error.is_connection_dropped() {
        "connection closed".into()
    } else {
        format!("error reply: {error}")
    }
}

#[cfg(feature = "tls")]
fn client(info: ConnectionInfo, pem: &Pem) -> RedisResult<Client> {
    use redis::{ClientTlsConfig, ConnectionAddr, TlsCertificates};

    if !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
        return Client::open(info);
    }
    let client_tls = pem.identity.clone();
    let client_tls =
        client_tls.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
    Client::build_with_tls(info, TlsCertificates { client_tls, root_cert: pem.ca.clone() })
}

/// The library has refused URLs and certificates that need TLS.
#[cfg(not(feature = "tls"))]
fn client(info: ConnectionInfo, _: &Pem) -> RedisResult<Client> {
    Client::open(info)
}

/// A prefix that stands for itself in a pattern.
fn escape(prefix: &[u8]) -> Vec<u8> {
    let one = |byte: &u8| if b"\\*?[]^-".contains(byte) { vec![b'\\', *byte] } else { vec![*byte] };
    prefix.iter().flat_map(one).collect()
}

/// For connecting, and for each reply.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// How much of a value is looked at: a token has 256 bytes at most.
const VALUE_MAX: usize = 512;
/// How many keys a server walks over for one reply: a millisecond or so.
const SCAN_COUNT: usize = 1_000;
const KEYS_A_REQUEST: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_with_wildcards_stands_for_itself() {
        assert_eq!(escape(b"a*[b]?\\:"), b"a\\*\\[b\\]\\?\\\\:");
    }
}
