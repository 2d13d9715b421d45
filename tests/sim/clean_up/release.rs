//! Clean-up: whatever became of a lock, no key of it stays where a key can be reached.

use std::collections::HashSet;
use std::time::Duration;

use redlock_quorum::{AcquireError, Lease, LostReason, Redlock, ReleaseError};
use redlock_testkit::SimNodes;
use tokio::time::{sleep, timeout};

use crate::arena::{
    GUARD, NODE_TIMEOUT, RESOURCE, TTL, acquires, copies, full, handle, heal, hold, let_go,
    masters, ms, partition, settle, until_free,
};

/// Far longer than any of these tests takes, so that no key goes away by itself.
const LONG: Duration = Duration::from_secs(60);
/// An unacknowledged release is sent again about twice a second.
const AGAIN: Duration = ms(1_000);

#[tokio::test(start_paused = true)]
async fn release_frees_every_master() {
    let (masters, redlock) = masters(5);
    let guard = full(&redlock, &masters).await;
    assert_eq!(guard.release().await, Ok(()));
    assert_eq!(copies(&masters), 0);
}

#[tokio::test(start_paused = true)]
async fn hold_ends_before_the_release_reaches_a_master() {
    let (masters, redlock) = masters(3);
    let guard = full(&redlock, &masters).await;
    let hold = guard.hold();
    hold.check().unwrap();
    let mut release = Box::pin(guard.release());
    masters.iter().for_each(|master| master.delay(ms(10)..=ms(10), ms(10)..=ms(10)));
    assert!(timeout(Duration::ZERO, &mut release).await.is_err());
    assert_eq!(copies(&masters), 3);
    assert_eq!(hold.check().unwrap_err().reason, LostReason::Released);
    assert_eq!(release.await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn release_missing_a_minority_succeeds_and_is_retried() {
    let (masters, _) = masters(5);
    let redlock = handle(&masters).ttl(LONG).build().unwrap();
    let guard = full(&redlock, &masters).await;
    partition(&masters[..2]);
    assert_eq!(guard.release().await, Ok(()));
    assert_eq!(copies(&masters), 2);
    heal(&masters[..2]);
    until_free(&masters, AGAIN).await;
}

/// Two never had the key, so that two more that are free of it make a quorum.
#[tokio::test(start_paused = true)]
async fn release_includes_masters_that_never_had_the_key() {
    let (masters, redlock) = masters(5);
    masters[3..].iter().for_each(|master| master.put(RESOURCE, "stranger", 60_000));
    let guard = redlock.lock(RESOURCE).await.unwrap();
    partition(&masters[..1]);
    assert_eq!(guard.release().await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn release_missing_a_majority_is_unconfirmed_and_retried() {
    let (masters, _) = masters(5);
    let redlock = handle(&masters).ttl(LONG).build().unwrap();
    let guard = full(&redlock, &masters).await;
    partition(&masters[..3]);
    let error = guard.release().await.unwrap_err();
    assert!(matches!(error, ReleaseError::Unconfirmed { .. }), "{error}");
    sleep(ms(5_000)).await;
    heal(&masters[..3]);
    until_free(&masters, AGAIN).await;
}

#[tokio::test(start_paused = true)]
async fn keys_of_a_lost_lock_are_reported_until_they_expire() {
    for (waits, named) in
        [(ms(0), 3), (GUARD + TTL / 2, 3), (TTL + GUARD + ms(1), 0), (TTL * 20, 0)]
    {
        let (masters, redlock) = masters(3);
        let guard = redlock.lock(RESOURCE).auto_extend(false).min_copies(3).await.unwrap();
        sleep(waits).await;
        let left = redlock.shutdown(Duration::ZERO).await.map_err(|left| left.keys().to_vec());
        let left = left.err().unwrap_or_default();
        assert_eq!(left.len(), named, "after {waits:?}: {left:?}");
        assert!(
            left.iter().all(|key| key.within == (TTL + GUARD).saturating_sub(waits)),
            "{left:?}"
        );
        assert_eq!(copies(&masters), named);
        drop(guard);
    }
}

/// They are sent in batches, so that a returning master has time for other requests.
#[tokio::test(start_paused = true)]
async fn thousands_of_releases_are_retried_quickly() {
    let (masters, _) = masters(3);
    let redlock = handle(&masters).ttl(LONG).build().unwrap();
    let locks = (0..8_000).map(|nth| redlock.lock(format!("k{nth}")).min_copies(3).into_future());
    let guards: Vec<_> = futures::future::join_all(locks).await;
    partition(&masters[..1]);
    drop(guards);
    sleep(ms(2_000)).await;
    assert_eq!(masters[0].keys(), 8_000);
    heal(&masters[..1]);
    let took = until_free(&masters, AGAIN * 10).await;
    assert!(took < ms(300), "{took:?}");
}

/// The maximum number of unacknowledged releases per master.
const LIMIT: usize = 10_000;

/// Two locks more than one of three masters may leave unacknowledged, dropped, while it does not
/// answer. It has answered to the requests for the locks, or not.
async fn two_too_many(has_answered: bool) -> (SimNodes, Redlock) {
    let (masters, _) = masters(3);
    let redlock = handle(&masters).ttl(LONG).node_timeout(NODE_TIMEOUT).build().unwrap();
    masters[0].lose_replies(!has_answered);
    let locks = (0..LIMIT + 2).map(|nth| redlock.lock(format!("k{nth}")).into_future());
    let guards: Vec<_> = futures::future::join_all(locks).await;
    sleep(NODE_TIMEOUT * 2).await;
    partition(&masters[..1]);
    drop(guards);
    sleep(NODE_TIMEOUT * 2).await;
    (masters, redlock)
}

#[tokio::test(start_paused = true)]
async fn shutdown_counts_keys_that_are_no_longer_released() {
    let (_, redlock) = two_too_many(true).await;
    let left = redlock.shutdown(Duration::ZERO).await.unwrap_err();
    assert_eq!(left.keys().len(), LIMIT);
    let [forgotten] = left.forgotten() else { panic!("{left}") };
    assert_eq!((&*forgotten.node, forgotten.count), ("sim-0:6379", 2));
    assert!(!forgotten.from_wake_up && forgotten.within <= LONG * 11 / 10, "{left}");
    let text = left.to_string();
    assert!(text.starts_with("10002 keys may be left on masters: "), "{text}");
    assert!(text.ends_with("2 keys that are not listed on sim-0:6379 for up to 1m6s"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn shutdown_does_not_count_expired_keys() {
    let (_, redlock) = two_too_many(true).await;
    sleep(LONG * 11 / 10).await;
    assert_eq!(redlock.shutdown(Duration::ZERO).await, Ok(()));
}

/// A master that never answered may set them when it runs again.
#[tokio::test(start_paused = true)]
async fn shutdown_counts_unsettled_keys_until_their_master_answers() {
    let (masters, redlock) = two_too_many(false).await;
    sleep(LONG * 2).await;
    let closed = redlock.clone().shutdown(Duration::ZERO).await.unwrap_err();
    let [forgotten] = closed.forgotten() else { panic!("{closed}") };
    assert_eq!((forgotten.count, forgotten.within), (2, LONG * 11 / 10));
    assert!(forgotten.from_wake_up, "{closed}");
    let later = redlock.shutdown(Duration::ZERO).await.unwrap_err();
    assert_eq!(later, closed, "time does not end them");
    drop(masters);

    let (masters, redlock) = two_too_many(false).await;
    masters[0].lose_replies(false);
    heal(&masters[..1]);
    sleep(LONG * 2).await;
    assert_eq!(redlock.shutdown(Duration::ZERO).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn guard_dropped_during_a_partition_is_released_afterwards() {
    let (masters, _) = masters(5);
    let redlock = handle(&masters).ttl(LONG).build().unwrap();
    let guard = full(&redlock, &masters).await;
    partition(&masters);
    drop(guard);
    sleep(ms(3_000)).await;
    assert_eq!(copies(&masters), 5);
    heal(&masters);
    until_free(&masters, AGAIN).await;
}

#[tokio::test(start_paused = true)]
async fn release_with_lost_replies_is_retried_harmlessly() {
    let (masters, redlock) = masters(3);
    let guard = full(&redlock, &masters).await;
    masters.iter().for_each(|master| master.lose_replies(true));
    let error = guard.release().await.unwrap_err();
    assert!(matches!(error, ReleaseError::Unconfirmed { .. }), "{error}");
    masters.iter().for_each(|master| master.lose_replies(false));
    let other = handle(&masters.another_client()).build().unwrap();
    let guard = full(&other, &masters).await;
    sleep(TTL * 3).await;
    assert_eq!((guard.check(), guard.copies()), (Ok(()), 3), "a late release is not for them");
}

#[tokio::test(start_paused = true)]
async fn lost_attempt_is_also_released_on_silent_masters() {
    let (masters, _) = masters(5);
    let redlock = handle(&masters).ttl(LONG).node_timeout(NODE_TIMEOUT).build().unwrap();
    hold(&masters[..3]);
    let error = redlock.try_lock(RESOURCE).await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    settle().await;
    assert_eq!(copies(&masters), 0, "the two that granted are free again");
    let_go(&masters[..3]);
    settle().await;
    assert_eq!(copies(&masters), 0);
    for master in &masters[..3] {
        assert_eq!(acquires(master).len(), 1, "the acquire was carried out, and then released");
    }
}

#[tokio::test(start_paused = true)]
async fn lost_attempt_is_released_on_the_next_connection() {
    let (masters, _) = masters(3);
    let redlock = handle(&masters).ttl(LONG).node_timeout(NODE_TIMEOUT).build().unwrap();
    masters[..2].iter().for_each(|master| master.lose_replies(true));
    redlock.try_lock(RESOURCE).await.unwrap_err();
    partition(&masters);
    sleep(ms(2_000)).await;
    masters[..2].iter().for_each(|master| master.lose_replies(false));
    heal(&masters);
    until_free(&masters, AGAIN).await;
}

#[tokio::test(start_paused = true)]
async fn lost_lock_does_not_release_the_new_holders_key() {
    let (masters, redlock) = masters(5);
    let guard = full(&redlock, &masters).await;
    for master in masters.iter() {
        master.put(RESOURCE, "stranger", 60_000);
    }
    let error = guard.release().await.unwrap_err();
    assert!(matches!(error, ReleaseError::NotOurs { .. }), "{error}");
    assert_eq!(copies(&masters), 5);
}

/// A release grants nothing, and a key may be there although the lease was lost.
#[tokio::test(start_paused = true)]
async fn release_of_a_lost_lease_names_masters_that_released_it() {
    let (masters, redlock) = masters(3);
    let guard = full(&redlock, &masters).await;
    masters[..2].iter().for_each(|master| master.put(RESOURCE, "stranger", 60_000));
    guard.lost().await;
    let error = guard.release().await.unwrap_err().to_string();
    let said = "was already lost, or was never held by this token: ";
    assert!(error.contains(said) && !error.contains("granted"), "{error}");
    assert_eq!(error.matches(" not ours").count(), 2, "twice of masters: {error}");
    assert_eq!(error.matches(" released").count(), 1, "{error}");
}

#[tokio::test(start_paused = true)]
async fn every_attempt_has_its_own_token() {
    let (masters, redlock) = masters(3);
    // Without pushes it is tried again after pauses.
    masters.iter().for_each(|master| master.set_tracking(false));
    masters[..2].iter().for_each(|master| master.put(RESOURCE, "stranger", 2_000));
    let guard = redlock.lock(RESOURCE).await.unwrap();
    let attempts = acquires(&masters[2]);
    assert!(attempts.len() > 5, "{attempts:?}");
    let tokens: HashSet<_> = attempts.iter().map(|(_, token, _)| token).collect();
    assert_eq!(tokens.len(), attempts.len());
    guard.release().await.unwrap();
}

/// A master that answers with errors for a while acknowledges the release of the first attempt when
/// the second attempt has the lock.
#[tokio::test(start_paused = true)]
async fn a_late_release_of_one_attempt_does_not_free_the_next() {
    let (masters, redlock) = masters(3);
    masters[0].error_replies(Some("LOADING Redis is loading the dataset in memory"));
    masters[1].put(RESOURCE, "stranger", 100);
    let request = redlock.lock(RESOURCE).auto_extend(false).ttl(LONG);
    let acquired = tokio::spawn(request.into_future());
    sleep(ms(20)).await;
    masters[0].error_replies(None);
    let guard = acquired.await.unwrap().unwrap();
    sleep(ms(5_000)).await;
    assert_eq!(copies(&masters), guard.copies());
    assert!(masters[0].holder(RESOURCE).is_some(), "{:?}", masters[0].log());
}

#[tokio::test(start_paused = true)]
async fn readded_key_is_released() {
    let (masters, redlock) = masters(3);
    masters[2].partition();
    let guard = redlock.lock(RESOURCE).await.unwrap();
    assert_eq!(copies(&masters), 2, "it was never sent there");
    masters[2].heal();
    sleep(TTL).await;
    assert_eq!(copies(&masters), 3, "the keeper gave it the key");
    guard.release().await.unwrap();
    settle().await;
    assert_eq!(copies(&masters), 0);
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_returning_masters_and_names_others() {
    let (masters, _) = masters(3);
    for back in [true, false] {
        let redlock = handle(&masters).ttl(LONG).build().unwrap();
        let guard = full(&redlock, &masters).await;
        masters[0].partition();
        guard.release().await.unwrap();
        let closing = tokio::spawn(redlock.shutdown(ms(5_000)));
        sleep(ms(2_000)).await;
        assert!(!closing.is_finished());
        if back {
            masters[0].heal();
            assert_eq!(closing.await.unwrap(), Ok(()));
            assert_eq!(copies(&masters), 0);
        } else {
            let left = closing.await.unwrap().unwrap_err();
            assert_eq!(left.keys().len(), 1, "{left}");
            assert_eq!(left.keys()[0].node, "sim-0:6379");
            let left = left.keys()[0].within;
            assert!(left > LONG - ms(6_000) && left <= LONG * 11 / 10, "{left:?}");
        }
    }
}

/// The process that releases by a token does not know how long the lock may live. The masters do.
#[tokio::test(start_paused = true)]
async fn key_left_by_a_token_release_is_reported_for_the_max_ttl() {
    const LONGER: Duration = Duration::from_secs(600);
    let masters = SimNodes::new(3, 1);
    masters.init(LONGER);
    let holder = handle(&masters).ttl(LONGER).max_ttl(LONGER).build().unwrap();
    let token = full(&holder, &masters).await.into_lease().token;
    let releaser = handle(&masters).build().unwrap();
    partition(&masters[..1]);
    let lease = Lease::new(RESOURCE, token.as_str(), Duration::from_secs(60)).unwrap();
    assert_eq!(releaser.release(lease).await, Ok(()));
    let left = releaser.shutdown(Duration::ZERO).await.unwrap_err();
    assert_eq!(left.keys()[0].within, LONGER + LONGER / 10, "{left}");
}
