//! Acquires that were abandoned because masters were silent, and the return of those masters.

use redlock_quorum::{AcquireError, Redlock, Verdict};
use redlock_testkit::{RedisServer, RedisServers};

use crate::lab::{calls, eventually, hasty, in_time, masters, ms, no_key_is_left, warm_up};

async fn handle_that_gives_up_early(servers: &RedisServers) -> Redlock {
    let redlock = hasty(servers.urls()).connect_timeout(ms(500)).build().unwrap();
    warm_up(&redlock, servers).await;
    redlock
}

/// Waits until the handle has closed its connections to this many masters. After that, it knows
/// that they are down and no longer waits for them.
async fn connections_are_given_up(redlock: &Redlock, count: usize) {
    let given_up = async {
        loop {
            let status = redlock.status("given up").await;
            let known = |node: &&redlock_quorum::NodeVote| {
                matches!(node.verdict, Verdict::Unknown(_)) && node.latency.is_some()
            };
            if status.nodes.iter().filter(known).count() == count {
                return;
            }
        }
    };
    in_time(given_up).await;
}

async fn they_come_back(silent: &[RedisServer], servers: &RedisServers, sets: &[u64]) {
    silent.iter().for_each(|server| server.resume().unwrap());
    eventually("they carry out what was on its way, or its end", || {
        let done = |(server, sets): (&RedisServer, &u64)| {
            calls(server, "set") > *sets || calls(server, "client|kill") > 0
        };
        silent.iter().zip(sets).all(done)
    })
    .await;
    no_key_is_left(servers).await;
}

fn sets(servers: &[RedisServer]) -> Vec<u64> {
    servers.iter().map(|server| calls(server, "set")).collect()
}

#[tokio::test]
async fn two_silent_masters_returning_late_are_cleaned_up() {
    let servers = masters();
    let redlock = handle_that_gives_up_early(&servers).await;
    let (silent, before) = (&servers[..2], sets(&servers));
    silent.iter().for_each(|server| server.pause().unwrap());
    redlock.try_lock("late").await.unwrap().release().await.unwrap();
    connections_are_given_up(&redlock, 2).await;
    they_come_back(silent, &servers, &before).await;
}

async fn silent_masters_are_cleaned_up_after_an_acquire_that_failed(count: usize) {
    let servers = masters();
    let redlock = handle_that_gives_up_early(&servers).await;
    let (silent, before) = (&servers[..count], sets(&servers));
    silent.iter().for_each(|server| server.pause().unwrap());
    let refused = in_time(redlock.try_lock("late").into_future()).await.unwrap_err();
    let AcquireError::NoQuorum { .. } = refused else { panic!("{refused}") };
    connections_are_given_up(&redlock, count).await;
    they_come_back(silent, &servers, &before).await;
}

#[tokio::test]
async fn three_silent_masters_returning_late_are_cleaned_up() {
    silent_masters_are_cleaned_up_after_an_acquire_that_failed(3).await;
}

#[tokio::test]
async fn five_silent_masters_returning_late_are_cleaned_up() {
    silent_masters_are_cleaned_up_after_an_acquire_that_failed(5).await;
}

#[tokio::test]
async fn masters_returning_immediately_are_cleaned_up() {
    let servers = masters();
    let redlock = handle_that_gives_up_early(&servers).await;
    let before = sets(&servers);
    servers.iter().for_each(|server| server.pause().unwrap());
    in_time(redlock.try_lock("late").into_future()).await.unwrap_err();
    servers.iter().for_each(|server| server.resume().unwrap());
    let asked = || sets(&servers).iter().zip(&before).all(|(now, before)| now > before);
    eventually("all carry out what was on its way", asked).await;
    no_key_is_left(&servers).await;
}
