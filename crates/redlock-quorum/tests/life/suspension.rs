//! A suspended machine. Callers that wait for the end of a lock still learn of it, whatever polls
//! the driver.

use std::thread;

use redlock_quorum::{Ended, LostReason};

use crate::lab::{MASTERS, Masters, bounded, current_thread, elsewhere, full, ms, secs};

/// More than is left of any lease here, which without a suspension outlives the test.
const SUSPENDED: std::time::Duration = secs(60);

fn is_lapse(ended: &Ended) -> bool {
    matches!(ended, Ended::Lost(lost) if lost.reason == LostReason::NotExtended)
}

#[test]
fn end_is_reported_if_no_runtime_polls_the_driver() {
    bounded(|| {
        let (masters, idle) = (Masters::new(), current_thread());
        let guard = idle.block_on(full(&masters.handle(), "held"));
        let lost = guard.lost();
        let waits = thread::spawn(|| elsewhere(lost));
        thread::sleep(ms(100));
        masters.suspend(SUSPENDED);
        assert!(is_lapse(&waits.join().unwrap()));
        drop((idle, guard));
    });
}

#[test]
fn end_is_reported_to_a_waiting_thread() {
    bounded(|| {
        let masters = Masters::new();
        let redlock = masters.builder().build_blocking().unwrap();
        let guard = redlock.lock("held").min_copies(MASTERS).acquire().unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(|| guard.lost());
            // The keeper has nothing to do before long.
            thread::sleep(secs(3));
            masters.suspend(SUSPENDED);
            assert!(is_lapse(&waits.join().unwrap()));
        });
    });
}
