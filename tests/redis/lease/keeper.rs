//! The keeper: what it keeps alive, what it repairs, and when it stops.

use std::time::Duration;

use redlock_quorum::{Ended, LostReason, Redlock};
use redlock_testkit::Direction;
use tokio::time::{Instant, sleep};

use crate::lab::{
    PATIENCE, calls, eventually, everywhere, in_time, masters, ms, never, no_key_is_left, on_all,
    patient, pttl, secs, urls_of, value, warm_up,
};

#[tokio::test]
async fn a_short_lock_is_kept_for_many_times_its_ttl() {
    let servers = masters();
    let redlock = patient(servers.urls()).node_timeout(ms(700)).ttl(secs(3)).build().unwrap();
    let guard = redlock.lock("short").await.unwrap();
    let end = Instant::now() + secs(12);
    while Instant::now() < end {
        guard.check().unwrap();
        let there = servers.iter().filter(|server| value(server, "short").is_some()).count();
        assert!(there >= 3, "{there} masters have it");
        sleep(ms(10)).await;
    }
    assert!(pttl(&servers[0], "short") <= 3_300, "it is extended only by its TTL");
    guard.release().await.unwrap();
    no_key_is_left(&servers).await;
}

#[tokio::test]
async fn a_lock_is_kept_while_two_masters_are_silent() {
    let servers = masters();
    let redlock = patient(servers.urls()).node_timeout(ms(500)).ttl(secs(3)).build().unwrap();
    let guard = everywhere(&redlock, "kept").await;
    servers[1].pause().unwrap();
    servers[3].pause().unwrap();
    let end = Instant::now() + secs(6);
    while Instant::now() < end {
        guard.check().unwrap();
        sleep(ms(10)).await;
    }
    eventually("two count no more", || guard.copies() == 3).await;
    servers[1].resume().unwrap();
    servers[3].resume().unwrap();
    eventually("they are given the key again", || guard.copies() == 5).await;
    guard.release().await.unwrap();
    no_key_is_left(&servers).await;
}

#[tokio::test]
async fn deleted_key_is_set_again() {
    let servers = masters();
    let redlock = patient(servers.urls()).ttl(secs(3)).node_timeout(ms(500)).build().unwrap();
    let guard = everywhere(&redlock, "repaired").await;
    let before = value(&servers[0], "repaired").expect("it was set");
    let sets = calls(&servers[0], "set");
    servers[0].command(&["DEL", "repaired"]).unwrap();
    eventually("it is there again", || value(&servers[0], "repaired").is_some()).await;
    assert_eq!(value(&servers[0], "repaired"), Some(before));
    assert!(calls(&servers[0], "set") > sets);
    eventually("it counts", || guard.copies() == 5).await;
    guard.check().unwrap();
    guard.release().await.unwrap();
    no_key_is_left(&servers).await;
}

#[tokio::test]
async fn master_restarted_empty_gets_the_key_again() {
    let servers = masters();
    let redlock = patient(servers.urls()).ttl(secs(3)).node_timeout(ms(500)).build().unwrap();
    let guard = everywhere(&redlock, "repaired").await;
    servers[4].kill();
    servers[4].restart_empty().unwrap();
    let held = value(&servers[0], "repaired");
    eventually("it has it again", || value(&servers[4], "repaired") == held).await;
    eventually("it is in quarantine: its copy does not count", || guard.copies() == 4).await;
    servers[4].init().unwrap();
    eventually("it counts again", || guard.copies() == 5).await;
    guard.release().await.unwrap();
    no_key_is_left(&servers).await;
}

#[tokio::test]
async fn max_hold_ends_the_extensions_and_not_the_lease() {
    let servers = masters();
    let redlock = patient(servers.urls()).node_timeout(secs(1)).ttl(secs(6)).build().unwrap();
    let start = Instant::now();
    let guard = redlock.lock("limited").max_hold(secs(9)).await.unwrap();
    let Ended::Lost(lost) = in_time(guard.lost()).await else { panic!("it was not released") };
    let held = start.elapsed();
    assert_eq!(lost.reason, LostReason::MaxHold);
    assert!(held > secs(7), "it was not extended: {held:?}");
    // Without a limit it would be held forever, so any end shows the limit. No client releases it,
    // and it expires.
    no_key_is_left(&servers).await;
}

