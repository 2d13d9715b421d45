//! What the tests on real servers have in common.

#![allow(dead_code, reason = "each test program uses its own part of this")]

use std::time::{Duration, Instant};

use redlock_quorum::{Lease, Redlock, RedlockBuilder};
use redlock_testkit::RedisServer;

/// Long enough for any machine: a test that waits for it has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A handle whose node timeout does not fail on a machine that is busy with other tests.
pub(crate) fn patient(servers: &[RedisServer]) -> RedlockBuilder {
    Redlock::builder().nodes(servers.iter().map(RedisServer::url)).node_timeout(ms(1_000))
}

/// How many keys the server has.
pub(crate) fn keys(server: &RedisServer) -> i64 {
    match server.command(&["DBSIZE"]).unwrap() {
        redis::Value::Int(keys) => keys,
        other => panic!("DBSIZE: {other:?}"),
    }
}

/// The value of a key, as text.
pub(crate) fn value(server: &RedisServer, key: &str) -> Option<String> {
    match server.command(&["GET", key]).unwrap() {
        redis::Value::BulkString(bytes) => Some(String::from_utf8(bytes).unwrap()),
        redis::Value::Nil => None,
        other => panic!("GET {key}: {other:?}"),
    }
}

/// Sets a key as a stranger would, for ten seconds.
pub(crate) fn put(server: &RedisServer, key: &str, value: &str) {
    server.command(&["SET", key, value, "PX", "10000"]).unwrap();
}

/// Waits until `is_so`, and fails with `what` when it never is.
pub(crate) async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(ms(2)).await;
    }
}

/// An error is one line that ends the sentence of a caller: no line break, no full stop.
pub(crate) fn assert_one_line(text: &str) {
    assert!(!text.is_empty() && !text.contains(['\n', '\r']), "not one line: {text:?}");
    assert!(!text.ends_with(['.', ' ', ',']), "an error has no end: {text:?}");
}

/// The same lease once more, as a text that was read twice makes it.
pub(crate) fn again(lease: &Lease) -> Lease {
    Lease::new(lease.resource.clone(), lease.token.as_str(), lease.ttl).unwrap()
}
