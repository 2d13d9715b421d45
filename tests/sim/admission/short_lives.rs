//! Clients that end while masters are being admitted.

use redlock_quorum::{AcquireError, Redlock};
use redlock_testkit::SimNodes;
use tokio::time::sleep;

use crate::admission::forgetting::{
    LENGTH, beside_a_mute_node, handle, masters, not_admitted, other,
};
use crate::arena::{RESOURCE, ms};

// A short life.

/// Each begins, notes or admits what it can. None stays.
#[tokio::test(start_paused = true)]
async fn short_lived_clients_end_a_quarantine() {
    let (masters, redlock) = masters(3);
    redlock.try_lock(RESOURCE).await.unwrap().release().await.unwrap();
    redlock.shutdown(ms(1_000)).await.unwrap();
    masters[0].crash_and_restart(false);
    let mut visits = 0;
    while masters[0].data().record.run.is_none() {
        let client = other(&masters);
        client.try_lock(RESOURCE).await.unwrap().release().await.unwrap();
        client.shutdown(ms(1_000)).await.unwrap();
        sleep(LENGTH - ms(100)).await;
        visits += 1;
        assert!(visits <= 5);
    }
    assert!(visits >= 3, "{visits}");
}

/// Its lock takes one round trip, and what it does about the master takes three.
#[tokio::test(start_paused = true)]
async fn shutdown_finishes_admission_steps_despite_a_short_timeout() {
    for within in [ms(0), ms(1_000)] {
        let (masters, _) = masters(3);
        masters[0].crash_and_restart(false);
        let redlock = handle(&slow(&masters)).build().unwrap();
        redlock.try_lock(RESOURCE).await.unwrap().forget();
        redlock.shutdown(within).await.unwrap();
        let quarantine = masters[0].data().record.quarantine.unwrap();
        assert_eq!(quarantine.notes.len(), 2, "{within:?}: {quarantine:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_steps_at_most_the_connect_timeout() {
    let (masters, _) = masters(3);
    masters[0].crash_and_restart(false);
    let client = slow(&masters);
    let redlock = handle(&client).connect_timeout(ms(30)).build().unwrap();
    redlock.try_lock(RESOURCE).await.unwrap().forget();
    client[0].hold();
    let begun = masters.clock().now();
    redlock.shutdown(ms(0)).await.unwrap();
    assert_eq!(masters.clock().now().saturating_since(begun), ms(30));
}

/// A handle with a release that the first master does not acknowledge, and a step under way there.
async fn unacknowledged_beside_a_step() -> (SimNodes, SimNodes, Redlock) {
    let (masters, _) = masters(3);
    masters[0].crash_and_restart(false);
    let client = slow(&masters);
    let redlock = handle(&client).connect_timeout(ms(2_000)).build().unwrap();
    let guard = redlock.try_lock(RESOURCE).await.unwrap();
    client[0].hold();
    guard.release().await.unwrap();
    (masters, client, redlock)
}

#[tokio::test(start_paused = true)]
async fn longer_second_shutdown_does_not_prolong_the_first() {
    let (masters, _client, redlock) = unacknowledged_beside_a_step().await;
    let begun = masters.clock().now();
    let first = tokio::spawn(redlock.clone().shutdown(ms(10)));
    sleep(ms(20)).await;
    assert!(!first.is_finished(), "it waits for the step");
    let second = tokio::spawn(redlock.clone().shutdown(ms(60_000)));
    assert_eq!(first.await.unwrap().unwrap_err().keys().len(), 1);
    let took = masters.clock().now().saturating_since(begun);
    assert!(took <= ms(2_000), "{took:?}");
    assert_eq!(second.await.unwrap().unwrap_err().keys().len(), 1);
    assert!(redlock.stats().nodes.iter().all(|node| !node.is_up), "{:?}", redlock.stats());
}

/// No caller waits for the first one any longer, so the rest of its time has no effect.
#[tokio::test(start_paused = true)]
async fn abandoned_shutdown_does_not_shorten_the_next() {
    let (_masters, client, redlock) = unacknowledged_beside_a_step().await;
    let first = tokio::spawn(redlock.clone().shutdown(ms(10)));
    sleep(ms(5)).await;
    first.abort();
    sleep(ms(15)).await;
    let second = tokio::spawn(redlock.shutdown(ms(60_000)));
    sleep(ms(1_000)).await;
    assert!(!second.is_finished(), "it waits for the release");
    client[0].release();
    assert_eq!(second.await.unwrap(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_no_connection_if_all_reachable_vote() {
    let (masters, _) = masters(2);
    let redlock = beside_a_mute_node(&masters);
    redlock.try_lock(RESOURCE).await.unwrap().release().await.unwrap();
    let begun = masters.clock().now();
    redlock.shutdown(ms(0)).await.unwrap();
    assert_eq!(masters.clock().now(), begun);
}

/// A process whose requests and answers take 5 ms each.
pub(crate) fn slow(masters: &SimNodes) -> SimNodes {
    let client = masters.another_client();
    for master in client.iter() {
        master.delay(ms(5)..=ms(5), ms(5)..=ms(5));
    }
    client
}

/// No vote was cast on them, and it is known of all why.
#[tokio::test(start_paused = true)]
async fn masters_under_admission_are_not_shown_as_pending() {
    for masters in [1, 2, 3, 4, 5] {
        let masters = SimNodes::new(masters, 0);
        let error = handle(&slow(&masters)).build().unwrap().try_lock(RESOURCE).await.unwrap_err();
        assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
        assert_eq!(not_admitted(&error).len(), masters.len(), "{error}");
    }
}
