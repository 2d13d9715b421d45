//! Panics: of the code that uses the library, and of the driver's own work.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::thread;

use redlock_quorum::{
    AcquireError, Ended, ExtendError, Guard, InvalidRequest, Lost, LostReason, Redlock,
    ReleaseError, State,
};
use tokio::runtime::Runtime;

use crate::lab::{FLAVORS, MASTERS, Masters, bounded, current_thread, elsewhere, full, ms, secs};

const PANICKED: AcquireError = AcquireError::Invalid(InvalidRequest::Panicked);

fn panics<T>(code: impl FnOnce() -> T) {
    assert!(catch_unwind(AssertUnwindSafe(code)).is_err(), "it panics");
}

// The user's.

#[test]
fn user_panic_in_a_runtime_leaves_the_handle_usable() {
    for flavor in FLAVORS {
        bounded(move || {
            let (masters, runtime) = (Masters::new(), flavor());
            let redlock = masters.handle();
            let kept = runtime.block_on(full(&redlock, "kept"));
            panics(|| {
                runtime.block_on(async {
                    let _guard = full(&redlock, "dropped").await;
                    panic!("this panic is part of the test");
                });
            });
            runtime.block_on(async {
                kept.extend(secs(50)).await.unwrap();
                full(&redlock, "dropped").await.release().await.unwrap();
                kept.release().await.unwrap();
                assert_eq!(redlock.shutdown(secs(5)).await, Ok(()));
            });
            assert_eq!(masters.keys(), 0);
        });
    }
}

/// Runs a runtime that ends by a panic of the user, with a guard in it. Returns how many keys are
/// left.
fn unwound(masters: &Masters, redlock: &Redlock, flavor: fn() -> Runtime) -> usize {
    let redlock = redlock.clone();
    let ended = thread::spawn(move || {
        let runtime = flavor();
        runtime.block_on(async {
            let _guard = full(&redlock, "held").await;
            panic!("this panic is part of the test");
        });
    });
    ended.join().unwrap_err();
    masters.keys()
}

#[test]
fn user_panic_ending_the_runtime_leaves_the_handle_usable() {
    for flavor in FLAVORS {
        bounded(move || {
            let masters = Masters::new();
            let redlock = masters.handle();
            unwound(&masters, &redlock, flavor);
            elsewhere(async {
                redlock.lock("held").await.unwrap().release().await.unwrap();
                assert_eq!(redlock.shutdown(secs(5)).await, Ok(()));
            });
            assert_eq!(masters.keys(), 0);
        });
    }
}

#[test]
fn guard_dropped_by_a_user_panic_is_released() {
    for flavor in FLAVORS {
        bounded(move || {
            let masters = Masters::new();
            assert_eq!(unwound(&masters, &masters.handle(), flavor), 0);
        });
    }
}

/// Releases in its destructor, on the runtime that drives the handle.
struct Cleaner<'a>(&'a Runtime, Option<Guard>);

impl Drop for Cleaner<'_> {
    fn drop(&mut self) {
        let guard = self.1.take().unwrap();
        self.0.block_on(guard.release()).unwrap();
    }
}

#[test]
fn driver_polled_during_unwinding_has_not_panicked() {
    bounded(|| {
        let (masters, runtime) = (Masters::new(), current_thread());
        let redlock = masters.handle();
        let guard = runtime.block_on(full(&redlock, "held"));
        panics(|| {
            let _cleaner = Cleaner(&runtime, Some(guard));
            panic!("this panic is part of the test");
        });
        assert_eq!(masters.keys(), 0);
        runtime.block_on(full(&redlock, "held").then_release());
    });
}

trait ThenRelease: Future<Output = Guard> + Sized {
    async fn then_release(self) {
        self.await.release().await.unwrap();
    }
}

impl<F: Future<Output = Guard>> ThenRelease for F {}

// The driver's.

fn assert_panicked(lost: Result<(), Lost>) {
    assert_eq!(lost.unwrap_err().reason, LostReason::Panicked);
}

