//! The demo through these masters: hosts that run the command again and again, while masters come
//! and go under them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;

use crate::lab::{PATIENCE, eventually};
use crate::masters::Masters;

const KEY: &str = "crowd";
const CONTENDERS: u32 = 8;
const EACH: u32 = 25;
const ALL: u32 = CONTENDERS * EACH;

/// Takes its time between reading and writing, so that a contender that comes in between does harm.
const INCREMENT: &str = r#"n=$(cat "$1") && sleep 0.002 && echo $((n + 1)) > "$1""#;

/// A number in a file. If two holders increment it at the same time, an increment is lost.
struct Counter(PathBuf);

impl Counter {
    fn new() -> Self {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compose-counter");
        fs::write(&file, "0").unwrap();
        Self(file)
    }

    fn read(&self) -> u32 {
        fs::read_to_string(&self.0).unwrap().trim().parse().unwrap()
    }

    /// One run of `redlock run`, on the masters that the environment names.
    fn increment(&self) -> Output {
        let redlock = std::env::var_os("REDLOCK_BIN");
        Command::new(redlock.expect("REDLOCK_BIN names the command: run `make test-compose`"))
            .args(["run", KEY, "--ttl", "10s", "--wait", "60s"])
            .args(["--", "sh", "-c", INCREMENT, "sh"])
            .arg(&self.0)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }
}

fn contend(counter: &Counter, done: &AtomicU32) {
    for _ in 0..EACH {
        let output = counter.increment();
        assert!(output.status.success(), "{output:?}");
        done.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crowd_loses_no_increment_with_killed_and_paused_masters() {
    let masters = Masters::take();
    let (counter, done) = (Arc::new(Counter::new()), Arc::new(AtomicU32::new(0)));
    let mut crowd = JoinSet::new();
    for _ in 0..CONTENDERS {
        let (counter, done) = (counter.clone(), done.clone());
        crowd.spawn(spawn_blocking(move || contend(&counter, &done)));
    }
    let count = || done.load(Ordering::SeqCst);
    eventually("a quarter is done", || count() >= ALL / 4).await;
    let dead = masters[0].kill();
    let silent = masters[4].pause();
    let before = count();
    eventually("it goes on on three masters", || count() >= before + ALL / 4).await;
    assert!(count() < ALL, "the faults came too late");
    dead.heal();
    silent.heal();
    while let Some(contender) = timeout(2 * PATIENCE, crowd.join_next()).await.expect("an end") {
        contender.unwrap().unwrap();
    }
    assert_eq!((count(), counter.read()), (ALL, ALL));
    // A process that has exited sends no release to a master that was away. Its key there expires,
    // on a minority.
    let left = || masters.values(KEY).iter().filter(|value| value.is_some()).count();
    assert!(left() <= 2, "{:?}", masters.values(KEY));
    eventually("what was left has expired", || left() == 0).await;
}
