//! Waiters on real servers: what wakes them, and what a wait costs.

use std::time::Instant;

use redlock_quorum::Redlock;
use redlock_testkit::{RedisServer, RedisServers, ServerOptions};

use crate::lab::{
    calls, eventually, everywhere, in_time, masters, ms, no_key_is_left, patient, warm_up,
};

/// A holder and a waiter, as two processes would be.
async fn two(servers: &RedisServers) -> (Redlock, Redlock) {
    let holder = patient(servers.urls()).build().unwrap();
    let waiter = patient(servers.urls()).build().unwrap();
    warm_up(&holder, servers).await;
    warm_up(&waiter, servers).await;
    (holder, waiter)
}

/// A caller that waits for `key`, when it has been refused.
async fn waits(
    waiter: &Redlock,
    servers: &[RedisServer],
    key: &'static str,
) -> tokio::task::JoinHandle<Instant> {
    let asked = |server: &RedisServer| calls(server, "set");
    let before: u64 = servers.iter().map(asked).sum();
    let request = waiter.lock(key).wait_forever();
    let waiting = tokio::spawn(async move {
        let guard = request.await.unwrap();
        let granted = Instant::now();
        guard.release().await.unwrap();
        granted
    });
    eventually("it has asked", || servers.iter().map(asked).sum::<u64>() > before).await;
    waiting
}

#[tokio::test]
async fn a_release_wakes_the_waiter_of_another_handle() {
    let servers = masters();
    let (holder, waiter) = two(&servers).await;
    let mut waited = Vec::new();
    for _ in 0..5 {
        let guard = everywhere(&holder, "woken").await;
        let waiting = waits(&waiter, &servers, "woken").await;
        tokio::time::sleep(ms(50)).await;
        guard.release().await.unwrap();
        let released = Instant::now();
        waited.push(in_time(waiting).await.unwrap().saturating_duration_since(released));
    }
    // A look a second would wait for half a second on average.
    waited.sort();
    assert!(waited[2] < ms(200), "{waited:?}");
    no_key_is_left(&servers).await;
}

#[tokio::test]
async fn a_lock_that_stays_held_is_looked_at_and_not_tried() {
    let servers = masters();
    let (holder, waiter) = two(&servers).await;
    let guard = everywhere(&holder, "held").await;
    let waiting = waits(&waiter, &servers, "held").await;
    tokio::time::sleep(ms(300)).await;
    let tried = || servers.iter().map(|server| calls(server, "set")).sum::<u64>();
    let before = tried();
    tokio::time::sleep(ms(2_500)).await;
    assert_eq!(tried(), before, "no attempt while it is held");
    guard.release().await.unwrap();
    in_time(waiting).await.unwrap();
}

#[tokio::test]
async fn scripts_that_are_forgotten_and_connections_that_are_killed_cost_time_only() {
    let servers = masters();
    let (holder, waiter) = two(&servers).await;
    let guard = everywhere(&holder, "disturbed").await;
    let waiting = waits(&waiter, &servers, "disturbed").await;
    for server in servers.iter() {
        server.command(&["SCRIPT", "FLUSH"]).unwrap();
        server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).unwrap();
    }
    guard.check().unwrap();
    eventually("it is held again", || guard.copies() == 5).await;
    // The keys that the killed connections could not release go with the new ones.
    let _ = in_time(guard.release()).await;
    in_time(waiting).await.unwrap();
    no_key_is_left(&servers).await;
}

#[tokio::test]
async fn a_tracking_table_that_overflows_wakes_too_often_and_starves_nobody() {
    let options = ServerOptions::new().arguments(["--tracking-table-max-keys", "10"]);
    let servers = RedisServers::with(3, &options).unwrap();
    let (holder, waiter) = two(&servers).await;
    let guard = everywhere(&holder, "crowded-0").await;
    let waiting = waits(&waiter, &servers, "crowded-0").await;
    let keys = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o"];
    let mut others = Vec::new();
    for key in keys {
        let held = everywhere(&holder, key).await;
        others.push((held, waits(&waiter, &servers, key).await));
    }
    let looks = || servers.iter().map(|server| calls(server, "evalsha")).sum::<u64>();
    let before = looks();
    tokio::time::sleep(ms(1_000)).await;
    let looks = looks() - before;
    assert!(looks < 16 * 40, "{looks} looks in a second for sixteen keys: a busy loop");
    guard.release().await.unwrap();
    in_time(waiting).await.unwrap();
    for (held, waiting) in others {
        held.release().await.unwrap();
        in_time(waiting).await.unwrap();
    }
}

#[tokio::test]
async fn users_who_may_not_track_wait_all_the_same() {
    let servers = masters();
    for server in servers.iter() {
        let rights =
            ["ACL", "SETUSER", "default", "on", "nopass", "~*", "+@all", "-client|tracking"];
        server.command(&rights).unwrap();
    }
    let (holder, waiter) = two(&servers).await;
    let guard = everywhere(&holder, "polled").await;
    let waiting = waits(&waiter, &servers, "polled").await;
    guard.release().await.unwrap();
    in_time(waiting).await.unwrap();
    no_key_is_left(&servers).await;
}

/// Pushes of an expiry come late on servers with many keys: the remaining life of the key that was
/// read is what counts.
#[tokio::test]
async fn an_expiry_is_noticed_among_many_keys() {
    let servers = masters();
    let (_holder, waiter) = two(&servers).await;
    let fill = "for i = 1, 20000 do redis.call('SET', 'other-' .. i, i, 'PX', 600000) end";
    for server in servers.iter() {
        server.command(&["EVAL", fill, "0"]).unwrap();
    }
    let set = Instant::now();
    for server in servers.iter() {
        server.command(&["SET", "expiring", "a dead holder", "PX", "1500"]).unwrap();
    }
    let waiting = waits(&waiter, &servers, "expiring").await;
    let waited = in_time(waiting).await.unwrap().saturating_duration_since(set);
    assert!(waited >= ms(1_400), "it was alive: {waited:?}");
    assert!(waited <= ms(2_400), "a second late: {waited:?}");
}
