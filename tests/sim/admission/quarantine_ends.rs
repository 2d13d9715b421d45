//! The announced end of a quarantine is correct, for clients that stay connected and for clients
//! that connect only briefly.

use redlock_quorum::AcquireError;
use redlock_testkit::SimNodes;
use tokio::time::sleep;

use crate::admission::forgetting::{LENGTH, masters, other};
use crate::arena::{RESOURCE, ms};

/// A majority restarts empty; what an attempt that does not wait says about it, when it was made.
async fn majority_restarts() -> (SimNodes, AcquireError) {
    let (masters, redlock) = masters(3);
    redlock.try_lock(RESOURCE).await.unwrap().release().await.unwrap();
    masters[..2].iter().for_each(|master| master.crash_and_restart(false));
    drop(redlock);
    let error = other(&masters).try_lock(RESOURCE).await.unwrap_err();
    (masters, error)
}

/// It comes when the other one has gone, so it has known the quarantines for no time.
#[tokio::test(start_paused = true)]
async fn long_lived_client_gets_the_lock_at_the_reported_time() {
    let (masters, error) = majority_restarts().await;
    assert_eq!(error.retry_after(), Some(LENGTH));
    let wait = error.retry_after().unwrap() + ms(50);
    other(&masters).lock(RESOURCE).wait(wait).await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn short_lived_clients_get_the_lock_at_the_reported_time() {
    let (masters, error) = majority_restarts().await;
    let visits = error.retry_after_visits().unwrap();
    assert!(visits > LENGTH && visits <= 2 * LENGTH, "{error}");
    let begun = masters.clock().now();
    let left = || visits.saturating_sub(masters.clock().now().saturating_since(begun));
    while !left().is_zero() {
        let error = other(&masters).try_lock(RESOURCE).await.unwrap_err();
        let left = left();
        assert!(error.retry_after_visits().unwrap().abs_diff(left) <= ms(20), "{left:?}: {error}");
        sleep(left.min(ms(300))).await;
    }
    other(&masters).try_lock(RESOURCE).await.unwrap().release().await.unwrap();
}
