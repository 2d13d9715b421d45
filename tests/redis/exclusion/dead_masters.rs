//! Masters that are dead or silent, in every combination, and what they cost.

use std::time::Duration;

use redlock_quorum::{AcquireError, Redlock};
use redlock_testkit::RedisServers;
use tokio::time::{Instant, timeout};

use crate::lab::{
    eventually, hasty, masters, ms, no_key_is_left, patient, said, secs, unknown, warm_up,
};

/// Far more than any of these acquires needs, and far less than a hang.
const BOUND: Duration = secs(5);

/// Every set of masters as bits, each differing from the one before in one master.
fn every_set() -> impl Iterator<Item = (u32, usize)> {
    (0_u32..32).map(|place| {
        let set = place ^ (place >> 1);
        // From one place to the next, this bit of the Gray code changes.
        (set, place.trailing_zeros() as usize)
    })
}

/// With a majority left there must be a lock. The wait is for masters that are just coming back.
async fn gives_the_lock(redlock: &Redlock, key: &str) {
    let guard = timeout(BOUND, redlock.lock(key).wait(BOUND)).await.unwrap().unwrap();
    assert!(guard.is_held());
    timeout(BOUND, guard.release()).await.unwrap().unwrap();
}

/// Without a majority, the error must show which masters have not answered.
async fn gives_no_quorum(redlock: &Redlock, servers: &RedisServers, dead: u32, key: &str) {
    let refused = timeout(BOUND, redlock.try_lock(key)).await.unwrap().unwrap_err();
    let AcquireError::NoQuorum { votes, .. } = &refused else { panic!("{refused}") };
    assert!(unknown(votes) >= dead.count_ones() as usize, "{refused}");
    for (place, server) in servers.iter().enumerate().filter(|(place, _)| dead & 1 << place != 0) {
        let said = said(votes, &server.name()).to_string();
        assert!(said.contains("connection") || said == "timed out", "{place} said {said}");
    }
}

async fn judge(redlock: &Redlock, servers: &RedisServers, dead: u32) {
    let key = format!("without:{dead:05b}");
    if dead.count_ones() <= 2 {
        gives_the_lock(redlock, &key).await;
    } else {
        gives_no_quorum(redlock, servers, dead, &key).await;
    }
}

#[tokio::test]
async fn every_set_of_killed_masters_gives_the_lock_or_no_quorum() {
    let servers = masters();
    let mut handles = Vec::new();
    for (dead, changed) in every_set() {
        if dead == 0 {
            // At the start, nothing has changed yet.
        } else if dead & 1 << changed != 0 {
            servers[changed].kill();
        } else {
            servers[changed].restart().unwrap();
            servers[changed].init().unwrap();
        }
        let redlock = patient(servers.urls()).build().unwrap();
        judge(&redlock, &servers, dead).await;
        // It continues to send unacknowledged releases.
        handles.push(redlock);
    }
    no_key_is_left(&servers).await;
}

#[tokio::test]
async fn every_set_of_paused_masters_gives_the_lock_or_no_quorum() {
    let servers = masters();
    let redlock = hasty(servers.urls()).build().unwrap();
    warm_up(&redlock, &servers).await;
    for (dead, changed) in every_set() {
        if dead == 0 {
            // At the start, nothing has changed yet.
        } else if dead & 1 << changed != 0 {
            servers[changed].pause().unwrap();
        } else {
            servers[changed].resume().unwrap();
        }
        judge(&redlock, &servers, dead).await;
    }
    servers.iter().for_each(|server| server.resume().unwrap());
    no_key_is_left(&servers).await;
}

/// The median of fifty acquires.
async fn median(redlock: &Redlock) -> Duration {
    let mut took = Vec::new();
    for _ in 0..50 {
        let start = Instant::now();
        let guard = redlock.lock("measured").wait(secs(5)).await.unwrap();
        took.push(start.elapsed());
        guard.release().await.unwrap();
    }
    took.sort_unstable();
    took[took.len() / 2]
}

#[tokio::test]
async fn two_silent_masters_of_five_are_not_awaited() {
    let servers = masters();
    let node_timeout = secs(1);
    // The connections to silent masters must stay open. Otherwise the client would know that they
    // are down, and would not wait for them.
    let builder = patient(servers.urls()).ttl(secs(10)).connect_timeout(secs(600));
    let redlock = builder.node_timeout(node_timeout).build().unwrap();
    warm_up(&redlock, &servers).await;
    let healthy = median(&redlock).await;
    servers[0].pause().unwrap();
    servers[4].pause().unwrap();
    let silent = median(&redlock).await;
    let times = format!("healthy {healthy:?}, two silent {silent:?}");
    assert!(silent < node_timeout / 2, "the client waited for a silent master: {times}");
    assert!(silent < 20 * healthy.max(ms(10)), "silent masters cost more than noise: {times}");
    servers.iter().for_each(|server| server.resume().unwrap());
    no_key_is_left(&servers).await;
}

#[tokio::test]
async fn master_restarted_empty_is_used_again() {
    let servers = masters();
    let redlock = hasty(servers.urls()).build().unwrap();
    warm_up(&redlock, &servers).await;
    servers[2].kill();
    servers[2].restart_empty().unwrap();
    servers[2].init().unwrap();
    let mut guards = Vec::new();
    for number in 0.. {
        let guard = redlock.lock(format!("again:{number}")).min_copies(5).await.unwrap();
        let copies = guard.copies();
        guards.push(guard);
        if copies == 5 {
            break;
        }
        assert!(number < 1_000, "it does not vote again");
    }
    drop(guards);
    eventually("it gets the releases, too", || crate::lab::keys(&servers[2]).is_empty()).await;
}
