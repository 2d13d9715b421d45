//! Runtimes that end while guards live in them.

use std::future::pending;
use std::sync::mpsc::channel;
use std::thread;

use redlock_quorum::{AcquireError, Guard, InvalidRequest, Lease, Redlock};
use tokio::runtime::Runtime;
use tokio::time::sleep;

use crate::lab::{
    FLAVORS, MASTERS, Masters, PATIENCE, block_on, bounded, elsewhere, eventually, full, ms,
    multi_thread, secs,
};

const ROUNDS: usize = 50;

/// The next use of a handle releases what guards could not.
fn assert_released_by_the_next_use(masters: &Masters, redlock: &Redlock) {
    elsewhere(async {
        redlock.lock("next").await.unwrap().release().await.unwrap();
        while masters.keys() > 0 {
            sleep(ms(1)).await;
        }
    });
}

fn guards_in_tasks(flavor: fn() -> Runtime, guards: usize) {
    let (masters, runtime) = (Masters::new(), flavor());
    let redlock = masters.handle();
    for guard in 0..guards {
        let redlock = redlock.clone();
        runtime.block_on(async move {
            let guard = full(&redlock, &format!("held:{guard}")).await;
            tokio::spawn(async move {
                pending::<()>().await;
                drop(guard);
            });
        });
    }
    drop(runtime);
    assert_released_by_the_next_use(&masters, &redlock);
}

#[test]
fn a_runtime_with_guards_in_its_tasks_ends() {
    for flavor in FLAVORS {
        for _ in 0..ROUNDS {
            bounded(move || guards_in_tasks(flavor, 3));
        }
    }
}

/// Each guard dropped after the driver looks for a runtime, and finds none.
#[test]
fn a_runtime_with_many_guards_in_its_tasks_ends() {
    for flavor in FLAVORS {
        bounded(move || guards_in_tasks(flavor, 3_000));
    }
}

fn a_guard_in_a_blocking_closure(flavor: fn() -> Runtime) {
    let (masters, runtime) = (Masters::new(), flavor());
    let redlock = masters.handle();
    let guard = runtime.block_on(full(&redlock, "held"));
    let (go, may_go) = channel();
    let closure = runtime.spawn_blocking(move || {
        may_go.recv_timeout(PATIENCE).unwrap();
        drop(guard);
    });
    // The end of the runtime waits for the closure, and the driver is gone by then.
    let ending = thread::spawn(move || drop(runtime));
    thread::sleep(ms(2));
    go.send(()).unwrap();
    ending.join().unwrap();
    assert!(closure.is_finished());
    assert_released_by_the_next_use(&masters, &redlock);
}

#[test]
fn a_runtime_with_a_guard_in_a_blocking_closure_ends() {
    for flavor in FLAVORS {
        for _ in 0..ROUNDS {
            bounded(move || a_guard_in_a_blocking_closure(flavor));
        }
    }
}

fn a_lock_behind_the_end(flavor: fn() -> Runtime, is_used_before: bool) {
    let (masters, runtime) = (Masters::new(), flavor());
    let redlock = masters.handle();
    if is_used_before {
        runtime.block_on(async { redlock.lock("used").await.unwrap().release().await.unwrap() });
    }
    let ((go, may_go), (outcome, outcomes)) = (channel(), channel());
    runtime.spawn_blocking(move || {
        may_go.recv_timeout(PATIENCE).unwrap();
        let request = redlock.lock("late").into_future();
        outcome.send(block_on(request).map(drop)).unwrap();
    });
    let (task, tasks_are_dropped) = channel::<()>();
    runtime.spawn(async move {
        pending::<()>().await;
        drop(task);
    });
    runtime.shutdown_background();
    tasks_are_dropped.recv_timeout(PATIENCE).unwrap_err();
    // Tasks are dropped one after the other, and a thread that has not noticed the end continues
    // with the remaining tasks. The driver answers until its own task is dropped.
    eventually("the driver has left", || masters.open() == 0);
    go.send(()).unwrap();
    let refused = outcomes.recv_timeout(PATIENCE).unwrap();
    assert_eq!(refused, Err(AcquireError::Invalid(InvalidRequest::NoRuntime)));
}

#[test]
fn a_lock_on_a_thread_of_an_ended_runtime_is_refused() {
    for flavor in FLAVORS {
        for is_used_before in [false, true] {
            bounded(move || a_lock_behind_the_end(flavor, is_used_before));
        }
    }
}

/// A guard dropped just before the end of a runtime is released on the way out.
#[test]
fn guard_dropped_just_before_its_runtime_ends_is_released() {
    for flavor in FLAVORS {
        for _ in 0..ROUNDS {
            bounded(move || {
                let (masters, runtime) = (Masters::new(), flavor());
                let redlock = masters.handle();
                runtime.block_on(async { drop(full(&redlock, "held").await) });
                drop(runtime);
                eventually("every key is gone", || masters.keys() == 0);
            });
        }
    }
}

/// A lease that is being taken over when the runtime ends stays with its holder.
#[test]
fn resume_interrupted_by_its_runtime_keeps_the_holders_lock() {
    for (flavor, is_answered) in FLAVORS.into_iter().flat_map(|one| [(one, false), (one, true)]) {
        bounded(move || {
            let (masters, owners) = (Masters::new(), FLAVORS[1]());
            let guard = owners.block_on(full(&masters.handle(), "held"));
            let lease = Lease::new("held", guard.token().as_str(), secs(60)).unwrap();
            let (other, runtime) = (masters.another_client().handle(), flavor());
            masters.hold(3);
            let resuming = other.clone();
            runtime.spawn(async move { resuming.resume(lease).await.map(Guard::forget) });
            // The requests to the other masters were sent in the same turn.
            runtime.block_on(async {
                while masters.extensions(MASTERS - 1) == 0 {
                    sleep(ms(1)).await;
                }
            });
            if is_answered {
                // No task reads the answers after this.
                masters.go_on();
            }
            drop(runtime);
            masters.go_on();
            elsewhere(async { other.lock("next").await.unwrap().release().await.unwrap() });
            assert_eq!(masters.keys(), MASTERS, "answered: {is_answered}");
            guard.check().unwrap();
            owners.block_on(guard.release()).unwrap();
        });
    }
}

/// Each runtime ends with its lock, and all other callers then retry on a different one. They retry
/// after the driver has left the former runtime, and do not keep it there.
#[test]
fn callers_retry_once_when_the_drivers_runtime_ends() {
    const CALLERS: u64 = 64;
    bounded(|| {
        let (masters, runtime) = (Masters::new(), multi_thread());
        let redlock = masters.handle();
        let guard = runtime.block_on(async { redlock.lock("k").await.unwrap() });
        let mut callers = Vec::new();
        for _ in 0..CALLERS {
            let lock = redlock.lock("k");
            callers.push(thread::spawn(|| elsewhere(async { drop(lock.await.unwrap()) })));
        }
        eventually("all wait", || redlock.stats().waiting == CALLERS);
        drop(runtime);
        drop(guard);
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        let requests = redlock.stats().requests;
        // Each caller retries once for each caller served before it, and a few times more.
        assert!(requests < CALLERS * CALLERS * 2, "{requests} requests");
    });
}
