//! Waiting for a lock: bounded by what the caller allows, and a turn for each contender.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redlock_quorum::AcquireError;
use redlock_testkit::SimNodes;
use tokio::time::sleep;

use crate::arena::{NODE_TIMEOUT, RESOURCE, acquires, handle, hold, masters, ms};

#[tokio::test(start_paused = true)]
async fn a_wait_is_kept_to_whether_the_lock_is_held_or_the_masters_are_silent() {
    for silent in [false, true] {
        for wait in [0, 1, 7, 100, 1_000, 30_000].map(ms) {
            let (masters, redlock) = masters(5);
            if silent {
                hold(&masters[..3]);
            } else {
                masters.iter().for_each(|master| master.put(RESOURCE, "stranger", 100_000));
            }
            let begin = masters.clock().now();
            let error = redlock.lock(RESOURCE).wait(wait).await.unwrap_err();
            let waited = masters.clock().now().saturating_since(begin);
            assert!(waited >= wait && waited <= wait + NODE_TIMEOUT * 2, "{wait:?}: {waited:?}");
            assert_eq!(matches!(error, AcquireError::NoQuorum { .. }), silent, "{error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_try_is_one_attempt_and_a_wait_is_several_with_pauses_in_between() {
    let (masters, redlock) = masters(3);
    masters.iter().for_each(|master| master.put(RESOURCE, "stranger", 100_000));
    redlock.try_lock(RESOURCE).await.unwrap_err();
    assert_eq!(acquires(&masters[0]).len(), 1);
    redlock.lock(RESOURCE).wait(ms(10_000)).await.unwrap_err();
    let attempts = acquires(&masters[0]).len();
    assert!((50..400).contains(&attempts), "{attempts} attempts in ten seconds");
}

#[tokio::test(start_paused = true)]
async fn waits_without_end_end_with_the_lock() {
    let (masters, redlock) = masters(3);
    for forever in [false, true] {
        masters.iter().for_each(|master| master.put(RESOURCE, "stranger", 3_600_000));
        let request = redlock.lock(RESOURCE);
        let request = if forever { request.wait_forever() } else { request.wait(Duration::MAX) };
        let begin = masters.clock().now();
        let guard = request.await.unwrap();
        let waited = masters.clock().now().saturating_since(begin);
        assert!(waited >= ms(3_600_000) && waited <= ms(3_600_300), "{waited:?}");
        guard.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_without_limit_outlasts_masters_that_are_away() {
    let (masters, redlock) = masters(5);
    masters[..3].iter().for_each(|master| master.down());
    let waiter = tokio::spawn(redlock.lock(RESOURCE).wait_forever().into_future());
    sleep(Duration::from_secs(600)).await;
    assert!(!waiter.is_finished());
    masters[0].up();
    sleep(ms(500)).await;
    assert!(waiter.is_finished(), "it notices within a pause or two");
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

/// What each of several contenders got in twenty seconds, and the longest wait of any.
async fn contend(seed: u64, contenders: usize) -> (Vec<usize>, Duration) {
    let masters = SimNodes::new(5, seed);
    let clock = masters.clock();
    let work = (0..contenders).map(|number| {
        let client = masters.another_client();
        client.iter().for_each(|master| master.delay(ms(0)..=ms(2), ms(0)..=ms(2)));
        let own = seed * 100 + number as u64;
        let redlock = handle(&client).seed(own).build().unwrap();
        let (clock, mut rng) = (clock.clone(), StdRng::seed_from_u64(own));
        async move {
            let (mut grants, mut longest) = (0, Duration::ZERO);
            while clock.now().as_nanos() < 20_000_000_000 {
                let begin = clock.now();
                let guard = redlock.lock(RESOURCE).wait_forever().await.unwrap();
                longest = longest.max(clock.now().saturating_since(begin));
                grants += 1;
                sleep(ms(rng.random_range(1..20))).await;
                guard.release().await.unwrap();
                sleep(ms(rng.random_range(0..20))).await;
            }
            (grants, longest)
        }
    });
    let (grants, waits): (Vec<_>, Vec<_>) =
        futures::future::join_all(work).await.into_iter().unzip();
    (grants, waits.into_iter().max().unwrap())
}

#[tokio::test(start_paused = true)]
async fn no_contender_starves_among_those_that_come_again_and_again() {
    for seed in 0..2 {
        let (grants, longest) = contend(seed, 6).await;
        let least = grants.iter().min().unwrap();
        assert!(*least > 50, "{grants:?}");
        assert!(longest < Duration::from_secs(10), "{longest:?}");
    }
}
