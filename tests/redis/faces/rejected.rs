//! Handles, requests and leases that are rejected before anything is sent.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so what it expects")]

use std::collections::HashSet;
use std::time::Duration;

use redlock_quorum::{
    AcquireError, ExtendError, InvalidRequest, Lease, LockRequest, Quarantine, Redlock,
    RedlockBuilder, ReleaseError, RunError,
};
use redlock_testkit::RedisServers;

use super::errors::{assert_nothing_was_set, connect};
use crate::lab::{assert_one_line, eventually, everywhere, keys, ms, ordinary};

const HOUR: Duration = Duration::from_secs(3_600);

fn five() -> RedlockBuilder {
    Redlock::builder().nodes((7001..7006).map(|port| format!("redis://10.0.0.1:{port}")))
}

/// No other client limits the TTL.
fn off() -> RedlockBuilder {
    five().quarantine(Quarantine::Off)
}

// Bad input.

#[test]
fn invalid_handle_is_refused_with_limit_and_fix() {
    let sixteen = (1..=16).map(|port| format!("redis://10.0.0.1:{port}"));
    let cases = [
        (connect([]), &["no masters", "1 to 15"][..]),
        (Redlock::builder().nodes(sixteen), &["16 masters", "at most 15"]),
        (connect(["redis://h:1", "redis://H:1/2"]), &["h:1", "twice", "separate server"]),
        (connect(["h:1"]), &["\"h:1\"", "redis://[user:password@]host[:port][/db]"]),
        (connect(["http://h:1"]), &["\"http://h:1\"", "rediss://"]),
        (connect([""]), &["it is empty"]),
        (connect(["redis://user@h:1"]), &["user but no password"]),
        (connect(["rediss://h:1#insecure"]), &["#insecure", "CA"]),
        (five().ttl(Duration::ZERO), &["at least 10ms", "got 0s"]),
        (five().ttl(ms(9)), &["at least 10ms", "got 9ms"]),
        (off().ttl(ms(60_001)), &["TTL of 1m1ms", "max_ttl (1m)", "raise the limit"]),
        (five().ttl(Duration::MAX), &["exceeds", "max_ttl (1d)"]),
        (five().max_ttl(ms(9)), &["got 9ms", "between 10ms and 1d"]),
        (five().max_ttl(Duration::MAX), &["max_ttl must be ", "between 10ms and 1d"]),
        (off().ttl(ms(10_000)).max_ttl(ms(9_999)), &["TTL of 10s", "max_ttl (9.999s)"]),
        (five().node_timeout(ms(2_501)), &["2.501s", "a quarter of the TTL 10s, 2.5s"]),
        (five().node_timeout(Duration::MAX), &["node timeout", "a quarter of the TTL 10s, 2.5s"]),
        (five().node_timeout(Duration::ZERO), &["node timeout must be greater than zero", "1 ms"]),
        (
            five().connect_timeout(Duration::ZERO),
            &["connect timeout must be greater than zero", "1 ms"],
        ),
        (five().clock_guard(ms(60_001)), &["clock guard 1m1ms", "at most max_ttl, 1m"]),
        (five().clock_guard(Duration::MAX), &["clock guard", "at most max_ttl, 1m"]),
        (five().label(""), &["label \"\"", "1 to 64"]),
        (five().label("two words"), &["\"two words\"", "A-Z a-z 0-9 . _ @ : -"]),
        (five().label("x".repeat(65)), &["xxx", "1 to 64"]),
        (five().prefix("redlock-quorum:x"), &["redlock-quorum:x", "reserved"]),
        (five().prefix("\n".repeat(513)), &["\\n", "512 bytes"]),
    ];
    let mut seen = HashSet::new();
    for (builder, words) in cases {
        let error = builder.build().unwrap_err();
        let text = error.to_string();
        assert_one_line(&text);
        words.iter().for_each(|word| assert!(text.contains(word), "{word:?} in {text}"));
        assert!(seen.insert(text.clone()), "two mistakes have the same text: {text}");
    }
}

#[test]
fn values_at_the_limits_are_allowed() {
    let fifteen = (1..=15).map(|port| format!("redis://10.0.0.1:{port}"));
    Redlock::builder().nodes(fifteen).build().unwrap();
    five().ttl(ms(10)).node_timeout(Duration::from_micros(2_500)).build().unwrap();
    five().ttl(ms(60_000)).clock_guard(ms(60_000)).node_timeout(ms(15_000)).build().unwrap();
    five().max_ttl(24 * HOUR).ttl(24 * HOUR).label("x".repeat(64)).build().unwrap();
    five().prefix("x".repeat(512)).clock_guard(Duration::ZERO).build().unwrap();
}

