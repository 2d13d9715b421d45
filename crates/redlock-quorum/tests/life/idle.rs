//! Runtimes that drive a handle and are not polled, because no thread blocks on them.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

use redlock_quorum::{AcquireError, ExtendError, Guard, InvalidRequest, Redlock, State};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::lab::{
    MASTERS, Masters, PATIENCE, block_on, bounded, current_thread, elsewhere, eventually, full, ms,
    multi_thread, secs,
};

/// Far more than the 100 ms after which a caller takes the driver over, on a busy machine, and less
/// than a third of the TTL, after which a keeper would have to do with it.
const SOON: std::time::Duration = secs(15);

/// A handle whose driver is on a runtime that idles, and a guard of it.
fn idling(masters: &Masters) -> (Runtime, Redlock, Guard) {
    let (runtime, redlock) = (current_thread(), masters.handle());
    let guard = runtime.block_on(full(&redlock, "held"));
    (runtime, redlock, guard)
}

/// Runs a future on a separate runtime, and checks that it finishes soon.
fn soon<F: Future>(future: F) -> F::Output {
    let begun = Instant::now();
    let output = elsewhere(future);
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    output
}

#[test]
fn callers_on_other_runtimes_are_served() {
    bounded(|| {
        let masters = Masters::new();
        let (_idle, redlock, guard) = idling(&masters);
        soon(async { redlock.lock("other").await.unwrap().release().await.unwrap() });
        drop((_idle, guard));
        for call in 0..5 {
            let (_idle, redlock, guard) = idling(&Masters::new());
            match call {
                0 => assert!(matches!(soon(redlock.status("held")).state, State::Held { .. })),
                1 => soon(guard.extend(secs(50))).unwrap(),
                2 => soon(guard.release()).unwrap(),
                3 => drop(soon(redlock.resume(guard.into_lease())).unwrap()),
                _ => drop(soon(redlock.shutdown(secs(5))).unwrap_err()),
            }
        }
    });
}

/// Many wait at the same time: one of them takes the driver over, and the others find it there.
#[test]
fn many_callers_take_over_an_idle_driver_once() {
    for flavor in [current_thread, multi_thread] {
        bounded(move || {
            let masters = Masters::new();
            let (_idle, redlock, _guard) = idling(&masters);
            flavor().block_on(async {
                let mut locks = JoinSet::new();
                for n in 0..50 {
                    let request = redlock.lock(format!("{n}")).into_future();
                    locks.spawn(async { request.await.unwrap().release().await.unwrap() });
                }
                locks.join_all().await;
            });
            assert_eq!(
                masters.drives(),
                2 * MASTERS,
                "connections to each master: the first, and one"
            );
        });
    }
}

#[test]
fn guard_dropped_on_another_runtime_is_released() {
    for flavor in [current_thread, multi_thread] {
        bounded(move || {
            let masters = Masters::new();
            let (_idle, _redlock, guard) = idling(&masters);
            flavor().block_on(async {
                drop(guard);
                timeout(SOON, async {
                    while masters.keys() > 0 {
                        sleep(ms(1)).await;
                    }
                })
                .await
                .expect("every key is gone");
            });
        });
    }
}

/// Calls that began while the driver's runtime was polled, and still wait when it no longer is.
#[test]
fn waiting_calls_are_served_when_the_runtime_idles_or_ends() {
    for ends in [false, true] {
        bounded(move || {
            let (masters, runtime) = (Masters::new(), current_thread());
            let redlock = masters.builder().node_timeout(secs(10)).build().unwrap();
            let extended = runtime.block_on(full(&redlock, "extended"));
            let released = runtime.block_on(full(&redlock, "released"));
            masters.hold(3);
            let calls = thread::spawn(move || {
                elsewhere(async move {
                    let (extended, released, acquired, status) = tokio::join!(
                        extended.extend(secs(55)),
                        released.release(),
                        redlock.lock("acquired").into_future(),
                        redlock.status("extended"),
                    );
                    (extended, released, acquired.map(drop), status.state)
                })
            });
            // They are under way, and the masters do not answer.
            runtime.block_on(async { sleep(ms(50)).await });
            masters.go_on_when_driven();
            let idle = (!ends).then_some(runtime);
            let (extended, released, acquired, status) = calls.join().unwrap();
            assert_eq!((extended, released, acquired), (Ok(()), Ok(()), Ok(())), "ends: {ends}");
            assert!(matches!(status, State::Held { .. }), "ends: {ends}: {status:?}");
            drop(idle);
        });
    }
}

