//! A key of another type in the place of a queue: those that wait do without it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redlock_testkit::RedisServers;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::lab::{in_time, ms, no_key_is_left, ordinary, secs};

/// Returns how many locks each of the handles got.
async fn contend(servers: &RedisServers, handles: usize) -> Vec<usize> {
    for server in servers.iter() {
        server.command(&["SET", "redlock-quorum:1:queue:wanted", "of another type"]).unwrap();
    }
    let (end, mut callers) = (Instant::now() + secs(3), JoinSet::new());
    let got: Vec<_> = (0..handles).map(|_| Arc::new(AtomicUsize::new(0))).collect();
    for got in &got {
        let redlock = ordinary(servers.urls()).build().unwrap();
        for _ in 0..3 {
            let (redlock, got) = (redlock.clone(), got.clone());
            callers.spawn(async move {
                while Instant::now() < end {
                    let guard = redlock.lock("wanted").wait(secs(30)).await.unwrap();
                    got.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(ms(1)).await;
                    guard.release().await.unwrap();
                }
            });
        }
    }
    while let Some(caller) = in_time(callers.join_next()).await {
        caller.unwrap();
    }
    no_key_is_left(servers).await;
    got.iter().map(|got| got.load(Ordering::Relaxed)).collect()
}

#[tokio::test]
async fn a_key_of_another_type_in_the_place_of_a_queue_makes_no_lock_fail() {
    for (n, handles) in [(1, 2), (3, 4)] {
        let got = contend(&RedisServers::start(n).unwrap(), handles).await;
        assert!(got.iter().all(|got| *got > 0), "{n} masters: {got:?}");
    }
}
