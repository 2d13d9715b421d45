//! Many contenders on one resource, while masters come and go under them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use redlock_quorum::Redlock;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::lab::{PATIENCE, eventually, leaves_nothing, ms, patient};
use crate::masters::Masters;

const KEY: &str = "crowd";
const CONTENDERS: u32 = 8;
const EACH: u32 = 25;
const ALL: u32 = CONTENDERS * EACH;

/// A number in a file: two who increment it at once lose an increment.
struct Counter(PathBuf);

impl Counter {
    fn new() -> Self {
        let counter = Self(Path::new(env!("CARGO_TARGET_TMPDIR")).join("compose-counter"));
        counter.write(0);
        counter
    }

    fn read(&self) -> u32 {
        fs::read_to_string(&self.0).unwrap().parse().unwrap()
    }

    fn write(&self, count: u32) {
        fs::write(&self.0, count.to_string()).unwrap();
    }

    /// Takes its time, so that whoever comes in between does harm.
    async fn increment(&self) {
        let count = self.read();
        sleep(ms(2)).await;
        self.write(count + 1);
    }
}

async fn contend(redlock: Redlock, counter: Arc<Counter>, done: Arc<AtomicU32>) {
    for _ in 0..EACH {
        let guard = redlock.lock(KEY).wait(2 * PATIENCE).await.unwrap();
        counter.increment().await;
        guard.check().unwrap();
        done.fetch_add(1, Ordering::SeqCst);
        guard.release().await.unwrap();
    }
    redlock.shutdown(PATIENCE).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_contenders_lose_no_increment_while_one_master_is_killed_and_one_paused() {
    let masters = Masters::take();
    let (counter, done) = (Arc::new(Counter::new()), Arc::new(AtomicU32::new(0)));
    let mut crowd = JoinSet::new();
    // A handle each, as if each were a process of its own.
    for _ in 0..CONTENDERS {
        crowd.spawn(contend(patient(&masters), counter.clone(), done.clone()));
    }
    let count = || done.load(Ordering::SeqCst);
    eventually("a quarter is done", || count() >= ALL / 4).await;
    let dead = masters[0].kill();
    let silent = masters[4].pause();
    let before = count();
    eventually("it goes on on three masters", || count() >= before + ALL / 4).await;
    assert!(count() < ALL, "the masters were hurt too late");
    dead.heal();
    silent.heal();
    while let Some(contender) = timeout(2 * PATIENCE, crowd.join_next()).await.expect("an end") {
        contender.unwrap();
    }
    assert_eq!((count(), counter.read()), (ALL, ALL));
    leaves_nothing(patient(&masters), &masters, KEY).await;
}