fn is_kept_elsewhere(ends: bool, work: bool) {
    let (masters, first) = (Masters::new(), current_thread());
    let redlock = masters.builder().ttl(secs(4)).build().unwrap();
    let guard = first.block_on(full(&redlock, "held"));
    let runs = redlock.lock("run").run(|_| sleep(secs(9)));
    let (idle, _ended) = if ends { (None, drop(first)) } else { (Some(first), ()) };
    elsewhere(async {
        if work {
            runs.await.unwrap();
        } else {
            timeout(secs(9), guard.lost()).await.expect_err("it is held");
            guard.check().unwrap();
        }
    });
    drop(idle);
}

#[test]
fn holder_waiting_for_the_loss_keeps_its_lease() {
    let cases = [(false, false), (false, true), (true, false), (true, true)];
    let threads = cases
        .map(|(ends, work)| thread::spawn(move || bounded(move || is_kept_elsewhere(ends, work))));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Two runtimes that are both polled, and masters that do not answer. Neither caller takes the
/// driver from the other, because otherwise no attempt would ever finish.
#[test]
fn driver_waiting_for_slow_masters_is_not_taken_over() {
    bounded(|| {
        let masters = Masters::new();
        let redlock = masters.builder().node_timeout(ms(700)).build().unwrap();
        let first = current_thread();
        first.block_on(full(&redlock, "warm-up")).forget();
        let drives = masters.drives();
        masters.hold(3);
        let try_lock = |redlock: Redlock, key| async move {
            let refused = redlock.try_lock(key).await.unwrap_err();
            assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused}");
        };
        let other = redlock.clone();
        let second = thread::spawn(move || elsewhere(try_lock(other, "b")));
        first.block_on(async {
            try_lock(redlock, "a").await;
            sleep(secs(2)).await;
        });
        second.join().unwrap();
        assert_eq!(masters.drives(), drives, "the connections were made again");
    });
}

#[test]
fn caller_without_a_runtime_is_served_by_a_polled_driver() {
    bounded(|| {
        let masters = Masters::new();
        let (runtime, redlock, guard) = idling(&masters);
        let (done, is_done) = channel();
        let caller = thread::spawn(move || {
            block_on(guard.extend(secs(50))).unwrap();
            let other = block_on(redlock.lock("other").into_future()).unwrap();
            block_on(other.release()).unwrap();
            done.send(()).unwrap();
        });
        runtime.block_on(async {
            while is_done.try_recv().is_err() {
                sleep(ms(1)).await;
            }
        });
        caller.join().unwrap();
    });
}

#[test]
fn caller_without_a_runtime_is_refused_by_an_unpolled_driver() {
    bounded(|| {
        let masters = Masters::new();
        let (idle, redlock, guard) = idling(&masters);
        let refused = block_on(redlock.lock("other").into_future()).unwrap_err();
        assert_eq!(refused, AcquireError::Invalid(InvalidRequest::NoRuntime));
        let refused = block_on(guard.extend(secs(50))).unwrap_err();
        assert_eq!(refused, ExtendError::Invalid(InvalidRequest::NoRuntime));
        // The pending release is sent as soon as a runtime can do it.
        block_on(guard.release()).unwrap_err();
        idle.block_on(async {
            redlock.status("held").await;
        });
        eventually("every key is gone", || masters.keys() == 0);
    });
}

#[test]
fn shutdown_without_a_runtime_reports_keys_of_an_idle_driver() {
    bounded(|| {
        let masters = Masters::new();
        let (_idle, redlock, guard) = idling(&masters);
        let left = block_on(redlock.clone().shutdown(PATIENCE)).unwrap_err();
        assert_eq!(left.keys().len(), MASTERS, "{left}");
        guard.check().unwrap_err();
        let again = block_on(redlock.shutdown(PATIENCE)).unwrap_err();
        assert_eq!(again.keys().len(), MASTERS, "{again}");
    });
}
