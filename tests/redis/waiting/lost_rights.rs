//! Rights that a release needs are taken away from clients that are connected and wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use redlock_quorum::{AcquireError, Redlock};
use redlock_testkit::RedisServers;
use redlock_testkit::lab::{eventually, has_command, text};
use tokio::task::JoinSet;

use crate::lab::{in_time, ms, ordinary, secs};

const KEY: &str = "wanted";
const HANDLES: usize = 3;
/// How long each lock is held. With shorter holds the callers use a whole core, which the tests that
/// run at the same time need.
const HOLD: Duration = ms(5);

/// Callers that take the key again and again, and what became of that.
struct Load {
    callers: JoinSet<()>,
    handles: Vec<Redlock>,
    locks: Arc<AtomicUsize>,
    errors: Arc<AtomicUsize>,
    ends: Arc<AtomicBool>,
}

impl Load {
    fn start(servers: &RedisServers, queue: bool) -> Self {
        let mut load = Self {
            callers: JoinSet::new(),
            handles: Vec::new(),
            locks: Arc::default(),
            errors: Arc::default(),
            ends: Arc::default(),
        };
        for _ in 0..HANDLES {
            let redlock = ordinary(servers.urls()).queue(queue).build().unwrap();
            load.handles.push(redlock.clone());
            for _ in 0..2 {
                let redlock = redlock.clone();
                let (locks, errors) = (load.locks.clone(), load.errors.clone());
                let ends = load.ends.clone();
                load.callers.spawn(async move {
                    while !ends.load(Ordering::Relaxed) {
                        let lock = redlock.lock(KEY).ttl(secs(4)).wait(secs(30));
                        match lock.await {
                            Ok(guard) => {
                                locks.fetch_add(1, Ordering::Relaxed);
                                tokio::time::sleep(HOLD).await;
                                let _ = guard.release().await;
                            }
                            Err(AcquireError::NoQuorum { votes, .. }) => {
                                let said = votes.to_string();
                                let names_it = ["NOPERM", "no lock can be released"];
                                assert!(names_it.iter().any(|it| said.contains(it)), "{said}");
                                errors.fetch_add(1, Ordering::Relaxed);
                                tokio::time::sleep(ms(50)).await;
                            }
                            // The key of the last holder, which could not be released.
                            Err(AcquireError::Held { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
        }
        load
    }

    fn locks(&self) -> usize {
        self.locks.load(Ordering::Relaxed)
    }

    /// Returns the leases of each handle. Several callers may have had the same lease in turn.
    fn won(&self) -> Vec<u64> {
        self.handles.iter().map(|redlock| redlock.stats().outcomes.won).collect()
    }

    fn leases(&self) -> u64 {
        self.won().iter().sum()
    }

    async fn end(mut self) {
        self.ends.store(true, Ordering::Relaxed);
        while let Some(caller) = in_time(self.callers.join_next()).await {
            caller.unwrap();
        }
    }
}

fn change(servers: &[redlock_testkit::RedisServer], right: &str) {
    for server in servers {
        server.command(&["ACL", "SETUSER", "default", right]).unwrap();
    }
}

fn has_key(server: &redlock_testkit::RedisServer) -> bool {
    text::<usize>(server, &["EXISTS", KEY]) == 1
}

/// Each handle may learn it from one lock that it cannot release. In a queue, a release without DEL
/// still hands the key to the next process.
#[tokio::test]
async fn clients_without_the_right_to_release_acquire_nothing() {
    for (right, queue) in [("eval", true), ("eval", false), ("del", false), ("get", true)] {
        let servers = RedisServers::start(3).unwrap();
        let load = Load::start(&servers, queue);
        eventually("they work", || load.locks() > 20).await;
        let related: &[&str] = match right {
            "eval" => &["evalsha"],
            // A release needs no DEL where the server has its own command for it.
            "del" => &["delex", "delifeq"],
            _ => &[],
        };
        let has = |other: &&&str| has_command(&servers[0], other);
        let rights: Vec<&str> =
            [right].into_iter().chain(related.iter().filter(has).copied()).collect();
        rights.iter().for_each(|right| change(&servers, &format!("-{right}")));
        eventually("the waits end", || load.errors.load(Ordering::Relaxed) >= HANDLES * 2).await;
        let before = load.leases();
        tokio::time::sleep(secs(5)).await;
        let since = load.leases() - before;
        assert!(since <= HANDLES as u64, "{right}, {queue}: {since} leases without a release");
        eventually("the last key expires", || !servers.iter().any(has_key)).await;
        rights.iter().for_each(|right| change(&servers, &format!("+{right}")));
        let before = load.locks();
        eventually("they work again", || load.locks() > before + 20).await;
        load.end().await;
    }
}

#[tokio::test]
async fn master_without_the_right_to_release_is_not_used() {
    let servers = RedisServers::start(3).unwrap();
    let load = Load::start(&servers, true);
    eventually("they work", || load.locks() > 20).await;
    change(&servers[..1], "-eval");
    change(&servers[..1], "-evalsha");
    // Each handle learns it from its next release.
    let before = load.won();
    let have_learned = || load.won().iter().zip(&before).all(|(won, before)| *won >= before + 2);
    eventually("each handle learns it", have_learned).await;
    eventually("the last key there expires", || !has_key(&servers[0])).await;
    for _ in 0..50 {
        assert!(!has_key(&servers[0]), "nothing is acquired there");
        tokio::time::sleep(ms(5)).await;
    }
    let before = load.locks();
    eventually("the others are enough", || load.locks() > before + 100).await;
    assert_eq!(load.errors.load(Ordering::Relaxed), 0);
    load.end().await;
}
