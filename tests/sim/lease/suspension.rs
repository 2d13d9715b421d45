//! A suspended machine: its clock has continued, and the timers of the runtime have not.

use std::time::Duration;

use redlock_quorum::{Ended, LostReason, Redlock};
use redlock_testkit::SimNodes;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use crate::arena::{RESOURCE, admitted, count, handle, is_extend, ms};

/// Long enough that no timer of a lease fires by itself within seconds.
const LONG: Duration = Duration::from_secs(60);
/// Until then the driver has nothing else to do than to extend.
const QUIET: Duration = Duration::from_secs(5);
/// No sleep that a lease needs is longer.
const NAP: Duration = Duration::from_secs(1);

fn masters() -> (SimNodes, Redlock) {
    let masters = admitted(3, 0);
    let redlock = handle(&masters).ttl(LONG).build().unwrap();
    (masters, redlock)
}

/// The end of the lock is reported within a second of the return, whoever waits for it.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_lock_is_reported_soon_after_a_suspension() {
    let (masters, redlock) = masters();
    let guard = redlock.lock(RESOURCE).auto_extend(false).await.unwrap();
    let lost = tokio::spawn(guard.lost());
    let settled = tokio::spawn(guard.settled());
    sleep(QUIET).await;
    masters.clock().suspend(LONG);
    let returned = Instant::now();
    let Ended::Lost(lost) = lost.await.unwrap() else { panic!("nobody has released it") };
    assert_eq!(lost.reason, LostReason::NotExtended);
    assert!(returned.elapsed() <= NAP, "after {:?}", returned.elapsed());
    settled.await.unwrap();
}

/// The rest of the lease is used, because the driver does not sleep for its whole former interval.
#[tokio::test(start_paused = true)]
async fn lease_with_little_left_after_a_suspension_is_extended() {
    let (masters, redlock) = masters();
    let guard = redlock.lock(RESOURCE).await.unwrap();
    sleep(QUIET).await;
    masters.clock().suspend(guard.remaining() - NAP * 2);
    let returned = Instant::now();
    while guard.remaining() < LONG / 2 {
        assert_eq!(guard.check(), Ok(()), "after {:?}", returned.elapsed());
        sleep(ms(10)).await;
    }
    assert!(returned.elapsed() <= NAP + ms(10), "after {:?}", returned.elapsed());
    assert!(masters.iter().all(|master| count(master, is_extend) == 1));
}

/// How often the runtime went to sleep during `time`.
async fn naps(time: Duration) -> u64 {
    let metrics = Handle::current().metrics();
    let before = metrics.worker_park_count(0);
    sleep(time).await;
    metrics.worker_park_count(0) - before
}

#[tokio::test(start_paused = true)]
async fn idle_handle_keeps_sleeping() {
    let (masters, redlock) = masters();
    let guard = redlock.lock(RESOURCE).await.unwrap();
    sleep(QUIET).await;
    let (held, seconds) = (naps(QUIET).await, QUIET.as_secs());
    // Each time, it also reads its sockets.
    assert!((seconds..=4 * seconds).contains(&held), "{held} in {QUIET:?}");
    // An expired lock is not held, although its guard exists.
    masters.clock().suspend(LONG);
    sleep(QUIET).await;
    assert!(!guard.is_held());
    let over = naps(QUIET).await;
    assert!(over < seconds, "{over} in {QUIET:?}");
    guard.release().await.unwrap_err();
    sleep(QUIET).await;
    let idle = naps(LONG / 2).await;
    assert!(idle < seconds, "{idle} in {:?}", LONG / 2);
}
