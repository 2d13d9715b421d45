//! Holding: the keeper, what it repairs, and what ends a lease before its time.

use redlock_core::{Verb, Verdict};
use redlock_quorum::{Ended, ExtendError, LostReason};
use tokio::time::sleep;

use crate::arena::{
    RESOURCE, TTL, VALIDITY, acquires, again, copies, count, ended, full, heal, hold, is_extend,
    let_go, masters, ms, partition, until_free,
};

fn is_release(verb: &Verb) -> bool {
    matches!(verb, Verb::Release)
}

#[tokio::test(start_paused = true)]
async fn keeper_extends_at_a_third_of_the_ttl_while_the_guard_lives() {
    let (masters, redlock) = masters(5);
    let guard = full(&redlock, &masters).await;
    for _ in 0..1_000 {
        sleep(ms(100)).await;
        assert!(guard.remaining() > VALIDITY / 2, "{:?}", guard.remaining());
    }
    for master in masters.iter() {
        let extensions = count(master, is_extend);
        assert!((290..=301).contains(&extensions), "{extensions} in 100 s");
    }
    guard.release().await.unwrap();
    until_free(&masters, ms(1)).await;
}

#[tokio::test(start_paused = true)]
async fn lease_lapses_without_a_keeper_or_after_max_hold() {
    let (masters, redlock) = masters(3);
    let begin = masters.clock().now();
    let guard = redlock.lock(RESOURCE).max_hold(ms(3_000)).await.unwrap();
    let end = ended(&guard).await;
    let held = masters.clock().now().saturating_since(begin);
    assert!(matches!(end, Ended::Lost(lost) if lost.reason == LostReason::MaxHold));
    assert!(held >= ms(3_000) && held <= ms(3_000) + TTL, "{held:?}");
    drop(guard);
    until_free(&masters, ms(1)).await;
    let guard = redlock.lock(RESOURCE).auto_extend(false).await.unwrap();
    ended(&guard).await;
    assert_eq!(count(&masters[0], is_extend), count(&masters[1], is_extend));
    let before = count(&masters[0], is_extend);
    sleep(TTL).await;
    assert_eq!(count(&masters[0], is_extend), before);
}

#[tokio::test(start_paused = true)]
async fn lost_replies_of_a_minority_cost_nothing() {
    let (masters, redlock) = masters(5);
    let guard = full(&redlock, &masters).await;
    masters[..2].iter().for_each(|master| master.lose_replies(true));
    for _ in 0..100 {
        sleep(ms(100)).await;
        assert_eq!(guard.check(), Ok(()));
    }
    assert_eq!(guard.copies(), 3);
    masters[..2].iter().for_each(|master| master.lose_replies(false));
    sleep(TTL).await;
    assert_eq!(guard.copies(), 5);
}

#[tokio::test(start_paused = true)]
async fn lost_replies_of_a_majority_end_the_lease_at_its_deadline() {
    let (masters, redlock) = masters(5);
    let guard = full(&redlock, &masters).await;
    let begin = masters.clock().now();
    masters[..3].iter().for_each(|master| master.lose_replies(true));
    let end = ended(&guard).await;
    assert!(matches!(end, Ended::Lost(lost) if lost.reason == LostReason::NotExtended));
    assert_eq!(masters.clock().now().saturating_since(begin), VALIDITY);
    // A master that has not answered is not queried again, because requests on its connection keep
    // their order.
    let asked: Vec<_> = masters.iter().map(|master| count(master, is_extend)).collect();
    assert_eq!(asked[..3], [1; 3]);
    assert!(asked[3..].iter().all(|asked| *asked > 1), "it was tried until the end: {asked:?}");
    for master in masters.iter() {
        assert_eq!(count(master, is_release), 0, "a failed extension releases nothing");
    }
}

#[tokio::test(start_paused = true)]
async fn majority_returning_in_time_keeps_the_lease() {
    let (masters, redlock) = masters(5);
    let guard = full(&redlock, &masters).await;
    for _ in 0..10 {
        partition(&masters[..3]);
        sleep(ms(500)).await;
        heal(&masters[..3]);
        sleep(ms(200)).await;
        assert_eq!(guard.check(), Ok(()));
    }
    assert_eq!(guard.copies(), 5);
}

