//! Real connections on a runtime that no thread drives any longer, which another runtime takes
//! over.

use std::future::{Future, IntoFuture};
use std::thread;
use std::time::{Duration, Instant};

use redlock_quorum::{Guard, Redlock};
use redlock_testkit::lab::no_key_is_left;
use redlock_testkit::{RedisServers, ServerOptions};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

use crate::lab::{everywhere, in_time, keys, masters, ms, patient, secs};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A guard of a handle whose driver is on a runtime that idles.
fn idling(servers: &RedisServers, ttl: u64) -> (Runtime, Redlock, Guard) {
    let builder = patient(servers.urls()).ttl(ms(ttl)).node_timeout(ms(ttl / 5));
    let (idle, redlock) = (runtime(), builder.build().unwrap());
    let guard = idle.block_on(everywhere(&redlock, "held"));
    (idle, redlock, guard)
}

/// Less than a third of the TTL, after which a keeper would have to do with it.
const SOON: Duration = secs(9);

/// Runs it on another runtime within a time limit. A driver that makes no progress is taken over
/// after 100 ms, and its connections are made again.
fn soon<F: Future>(future: F) -> F::Output {
    let begun = Instant::now();
    let output = runtime().block_on(in_time(future));
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    output
}

#[test]
fn callers_on_other_runtimes_are_served() {
    let servers = masters();
    let (idle, redlock, guard) = idling(&servers, 30_000);
    soon(async { redlock.lock("other").await.unwrap().release().await.unwrap() });
    drop(idle);
    let others = masters();
    let (_idle, _redlock, second) = idling(&others, 30_000);
    soon(second.extend(secs(40))).unwrap();
    soon(async {
        guard.release().await.unwrap();
        no_key_is_left(&servers).await;
    });
}

#[test]
fn guard_dropped_on_another_runtime_is_released() {
    let servers = masters();
    let (_idle, _redlock, guard) = idling(&servers, 30_000);
    soon(async {
        drop(guard);
        no_key_is_left(&servers).await;
    });
}

#[test]
fn holder_waiting_for_the_loss_keeps_its_lease() {
    let servers = masters();
    let (_idle, redlock, guard) = idling(&servers, 3_000);
    runtime().block_on(async {
        timeout(secs(7), guard.lost()).await.expect_err("it is held");
        guard.check().unwrap();
        assert!(servers.iter().all(|server| !keys(server).is_empty()));
        guard.release().await.unwrap();
        redlock.shutdown(secs(10)).await.unwrap();
    });
}

/// Returns how many calls it takes until new masters vote, whose quarantine takes 4.4 s. Each call
/// runs on `runtime`, or on a new one.
fn calls_until_masters_vote(runtime: Option<&Runtime>, pause: Duration) -> usize {
    let servers = RedisServers::with(3, &ServerOptions::new().brand_new()).unwrap();
    let redlock = crate::admission::handle(&servers).build().unwrap();
    let is_locked = |runtime: &Runtime| {
        let locked = runtime.block_on(in_time(redlock.try_lock("a").into_future()));
        locked.map(Guard::forget).is_ok()
    };
    let begun = Instant::now();
    let mut calls = 1;
    while !runtime.map_or_else(|| is_locked(&self::runtime()), is_locked) {
        assert!(begun.elapsed() < secs(20), "call {calls}");
        let is_admitted = |server| crate::admission::field(server, "run").is_some();
        // Two of the three would be a quorum, and its call would have the lock.
        let admitted = servers.iter().filter(|server| is_admitted(*server)).count();
        assert!(admitted < 2, "call {calls} did not wait for its own steps");
        thread::sleep(pause);
        calls += 1;
    }
    calls
}

/// No task continues after a call has returned, so admission makes progress only within calls.
#[test]
fn calls_on_new_runtimes_end_a_quarantine() {
    let calls = calls_until_masters_vote(None, ms(100));
    assert!(calls > 1, "the first calls come too early: {calls}");
}

#[test]
fn calls_on_an_often_idle_runtime_end_a_quarantine() {
    let calls = calls_until_masters_vote(Some(&runtime()), ms(900));
    assert!(calls > 1, "the first calls come too early: {calls}");
}

/// The idle runtime is used again, and its callers continue with the driver's present runtime.
#[test]
fn alternating_runtimes_are_both_served() {
    let servers = masters();
    let (first, redlock, guard) = idling(&servers, 30_000);
    let second = runtime();
    for time in 0..6 {
        let runtime = if time % 2 == 0 { &second } else { &first };
        let begun = Instant::now();
        runtime.block_on(in_time(async {
            redlock.lock("other").await.unwrap().release().await.unwrap();
            guard.extend(secs(30)).await.unwrap();
        }));
        assert!(begun.elapsed() < SOON, "time {time}: {:?}", begun.elapsed());
    }
    first.block_on(guard.release()).unwrap();
    first.block_on(no_key_is_left(&servers));
}

/// Both are polled: each is served, and the driver stays where it is.
#[test]
fn two_polled_runtimes_share_a_handle() {
    let servers = masters();
    let redlock = patient(servers.urls()).build().unwrap();
    runtime().block_on(everywhere(&redlock, "warm-up")).forget();
    let locks = |name: &'static str, redlock: Redlock| {
        thread::spawn(move || {
            runtime().block_on(in_time(async {
                for time in 0..20 {
                    let guard = redlock.lock(format!("{name}:{time}")).await.unwrap();
                    sleep(ms(5)).await;
                    guard.release().await.unwrap();
                }
            }));
        })
    };
    let threads = [locks("a", redlock.clone()), locks("b", redlock.clone())];
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    runtime().block_on(async { redlock.shutdown(secs(10)).await.unwrap() });
    assert!(servers.iter().all(|server| keys(server).len() <= 1), "only the forgotten one");
}
