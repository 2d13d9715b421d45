//! Rejected inputs and their messages. Needs a `redis-server` on the PATH.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so what it expects")]

use std::collections::HashSet;

use redlock_core::duration::at_most;
use redlock_quorum::{
    AcquireError, Cause, ExtendError, Redlock, RedlockBuilder, ReleaseError, Verdict, Votes,
};
use redlock_testkit::{Direction, FaultProxy, RedisServer, RedisServers, ServerOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::lab::{
    PATIENCE, assert_one_line, calls, eventually, everywhere, keys, ms, on_all, ordinary, put, secs,
};

pub(super) fn connect<const N: usize>(urls: [&str; N]) -> RedlockBuilder {
    Redlock::builder().nodes(urls)
}

pub(super) fn assert_nothing_was_set(servers: &[RedisServer]) {
    for server in servers {
        for command in ["set", "eval", "evalsha", "pexpire", "del"] {
            assert_eq!(calls(server, command), 0, "{command}");
        }
        assert_eq!(keys(server).len(), 0);
    }
}

#[tokio::test]
async fn zero_wait_makes_one_attempt_and_waits_end_on_time() {
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
async fn every_unsuitable_server_has_its_own_report() {
    let replicated = RedisServer::start().unwrap();
    let port = replicated.port().to_string();
    let replica =
        RedisServer::with(&ServerOptions::new().arguments(["--replicaof", "127.0.0.1", &port]))
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
        assert!(seen.insert(said.clone()), "two other programs have the same text: {said}");
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
async fn error_lists_each_master_in_order() {
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
async fn held_error_has_holder_and_remaining_time() {
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
async fn unreached_master_is_reported_as_connecting() {
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
async fn unreached_majority_has_timed_out() {
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
async fn failed_extension_and_release_list_each_answer() {
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
async fn remaining_keys_are_reported_with_master_and_time() {
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
async fn passwords_are_never_printed() {
    let servers = RedisServers::with(3, &ServerOptions::new().password("sesame?#/@x")).unwrap();
    let builder = ordinary(servers.urls());
    let mut printed = vec![format!("{builder:?}")];
    let redlock = builder.build().unwrap();
    printed.extend([format!("{redlock:?}"), format!("{:?}", redlock.lock("a"))]);
    let guard = on_all(|| redlock.lock("a")).await;
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
fn url_errors_contain_no_passwords() {
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
