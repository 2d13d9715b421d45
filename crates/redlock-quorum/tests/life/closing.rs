//! The end of a handle, whatever happens to its runtime and to the callers that wait for the end.

use std::thread;
use std::time::Instant;

use redlock_quorum::{LostReason, Redlock};
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};

use crate::lab::{
    FLAVORS, MASTERS, Masters, PATIENCE, block_on, bounded, current_thread, elsewhere, full, ms,
    secs,
};

/// A handle with a release that one master does not acknowledge.
fn unacknowledged(masters: &Masters, runtime: &Runtime) -> Redlock {
    let redlock = masters.builder().node_timeout(ms(50)).build().unwrap();
    runtime.block_on(async {
        let guard = full(&redlock, "held").await;
        masters.hold(1);
        guard.release().await.unwrap();
    });
    redlock
}

#[test]
fn shutdown_continues_after_the_drivers_runtime_ends() {
    for flavor in FLAVORS {
        for is_healed in [true, false] {
            bounded(move || {
                let (masters, runtime) = (Masters::new(), flavor());
                let redlock = unacknowledged(&masters, &runtime);
                let within = if is_healed { PATIENCE } else { ms(2_000) };
                let closing = thread::spawn(move || elsewhere(redlock.shutdown(within)));
                runtime.block_on(async { sleep(ms(50)).await });
                assert!(!closing.is_finished());
                drop(runtime);
                thread::sleep(ms(20));
                if is_healed {
                    masters.go_on();
                    assert_eq!(closing.join().unwrap(), Ok(()));
                    assert_eq!(masters.keys(), 0);
                } else {
                    let left = closing.join().unwrap().unwrap_err();
                    assert_eq!(left.keys()[0].node, "sim-0:6379", "{left}");
                }
            });
        }
    }
}

/// The caller has no runtime on which the driver could continue, so the remaining keys are named.
#[test]
fn shutdown_without_a_runtime_ends_with_the_drivers_runtime() {
    for flavor in FLAVORS {
        bounded(move || {
            let (masters, runtime) = (Masters::new(), flavor());
            let redlock = unacknowledged(&masters, &runtime);
            let closing = thread::spawn(move || block_on(redlock.shutdown(PATIENCE)));
            runtime.block_on(async { sleep(ms(50)).await });
            assert!(!closing.is_finished());
            drop(runtime);
            let left = closing.join().unwrap().unwrap_err();
            assert_eq!(left.keys().len(), 1, "{left}");
        });
    }
}

#[test]
fn second_shutdown_reports_the_keys_left_by_the_first() {
    bounded(|| {
        let (masters, runtime) = (Masters::new(), current_thread());
        let redlock = unacknowledged(&masters, &runtime);
        runtime.block_on(async {
            timeout(ms(20), redlock.clone().shutdown(ms(200))).await.unwrap_err();
            let left = redlock.clone().shutdown(ms(50)).await.unwrap_err();
            assert_eq!(left.keys().len(), 1, "{left}");
            // Also when the driver has ended.
            let again = redlock.clone().shutdown(ms(50)).await.unwrap_err();
            assert_eq!(again.keys().len(), 1, "{again}");
        });
        drop(runtime);
        let again = block_on(redlock.shutdown(PATIENCE)).unwrap_err();
        assert_eq!(again.keys().len(), 1, "{again}");
    });
}

#[test]
fn cancelled_shutdown_does_not_end_longer_ones() {
    bounded(|| {
        let (masters, runtime) = (Masters::new(), current_thread());
        let redlock = unacknowledged(&masters, &runtime);
        runtime.block_on(async {
            let long = tokio::spawn(redlock.clone().shutdown(PATIENCE));
            sleep(ms(10)).await;
            timeout(ms(20), redlock.shutdown(ms(200))).await.unwrap_err();
            sleep(ms(400)).await;
            assert!(!long.is_finished(), "only the caller that went away wanted it ended by now");
            masters.go_on();
            assert_eq!(long.await.unwrap(), Ok(()));
        });
    });
}

#[test]
fn concurrent_shutdowns_get_the_same_outcome() {
    bounded(|| {
        let (masters, runtime) = (Masters::new(), current_thread());
        let redlock = unacknowledged(&masters, &runtime);
        let begun = Instant::now();
        let (long, short) = runtime.block_on(async {
            tokio::join!(redlock.clone().shutdown(PATIENCE), redlock.clone().shutdown(ms(300)))
        });
        assert!(begun.elapsed() < PATIENCE / 2);
        assert_eq!(long, short);
        assert_eq!(long.unwrap_err().keys().len(), 1);
    });
}

#[test]
fn shutdown_outside_a_runtime_reports_remaining_keys() {
    for flavor in FLAVORS {
        bounded(move || {
            let (masters, runtime) = (Masters::new(), flavor());
            let redlock = masters.handle();
            let (kept, dropped) = runtime.block_on(async {
                (full(&redlock, "kept").await, full(&redlock, "dropped").await)
            });
            drop(runtime);
            drop(dropped);
            let left = block_on(redlock.clone().shutdown(PATIENCE)).unwrap_err();
            assert_eq!(left.keys().len(), 2 * MASTERS, "{left}");
            assert_eq!(kept.check().unwrap_err().reason, LostReason::Shutdown);
            let again = elsewhere(redlock.shutdown(PATIENCE)).unwrap_err();
            assert_eq!(again.keys().len(), 2 * MASTERS, "{again}");
        });
    }
}

#[test]
fn shutdown_reports_keys_of_a_lost_undropped_guard() {
    bounded(|| {
        let masters = Masters::new();
        elsewhere(async {
            let redlock = masters.builder().ttl(secs(2)).clock_guard(secs(20)).build().unwrap();
            let guard = redlock.lock("lost").ttl(ms(40)).auto_extend(false).await.unwrap();
            guard.lost().await;
            let left = redlock.shutdown(secs(5)).await.unwrap_err();
            assert_eq!(left.keys().len(), MASTERS, "{left}");
            assert_eq!(masters.keys(), MASTERS);
        });
    });
}

#[test]
fn release_and_following_shutdown_both_succeed() {
    for flavor in FLAVORS {
        for _ in 0..20 {
            bounded(move || {
                let masters = Masters::new();
                flavor().block_on(async {
                    let redlock = masters.handle();
                    let guard = full(&redlock, "held").await;
                    let (released, closed) =
                        tokio::join!(guard.release(), redlock.shutdown(PATIENCE));
                    assert_eq!((released, closed), (Ok(()), Ok(())));
                    assert_eq!(masters.keys(), 0);
                });
            });
        }
    }
}

/// The answers come when the handle is being closed already.
#[test]
fn release_answered_during_shutdown_succeeds() {
    for flavor in FLAVORS {
        bounded(move || {
            let masters = Masters::new();
            flavor().block_on(async {
                let redlock = masters.builder().node_timeout(secs(10)).build().unwrap();
                let guard = full(&redlock, "held").await;
                masters.hold(MASTERS);
                let (released, closed, ()) =
                    tokio::join!(guard.release(), redlock.shutdown(PATIENCE), async {
                        sleep(ms(50)).await;
                        masters.go_on();
                    });
                assert_eq!((released, closed), (Ok(()), Ok(())));
                assert_eq!(masters.keys(), 0);
            });
        });
    }
}
