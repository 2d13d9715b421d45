//! Keys of others: never deleted, never extended, and reported by name.

use redlock_quorum::{AcquireError, ExtendError, ReleaseError, State, Verdict};
use redlock_testkit::RedisServer;

use crate::lab::{
    again, calls, eventually, everywhere, in_time, masters, ms, no_key_is_left, patient, pttl,
    said, secs, value, warm_up,
};

const STRANGER: &str = "another client's token";

fn take(server: &RedisServer, key: &str, life: &str) {
    server.command(&["SET", key, STRANGER, "PX", life]).unwrap();
}

fn is_strangers(server: &RedisServer, key: &str) -> bool {
    value(server, key).as_deref() == Some(STRANGER)
}

#[tokio::test]
async fn held_lock_is_refused_with_its_token_and_remaining_time() {
    let servers = masters();
    let redlock = patient(servers.urls()).build().unwrap();
    warm_up(&redlock, &servers).await;
    servers.iter().for_each(|server| take(server, "taken", "20000"));
    let refused = in_time(redlock.try_lock("taken").into_future()).await.unwrap_err();
    let AcquireError::Held { votes, .. } = &refused else { panic!("{refused}") };
    let mut named = 0;
    for vote in votes {
        if let Verdict::Held { token: Some(token), ttl: Some(ttl) } = &vote.verdict {
            assert_eq!(token, STRANGER);
            assert!(secs(10) < *ttl && *ttl <= secs(20), "{ttl:?}");
            named += 1;
        }
    }
    assert!(named >= 3, "a quorum names the holder: {refused}");
    let status = redlock.status("taken").await;
    let State::Held { token, .. } = &status.state else { panic!("{status:?}") };
    assert_eq!(token, STRANGER);
    assert!(status.nodes.iter().all(|node| matches!(node.verdict, Verdict::Held { .. })));
    assert!(servers.iter().all(|server| is_strangers(server, "taken")));
}

#[tokio::test]
async fn keeper_and_release_keep_a_strangers_key() {
    let servers = masters();
    let redlock = patient(servers.urls()).ttl(secs(3)).node_timeout(ms(700)).build().unwrap();
    let guard = everywhere(&redlock, "shared").await;
    take(&servers[0], "shared", "20000");
    take(&servers[1], "shared", "20000");
    eventually("the keeper has noticed", || guard.copies() == 3).await;
    guard.check().unwrap();
    let before = calls(&servers[2], "pexpire");
    eventually("it has gone on for some extensions", || {
        let ours = servers[2..].iter().all(|server| pttl(server, "shared") > 0);
        assert!(ours && guard.is_held());
        calls(&servers[2], "pexpire") >= before + 3
    })
    .await;
    guard.extend(secs(3)).await.unwrap();
    let said_by = |server: &RedisServer| said(&guard.votes(), &server.name()).clone();
    let Verdict::Held { token, .. } = said_by(&servers[0]) else { panic!("{}", guard.votes()) };
    assert_eq!(token.as_deref(), Some(STRANGER));
    guard.release().await.unwrap();
    eventually("ours are gone", || {
        servers[2..].iter().all(|server| value(server, "shared").is_none())
    })
    .await;
    for server in &servers[..2] {
        assert!(is_strangers(server, "shared"));
        assert!(pttl(server, "shared") < 20_000, "it was extended");
    }
}

#[tokio::test]
async fn lease_taken_by_a_stranger_is_not_resumed_or_released() {
    let servers = masters();
    let redlock = patient(servers.urls()).build().unwrap();
    let lease = everywhere(&redlock, "handed on").await.into_lease();
    servers.iter().for_each(|server| take(server, "handed on", "20000"));
    let refused = redlock.resume(again(&lease)).await.unwrap_err();
    let ExtendError::NotOurs { .. } = refused else { panic!("{refused}") };
    let refused = redlock.release(lease).await.unwrap_err();
    let ReleaseError::NotOurs { .. } = refused else { panic!("{refused}") };
    for server in servers.iter() {
        assert!(is_strangers(server, "handed on"));
        assert!(pttl(server, "handed on") <= 20_000, "it was extended");
    }
}

#[tokio::test]
async fn release_of_a_strangers_key_is_not_ours() {
    let servers = masters();
    let redlock = patient(servers.urls()).build().unwrap();
    let guard = everywhere(&redlock, "taken").await;
    servers.iter().for_each(|server| take(server, "taken", "20000"));
    let refused = in_time(guard.release()).await.unwrap_err();
    let ReleaseError::NotOurs { .. } = refused else { panic!("{refused}") };
    assert!(servers.iter().all(|server| is_strangers(server, "taken")));
}

/// The late request of an earlier attempt is no longer ours, although we sent it.
#[tokio::test]
async fn late_key_of_an_earlier_attempt_blocks_one_master() {
    let servers = masters();
    let redlock = patient(servers.urls()).ttl(secs(3)).node_timeout(ms(500)).build().unwrap();
    warm_up(&redlock, &servers).await;
    let lease = redlock.lock("ours").await.unwrap().into_lease();
    redlock.release(again(&lease)).await.unwrap();
    no_key_is_left(&servers).await;
    let late = lease.token.to_string();
    // Its life begins when the rest was seen.
    servers[2].command(&["SET", "ours", &late, "NX"]).unwrap();
    let guard = redlock.lock("ours").await.unwrap();
    eventually("the others hold it", || guard.copies() == 4).await;
    assert_eq!(value(&servers[2], "ours").as_deref(), Some(&*late));
    servers[2].command(&["PEXPIRE", "ours", "500"]).unwrap();
    eventually("it is set anew once the old one has expired", || guard.copies() == 5).await;
    assert_ne!(value(&servers[2], "ours").as_deref(), Some(&*late));
    guard.release().await.unwrap();
    no_key_is_left(&servers).await;
}