#[tokio::test(start_paused = true)]
async fn extension_on_less_than_a_quorum_changes_nothing() {
    let (masters, redlock) = masters(5);
    let request = redlock.lock(RESOURCE).min_copies(5).auto_extend(false);
    let guard = request.await.unwrap();
    sleep(ms(200)).await;
    hold(&masters[2..]);
    let error = guard.extend(TTL).await.unwrap_err();
    assert!(matches!(error, ExtendError::NoQuorum { .. }), "{error}");
    assert_eq!(guard.remaining(), VALIDITY - ms(250));
    // The third answer is late, and valid from the time of its request.
    let_go(&masters[2..3]);
    sleep(ms(1)).await;
    assert_eq!(guard.remaining(), VALIDITY - ms(51));
}

#[tokio::test(start_paused = true)]
async fn extended_validity_starts_before_the_request_is_sent() {
    let (masters, redlock) = masters(3);
    let guard = redlock.lock(RESOURCE).auto_extend(false).await.unwrap();
    sleep(ms(500)).await;
    masters.iter().for_each(|master| master.delay(ms(10)..=ms(10), ms(20)..=ms(20)));
    guard.extend(TTL).await.unwrap();
    assert_eq!(guard.remaining(), VALIDITY - ms(30));
}

#[tokio::test(start_paused = true)]
async fn a_shorter_extension_never_shortens_the_lease() {
    let (masters, redlock) = masters(3);
    let guard = full(&redlock, &masters).await;
    sleep(ms(100)).await;
    guard.extend(ms(500)).await.unwrap();
    assert_eq!(guard.remaining(), VALIDITY - ms(100));
    guard.extend(TTL * 10).await.unwrap();
    assert_eq!(guard.remaining(), ms(9_898));
    guard.extend(ms(500)).await.unwrap();
    assert_eq!(guard.remaining(), ms(9_898));
}

#[tokio::test(start_paused = true)]
async fn key_is_readded_on_a_minority_that_lost_it() {
    let (masters, redlock) = crate::arena::trusting(5);
    let guard = full(&redlock, &masters).await;
    masters[0].flush();
    masters[1].crash_and_restart(false);
    assert_eq!(copies(&masters), 3);
    sleep(TTL / 2).await;
    assert_eq!((copies(&masters), guard.copies()), (5, 5));
    for master in &masters[..2] {
        let tokens: Vec<_> = acquires(master).into_iter().map(|(_, token, _)| token).collect();
        assert_eq!(tokens.len(), 2);
        assert_eq!(tokens[0], tokens[1], "it is the same lease");
    }
    guard.release().await.unwrap();
    until_free(&masters, ms(1)).await;
}

#[tokio::test(start_paused = true)]
async fn lease_survives_masters_losing_the_key_one_at_a_time() {
    let (masters, redlock) = crate::arena::trusting(5);
    let guard = full(&redlock, &masters).await;
    for master in masters.iter().cycle().take(20) {
        master.flush();
        sleep(TTL / 2).await;
        assert_eq!((guard.check(), copies(&masters)), (Ok(()), 5));
    }
}

