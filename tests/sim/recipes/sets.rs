//! Several resources that are locked together.

use std::collections::BTreeSet;
use std::future::{IntoFuture, pending};
use std::time::Duration;

use futures::FutureExt;
use redlock_quorum::{
    AcquireError, Ended, Guard, GuardSet, InvalidRequest, LockAllRequest, LostReason, Redlock,
    RunError,
};
use redlock_testkit::SimNodes;
use tokio::time::{sleep, timeout};

use crate::arena::{
    GUARD, NODE_TIMEOUT, TTL, drop_after, handle, masters, ms, partition, requests, settle,
    until_free,
};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// How many masters hold this key.
fn holders(masters: &SimNodes, key: &str) -> usize {
    masters.iter().filter(|master| master.holder(key).is_some()).count()
}

/// How many masters hold each of the three keys.
fn held(masters: &SimNodes) -> [usize; 3] {
    NAMES.map(|key| holders(masters, key))
}

/// A set of the three, with its error as text.
async fn all(redlock: &Redlock) -> GuardSet {
    redlock.lock_all(NAMES).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn free_resources_are_locked_in_one_round_trip() {
    let (masters, redlock) = masters(5);
    redlock.try_lock("warm-up").await.unwrap().release().await.unwrap();
    masters.iter().for_each(|master| master.delay(ms(5)..=ms(5), ms(5)..=ms(5)));
    let begin = masters.clock().now();
    let names: Vec<String> = (0..64).map(|number| format!("key:{number}")).collect();
    let set = redlock.lock_all(&names).await.unwrap();
    assert_eq!(masters.clock().now().saturating_since(begin), ms(10));

    let order: Vec<_> = set.iter().map(|guard| guard.resource().to_string()).collect();
    assert_eq!(order, names, "they come in the caller's order");
    let tokens: BTreeSet<_> = set.iter().map(|guard| guard.token().to_string()).collect();
    assert_eq!(tokens.len(), 64, "each is a separate lease");
    assert_eq!(set.fencing_token("key:7"), set.get("key:7").unwrap().fencing_token());
    assert!(set.fencing_token("key:7").is_some() && set.fencing_token("another").is_none());
    assert!(set.is_held() && set.check().is_ok());
    assert_eq!(set.remaining(), set.iter().map(Guard::remaining).min().unwrap());
    set.release().await.unwrap();
    until_free(&masters, NODE_TIMEOUT).await;
}

#[tokio::test(start_paused = true)]
async fn invalid_sets_are_refused_before_sending() {
    let (masters, redlock) = masters(3);
    let (long, reserved) = ("k".repeat(513), "redlock-quorum:1");
    let many: Vec<String> = (0..65).map(|number| number.to_string()).collect();
    let refusals = [
        (redlock.lock_all(Vec::<String>::new()), "pass 1 to 64"),
        (redlock.lock_all(&many), "65 resources"),
        (redlock.lock_all(["a", "b", "a"]), "a is listed twice"),
        (redlock.lock_all(["a", &long]), "512"),
        (redlock.lock_all(["a", reserved]), "redlock-quorum:"),
        (redlock.lock_all(["a", "b"]).ttl(ms(1)), "10ms"),
        (redlock.lock_all(["a", "b"]).min_copies(4), "1 to 3"),
        (redlock.lock_all(["a", "b"]).label("no spaces"), "label"),
    ];
    for (request, told) in refusals {
        let error = request.await.unwrap_err();
        assert!(matches!(error, AcquireError::Invalid(_)), "{error}");
        assert!(error.to_string().contains(told), "{error} says {told:?}");
    }
    let twice = redlock.lock_all(["a", "a"]).await.unwrap_err();
    assert!(matches!(twice, AcquireError::Invalid(InvalidRequest::SameResource { .. })));
    assert_eq!(requests(&masters), 0);
}

#[tokio::test(start_paused = true)]
async fn one_attempt_takes_all_or_none_and_names_the_held_resource() {
    let (masters, redlock) = masters(5);
    let other = handle(&masters).build().unwrap();
    let guard = other.lock("b").min_copies(5).await.unwrap();
    let error = redlock.try_lock_all(NAMES).await.unwrap_err();
    let AcquireError::Held { resource, votes } = &error else { panic!("{error}") };
    assert_eq!((resource.to_string().as_str(), votes.len()), ("b", 5));
    sleep(NODE_TIMEOUT).await;
    assert_eq!(held(&masters), [0, 5, 0]);
    guard.release().await.unwrap();
    redlock.try_lock_all(NAMES).await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn waiting_set_holds_only_smaller_keys() {
    let (masters, redlock) = masters(5);
    let other = handle(&masters).build().unwrap();
    let guard = other.lock("b").await.unwrap();
    let collecting = tokio::spawn(redlock.lock_all(["c", "b", "a"]).into_future());
    sleep(NODE_TIMEOUT).await;
    assert_eq!(held(&masters), [5, 5, 0]);
    // Longer than a lease lasts. Only the waiter extends locks held for this long.
    sleep(TTL * 3).await;
    assert_eq!(held(&masters), [5, 5, 0]);
    guard.release().await.unwrap();
    let set = timeout(TTL * 2, collecting).await.expect("in time").unwrap().unwrap();
    assert_eq!(held(&masters), [5, 5, 5]);
    // From here on each has a keeper.
    sleep(TTL * 3).await;
    assert!(set.is_held());
    drop(set);
    until_free(&masters, NODE_TIMEOUT).await;
}

#[tokio::test(start_paused = true)]
async fn wait_covers_the_whole_set() {
    let (masters, redlock) = masters(5);
    let other = handle(&masters).build().unwrap();
    let (first, second) = (other.lock("a").await.unwrap(), other.lock("b").await.unwrap());
    let begin = masters.clock().now();
    let release = async {
        sleep(ms(600)).await;
        first.release().await.unwrap();
    };
    let (refused, ()) =
        tokio::join!(redlock.lock_all(NAMES).wait(ms(1_000)).into_future(), release);
    let waited = masters.clock().now().saturating_since(begin);
    let refused = refused.unwrap_err();
    assert!(matches!(&refused, AcquireError::Held { resource, .. } if *resource == "b".into()));
    assert!((ms(1_000)..ms(1_000) + NODE_TIMEOUT * 4).contains(&waited), "{waited:?}");
    second.release().await.unwrap();
    until_free(&masters, NODE_TIMEOUT).await;
}

#[tokio::test(start_paused = true)]
async fn set_of_one_sends_as_much_as_its_lock() {
    let (masters, redlock) = masters(5);
    let other = handle(&masters).build().unwrap();
    let guard = other.lock("a").await.unwrap();
    settle().await;
    let asked = requests(&masters);
    redlock.try_lock("a").await.unwrap_err();
    let once = requests(&masters) - asked;
    redlock.try_lock_all(["a"]).await.unwrap_err();
    assert_eq!(requests(&masters) - asked, once * 2);
    guard.release().await.unwrap();
    redlock.lock_all(["a"]).await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn unpolled_future_keeps_locks_for_at_most_a_ttl() {
    let (masters, redlock) = masters(5);
    let other = handle(&masters).build().unwrap();
    let guard = other.lock("b").await.unwrap();
    let mut collecting = redlock.lock_all(NAMES).wait_forever().into_future();
    let polled = timeout(NODE_TIMEOUT, &mut collecting).await;
    assert!(polled.is_err() && holders(&masters, "a") == 5);
    sleep(TTL + GUARD).await;
    assert_eq!(held(&masters), [0, 5, 0]);
    // Once polled again, it continues, and acquires the lost locks again.
    guard.release().await.unwrap();
    let set = timeout(TTL * 2, collecting).await.expect("in time").unwrap();
    assert!(set.is_held() && held(&masters) == [5, 5, 5]);
}

#[tokio::test(start_paused = true)]
async fn lost_key_restarts_the_collection() {
    let (masters, redlock) = masters(5);
    let other = handle(&masters).build().unwrap();
    let guard = other.lock("b").await.unwrap();
    let collecting = tokio::spawn(redlock.lock_all(NAMES).wait(TTL * 20).into_future());
    sleep(NODE_TIMEOUT).await;
    masters.iter().for_each(|master| master.put("a", "of another", 3_000));
    sleep(TTL).await;
    guard.release().await.unwrap();
    sleep(TTL).await;
    assert_eq!(held(&masters), [5, 0, 0], "it waits for the first again, and holds nothing");
    let set = timeout(TTL * 5, collecting).await.expect("in time").unwrap().unwrap();
    assert!(set.is_held() && held(&masters) == [5, 5, 5]);
}

#[tokio::test(start_paused = true)]
async fn key_lost_after_the_wait_ends_the_call() {
    let (masters, redlock) = masters(5);
    let other = handle(&masters).build().unwrap();
    let _held = other.lock("b").await.unwrap();
    let mut collecting = redlock.lock_all(NAMES).wait(ms(300)).into_future();
    assert!(timeout(NODE_TIMEOUT, &mut collecting).await.is_err());
    sleep(TTL + GUARD).await;
    let error = collecting.await.unwrap_err();
    let is_named =
        matches!(&error, AcquireError::TooLate { resource, .. } if *resource == "a".into());
    assert!(is_named, "{error}");
}

#[tokio::test(start_paused = true)]
async fn one_lost_lock_ends_the_set() {
    let (masters, redlock) = masters(5);
    let set = all(&redlock).await;
    let hold = set.hold();
    assert!(set.lost().now_or_never().is_none() && hold.is_held());
    masters.iter().for_each(|master| master.put("b", "of another", 60_000));
    let ended = timeout(TTL * 2, set.lost()).await.expect("it is noticed");
    let Ended::Lost(lost) = ended else { panic!("{ended:?}") };
    assert_eq!((lost.resource, lost.reason), ("b".into(), LostReason::NotOurs));
    assert_eq!(set.check().unwrap_err().resource, "b".into());
    assert!(!set.is_held() && set.remaining() == Duration::ZERO && hold.check().is_err());
    assert!(set.release().await.is_err(), "one of them was no longer ours");
    sleep(NODE_TIMEOUT).await;
    assert_eq!(held(&masters), [0, 5, 0]);
}

#[tokio::test(start_paused = true)]
async fn losing_one_lock_stops_the_work_and_releases_the_rest() {
    let (masters, redlock) = masters(5);
    let request: LockAllRequest = redlock.lock_all(NAMES);
    let output = request.clone().run(|hold| async move { hold.iter().count() }).await;
    assert_eq!(output.unwrap(), 3);
    until_free(&masters, NODE_TIMEOUT).await;
    let cut_off = async {
        sleep(TTL).await;
        partition(&masters[..3]);
    };
    let work = timeout(TTL * 4, request.run(|_| pending::<()>()));
    let (outcome, ()) = tokio::join!(work, cut_off);
    assert!(matches!(outcome.expect("it is stopped"), Err(RunError::Lost { output: None, .. })));
}

#[tokio::test(start_paused = true)]
async fn max_hold_and_auto_extend_apply_to_each_lock() {
    let (_masters, redlock) = masters(5);
    let lapses = redlock.lock_all(NAMES).auto_extend(false).await.unwrap();
    assert!(timeout(TTL, lapses.lost()).await.is_ok());
    drop(lapses);
    let set = redlock.lock_all(NAMES).max_hold(TTL * 2).wait(TTL * 4).await.unwrap();
    sleep(TTL * 2).await;
    assert!(set.is_held());
    let Ended::Lost(lost) = set.lost().await else { panic!("nobody has released it") };
    assert_eq!(lost.reason, LostReason::MaxHold);
}

#[tokio::test(start_paused = true)]
async fn lock_all_dropped_at_any_poll_leaves_no_key() {
    for polls in 0..24 {
        let (masters, redlock) = masters(5);
        masters.iter().for_each(|master| master.delay(ms(1)..=ms(4), ms(1)..=ms(4)));
        let other = handle(&masters).build().unwrap();
        let guard = other.lock("b").await.unwrap();
        let release = async {
            sleep(ms(15)).await;
            guard.release().await.unwrap();
        };
        let dropped = drop_after(redlock.lock_all(NAMES).into_future(), polls);
        // The future is polled to no end where it is dropped first.
        let ((), _) = tokio::join!(release, timeout(ms(500), dropped));
        sleep(NODE_TIMEOUT).await;
        until_free(&masters, ms(1_000)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_the_collection() {
    let (masters, redlock) = masters(3);
    let other = handle(&masters).build().unwrap();
    let _held = other.lock("b").await.unwrap();
    let mut collecting = redlock.lock_all(NAMES).wait_forever().into_future();
    assert!((&mut collecting).now_or_never().is_none());
    let (outcome, _) = tokio::join!(collecting, async {
        settle().await;
        redlock.clone().shutdown(ms(100)).await
    });
    assert!(matches!(outcome, Err(AcquireError::Shutdown)), "{outcome:?}");
    let refused = redlock.lock_all(NAMES).await.unwrap_err();
    assert!(matches!(refused, AcquireError::Shutdown), "{refused}");
}