/// Returns invalid requests, and the words that each message must contain.
fn bad_requests(redlock: &Redlock) -> Vec<(LockRequest, [&'static str; 2])> {
    let lock = || redlock.lock("a");
    vec![
        (redlock.lock(""), ["name is empty", "1 to 512 bytes"]),
        (redlock.lock("x".repeat(513)), ["513 bytes", "limit is 512"]),
        (redlock.lock("redlock-quorum:1"), ["reserved", "another name"]),
        (lock().ttl(Duration::ZERO), ["at least 10ms", "got 0s"]),
        (lock().ttl(ms(9)), ["at least 10ms", "got 9ms"]),
        (lock().ttl(HOUR), ["TTL of 1h", "max_ttl (1m)"]),
        (lock().ttl(Duration::MAX), ["exceeds", "max_ttl (1m)"]),
        (lock().ttl(ms(100)), ["node timeout 1s", "a quarter of the TTL 100ms, 25ms"]),
        (lock().min_copies(0), ["min_copies(0) is out of range", "use 1 to 3"]),
        (lock().min_copies(4), ["min_copies(4)", "use 1 to 3"]),
        (lock().min_copies(usize::MAX), ["min_copies(18446744073709551615)", "use 1 to 3"]),
        (lock().stop_margin(ms(9_898)), ["stop margin 9.898s", "shorter than the validity"]),
        (lock().stop_margin(Duration::MAX), ["stop margin", "for a TTL of"]),
        (lock().label("a/b"), ["\"a/b\"", "1 to 64"]),
        (lock().max_hold(Duration::ZERO), ["max_hold is 0s", "at least 1ms; omit it"]),
    ]
}

#[tokio::test]
async fn invalid_request_is_refused_before_sending() {
    let servers = RedisServers::start(3).unwrap();
    let redlock = ordinary(servers.urls()).build().unwrap();
    // The connections are there: nothing but the check keeps the requests back.
    everywhere(&redlock, "a").await.release().await.unwrap();
    eventually("the release has arrived", || servers.iter().all(|server| keys(server).is_empty()))
        .await;
    for server in servers.iter() {
        server.command(&["CONFIG", "RESETSTAT"]).unwrap();
    }
    let mut seen = HashSet::new();
    for (request, words) in bad_requests(&redlock) {
        let error = request.clone().await.unwrap_err();
        assert!(matches!(error, AcquireError::Invalid(_)) && error.votes().is_none(), "{error:?}");
        let text = error.to_string();
        assert_one_line(&text);
        words.iter().for_each(|word| assert!(text.contains(word), "{word:?} in {text}"));
        assert!(seen.insert(text.clone()), "two mistakes have the same text: {text}");
        let run = request.run(async |_| panic!("nothing to run")).await;
        assert_eq!(run, Err::<(), _>(RunError::Acquire(error)));
    }
    assert_nothing_was_set(&servers);
}

#[tokio::test]
async fn invalid_lease_is_refused_before_sending() {
    let servers = RedisServers::start(3).unwrap();
    let redlock = ordinary(servers.urls()).build().unwrap();
    for bad in ["", "two words", "line\nbreak", &"x".repeat(257)] {
        let error = Lease::new("a", bad, ms(1_000)).unwrap_err().to_string();
        assert!(error.contains("1 to 256 printable characters"), "{error}");
    }
    for (name, ttl, word) in [
        ("", ms(10_000), "empty"),
        ("redlock-quorum:", ms(10_000), "reserved"),
        ("a", Duration::MAX, "max_ttl (1m)"),
        ("a", Duration::ZERO, "at least 10ms"),
    ] {
        let lease = Lease::new(name, "token", ttl).unwrap();
        let error = redlock.resume(lease).await.unwrap_err();
        assert!(matches!(error, ExtendError::Invalid(_)), "{error}");
        assert!(error.to_string().contains(word), "{word:?} in {error}");
    }
    let nameless = redlock.release(Lease::new("", "token", ms(1_000)).unwrap()).await;
    assert!(matches!(nameless, Err(ReleaseError::Invalid(InvalidRequest::Resource(_)))));
    assert_nothing_was_set(&servers);
}

#[tokio::test]
async fn unlimited_durations_are_capped_and_never_overflow() {
    let servers = RedisServers::start(1).unwrap();
    let endless = Duration::MAX;
    let redlock = ordinary(servers.urls()).wait(endless).connect_timeout(endless).build().unwrap();
    let guard = redlock.lock("a").wait(endless).max_hold(endless).await.unwrap();
    let error = guard.extend(endless).await.unwrap_err();
    assert!(matches!(error, ExtendError::Invalid(InvalidRequest::Ttl(_))), "{error}");
    assert_eq!(guard.check(), Ok(()), "an impossible request sends nothing");
    let waiter = tokio::spawn(redlock.lock("a").wait(endless).into_future());
    eventually("the other caller waits", || redlock.stats().waiting == 1).await;
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(redlock.shutdown(endless).await, Ok(()));
}