#[tokio::test(start_paused = true)]
async fn lease_ends_when_a_majority_is_known_to_have_lost_the_key() {
    let (masters, redlock) = crate::arena::trusting(5);
    let guard = full(&redlock, &masters).await;
    let begin = masters.clock().now();
    sleep(ms(50)).await;
    masters[..3].iter().for_each(|master| master.flush());
    let end = ended(&guard).await;
    assert!(matches!(end, Ended::Lost(lost) if lost.reason == LostReason::NotOurs));
    let known = masters.clock().now().saturating_since(begin);
    assert!(known <= TTL / 3 + ms(1), "the first extension finds out: {known:?}");
    sleep(TTL).await;
    assert!(masters[..3].iter().all(|master| acquires(master).len() == 1), "nothing is re-added");
    assert!(!guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_restart_of_a_majority_is_loss_until_it_confirms() {
    let (masters, redlock) = crate::arena::trusting(5);
    let guard = full(&redlock, &masters).await;
    let asked = count(&masters[0], is_extend);
    masters[..2].iter().for_each(|master| master.crash_and_restart(true));
    sleep(ms(1)).await;
    assert!(count(&masters[0], is_extend) > asked, "it is immediately queried for its keys");
    assert_eq!((guard.is_held(), guard.copies()), (true, 5));
    masters[..3].iter().for_each(|master| master.crash_and_restart(true));
    sleep(ms(1)).await;
    assert_eq!(guard.check().unwrap_err().reason, LostReason::DataLost);
}

#[tokio::test(start_paused = true)]
async fn a_strangers_key_is_not_taken_away_by_the_keeper() {
    let (masters, redlock) = masters(5);
    let guard = full(&redlock, &masters).await;
    masters[0].put(RESOURCE, "stranger", 60_000);
    sleep(TTL * 3).await;
    assert_eq!(masters[0].holder(RESOURCE).as_deref(), Some("stranger"));
    assert_eq!((guard.is_held(), guard.copies()), (true, 4));
    guard.release().await.unwrap();
    assert_eq!(masters[0].holder(RESOURCE).as_deref(), Some("stranger"));
}

/// The loss is noticed by replies that come when the lease is over already.
#[tokio::test(start_paused = true)]
async fn no_key_is_set_again_after_the_deadline() {
    let (masters, redlock) = masters(5);
    // Nothing else tells of the loss.
    masters.iter().for_each(|master| master.set_tracking(false));
    let guard = full(&redlock, &masters).await;
    sleep(ms(100)).await;
    masters[..3].iter().for_each(|master| master.flush());
    for master in masters.iter() {
        master.delay(ms(0)..=ms(0), ms(900)..=ms(900));
    }
    sleep(TTL * 3).await;
    assert_eq!(guard.check().unwrap_err().reason, LostReason::NotExtended);
    for master in &masters[..3] {
        assert_eq!(acquires(master).len(), 1, "{:?}", acquires(master));
    }
    drop(guard);
}

/// Its first confirmation would come after the old end of the lease.
#[tokio::test(start_paused = true)]
async fn readded_key_confirmed_too_late_revives_nothing() {
    let (masters, redlock) = masters(3);
    let guard = full(&redlock, &masters).await;
    masters[0].flush();
    masters[1].hold();
    sleep(ms(334)).await;
    masters[0].delay(ms(0)..=ms(0), ms(700)..=ms(700));
    sleep(TTL * 2).await;
    assert!(!guard.is_held());
    drop(guard);
    let_go(&masters[1..2]);
    until_free(&masters, ms(2_000)).await;
}

#[tokio::test(start_paused = true)]
async fn resumed_lease_is_extended_first_and_then_kept() {
    let (masters, redlock) = masters(5);
    let lease = full(&redlock, &masters).await.into_lease();
    sleep(ms(900)).await;
    let guard = redlock.resume(again(&lease)).await.unwrap();
    assert_eq!(guard.remaining(), VALIDITY);
    sleep(TTL * 5).await;
    assert_eq!(guard.check(), Ok(()));
    guard.release().await.unwrap();
    let gone = redlock.resume(lease).await.unwrap_err();
    assert!(matches!(gone, ExtendError::NotOurs { .. }), "{gone}");
    assert_eq!(copies(&masters), 0, "an expired lease is not acquired again");
}

#[tokio::test(start_paused = true)]
async fn work_is_stopped_when_its_lock_is_lost() {
    let (masters, redlock) = masters(3);
    let steps = std::cell::Cell::new(0);
    let outcome = redlock
        .lock(RESOURCE)
        .run(async |hold| {
            loop {
                hold.check().unwrap();
                steps.set(steps.get() + 1);
                if steps.get() == 10 {
                    partition(&masters);
                }
                sleep(ms(100)).await;
            }
        })
        .await;
    // The work never ends by itself.
    let Err(error) = outcome;
    assert!(error.to_string().contains("not extended in time"), "{error}");
    assert!((16..=20).contains(&steps.get()), "{} steps", steps.get());
}

#[tokio::test(start_paused = true)]
async fn verdicts_of_the_last_extension_are_reported() {
    let (masters, redlock) = masters(3);
    let guard = full(&redlock, &masters).await;
    masters[2].put(RESOURCE, "stranger", 60_000);
    guard.extend(TTL).await.unwrap();
    sleep(ms(1)).await;
    let votes = guard.votes().to_string();
    assert!(
        votes.starts_with("sim-0:6379 granted, sim-1:6379 granted, sim-2:6379 held ("),
        "{votes}"
    );
    let granted = acquires(&masters[2]).iter().filter(|entry| entry.2 == Verdict::Granted).count();
    assert_eq!(granted, 1);
    drop(guard);
}
