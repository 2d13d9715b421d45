//! A turn for each contender: processes and their callers that want one key again and again.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redlock_core::Clock;
use redlock_quorum::Redlock;
use tokio::time::sleep;

use crate::arena::{RESOURCE, handle, ms};

/// Returns the results of each of several contenders in twenty seconds, and the longest wait of
/// any.
async fn contend(seed: u64, contenders: usize) -> (Vec<usize>, Duration) {
    let masters = crate::arena::admitted(5, seed);
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
async fn no_contender_starves() {
    for seed in 0..2 {
        let (grants, longest) = contend(seed, 6).await;
        let least = grants.iter().min().unwrap();
        assert!(*least > 50, "{grants:?}");
        assert!(longest < Duration::from_secs(10), "{longest:?}");
    }
}

/// Returns how often each of these processes, with this many callers, got the key from the masters
/// in this many seconds, however often it then passed it on.
async fn share(seed: u64, callers: &[usize], seconds: u64) -> Vec<u64> {
    let masters = crate::arena::admitted(5, seed);
    let clock = masters.clock();
    let end = u128::from(seconds) * 1_000_000_000;
    let work = callers.iter().enumerate().map(|(number, callers)| {
        let client = masters.another_client();
        client.iter().for_each(|master| master.delay(ms(0)..=ms(1), ms(0)..=ms(1)));
        let redlock = handle(&client).seed(seed * 100 + number as u64).build().unwrap();
        let work = move |redlock: Redlock, clock: Clock| async move {
            while u128::from(clock.now().as_nanos()) < end {
                let guard = redlock.lock(RESOURCE).wait_forever().await.unwrap();
                sleep(ms(2)).await;
                guard.release().await.unwrap();
            }
        };
        let tasks: Vec<_> = (0..*callers).map(|_| work(redlock.clone(), clock.clone())).collect();
        async move {
            futures::future::join_all(tasks).await;
            redlock.stats().outcomes.won
        }
    });
    futures::future::join_all(work).await
}

#[tokio::test(start_paused = true)]
async fn process_with_many_callers_yields_to_other_processes() {
    for callers in [[20, 20], [2, 1]] {
        for seed in 0..2 {
            let got = share(seed, &callers, 20).await;
            let (least, all) = (got.iter().min().unwrap(), got.iter().sum::<u64>());
            assert!(least * 20 >= all * 9, "{callers:?}, seed {seed}: {got:?}");
        }
    }
}

/// Its callers precede callers that came later, but do not each get a turn.
#[tokio::test(start_paused = true)]
async fn process_with_64_callers_gets_no_more_turns_than_others() {
    let got = share(0, &[64, 1, 1, 1, 1, 1, 1, 1, 1], 30).await;
    let (least, most) = (got.iter().min().unwrap(), got.iter().max().unwrap());
    assert!(*least * 10 >= *most * 9, "{got:?}");
}

/// Nothing tells the process that keeps the key that others want it.
#[tokio::test(start_paused = true)]
async fn immediately_retrying_process_yields_to_other_processes() {
    for (callers, seeds) in [(&[1, 1][..], 3), (&[1, 1, 1, 1], 1)] {
        for seed in 0..seeds {
            let got = share(seed, callers, 15).await;
            let (least, all) = (got.iter().min().unwrap(), got.iter().sum::<u64>());
            assert!(least * 4 * callers.len() as u64 > all, "seed {seed}: {got:?}");
        }
    }
}
