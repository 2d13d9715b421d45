//! Rejected inputs and their messages. Needs a `redis-server` on the PATH.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so what it expects")]

use std::collections::HashSet;
use std::time::Duration;

use crate::lab::{
    PATIENCE, assert_one_line, calls, eventually, everywhere, keys, ms, ordinary, put, secs,
};
use redlock_core::duration::at_most;
use redlock_quorum::{
    AcquireError, Cause, ExtendError, InvalidRequest, Lease, LockRequest, Quarantine, Redlock,
    RedlockBuilder, ReleaseError, RunError, Verdict, Votes,
};
use redlock_testkit::{Direction, FaultProxy, RedisServer, RedisServers, ServerOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const HOUR: Duration = Duration::from_secs(3_600);

fn five() -> RedlockBuilder {
    Redlock::builder().nodes((7001..7006).map(|port| format!("redis://10.0.0.1:{port}")))
}

fn connect<const N: usize>(urls: [&str; N]) -> RedlockBuilder {
    Redlock::builder().nodes(urls)
}

/// No other client limits the TTL.
fn off() -> RedlockBuilder {
    five().quarantine(Quarantine::Off)
}

// Bad input.

#[test]
fn a_handle_that_cannot_be_is_refused_with_the_limit_and_the_cure() {
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
        (five().max_ttl(ms(9)), &["max_ttl is 9ms", "between 10ms and 1d"]),
        (five().max_ttl(Duration::MAX), &["max_ttl is ", "between 10ms and 1d"]),
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
        assert!(seen.insert(text.clone()), "said of two mistakes: {text}");
    }
}

#[test]
fn the_limits_themselves_are_allowed() {
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
async fn a_request_that_cannot_be_is_refused_before_anything_is_sent() {
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
        assert!(seen.insert(text.clone()), "said of two mistakes: {text}");
        let run = request.run(async |_| panic!("nothing to run")).await;
        assert_eq!(run, Err::<(), _>(RunError::Acquire(error)));
    }
    assert_nothing_was_set(&servers);
}

#[tokio::test]
async fn a_lease_that_cannot_be_is_refused_before_anything_is_sent() {
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

fn assert_nothing_was_set(servers: &[RedisServer]) {
    for server in servers {
        for command in ["set", "eval", "evalsha", "pexpire", "del"] {
            assert_eq!(calls(server, command), 0, "{command}");
        }
        assert_eq!(keys(server).len(), 0);
    }
}

#[tokio::test]
async fn durations_without_end_are_taken_as_far_as_there_is_a_limit_and_never_overflow() {
    let servers = RedisServers::start(1).unwrap();
    let endless = Duration::MAX;
    let redlock = ordinary(servers.urls()).wait(endless).connect_timeout(endless).build().unwrap();
    let guard = redlock.lock("a").wait(endless).max_hold(endless).await.unwrap();
    let error = guard.extend(endless).await.unwrap_err();
    assert!(matches!(error, ExtendError::Invalid(InvalidRequest::Ttl(_))), "{error}");
    assert_eq!(guard.check(), Ok(()), "a request that cannot be costs nothing");
    let waiter = tokio::spawn(redlock.lock("a").wait(endless).into_future());
    tokio::time::sleep(ms(50)).await;
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(redlock.shutdown(endless).await, Ok(()));
}

#[tokio::test]
async fn a_wait_of_zero_is_one_attempt_and_a_wait_is_kept_to() {
    let servers = RedisServers::start(3).unwrap();
    let redlock = ordinary(servers.urls()).build().unwrap();
    servers.iter().for_each(|server| put(server, "a", "stranger", 10_000));
    let sets = || calls(&servers[0], "set");
    let before = sets();
    assert!(matches!(redlock.try_lock("a").await, Err(AcquireError::Held { .. })));
    assert_eq!(sets(), before + 1);
    let begin = std::time::Instant::now();
    let waited = redlock.lock("a").wait(secs(3)).await;
    assert!(matches!(waited, Err(AcquireError::Held { .. })), "{waited:?}");
    assert!((secs(3)..PATIENCE).contains(&begin.elapsed()), "{:?}", begin.elapsed());
    assert!(sets() > before + 2, "it tries more than once");
}

// Servers that are not masters.

/// Listens on a free port and says the same to every client.
async fn stranger(says: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 1_024];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(says.as_bytes()).await;
        }
    });
    format!("redis://{address}")
}

