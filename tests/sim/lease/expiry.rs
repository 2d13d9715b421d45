//! The end of a lease is exact, final, and decided by the holder's own clock.

use std::time::Duration;

use redlock_quorum::{AcquireError, Ended, LostReason, Redlock};
use tokio::time::{advance, sleep, timeout};

use crate::arena::{
    GUARD, RESOURCE, TTL, VALIDITY, count, ended, full, handle, hold, is_extend, let_go, masters,
    ms, settle, until_free,
};

/// The longest pause between two attempts of a waiter.
const PAUSE_MAX: Duration = ms(200);

#[tokio::test(start_paused = true)]
async fn lock_of_a_dead_holder_is_free_after_its_keys_expire() {
    let (masters, redlock) = masters(5);
    full(&redlock, &masters).await.forget();
    let begin = masters.clock().now();
    let other = handle(&masters.another_client()).build().unwrap();
    let guard = other.lock(RESOURCE).wait(TTL * 10).await.unwrap();
    let waited = masters.clock().now().saturating_since(begin);
    assert!(waited > TTL + GUARD && waited <= TTL + GUARD + PAUSE_MAX + ms(5), "{waited:?}");
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lease_lapses_exactly_when_its_validity_is_over() {
    let (_masters, redlock) = masters(3);
    let guard = redlock.lock(RESOURCE).auto_extend(false).await.unwrap();
    let lost = guard.lost();
    assert_eq!(guard.remaining(), VALIDITY);
    advance(VALIDITY - Duration::from_nanos(1)).await;
    assert_eq!((guard.remaining(), guard.is_held()), (Duration::from_nanos(1), true));
    assert_eq!(guard.check(), Ok(()));
    advance(Duration::from_nanos(1)).await;
    assert_eq!((guard.remaining(), guard.is_held()), (Duration::ZERO, false));
    assert_eq!(guard.check().unwrap_err().reason, LostReason::NotExtended);
    assert!(matches!(lost.await, Ended::Lost(lost) if lost.reason == LostReason::NotExtended));
}

#[tokio::test(start_paused = true)]
async fn the_loss_is_reported_when_it_happens() {
    let (masters, redlock) = masters(3);
    let begin = masters.clock().now();
    let guard = redlock.lock(RESOURCE).auto_extend(false).await.unwrap();
    let end = ended(&guard).await;
    assert!(matches!(end, Ended::Lost(_)), "{end:?}");
    assert_eq!(masters.clock().now().saturating_since(begin), VALIDITY);
}

#[tokio::test(start_paused = true)]
async fn stop_margin_ends_the_lease_earlier_and_not_the_keys() {
    let (masters, redlock) = masters(3);
    let request = redlock.lock(RESOURCE).auto_extend(false).stop_margin(ms(300));
    let guard = request.await.unwrap();
    assert_eq!(guard.remaining(), VALIDITY - ms(300));
    ended(&guard).await;
    assert!(masters.iter().all(|master| master.holder(RESOURCE).is_some()));
    sleep(TTL + GUARD - VALIDITY + ms(300)).await;
    assert!(masters.iter().all(|master| master.holder(RESOURCE).is_some()), "the last moment");
    sleep(ms(1)).await;
    assert_eq!(until_free(&masters, Duration::ZERO).await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn validity_starts_before_the_request_is_sent() {
    let (masters, redlock) = masters(5);
    for master in masters.iter() {
        master.delay(ms(15)..=ms(15), ms(20)..=ms(20));
    }
    let begin = masters.clock().now();
    let guard = redlock.lock(RESOURCE).await.unwrap();
    assert_eq!(masters.clock().now().saturating_since(begin), ms(35));
    assert_eq!(guard.remaining(), VALIDITY - ms(35));
}

/// The last grant of the quorum comes at the very end: an instant is either before it or too late.
#[tokio::test(start_paused = true)]
async fn lease_without_remaining_time_is_not_returned() {
    for (left, is_won) in [(1, true), (0, false)] {
        let (masters, redlock) = masters(3);
        masters.iter().for_each(|master| master.delay(ms(20)..=ms(20), ms(20)..=ms(20)));
        let margin = VALIDITY - ms(40) - Duration::from_nanos(left);
        let acquired = redlock.try_lock(RESOURCE).stop_margin(margin).await;
        match acquired {
            Ok(guard) => assert!(is_won && guard.remaining() == Duration::from_nanos(left)),
            Err(error) => {
                assert!(!is_won && matches!(error, AcquireError::TooLate { .. }), "{error}");
                sleep(ms(100)).await;
                let attempts = masters.iter().map(|master| master.log().len());
                assert_eq!(attempts.collect::<Vec<_>>(), [2; 3], "one acquire, one release");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_slowest_of_the_quorum_does_not_move_the_start() {
    let (masters, redlock) = masters(5);
    for (master, delay) in masters.iter().zip([0, 10, 40, 49, 49]) {
        master.delay(ms(0)..=ms(0), ms(delay)..=ms(delay));
    }
    let guard = redlock.lock(RESOURCE).auto_extend(false).await.unwrap();
    assert_eq!(guard.remaining(), VALIDITY - ms(40));
    assert_eq!(guard.copies(), 3);
}

#[tokio::test(start_paused = true)]
async fn late_extensions_never_revive_a_guard() {
    let (masters, redlock) = masters(5);
    let guard = full(&redlock, &masters).await;
    hold(&masters);
    sleep(VALIDITY + ms(1)).await;
    assert!(!guard.is_held());
    let_go(&masters);
    settle().await;
    assert!(masters.iter().any(|master| count(master, is_extend) > 0), "some came late");
    for _ in 0..30 {
        assert!(!guard.is_held() && guard.remaining() == Duration::ZERO);
        assert_eq!(guard.check().unwrap_err().reason, LostReason::NotExtended);
        sleep(ms(100)).await;
    }
    assert!(matches!(ended(&guard).await, Ended::Lost(_)));
    drop(guard);
    until_free(&masters, ms(5)).await;
}

/// Late by so little that the masters still have the keys: only the clock forbids it.
#[tokio::test(start_paused = true)]
async fn confirmation_at_the_deadline_is_too_late() {
    let (masters, redlock) = masters(3);
    let guard = redlock.lock(RESOURCE).auto_extend(false).await.unwrap();
    sleep(ms(900)).await;
    for master in masters.iter() {
        master.delay(ms(0)..=ms(0), ms(88)..=ms(88));
    }
    assert!(guard.extend(TTL).await.is_err(), "the node timeout has passed");
    assert_eq!(guard.remaining(), ms(38));
    sleep(ms(200)).await;
    assert!(!guard.is_held());
    assert_eq!(guard.check().unwrap_err().reason, LostReason::NotExtended);
}

#[tokio::test(start_paused = true)]
async fn paused_process_finds_its_lease_over_and_does_not_extend_it() {
    let (masters, redlock) = masters(5);
    let guard = full(&redlock, &masters).await;
    // Nothing of the process runs in between: the deadline and the keeper's timers are all past.
    advance(VALIDITY).await;
    assert!(!guard.is_held());
    sleep(ms(100)).await;
    assert!(masters.iter().all(|master| count(master, is_extend) == 0));
    assert!(!guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn late_grants_make_no_holder_and_leave_no_key() {
    let masters = crate::arena::admitted(3, 0);
    let builder = handle(&masters).ttl(ms(10)).node_timeout(Duration::from_micros(2_500));
    let redlock: Redlock = builder.build().unwrap();
    for master in masters.iter() {
        master.delay(ms(1)..=ms(1), ms(1)..=ms(1));
    }
    let request = redlock.try_lock(RESOURCE).stop_margin(Duration::from_micros(6_000));
    let error = request.await.unwrap_err();
    assert!(matches!(error, AcquireError::TooLate { .. }), "{error}");
    until_free(&masters, ms(5)).await;
}

#[tokio::test(start_paused = true)]
async fn guard_polled_after_its_expiry_is_not_returned() {
    let (masters, redlock) = masters(3);
    for master in masters.iter() {
        master.delay(ms(0)..=ms(0), ms(20)..=ms(20));
    }
    let mut request = redlock.lock(RESOURCE).auto_extend(false).into_future();
    // The caller polls once, and then does something else for longer than the lease lasts.
    assert!(timeout(Duration::ZERO, &mut request).await.is_err());
    sleep(VALIDITY + ms(100)).await;
    let error = request.await.unwrap_err();
    assert!(matches!(error, AcquireError::TooLate { .. }), "{error}");
    until_free(&masters, ms(5)).await;
}

/// Masters that confirm the later deadline lose their data, when waiting callers were set for the
/// later deadline.
#[tokio::test(start_paused = true)]
async fn the_loss_is_noticed_when_the_deadline_moves_earlier() {
    let (masters, redlock) = masters(3);
    let begin = masters.clock().now();
    let guard = redlock.lock(RESOURCE).min_copies(3).auto_extend(false).await.unwrap();
    let work = redlock.clone();
    let work = tokio::spawn(async move {
        let request = work.lock("work").min_copies(3).auto_extend(false);
        request.run(|_| sleep(TTL * 60)).await
    });
    sleep(ms(500)).await;
    hold(&masters[2..]);
    guard.extend(TTL).await.unwrap();
    let lost = tokio::spawn(guard.lost());
    settle().await;
    assert_eq!(guard.remaining(), VALIDITY - ms(1));
    masters[0].crash_and_restart(false);
    settle().await;
    assert_eq!(guard.remaining(), VALIDITY - ms(502), "the second largest is the third's");
    let ended = timeout(TTL * 2, lost).await.unwrap().unwrap();
    assert!(matches!(ended, Ended::Lost(lost) if lost.reason == LostReason::NotExtended));
    assert_eq!(masters.clock().now().saturating_since(begin), VALIDITY);
    let ended = timeout(TTL, work).await.unwrap().unwrap();
    assert!(ended.is_err(), "the work is also stopped");
}
