//! Broken queues: a key of another type is in their place, or a right is missing. Clients then wait
//! without a queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use redlock_quorum::Redlock;
use redlock_testkit::RedisServers;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::lab::{eventually, everywhere, in_time, ms, no_key_is_left, ordinary, release, secs};

/// How long each lock is held. Twelve callers with shorter holds use a whole core, which the tests
/// that run at the same time need.
const HOLD: Duration = ms(5);
/// How many locks each handle gets on average before its share is judged, unless the machine is too
/// busy for so many. A stall can take locks from one handle, so unequal shares are counted for longer.
const LOCKS: usize = 150;
const LONGEST: Duration = secs(20);
/// The command that breaks every queue.
const WRONG_TYPE: &[&str] = &["SET", "redlock-quorum:1:queue:wanted", "of another type"];

/// Three callers of each handle that take the key again and again.
struct Load {
    callers: JoinSet<()>,
    /// The locks that each handle has acquired.
    got: Vec<Arc<AtomicUsize>>,
    is_over: Arc<AtomicBool>,
}

impl Load {
    fn new() -> Self {
        Self { callers: JoinSet::new(), got: Vec::new(), is_over: Arc::default() }
    }

    fn add_handle(&mut self, redlock: Redlock) {
        let got = Arc::<AtomicUsize>::default();
        for _ in 0..3 {
            let (redlock, got, is_over) = (redlock.clone(), got.clone(), self.is_over.clone());
            self.callers.spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let guard = redlock.lock("wanted").wait(secs(30)).await.unwrap();
                    got.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(HOLD).await;
                    guard.release().await.unwrap();
                }
            });
        }
        self.got.push(got);
    }

    fn got(&self) -> Vec<usize> {
        self.got.iter().map(|got| got.load(Ordering::Relaxed)).collect()
    }

    async fn all_work(&self) {
        eventually("all handles get locks", || self.got().iter().all(|got| *got > 0)).await;
    }

    /// How many locks each handle gets from now on, until all of them have had enough and as many.
    async fn shares(&self) -> Vec<usize> {
        let (begun, before) = (Instant::now(), self.got());
        loop {
            tokio::time::sleep(HOLD).await;
            let mut got = self.got();
            got.iter_mut().zip(&before).for_each(|(got, before)| *got -= before);
            let are_enough = got.iter().sum::<usize>() >= LOCKS * got.len();
            if are_enough && are_equal(&got) || begun.elapsed() > LONGEST {
                return got;
            }
        }
    }

    async fn end(mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        while let Some(caller) = in_time(self.callers.join_next()).await {
            caller.unwrap();
        }
    }
}

/// Returns how many locks each of four handles gets. Three are at work when the queues fail. The
/// last one connects afterwards, so that it learns of rights in another way. It is connected before
/// its callers come, because a busy machine takes long for that.
async fn contend(servers: &RedisServers, fails: &[&str]) -> Vec<usize> {
    let handle = || ordinary(servers.urls()).build().unwrap();
    let mut load = Load::new();
    (0..3).for_each(|_| load.add_handle(handle()));
    load.all_work().await;
    for server in servers.iter() {
        server.command(fails).unwrap();
    }
    let last = handle();
    release(everywhere(&last, "warm-up").await).await;
    load.add_handle(last);
    let shares = load.shares().await;
    load.end().await;
    no_key_is_left(servers).await;
    shares
}

/// The smallest share is at least a third of the largest.
fn are_equal(got: &[usize]) -> bool {
    let (least, most) = (got.iter().min().unwrap(), got.iter().max().unwrap());
    *least > 0 && least * 3 >= *most
}

async fn assert_equal_shares(n: usize, fails: &[&str]) {
    let got = contend(&RedisServers::start(n).unwrap(), fails).await;
    assert!(are_equal(&got), "{n} masters, {fails:?}: {got:?}");
}

#[tokio::test]
async fn wrong_type_queue_key_keeps_locks_working_and_shares_equal() {
    for n in [1, 3, 5] {
        assert_equal_shares(n, WRONG_TYPE).await;
    }
}

#[tokio::test]
async fn revoked_queue_right_keeps_locks_working_and_shares_equal() {
    for right in ["-zrange", "-zrem", "-zrank"] {
        assert_equal_shares(3, &["ACL", "SETUSER", "default", right]).await;
    }
}