#[tokio::test]
async fn without_a_keeper_a_lock_ends_with_its_ttl() {
    let servers = masters();
    let redlock = patient(servers.urls()).node_timeout(ms(100)).ttl(ms(600)).build().unwrap();
    let start = Instant::now();
    let guard = redlock.lock("once").auto_extend(false).await.unwrap();
    let Ended::Lost(lost) = in_time(guard.lost()).await else { panic!("it was not released") };
    assert_eq!(lost.reason, LostReason::NotExtended);
    assert!(start.elapsed() > ms(500), "{:?}", start.elapsed());
    assert!(servers.iter().all(|server| calls(server, "pexpire") == 0), "it was extended");
}

#[tokio::test]
async fn a_stop_margin_ends_the_lock_before_its_keys() {
    let servers = masters();
    let redlock = patient(servers.urls()).build().unwrap();
    let request = || redlock.lock("margin").ttl(secs(40)).stop_margin(secs(35)).auto_extend(false);
    let guard = on_all(request).await;
    assert!(guard.remaining() < secs(5));
    in_time(guard.lost()).await;
    assert!(!guard.is_held());
    assert!(servers.iter().all(|server| pttl(server, "margin") > 10_000));
    drop(guard);
    no_key_is_left(&servers).await;
}

/// Returns how many copies a lock has at first that is requested on all masters.
async fn with_all(redlock: &Redlock) -> usize {
    let guard = redlock.lock("all").min_copies(5).await.unwrap();
    let copies = guard.copies();
    guard.release().await.unwrap();
    copies
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn min_copies_waits_briefly_for_a_slow_master() {
    const NODE_TIMEOUT: Duration = secs(5);
    let servers = masters();
    let proxies = servers.proxied().await.unwrap();
    let redlock = patient(urls_of(&proxies)).node_timeout(NODE_TIMEOUT).build().unwrap();
    warm_up(&redlock, &servers).await;
    // All are slow, so the extra wait is long, and one is slower.
    proxies.iter().for_each(|proxy| proxy.delay(Direction::ToClient, ms(600)));
    proxies[4].delay(Direction::ToClient, ms(700));
    // A busy machine may use the grace up.
    let deadline = Instant::now() + PATIENCE;
    while with_all(&redlock).await < 5 {
        assert!(Instant::now() < deadline, "it does not wait for the slowest");
    }
    // A master that does not answer at all uses up the extra wait, and the lock is acquired without
    // it.
    proxies[4].hold(Direction::ToClient);
    let start = Instant::now();
    let guard = redlock.lock("four").min_copies(5).await.unwrap();
    assert!(start.elapsed() < NODE_TIMEOUT, "it waited for all of the node timeout");
    assert!(guard.copies() < 5);
    guard.release().await.unwrap();
    proxies.iter().for_each(|proxy| proxy.heal());
    no_key_is_left(&servers).await;
}

#[tokio::test]
async fn extension_never_shortens_the_lock() {
    let servers = masters();
    let redlock = patient(servers.urls()).ttl(secs(20)).build().unwrap();
    let guard = everywhere(&redlock, "longer").await;
    guard.extend(secs(50)).await.unwrap();
    assert!(guard.remaining() > secs(40), "{:?}", guard.remaining());
    eventually("all masters have heard", || {
        servers.iter().all(|server| pttl(server, "longer") > 50_000)
    })
    .await;
    guard.extend(secs(20)).await.unwrap();
    assert!(guard.remaining() > secs(40), "it was shortened");
    assert!(servers.iter().all(|server| pttl(server, "longer") > 40_000), "it was shortened");
    let refused = guard.extend(secs(61)).await.unwrap_err();
    assert!(refused.to_string().contains("1m"), "the limit is named: {refused}");
    guard.release().await.unwrap();
    no_key_is_left(&servers).await;
}

/// Extensions that continue after the guard is dropped would set the key again.
#[tokio::test]
async fn dropped_guard_is_no_longer_extended() {
    let servers = masters();
    let redlock = patient(servers.urls()).node_timeout(ms(75)).ttl(ms(300)).build().unwrap();
    let _ = redlock.lock("over").await.unwrap().release().await;
    drop(redlock.lock("over").await.unwrap());
    no_key_is_left(&servers).await;
    never("it is set again", || value(&servers[0], "over").is_some()).await;
}
