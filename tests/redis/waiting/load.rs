//! Many locks at the same time, on masters that refuse, are paused or are busy.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use futures::future::join_all;
use redlock_quorum::{Redlock, Unreleased};
use redlock_testkit::RedisServer;
use redlock_testkit::lab::thread_time;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::lab::{
    eventually, everywhere, in_time, keys, masters, ms, no_key_is_left, on_all, patient, pttl,
    secs, text, warm_up,
};

/// Tasks that acquire and release their own locks until this is dropped or ended.
struct Workers {
    tasks: JoinSet<()>,
    is_over: Arc<AtomicBool>,
    locks: Arc<AtomicU64>,
}

impl Workers {
    fn start(redlock: &Redlock, tasks: usize) -> Self {
        let (is_over, locks) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let mut workers = Self { tasks: JoinSet::new(), is_over, locks };
        for task in 0..tasks {
            let redlock = redlock.clone();
            let (is_over, locks) = (workers.is_over.clone(), workers.locks.clone());
            workers.tasks.spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let nth = locks.fetch_add(1, Ordering::Relaxed);
                    let guard = redlock.lock(format!("{task}:{nth}")).await.unwrap();
                    guard.release().await.unwrap();
                }
            });
        }
        workers
    }

    /// Returns the present cost of a lock. The runtime of these tests has only this thread.
    async fn cost(&self, over: Duration) -> Duration {
        let (locks, begun) = (self.locks.load(Ordering::Relaxed), thread_time());
        sleep(over).await;
        let made = || self.locks.load(Ordering::Relaxed) - locks;
        eventually("some locks are made", || made() >= 20).await;
        let made = made();
        (thread_time() - begun) / u32::try_from(made).unwrap()
    }

    /// All of them come to their end without an error.
    async fn end(mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        while let Some(ended) = in_time(self.tasks.join_next()).await {
            ended.unwrap();
        }
    }
}

/// A trace that stays makes locks dearer and dearer. On a machine that is busy they are up to four
/// times as dear, because fewer are sent together.
fn costs_about(after: Duration, before: Duration) {
    assert!(after < before * 8, "{after:?} per lock, not {before:?}");
}

fn deny_scripts(server: &RedisServer) {
    server.command(&["ACL", "SETUSER", "default", "-@scripting"]).unwrap();
}

#[tokio::test]
async fn a_burst_of_locks_and_releases_succeeds_as_a_whole() {
    let servers = masters();
    let redlock = patient(servers.urls()).node_timeout(secs(5)).wait(secs(60)).build().unwrap();
    let burst = (0..3_000).map(|nth| {
        let redlock = redlock.clone();
        async move { redlock.lock(format!("burst:{nth}")).await.unwrap().release().await }
    });
    let released = timeout(secs(60), join_all(burst)).await.unwrap();
    let failed: Vec<_> = released.into_iter().filter_map(Result::err).collect();
    assert!(failed.is_empty(), "{} of them failed: {}", failed.len(), failed[0]);
    assert_eq!(in_time(redlock.shutdown(secs(10))).await, Ok(()));
    no_key_is_left(&servers).await;
}

#[tokio::test]
async fn paused_master_under_many_tasks_has_no_lasting_effect() {
    let servers = masters();
    let redlock =
        patient(servers.urls()).node_timeout(secs(2)).connect_timeout(ms(500)).build().unwrap();
    warm_up(&redlock, &servers).await;
    let workers = Workers::start(&redlock, 300);
    let before = workers.cost(secs(1)).await;
    servers[1].pause().unwrap();
    sleep(secs(2)).await;
    servers[1].resume().unwrap();
    sleep(secs(1)).await;
    let after = workers.cost(secs(1)).await;
    costs_about(after, before);
    workers.end().await;
    assert_eq!(in_time(redlock.shutdown(secs(10))).await, Ok(()));
    no_key_is_left(&servers).await;
}

/// It answers BUSY for longer than the lease lasts.
#[tokio::test]
async fn lock_is_held_while_one_master_is_busy() {
    let servers = masters();
    let redlock = patient(servers.urls()).ttl(secs(4)).node_timeout(secs(1)).build().unwrap();
    let held = everywhere(&redlock, "held").await;
    text::<()>(&servers[1], &["CONFIG", "SET", "lua-time-limit", "20"]);
    let (workers, redis) = (Workers::start(&redlock, 16), servers[1].url());
    let before = workers.cost(ms(500)).await;
    let script = thread::spawn(move || {
        let mut connection = redis::Client::open(redis).unwrap().get_connection().unwrap();
        // It ends with an error: the script is killed.
        let _: redis::RedisResult<()> =
            redis::cmd("EVAL").arg("while true do end").arg(0).query(&mut connection);
    });
    sleep(secs(6)).await;
    let after = workers.cost(ms(500)).await;
    assert_eq!(held.check(), Ok(()));
    costs_about(after, before);
    text::<()>(&servers[1], &["SCRIPT", "KILL"]);
    script.join().unwrap();
    workers.end().await;
    in_time(held.release()).await.unwrap();
    no_key_is_left(&servers).await;
}

