//! Broken queues: a key of another type is in their place, or a right is missing. Clients then wait
//! without a queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redlock_testkit::RedisServers;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::lab::{in_time, ms, no_key_is_left, ordinary, secs};

/// The command that breaks every queue.
const WRONG_TYPE: &[&str] = &["SET", "redlock-quorum:1:queue:wanted", "of another type"];

/// Returns how many locks each of the handles got. All but the last one are at work when the queues
/// fail. The last one connects afterwards, so that it learns of rights in another way.
async fn contend(servers: &RedisServers, handles: usize, fails: &[&str]) -> Vec<usize> {
    let (end, mut callers) = (Instant::now() + secs(6), JoinSet::new());
    let got: Vec<_> = (0..handles).map(|_| Arc::new(AtomicUsize::new(0))).collect();
    for (nth, got) in got.iter().enumerate() {
        if nth == handles - 1 {
            tokio::time::sleep(ms(300)).await;
            for server in servers.iter() {
                server.command(fails).unwrap();
            }
        }
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

async fn assert_equal_shares(n: usize, fails: &[&str]) {
    let got = contend(&RedisServers::start(n).unwrap(), 4, fails).await;
    let (least, most) = (got.iter().min().unwrap(), got.iter().max().unwrap());
    assert!(least * 3 >= *most, "{n} masters, {fails:?}: {got:?}");
}

#[tokio::test]
async fn a_key_of_another_type_in_the_place_of_a_queue_makes_no_lock_fail_and_shares_stay_equal() {
    for n in [1, 3, 5] {
        assert_equal_shares(n, WRONG_TYPE).await;
    }
}

#[tokio::test]
async fn a_right_that_is_taken_away_makes_no_lock_fail_and_shares_stay_equal() {
    for right in ["-zrange", "-zrem", "-zrank"] {
        assert_equal_shares(3, &["ACL", "SETUSER", "default", right]).await;
    }
}
