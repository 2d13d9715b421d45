//! How often masters are queried: by extensions, by attempts, and for callers that are gone.

use std::time::Duration;

use futures::future::join_all;
use redlock_quorum::{AcquireError, Redlock};
use redlock_testkit::SimNodes;
use tokio::time::{Instant, advance, sleep, timeout};

use crate::arena::{
    NODE_TIMEOUT, RESOURCE, TTL, acquires, count, handle, hold, is_extend, let_go, masters, ms,
    settle,
};

const LONG: Duration = Duration::from_secs(60);

// Keepers.

/// The number of extensions that a master gets in ten seconds from the keepers of 20 locks.
async fn extensions_of_twenty(trouble: impl FnOnce(&SimNodes)) -> usize {
    let (masters, redlock) = masters(3);
    let guards: Vec<_> = join_all((0..20).map(|n| redlock.lock(format!("{n}")).into_future()))
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    trouble(&masters);
    sleep(TTL).await;
    let before = count(&masters[2], is_extend);
    sleep(TTL * 10).await;
    let extensions = count(&masters[2], is_extend) - before;
    guards.iter().for_each(|guard| guard.check().unwrap());
    extensions
}

#[tokio::test(start_paused = true)]
async fn slow_round_trips_do_not_speed_up_keepers() {
    let quiet = extensions_of_twenty(|_| {}).await;
    assert!((550..=650).contains(&quiet), "three per second and lock: {quiet}");
    for one_way in [30, 40, 60] {
        let slow = extensions_of_twenty(|masters| {
            masters.iter().for_each(|master| {
                master.delay(ms(one_way)..=ms(one_way), ms(one_way)..=ms(one_way));
            });
        })
        .await;
        assert!(slow <= quiet + quiet / 10, "{slow}, not {quiet}, with {one_way} ms each way");
    }
}

#[tokio::test(start_paused = true)]
async fn one_slow_master_does_not_speed_up_keepers() {
    for way in [ms(40), ms(150)] {
        let slow = extensions_of_twenty(|masters| masters[0].delay(way..=way, way..=way)).await;
        assert!(slow <= 650, "{slow} with {way:?} each way to another master");
    }
}

// Attempts.

/// The time of a paused process shows nothing about its network.
#[tokio::test(start_paused = true)]
async fn process_paused_during_an_attempt_retries_soon() {
    let (masters, redlock) = masters(3);
    masters.iter().for_each(|master| {
        master.put(RESOURCE, "stranger", 10_000);
        master.delay(ms(2)..=ms(2), ms(2)..=ms(2));
    });
    let acquired = tokio::spawn(redlock.lock(RESOURCE).wait(LONG).into_future());
    sleep(ms(1)).await;
    advance(ms(15_000)).await;
    let most = NODE_TIMEOUT + ms(200) + ms(50);
    let guard = timeout(most, acquired).await.expect("no longer than a pause").unwrap().unwrap();
    guard.release().await.unwrap();
}

/// A handle whose window of open requests is full: no master answers.
async fn crowded() -> (SimNodes, Redlock) {
    /// As many as may be open at one time.
    const OPEN_MAX: usize = 4_096;
    let (masters, _) = masters(3);
    let builder = handle(&masters).ttl(LONG).max_ttl(LONG).node_timeout(ms(15_000));
    let redlock = builder.build().unwrap();
    redlock.lock("warm-up").await.unwrap().release().await.unwrap();
    hold(&masters);
    for n in 0..OPEN_MAX {
        tokio::spawn(redlock.try_lock(format!("crowd:{n}")).into_future());
    }
    settle().await;
    (masters, redlock)
}

#[tokio::test(start_paused = true)]
async fn no_lock_is_acquired_for_callers_that_left() {
    let (masters, redlock) = crowded().await;
    let gone = join_all((0..1_000).map(|_| timeout(ms(10), redlock.lock(RESOURCE).into_future())));
    assert!(gone.await.iter().all(Result::is_err), "all of them have timed out");
    let waiting = tokio::spawn(redlock.lock(RESOURCE).wait(LONG).into_future());
    settle().await;
    let_go(&masters);
    let guard = waiting.await.unwrap().unwrap();
    for master in masters.iter() {
        let mut sets = acquires(master);
        sets.retain(|(_, token, _)| token == guard.token().as_str());
        assert_eq!(sets.len(), 1);
        let all = acquires(master).len();
        assert!(all <= 4_096 + 2, "{all} requests, including requests of callers that are gone");
    }
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn try_lock_waiting_in_line_has_a_limit() {
    let (masters, redlock) = crowded().await;
    let begun = Instant::now();
    let refused = redlock.try_lock(RESOURCE).await.unwrap_err();
    // Twice the connect timeout.
    assert!(begun.elapsed() <= ms(2_010), "{:?}", begun.elapsed());
    assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused}");
    assert!(refused.to_string().contains("its turn did not come"), "{refused}");
    let_go(&masters);
    redlock.lock(RESOURCE).wait(LONG).await.unwrap().release().await.unwrap();
}
