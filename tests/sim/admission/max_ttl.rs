//! The largest TTL: the value of the masters, and the value of the handle.

use redlock_quorum::{AcquireError, Quarantine, Redlock};
use redlock_testkit::SimNodes;
use tokio::time::sleep;

use crate::admission::forgetting::{full, masters, other};
use crate::arena::{RESOURCE, TTL, ms};

// TTLs.

#[tokio::test(start_paused = true)]
async fn the_max_ttl_of_the_masters_is_the_limit() {
    let masters = SimNodes::new(3, 0);
    masters.init(ms(400));
    let redlock = crate::arena::handle(&masters).quarantine(Quarantine::On).build().unwrap();
    let error = redlock.try_lock(RESOURCE).ttl(ms(401)).await.unwrap_err();
    assert!(error.to_string().contains("max_ttl (400ms)"), "{error}");
    let unset = Redlock::builder().masters(masters.nodes()).clock(masters.clock());
    let unset = unset.quarantine(Quarantine::On).build().unwrap();
    let guard = unset.try_lock(RESOURCE).await.unwrap();
    assert!(guard.remaining() <= ms(400), "a default TTL shrinks");
    let error = guard.extend(ms(500)).await.unwrap_err();
    assert!(error.to_string().contains("max_ttl (400ms)"), "{error}");
    guard.release().await.unwrap();
    masters.init(ms(120_000));
    let long = other(&masters);
    long.try_lock(RESOURCE).ttl(ms(90_000)).await.unwrap().release().await.unwrap();
}

/// For a TTL of the handle and one of a request alike.
#[tokio::test(start_paused = true)]
async fn max_ttl_of_the_handle_applies_only_without_a_record() {
    let masters = SimNodes::new(3, 0);
    let builder = || crate::arena::handle(&masters).quarantine(Quarantine::On).max_ttl(ms(3_000));
    let by_handle = builder().ttl(ms(5_000)).build().unwrap();
    let by_request = builder().build().unwrap();
    let locks = || [by_handle.try_lock("a"), by_request.try_lock("b").ttl(ms(5_000))];
    for lock in locks() {
        let error = lock.await.unwrap_err();
        assert!(error.to_string().contains("max_ttl (3s)"), "no record has one: {error}");
    }
    masters.init(ms(6_000));
    sleep(ms(1_100)).await;
    for lock in locks() {
        lock.await.unwrap().release().await.unwrap();
    }
    // No master can be queried.
    masters.iter().for_each(|master| master.partition());
    for lock in locks() {
        let error = lock.await.unwrap_err();
        assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    }
}

/// A quarantine no longer lasts as long as such a lease.
#[tokio::test(start_paused = true)]
async fn lease_over_a_lowered_max_ttl_gets_shorter_extensions() {
    let (masters, redlock) = masters(3);
    let guard = full(&redlock, &masters).await;
    masters.init(ms(400));
    masters.iter().for_each(|master| master.partition());
    masters.iter().for_each(|master| master.heal());
    sleep(TTL * 3).await;
    let left = guard.remaining();
    assert!(left > ms(0) && left <= ms(400), "{left:?}");
    guard.release().await.unwrap();
}
