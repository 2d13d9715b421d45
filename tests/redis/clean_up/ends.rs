//! Programs that exit: the keys that a guard dropped at the exit leaves.
//!
//! The test starts itself again as the program, because an exited process does nothing more.

use std::env;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use redlock_testkit::lab::{eventually, keys};
use redlock_testkit::{RedisServer, RedisServers};
use tokio::runtime::{Builder, Runtime};

use crate::lab::{PATIENCE, ms, patient};

/// Marks the process as the program, and selects the runtime of its `main`.
const FLAVOR: &str = "REDLOCK_TEST_FLAVOR";
const URLS: &str = "REDLOCK_TEST_URLS";
const TIMES: usize = 20;

fn runtime(flavor: &str) -> Runtime {
    match flavor {
        "current_thread" => Builder::new_current_thread().enable_all().build().unwrap(),
        _ => Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap(),
    }
}

/// Does the same as a `main` under `#[tokio::main]` that returns with `?` between a lock and its
/// release.
fn program(flavor: &str) {
    let urls = env::var(URLS).unwrap();
    let main = async {
        let redlock = patient(urls.split(',').map(str::to_owned)).build()?;
        let guard = redlock.lock("held").min_copies(5).await?;
        if guard.is_held() {
            anyhow::bail!("the work has failed");
        }
        guard.release().await?;
        anyhow::Ok(())
    };
    let failed = runtime(flavor).block_on(main).unwrap_err();
    assert_eq!(failed.to_string(), "the work has failed");
}

/// Runs the test of this name as the program, to its end.
fn run_program(test: &str, flavor: &str, servers: &RedisServers) {
    let urls: Vec<String> = servers.urls();
    let mut program = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--test-threads=1"])
        .env(FLAVOR, flavor)
        .env(URLS, urls.join(","))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = program.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            let _ = program.kill();
            let _ = program.wait();
            panic!("the program does not end within {PATIENCE:?}");
        }
        thread::sleep(ms(5));
    };
    assert!(status.success(), "{status}");
}

fn sets(server: &RedisServer) -> u64 {
    redlock_testkit::lab::calls(server, "set")
}

async fn leaves_no_key(test: &str, flavor: &str) {
    let servers = RedisServers::start(5).unwrap();
    for time in 1..=TIMES {
        run_program(test, flavor, &servers);
        // The servers read the data in their sockets after the program has exited.
        eventually(&format!("no key is left, time {time} of {TIMES}"), || {
            servers.iter().all(|server| keys(server).is_empty())
        })
        .await;
    }
    // A quorum at least has had a key, each time.
    let asked: u64 = servers.iter().map(sets).sum();
    assert!(asked >= 3 * TIMES as u64, "{asked}");
}

#[test]
fn guard_dropped_at_the_end_of_main_is_released_on_one_thread() {
    if let Ok(flavor) = env::var(FLAVOR) {
        return program(&flavor);
    }
    let test = "clean_up::ends::guard_dropped_at_the_end_of_main_is_released_on_one_thread";
    runtime("").block_on(leaves_no_key(test, "current_thread"));
}

#[test]
fn guard_dropped_at_the_end_of_main_is_released_on_many_threads() {
    if let Ok(flavor) = env::var(FLAVOR) {
        return program(&flavor);
    }
    let test = "clean_up::ends::guard_dropped_at_the_end_of_main_is_released_on_many_threads";
    runtime("").block_on(leaves_no_key(test, "multi_thread"));
}

/// A panic also drops the guard.
#[test]
fn a_guard_dropped_by_a_panic_is_released() {
    for flavor in ["current_thread", "multi_thread"] {
        let servers = RedisServers::start(5).unwrap();
        let urls = servers.urls();
        let unwound = thread::spawn(move || {
            runtime(flavor).block_on(async {
                let redlock = patient(urls).build().unwrap();
                let _guard = redlock.lock("held").min_copies(5).await.unwrap();
                panic!("this panic is part of the test");
            });
        });
        unwound.join().unwrap_err();
        runtime("").block_on(eventually("no key is left", || {
            servers.iter().all(|server| keys(server).is_empty())
        }));
    }
}

/// Real connections, closed under guards that live in tasks and in blocking closures.
#[test]
fn a_runtime_with_live_guards_and_real_connections_ends() {
    let servers = RedisServers::start(3).unwrap();
    for (time, flavor) in ["current_thread", "multi_thread"].iter().cycle().take(20).enumerate() {
        let redlock = patient(servers.urls()).ttl(Duration::from_secs(60)).build().unwrap();
        let ending = runtime(flavor);
        ending.block_on(async {
            let in_task = redlock.lock(format!("task:{time}")).await.unwrap();
            let in_closure = redlock.lock(format!("closure:{time}")).await.unwrap();
            tokio::spawn(async move {
                std::future::pending::<()>().await;
                drop(in_task);
            });
            tokio::task::spawn_blocking(move || {
                thread::sleep(ms(20));
                drop(in_closure);
            });
        });
        let begun = Instant::now();
        let ended = thread::spawn(move || drop(ending));
        while !ended.is_finished() {
            assert!(begun.elapsed() < PATIENCE, "{flavor}: the runtime does not end");
            thread::sleep(ms(1));
        }
        ended.join().unwrap();
        runtime(flavor).block_on(async {
            redlock.lock("next").await.unwrap().release().await.unwrap();
            redlock_testkit::lab::no_key_is_left(&servers).await;
        });
    }
}
