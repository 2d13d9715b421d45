//! Guards and handles outside the runtime they were made on, and after its end.

use std::thread;

use futures::FutureExt;
use redlock_quorum::{AcquireError, Guard, InvalidRequest, Redlock};
use redlock_testkit::RedisServers;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep};

use crate::lab::{
    PATIENCE, eventually, everywhere, in_time, keys, masters, ms, no_key_is_left, patient, pttl,
    secs,
};

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Creates a guard whose driver ran on a runtime that is gone.
fn orphan(redlock: &Redlock) -> Guard {
    let runtime = runtime();
    let guard = runtime.block_on(everywhere(redlock, "orphaned"));
    drop(runtime);
    guard
}

fn on_a_new_runtime<F: Future>(future: F) -> F::Output {
    runtime().block_on(in_time(future))
}

fn handle(servers: &RedisServers) -> Redlock {
    patient(servers.urls()).build().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_dropped_by_a_thread_without_runtime_is_released() {
    let servers = masters();
    let guard = handle(&servers).lock("elsewhere").await.unwrap();
    assert!(servers.iter().any(|server| !keys(server).is_empty()));
    thread::spawn(move || drop(guard)).join().unwrap();
    no_key_is_left(&servers).await;
}

#[test]
fn lock_without_a_runtime_is_an_error() {
    let servers = masters();
    let refused = handle(&servers).lock("nowhere").into_future().now_or_never();
    let refused = refused.expect("nothing is waited for").unwrap_err();
    let AcquireError::Invalid(InvalidRequest::NoRuntime) = refused else { panic!("{refused}") };
}

#[test]
fn a_guard_outlives_the_runtime_of_its_driver() {
    let servers = masters();
    let guard = orphan(&handle(&servers));
    guard.check().unwrap();
    assert_eq!(guard.copies(), 5, "nothing extends it, and it lives for 30 s");
}

#[test]
fn guard_dropped_after_its_runtime_is_released_later() {
    let servers = masters();
    let redlock = handle(&servers);
    drop(orphan(&redlock));
    assert!(servers.iter().all(|server| !keys(server).is_empty()), "nothing can have released it");
    on_a_new_runtime(async {
        redlock.lock("another").await.unwrap().release().await.unwrap();
        no_key_is_left(&servers).await;
    });
}

#[test]
fn guard_is_released_on_another_runtime() {
    let servers = masters();
    let guard = orphan(&handle(&servers));
    on_a_new_runtime(async {
        guard.release().await.unwrap();
        no_key_is_left(&servers).await;
    });
}

#[test]
fn guard_is_extended_on_another_runtime() {
    let servers = masters();
    let guard = orphan(&handle(&servers));
    on_a_new_runtime(async {
        guard.extend(secs(60)).await.unwrap();
        assert!(guard.remaining() > secs(50));
        guard.release().await.unwrap();
    });
}

#[test]
fn keeper_continues_on_the_next_runtime() {
    let servers = masters();
    let redlock = patient(servers.urls()).ttl(secs(3)).node_timeout(ms(500)).build().unwrap();
    let guard = orphan(&redlock);
    on_a_new_runtime(async {
        redlock.status("orphaned").await;
        let end = Instant::now() + secs(6);
        while Instant::now() < end {
            guard.check().unwrap();
            sleep(ms(10)).await;
        }
        assert!(servers.iter().all(|server| pttl(server, "orphaned") > 0));
        guard.release().await.unwrap();
        no_key_is_left(&servers).await;
    });
}

#[test]
fn waiting_caller_continues_on_its_own_runtime() {
    let servers = masters();
    let redlock = handle(&servers);
    let set = |value: &str| {
        servers.iter().for_each(|server| {
            server.command(&["SET", "contended", value]).unwrap();
        });
    };
    set("a stranger");
    let first = runtime();
    first.block_on(async { redlock.status("contended").await });
    let before = crate::lab::calls(&servers[0], "set");
    let waiting = thread::spawn(move || {
        runtime().block_on(async move {
            let guard = redlock.lock("contended").wait(PATIENCE).await.unwrap();
            guard.release().await.unwrap();
        });
    });
    let asked = || crate::lab::calls(&servers[0], "set") > before;
    runtime().block_on(eventually("it is being asked for", asked));
    drop(first);
    servers.iter().for_each(|server| {
        server.command(&["DEL", "contended"]).unwrap();
    });
    waiting.join().unwrap();
    runtime().block_on(no_key_is_left(&servers));
}

#[test]
fn shutdown_after_the_runtime_names_remaining_keys() {
    let servers = masters();
    let redlock = handle(&servers);
    drop(orphan(&redlock));
    let closed = on_a_new_runtime(redlock.shutdown(secs(5)));
    let left = servers.iter().any(|server| !keys(server).is_empty());
    assert!(closed.is_err() || !left, "it reports that no key is left, but one is");
}
