//! Waiters on servers with many keys.

use std::time::Instant;

use redlock_testkit::lab::{fill, put};
use redlock_testkit::{RedisServers, ServerOptions};

use crate::lab::{eventually, everywhere, in_time, masters, ms};
use crate::waiting::{POLL_EVERY, ROUNDS, two, wait, watches};

/// Waits for many keys on a server that remembers that many keys.
async fn wait_in_a_crowd(room: &str) {
    const KEYS: u64 = 20;
    let options = ServerOptions::new().arguments(["--tracking-table-max-keys", room]);
    let servers = RedisServers::with(1, &options).unwrap();
    let (holder, waiter) = two(&servers).await;
    let mut held = Vec::new();
    for number in 0..KEYS {
        let key = format!("crowded-{number}");
        held.push((everywhere(&holder, &key).await, wait(&waiter, &key)));
    }
    eventually("all look", || watches(&servers) >= KEYS).await;
    // Each finds out first that pushes are of no use.
    eventually("they look again", || watches(&servers) >= 6 * KEYS).await;
    let (begun, before) = (Instant::now(), watches(&servers));
    eventually("and again", || watches(&servers) >= before + 5 * KEYS).await;
    let rate = 5.0 / begun.elapsed().as_secs_f64();
    assert!(rate < 4.0, "each key is read {rate} times per second");
    for (guard, waiting) in held {
        guard.release().await.unwrap();
        in_time(waiting).await.unwrap();
    }
}

#[tokio::test]
async fn overflowing_tracking_table_starves_no_waiter() {
    tokio::join!(wait_in_a_crowd("1"), wait_in_a_crowd("10"));
}

/// Servers with many keys report an expiry late, so clients rely on the remaining time that they
/// have read.
#[tokio::test]
async fn an_expiry_is_noticed_in_time_among_a_hundred_thousand_keys() {
    let servers = masters();
    let (_, waiter) = two(&servers).await;
    servers.iter().for_each(|server| fill(server, 100_000));
    let mut late = Vec::new();
    for (key, life) in [("a", 200), ("b", 250), ("c", 300), ("d", 350), ("e", 370)] {
        let begun = Instant::now();
        servers.iter().for_each(|server| put(server, key, "a dead holder", life));
        let expired = Instant::now() + ms(life);
        let granted = in_time(wait(&waiter, key)).await.unwrap();
        assert!(granted >= begun + ms(life), "{key} was still held");
        late.push(granted.saturating_duration_since(expired));
    }
    late.sort();
    // A second look would come at least half of that later.
    assert!(late[ROUNDS / 2] < POLL_EVERY / 2, "{late:?}");
}