#[test]
fn driver_panic_is_reported_to_all_callers_and_shutdown() {
    for flavor in FLAVORS {
        bounded(move || {
            let (masters, runtime) = (Masters::new(), flavor());
            // One attempt lasts for the whole test, however late it is.
            let redlock = masters.builder().node_timeout(secs(10)).build().unwrap();
            runtime.block_on(async {
                let guard = full(&redlock, "held").await;
                let lost = tokio::spawn(guard.lost());
                masters.hold(MASTERS);
                let before = redlock.stats().attempts;
                let waiting = tokio::spawn(redlock.lock("waiting").into_future());
                while redlock.stats().attempts == before {
                    tokio::time::sleep(ms(1)).await;
                }
                masters.nodes[3].panics_on_submit.store(true, Ordering::SeqCst);
                assert_eq!(redlock.lock("asked").await.unwrap_err(), PANICKED);
                assert_eq!(waiting.await.unwrap().unwrap_err(), PANICKED);
                assert_panicked(guard.check());
                let Ended::Lost(lost) = lost.await.unwrap() else { panic!("it was lost") };
                assert_eq!(lost.reason, LostReason::Panicked);
                assert!(matches!(guard.extend(secs(60)).await, Err(ExtendError::Lost(_))));
                assert_eq!(redlock.status("held").await.state, State::Undecided);
                let refused = guard.release().await.unwrap_err();
                assert_eq!(refused, ReleaseError::Invalid(InvalidRequest::Panicked));
                let left = redlock.shutdown(secs(5)).await.unwrap_err();
                let of = |name: &str| {
                    let keys = left.keys().iter();
                    keys.filter(|key| key.resource.as_bytes() == name.as_bytes()).count()
                };
                assert_eq!((of("held"), of("waiting")), (MASTERS, MASTERS), "{left}");
                assert!(of("asked") >= 3, "{left}");
            });
        });
    }
}

/// The connections are made in the caller's own call.
#[test]
fn a_panic_while_connecting_hangs_no_caller() {
    bounded(|| {
        let masters = Masters::new();
        let redlock = masters.handle();
        masters.nodes[2].panics_on_drive.store(true, Ordering::SeqCst);
        let refused = elsewhere(redlock.lock("held").into_future()).unwrap_err();
        assert_eq!(refused, PANICKED);
        masters.nodes[2].panics_on_drive.store(false, Ordering::SeqCst);
        let refused = elsewhere(redlock.lock("held").into_future()).unwrap_err();
        assert_eq!(refused, PANICKED);
        assert_eq!(elsewhere(redlock.shutdown(secs(5))), Ok(()));
    });
}

#[test]
fn a_driver_panic_at_the_end_of_its_runtime_hangs_no_caller() {
    for flavor in FLAVORS {
        bounded(move || {
            let (masters, runtime) = (Masters::new(), flavor());
            let redlock = masters.handle();
            let guard = runtime.block_on(full(&redlock, "held"));
            masters.nodes[3].panics_on_submit.store(true, Ordering::SeqCst);
            let hold = guard.hold();
            runtime.block_on(async { drop(guard) });
            drop(runtime);
            hold.check().unwrap_err();
            let refused = elsewhere(redlock.lock("held").into_future()).unwrap_err();
            assert_eq!(refused, PANICKED);
            let left = elsewhere(redlock.shutdown(secs(5))).unwrap_err();
            assert!(left.keys().iter().any(|key| key.node == "sim-3:6379"), "{left}");
        });
    }
}

#[test]
fn a_driver_panic_during_a_take_over_hangs_no_caller() {
    bounded(|| {
        let (masters, idle) = (Masters::new(), current_thread());
        let redlock = masters.handle();
        let guard = idle.block_on(full(&redlock, "held"));
        masters.nodes[3].panics_on_submit.store(true, Ordering::SeqCst);
        let refused = elsewhere(guard.release()).unwrap_err();
        assert_eq!(refused, ReleaseError::Invalid(InvalidRequest::Panicked));
        let refused = elsewhere(redlock.lock("held").into_future()).unwrap_err();
        assert_eq!(refused, PANICKED);
        elsewhere(redlock.shutdown(secs(5))).unwrap_err();
    });
}