/// Each error reply to a release makes the next pause longer. A shutdown does not wait for the end
/// of a pause if the key has expired in the meantime.
#[tokio::test]
async fn expired_keys_are_not_named_or_awaited() {
    let servers = masters();
    let redlock = patient(servers.urls()).ttl(secs(30)).node_timeout(ms(100)).build().unwrap();
    let guard = on_all(|| redlock.lock("long").ttl(secs(5))).await;
    // A client that is denied scripts when it connects acquires nothing there.
    deny_scripts(&servers[1]);
    drop(guard);
    // From 0.5 s on the pause doubles with every error.
    sleep(secs(4)).await;
    drop(redlock.lock("short").ttl(ms(400)).await.unwrap());
    let begun = Instant::now();
    let closed = in_time(redlock.shutdown(secs(15))).await;
    assert_eq!(closed, Ok(()));
    assert!(begun.elapsed() < secs(4), "it waited for {:?}", begun.elapsed());
    assert!(keys(&servers[1]).is_empty());
}

fn only_key(unreleased: &Unreleased) -> &redlock_quorum::UnreleasedKey {
    assert_eq!(unreleased.keys().len(), 1, "{unreleased}");
    &unreleased.keys()[0]
}

/// It sets the key when it resumes, not when the request was sent.
#[tokio::test]
async fn key_buffered_by_a_paused_master_expires_after_its_resume() {
    let servers = masters();
    let redlock = patient(servers.urls()).ttl(secs(8)).node_timeout(ms(200)).build().unwrap();
    warm_up(&redlock, &servers).await;
    servers[1].pause().unwrap();
    let guard = in_time(redlock.lock("late").into_future()).await.unwrap();
    sleep(secs(1)).await;
    in_time(guard.release()).await.unwrap();
    let unreleased = in_time(redlock.shutdown(secs(2))).await.unwrap_err();
    let key = only_key(&unreleased);
    assert!(key.from_wake_up && key.node == servers[1].name(), "{unreleased}");
    servers[1].resume().unwrap();
    // The release was in its buffer as well, or its connection broke before it was read.
    let life = u64::try_from(pttl(&servers[1], "late")).unwrap_or(0);
    assert!(ms(life) <= key.within, "it lives for {life} ms, and {unreleased}");
}

#[tokio::test]
async fn confirmed_key_lasts_at_most_its_ttl() {
    let servers = masters();
    let redlock = patient(servers.urls()).ttl(secs(8)).node_timeout(ms(200)).build().unwrap();
    let guard = everywhere(&redlock, "early").await;
    servers[1].pause().unwrap();
    in_time(guard.release()).await.unwrap();
    let unreleased = in_time(redlock.shutdown(ms(500))).await.unwrap_err();
    let key = only_key(&unreleased);
    assert!(!key.from_wake_up, "{unreleased}");
    assert!(key.within <= ms(8_800) - ms(490), "{unreleased}");
    servers[1].resume().unwrap();
}

/// How often a handle tries in two seconds to reach a master that has been away for a while.
async fn attempts(server: &RedisServer) -> usize {
    let refuses = TcpListener::bind(server.name()).unwrap();
    refuses.set_nonblocking(true).unwrap();
    let (end, mut attempts) = (Instant::now() + secs(2), 0);
    while Instant::now() < end {
        attempts += usize::from(refuses.accept().is_ok());
        sleep(ms(2)).await;
    }
    attempts
}

#[tokio::test]
async fn reconnects_are_faster_while_a_copy_is_missing() {
    let servers = masters();
    let redlock = patient(servers.urls()).build().unwrap();
    let held = everywhere(&redlock, "held").await;
    servers[1].kill();
    sleep(secs(3)).await;
    // Pauses of at most 80 ms and not of a second.
    let urgent = attempts(&servers[1]).await;
    assert!(urgent >= 8, "{urgent} attempts");
    in_time(held.release()).await.unwrap();
    sleep(secs(2)).await;
    let idle = attempts(&servers[1]).await;
    assert!(idle <= 6, "{idle} attempts");
    let held = in_time(redlock.lock("held").into_future()).await.unwrap();
    servers[1].restart().unwrap();
    servers[1].init().unwrap();
    eventually("the master gets its copy", || held.copies() == 5).await;
    in_time(held.release()).await.unwrap();
}
