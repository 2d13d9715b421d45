//! Locks of other clients and ours exclude each other: the plain `SET NX PX` and the
//! compare-and-delete of the Redis page, sent by `redis-cli`. Needs `redis-server` and `redis-cli`
//! on the PATH.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so what it expects")]

use std::process::Command;

use crate::lab::{again, eventually, everywhere, in_time, ms, ordinary, value};
use redlock_quorum::{AcquireError, LostReason, Redlock, State};
use redlock_testkit::{RedisServer, RedisServers};

const KEY: &str = "orders:42";

/// The script of the Redis page, word for word what other clients send.
pub(crate) const COMPARE_AND_DELETE: &str = r#"if redis.call("get",KEYS[1]) == ARGV[1] then
    return redis.call("del",KEYS[1])
else
    return 0
end"#;

/// Returns the output of `redis-cli` for one command.
fn cli(server: &RedisServer, words: &[&str]) -> String {
    let port = server.port().to_string();
    let output = Command::new("redis-cli")
        .args(["-h", "127.0.0.1", "-p", &port])
        .args(words)
        .output()
        .expect(
            "redis-cli is on the PATH: install the package that has redis-server (redis-tools)",
        );
    assert!(output.status.success(), "redis-cli {words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// How many masters grant a lock to another client.
fn set_nx(servers: &[RedisServer], token: &str) -> usize {
    let set = |server| cli(server, &["SET", KEY, token, "NX", "PX", "30000"]);
    servers.iter().filter(|server| set(server) == "OK").count()
}

/// How many masters deleted the key of another client.
fn delete(servers: &[RedisServer], token: &str) -> usize {
    let eval = |server| cli(server, &["EVAL", COMPARE_AND_DELETE, "1", KEY, token]);
    servers.iter().filter(|server| eval(server) == "1").count()
}

fn five_masters() -> (RedisServers, Redlock) {
    let servers = RedisServers::start(5).unwrap();
    let redlock = ordinary(servers.urls()).build().unwrap();
    (servers, redlock)
}

#[tokio::test]
async fn other_clients_cannot_take_or_delete_our_lock() {
    let (servers, redlock) = five_masters();
    let guard = everywhere(&redlock, KEY).await;
    assert_eq!(set_nx(&servers, "stranger"), 0);
    assert_eq!(delete(&servers, "stranger"), 0);
    guard.extend(ms(20_000)).await.unwrap();
    assert_eq!(set_nx(&servers, "stranger"), 0);
    guard.release().await.unwrap();
    eventually("all five are free", || servers.iter().all(|s| value(s, KEY).is_none())).await;
    assert_eq!(set_nx(&servers, "stranger"), 5, "released means free for every client");
}

#[tokio::test]
async fn foreign_locks_are_not_taken_extended_or_deleted() {
    let (servers, redlock) = five_masters();
    assert_eq!(set_nx(&servers, "stranger"), 5);
    let error = redlock.try_lock(KEY).await.unwrap_err();
    assert!(matches!(error, AcquireError::Held { .. }), "{error}");
    let status = redlock.status(KEY).await;
    assert!(matches!(&status.state, State::Held { token, .. } if token == "stranger"));
    let untouched = |server: &RedisServer| {
        let left: i64 = cli(server, &["PTTL", KEY]).parse().unwrap();
        value(server, KEY).as_deref() == Some("stranger") && (1..=30_000).contains(&left)
    };
    assert!(servers.iter().all(untouched));
    let waiter = tokio::spawn(redlock.lock(KEY).into_future());
    assert_eq!(delete(&servers, "stranger"), 5);
    let guard = waiter.await.unwrap().unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn majority_decides_between_two_clients() {
    let (servers, redlock) = five_masters();
    assert_eq!(set_nx(&servers[..3], "stranger"), 3);
    let error = redlock.try_lock(KEY).await.unwrap_err();
    assert!(matches!(error, AcquireError::Held { .. }), "{error}");
    eventually("we leave nothing behind", || {
        servers[3..].iter().all(|server| value(server, KEY).is_none())
    })
    .await;
    assert_eq!(delete(&servers, "stranger"), 3);
    assert_eq!(set_nx(&servers[..2], "stranger"), 2);
    // All of the other three are needed, and one may still be connecting.
    let guard = in_time(redlock.lock(KEY).into_future()).await.unwrap();
    assert_eq!(set_nx(&servers, "another"), 0);
    guard.extend(ms(20_000)).await.unwrap();
    let theirs = |server| value(server, KEY).as_deref() == Some("stranger");
    assert!(servers[..2].iter().all(theirs), "a key that is not ours stays as it is");
    guard.release().await.unwrap();
    assert_eq!(delete(&servers, "stranger"), 2);
}

#[tokio::test]
async fn release_by_the_published_script_is_noticed() {
    let (servers, redlock) = five_masters();
    let lease = everywhere(&redlock, KEY).await.into_lease();
    let guard = redlock.resume(again(&lease)).await.unwrap();
    assert_eq!(delete(&servers, lease.token.as_str()), 5);
    assert_eq!(set_nx(&servers, "stranger"), 5);
    let error = guard.extend(ms(20_000)).await.unwrap_err();
    assert!(!guard.is_held(), "{error}");
    assert_eq!(guard.check().unwrap_err().reason, LostReason::NotOurs);
    guard.release().await.unwrap_err();
    assert!(servers.iter().all(|server| value(server, KEY).as_deref() == Some("stranger")));
}

#[tokio::test]
async fn lock_of_another_client_is_resumed_by_its_token() {
    let (servers, redlock) = five_masters();
    assert_eq!(set_nx(&servers, "d41d8cd98f00b204e9800998ecf8427e"), 5);
    let token = "d41d8cd98f00b204e9800998ecf8427e";
    let lease = redlock_quorum::Lease::new(KEY, token, ms(10_000)).unwrap();
    let guard = redlock.resume(lease).await.unwrap();
    assert_eq!(delete(&servers, "stranger"), 0);
    assert_eq!(guard.release().await, Ok(()));
    eventually("all are free", || servers.iter().all(|s| value(s, KEY).is_none())).await;
    assert_eq!(set_nx(&servers, "stranger"), 5);
}