fn votes(error: &AcquireError) -> &Votes {
    error.votes().unwrap_or_else(|| panic!("no votes: {error}"))
}

/// The one master's own words, when there is but one.
async fn words_of(url: &str) -> String {
    let redlock = Redlock::builder().nodes([url]).node_timeout(ms(1_000)).build().unwrap();
    let error = redlock.try_lock("a").await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    assert_one_line(error.to_string().trim_end_matches('.'));
    let vote = votes(&error).iter().next().unwrap();
    assert!(error.to_string().ends_with(&vote.to_string()), "{error}");
    assert_eq!(vote.to_string(), format!("{} {}", vote.node, vote.verdict));
    vote.verdict.to_string()
}

#[tokio::test]
async fn every_kind_of_stranger_is_reported_as_what_it_is() {
    let replicated = RedisServer::start().unwrap();
    let port = replicated.port().to_string();
    let replica = RedisServer::with(
        &ServerOptions::new().arguments(["--replicaof", &format!("127.0.0.1 {port}")]),
    )
    .unwrap();
    let cluster =
        RedisServer::with(&ServerOptions::new().arguments(["--cluster-enabled", "yes"])).unwrap();
    let locked = RedisServer::with(&ServerOptions::new().password("open sesame")).unwrap();
    let full = RedisServer::start().unwrap();
    full.command(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    let gone = RedisServer::start().unwrap();
    gone.kill();
    let named = |userinfo: &str| format!("redis://{userinfo}{}", locked.name());
    let http = stranger("HTTP/1.1 400 Bad Request\r\n\r\n").await;
    let cases = [
        (replica.url(), "not admitted: it is a replica; use independent masters"),
        (cluster.url(), "not admitted: it is a cluster node; use independent masters"),
        (named(""), "error reply: NOAUTH Authentication required."),
        (named(":wrong@"), "error reply: WRONGPASS invalid username-password pair"),
        (full.url(), "error reply: OOM command not allowed"),
        (format!("{}/77", gone.url()), "connection refused"),
        (format!("{}/77", replicated.url()), "error reply: ERR DB index is out of range"),
        (http, "not connected: an HTTP server or proxy answers on this port"),
        ("redis://no-such-host.invalid:1".into(), "not connected: "),
        ("unix:///nowhere/redis.sock".into(), "not connected: "),
    ];
    let mut seen = HashSet::new();
    for (url, words) in cases {
        let said = words_of(&url).await;
        assert!(said.starts_with(words), "{url}: {said}");
        assert!(!said.contains("sesame") && !said.contains("wrong@"), "{said}");
        assert!(seen.insert(said.clone()), "said of two strangers: {said}");
    }
    assert_eq!((keys(&replicated).len(), keys(&locked).len(), keys(&full).len()), (0, 0, 0));
}

#[tokio::test]
async fn one_server_under_two_names_is_reported_and_votes_once() {
    let servers = RedisServers::start(1).unwrap();
    let port = servers[0].port();
    let names = [format!("127.0.0.1:{port}"), format!("localhost:{port}")];
    let redlock = Redlock::builder()
        .nodes(names.iter().map(|name| format!("redis://{name}")))
        .node_timeout(ms(1_000))
        .build()
        .unwrap();
    let error = redlock.try_lock("a").await.unwrap_err();
    let twins = votes(&error).iter().filter(|vote| match &vote.verdict {
        Verdict::Unknown(Cause::TwinOf(other)) => names.contains(other) && **other != *vote.node,
        _ => false,
    });
    assert_eq!(twins.count(), 1, "{error}");
    eventually("nothing is left", || keys(&servers[0]).is_empty()).await;
}

// The words of each master.

#[tokio::test]
async fn an_error_has_a_word_for_each_master_in_their_order() {
    let servers = RedisServers::start(5).unwrap();
    let proxies = servers.proxied().await.unwrap();
    let redlock = through(&proxies).build().unwrap();
    everywhere(&redlock, "a").await.release().await.unwrap();
    let free = || servers.iter().all(|server| keys(server).is_empty());
    eventually("the release has arrived everywhere", free).await;
    put(&servers[1], "a", "stranger", 10_000);
    proxies[2].hold(Direction::ToClient);
    proxies[3].reset_after(Direction::ToClient, 0);
    proxies[4].hold(Direction::ToServer);
    let error = redlock.try_lock("a").await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    let said: Vec<_> = votes(&error).iter().map(|vote| vote.verdict.to_string()).collect();
    assert_eq!(said[0], "granted");
    assert!(said[1].starts_with("held"), "{}", said[1]);
    assert_eq!(&said[2..], ["timed out", "connection closed", "timed out"]);
    let names = votes(&error).iter().zip(&proxies);
    names.for_each(|(vote, proxy)| assert_eq!(*vote.node, proxy.name()));
    let said: Vec<_> = votes(&error).iter().map(ToString::to_string).collect();
    let whole = format!("a: no quorum, too few voting masters answered: {}", said.join(", "));
    assert_eq!(error.to_string(), whole);
}

fn through(proxies: &[FaultProxy]) -> RedlockBuilder {
    // A connection with a request unanswered for this long is replaced, which must not happen
    // during the test.
    let builder = Redlock::builder().connect_timeout(secs(10));
    builder.nodes(proxies.iter().map(FaultProxy::url)).node_timeout(ms(500))
}

#[tokio::test]
async fn held_reports_by_whom_and_for_how_long() {
    let servers = RedisServers::start(5).unwrap();
    let redlock = ordinary(servers.urls()).label("web-1").build().unwrap();
    let guard = everywhere(&redlock, "a").await;
    let error = redlock.try_lock("a").await.unwrap_err();
    assert!(matches!(error, AcquireError::Held { .. }), "{error}");
    let mut named = 0;
    for vote in votes(&error) {
        let Verdict::Held { token, ttl } = &vote.verdict else { panic!("{error}") };
        assert!(vote.latency.is_some());
        if let (Some(token), Some(ttl)) = (token, ttl) {
            assert!(token.ends_with("/web-1"), "{token}");
            assert_eq!(vote.verdict.to_string(), format!("held ({ttl:?})"));
            named += 1;
        }
    }
    assert!(named >= 3, "a quorum names the holder: {error}");
    let said = error.to_string();
    assert!(said.starts_with("a is held by another caller in this process (web-1): "), "{said}");
    assert!(votes(&error).is_held_here());
    let error = ordinary(servers.urls()).build().unwrap().try_lock("a").await.unwrap_err();
    assert!(error.to_string().starts_with("a is held by another client (web-1): "), "{error}");
    assert!(!votes(&error).is_held_here());
    drop(guard);
}

#[tokio::test]
async fn a_master_that_is_not_reached_in_time_is_reported_as_connecting() {
    let servers = RedisServers::start(3).unwrap();
    let proxies = servers.proxied().await.unwrap();
    proxies[0].blackhole_new(true);
    let redlock = through(&proxies).connect_timeout(PATIENCE).build().unwrap();
    let guard = redlock.lock("a").await.unwrap();
    let said = guard.votes().iter().next().unwrap().verdict.to_string();
    assert_eq!(said, "not connected: still connecting");
    assert_eq!(guard.copies(), 2);
    let status = redlock.status("a").await;
    assert!(matches!(&status.nodes[0].verdict, Verdict::Unknown(Cause::NotConnected(_))));
}

#[tokio::test]
async fn a_majority_that_is_not_reached_in_time_has_timed_out() {
    let servers = RedisServers::start(3).unwrap();
    let proxies = servers.proxied().await.unwrap();
    proxies[..2].iter().for_each(|proxy| proxy.blackhole_new(true));
    for _ in 0..10 {
        let redlock = through(&proxies).connect_timeout(ms(150)).build().unwrap();
        let error = redlock.try_lock("a").await.unwrap_err();
        let said: Vec<_> = votes(&error).iter().map(|vote| vote.verdict.clone()).collect();
        let timed_out = Verdict::Unknown(Cause::TimedOut);
        assert_eq!(said[..2], [timed_out.clone(), timed_out], "{error}");
    }
}

#[tokio::test]
async fn an_extension_and_a_release_that_fail_say_what_each_master_said() {
    let servers = RedisServers::start(3).unwrap();
    let redlock = ordinary(servers.urls()).build().unwrap();
    let guard = everywhere(&redlock, "a").await;
    for server in servers.iter().take(2) {
        server.command(&["DEL", "a"]).unwrap();
    }
    put(&servers[0], "a", "thief", 10_000);
    put(&servers[1], "a", "thief", 10_000);
    let error = guard.extend(ms(10_000)).await.unwrap_err();
    let text = error.to_string();
    assert_one_line(&text);
    assert!(matches!(error, ExtendError::Lost(_) | ExtendError::NotOurs { .. }), "{text}");
    let lost = guard.check().unwrap_err();
    assert_eq!(lost.to_string(), "the lock on a is lost: too few masters still have the key");
    let error = guard.release().await.unwrap_err();
    assert!(matches!(error, ReleaseError::NotOurs { .. } | ReleaseError::Unconfirmed { .. }));
    let text = error.to_string();
    assert_one_line(&text);
    assert!(text.contains("not ours"), "{text}");
}

#[tokio::test]
async fn what_may_be_left_is_reported_with_master_and_time() {
    let servers = RedisServers::start(3).unwrap();
    let redlock = ordinary(servers.urls()).build().unwrap();
    let guard = everywhere(&redlock, "a").await;
    servers[0].pause().unwrap();
    let error = redlock.lock("b").await.unwrap().release().await;
    assert_eq!(error, Ok(()), "two of three are free of it");
    let left = redlock.shutdown(ms(100)).await.unwrap_err();
    let text = left.to_string();
    assert_one_line(&text);
    assert_eq!(left.keys().len(), 4, "{text}");
    assert!(text.starts_with("4 keys may be left on masters: "), "{text}");
    for key in left.keys() {
        let entry = format!("{} on {} for up to {}", key.resource, key.node, at_most(key.within));
        assert!(text.contains(&entry), "{entry:?} in {text}");
    }
    drop(guard);
    servers[0].resume().unwrap();
}

// Secrets that must not be shown.

#[tokio::test]
async fn passwords_are_in_nothing_that_is_printed() {
    let servers = RedisServers::with(3, &ServerOptions::new().password("sesame?#/@x")).unwrap();
    let builder = ordinary(servers.urls());
    let mut printed = vec![format!("{builder:?}")];
    let redlock = builder.build().unwrap();
    let request = redlock.lock("a");
    printed.extend([format!("{redlock:?}"), format!("{request:?}")]);
    let guard = request.await.unwrap();
    printed.extend([format!("{guard:?} {:?} {:?}", guard.hold(), guard.lost())]);
    printed.extend([format!("{:?} {}", guard.votes(), guard.votes())]);
    printed.push(format!("{:?}", redlock.status("a").await));
    servers[0].kill();
    servers[1].kill();
    let error = redlock.try_lock("b").await.unwrap_err();
    printed.extend([format!("{error:?} {error}"), format!("{:?}", redlock.status("a").await)]);
    let error = guard.release().await.unwrap_err();
    printed.push(format!("{error:?} {error}"));
    let left = redlock.shutdown(ms(10)).await;
    printed.push(format!("{left:?}"));
    for text in printed {
        assert!(!text.contains("sesame"), "{text}");
    }
}

#[test]
fn passwords_are_in_no_error_about_a_url() {
    for url in [
        "redis://:sesame@h:port",
        "redis://me:sesame@",
        "redis://me:sesame@h:1/x",
        "redis://me:ses?ame@h:x",
        "redis://me:open?sesame@h:x",
        "redis://me:open#sesame@h:x",
        "redis://me:open/sesame@h:x",
        "redis://:sesame?@h:x",
        "http://:sesame@h",
        ":sesame@h:1",
        "unix:///s.sock?pass=sesame&db=x",
        "redis://h:1?password=sesame#x",
        "rediss://:sesame@h:1#insecure",
        "redis://:sesame@h:1 ",
    ] {
        let builder = Redlock::builder().nodes([url]);
        let printed = match builder.build() {
            Err(error) => format!("{error} {error:?}"),
            Ok(redlock) => format!("{redlock:?}"),
        };
        for part in ["sesame", "ses", "open"] {
            assert!(!printed.contains(part), "{url}: {printed}");
        }
    }
    let twice = connect(["redis://:sesame@h:1", "redis://:sesame@h:1"]).build().unwrap_err();
    assert!(!format!("{twice} {twice:?}").contains("sesame"), "{twice}");
}
