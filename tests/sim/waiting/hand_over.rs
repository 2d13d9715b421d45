//! A lease that is released passes to the next caller of the process, and masters hear nothing.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use redlock_quorum::{AcquireError, Ended, Guard, LockRequest, Redlock};
use redlock_testkit::SimNodes;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{sleep, timeout};

use crate::arena::{RESOURCE, TTL, VALIDITY, handle, masters, ms, requests, settle};

type Waiting = JoinHandle<Guard>;

/// A caller that waits for the key.
async fn waits(request: LockRequest) -> Waiting {
    let waiting = tokio::spawn(async move { request.await.unwrap() });
    settle().await;
    assert!(!waiting.is_finished());
    waiting
}

fn fencing_token(guard: &Guard) -> u64 {
    guard.fencing_token().unwrap().get()
}

/// Releases the lock, and returns the guard of the caller that waits for it. Nothing is sent.
async fn hand_on(masters: &SimNodes, guard: Guard, next: Waiting) -> Guard {
    let before = requests(masters);
    guard.release().await.unwrap();
    let next = timeout(ms(1), next).await.expect("it is handed on at once").unwrap();
    assert_eq!(requests(masters), before, "nothing was sent");
    next
}

/// The next caller gets its own lock from the masters, with their next token.
async fn is_released(guard: Guard, next: Waiting) -> Guard {
    let token = fencing_token(&guard);
    guard.release().await.unwrap();
    let next = timeout(TTL, next).await.expect("its turn comes").unwrap();
    assert!(fencing_token(&next) / 32 > token / 32, "{token}");
    assert_eq!(fencing_token(&next) % 32, 0);
    next
}

#[tokio::test(start_paused = true)]
async fn hand_over_sends_nothing_and_has_its_own_deadline_and_token() {
    let (masters, redlock) = masters(5);
    let first = redlock.lock(RESOURCE).await.unwrap();
    let (hold, token) = (first.hold(), fencing_token(&first));
    let next = waits(redlock.lock(RESOURCE).stop_margin(ms(100))).await;
    let lost = tokio::spawn(first.lost());
    let second = hand_on(&masters, first, next).await;
    assert_eq!((token % 32, fencing_token(&second)), (0, token + 1));
    assert!(matches!(lost.await.unwrap(), Ended::Released));
    assert!(!hold.is_held() && hold.check().is_err(), "the former holder no longer has it");
    assert!(second.is_held() && second.copies() == 5 && second.votes().granted() == 5);
    assert!(second.remaining() <= VALIDITY - ms(100), "its own margin: {:?}", second.remaining());
    let stats = redlock.stats();
    assert_eq!((stats.acquired, stats.outcomes.won, stats.handed_over), (2, 1, 1));
    second.release().await.unwrap();
    settle().await;
    assert!(masters.iter().all(|master| master.holder(RESOURCE).is_none()));
}

#[tokio::test(start_paused = true)]
async fn dropped_guard_hands_over_its_lock() {
    let (_masters, redlock) = masters(3);
    let first = redlock.lock(RESOURCE).auto_extend(false).await.unwrap();
    let next = waits(redlock.lock(RESOURCE)).await;
    drop(first);
    let second = timeout(ms(1), next).await.unwrap().unwrap();
    assert_eq!(redlock.stats().handed_over, 1);
    sleep(TTL * 5).await;
    assert!(second.is_held(), "it is extended");
    let next = waits(redlock.lock(RESOURCE)).await;
    let third = is_released(second, next).await;
    assert_eq!(
        redlock.stats().handed_over,
        1,
        "100 ms after its grant, it is released on the masters"
    );
    third.release().await.unwrap();
}

/// Callers are served in turn, and none before its turn.
#[tokio::test(start_paused = true)]
async fn caller_with_other_options_gets_its_own_attempt() {
    let others: [fn(LockRequest) -> LockRequest; 4] = [
        |request| request.ttl(TTL * 2),
        |request| request.label("other"),
        |request| request.min_copies(5),
        |request| request.stop_margin(VALIDITY - TTL / 2 + ms(1)),
    ];
    for (number, other) in others.into_iter().enumerate() {
        let (masters, redlock) = masters(5);
        if number == 2 {
            masters[4].put(RESOURCE, "stranger", 30);
        }
        let first = redlock.lock(RESOURCE).await.unwrap();
        let next = waits(other(redlock.lock(RESOURCE))).await;
        let last = waits(redlock.lock(RESOURCE).ttl(TTL * 3)).await;
        let second = is_released(first, next).await;
        assert!(!last.is_finished());
        is_released(second, last).await.release().await.unwrap();
        assert_eq!(redlock.stats().handed_over, 0, "{number}");
    }
}

#[tokio::test(start_paused = true)]
async fn lock_with_an_exposed_token_is_not_handed_over() {
    let (masters, redlock) = masters(5);
    let first = redlock.lock(RESOURCE).await.unwrap();
    let token = first.token().clone();
    let next = waits(redlock.lock(RESOURCE)).await;
    let second = is_released(first, next).await;
    assert_ne!(masters[0].holder(RESOURCE), Some(token.to_string()));
    let resumed = redlock.resume(second.into_lease()).await.unwrap();
    let next = waits(redlock.lock(RESOURCE)).await;
    let third = is_released(resumed, next).await;
    let _ = third.hold().token();
    let next = waits(redlock.lock(RESOURCE)).await;
    is_released(third, next).await.release().await.unwrap();
    assert_eq!(redlock.stats().handed_over, 0);
}

#[tokio::test(start_paused = true)]
async fn handle_without_hand_over_releases_each_lock() {
    let (masters, _) = masters(5);
    let redlock = handle(&masters).hand_over(false).build().unwrap();
    let first = redlock.lock(RESOURCE).await.unwrap();
    let next = waits(redlock.lock(RESOURCE)).await;
    is_released(first, next).await.release().await.unwrap();
    assert_eq!(redlock.stats().handed_over, 0);
}

/// Runs this many callers one after the other, each of which holds the lock for that time.
async fn in_turn(redlock: &Redlock, callers: usize, hold: Duration) -> Vec<u64> {
    let work = (0..callers).map(|_| async {
        let guard = redlock.lock(RESOURCE).wait_forever().await.unwrap();
        let token = fencing_token(&guard);
        sleep(hold).await;
        guard.release().await.unwrap();
        token
    });
    futures::future::join_all(work).await
}

#[tokio::test(start_paused = true)]
async fn lease_is_handed_over_31_times_or_for_100_ms() {
    for (callers, hold, leases) in [(32, ms(0), 1), (33, ms(0), 2), (64, ms(0), 2), (10, ms(30), 3)]
    {
        let (_masters, redlock) = masters(5);
        let tokens = in_turn(&redlock, callers, hold).await;
        assert!(tokens.is_sorted_by(|before, behind| before < behind), "{tokens:?}");
        let stats = redlock.stats();
        assert_eq!(stats.acquired, callers as u64);
        assert_eq!(stats.outcomes.won, leases, "{callers} callers: {tokens:?}");
    }
}

/// The process queries the meeting point after its last release, although it was never refused.
#[tokio::test(start_paused = true)]
async fn hand_overs_leave_the_lock_to_another_process_in_time() {
    let (masters, redlock) = masters(5);
    let other = handle(&masters.another_client()).build().unwrap();
    let work = in_turn(&redlock, 200, ms(1));
    let waits = async {
        sleep(ms(5)).await;
        let begin = masters.clock().now();
        other.lock(RESOURCE).await.unwrap().release().await.unwrap();
        masters.clock().now().saturating_since(begin)
    };
    let (_, waited) = tokio::join!(work, waits);
    assert!(waited < ms(120), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn lost_lock_is_not_handed_over() {
    let (masters, redlock) = masters(3);
    let first = redlock.lock(RESOURCE).ttl(ms(60)).auto_extend(false).await.unwrap();
    let next = waits(redlock.lock(RESOURCE).ttl(ms(60))).await;
    sleep(ms(60)).await;
    assert!(!first.is_held());
    assert!(first.release().await.is_err());
    let second = timeout(TTL, next).await.unwrap().unwrap();
    assert_eq!(redlock.stats().handed_over, 0);
    masters[..2].iter().for_each(|master| master.put(RESOURCE, "stranger", 100_000));
    assert!(second.extend(ms(60)).await.is_err());
    let next = tokio::spawn(redlock.lock(RESOURCE).ttl(ms(60)).into_future());
    settle().await;
    let _ = second.release().await;
    settle().await;
    assert!(!next.is_finished(), "another client has it");
    assert_eq!(redlock.stats().handed_over, 0);
}

/// Requests of a former holder do not affect the lock of the next one.
#[tokio::test(start_paused = true)]
async fn previous_holder_does_not_affect_the_next_lock() {
    let (masters, redlock) = masters(3);
    masters.iter().for_each(|master| master.delay(ms(5)..=ms(5), ms(5)..=ms(5)));
    let first = Arc::new(redlock.lock(RESOURCE).await.unwrap());
    let next = waits(redlock.lock(RESOURCE)).await;
    let former = first.clone();
    let extending = tokio::spawn(async move { former.extend(TTL).await });
    yield_now().await;
    // The extension is under way, and its caller still has a part in the guard.
    extending.abort();
    let _ = extending.await;
    let first = Arc::into_inner(first).unwrap();
    first.release().await.unwrap();
    let second = timeout(ms(1), next).await.unwrap().unwrap();
    let remaining = second.remaining();
    sleep(ms(20)).await;
    let extended = second.remaining() + ms(20) > remaining;
    assert!(second.is_held() && extended, "an earlier request is included");
    second.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn hand_over_skips_callers_that_left() {
    let (masters, redlock) = masters(3);
    let first = redlock.lock(RESOURCE).await.unwrap();
    let gone = waits(redlock.lock(RESOURCE)).await;
    let next = waits(redlock.lock(RESOURCE)).await;
    gone.abort();
    let second = hand_on(&masters, first, next).await;
    let gone = waits(redlock.lock(RESOURCE)).await;
    gone.abort();
    second.release().await.unwrap();
    settle().await;
    assert!(
        masters.iter().all(|master| master.holder(RESOURCE).is_none()),
        "no other caller waits"
    );
}

/// An unpolled future gets the lock, and blocks other clients for at most its duration.
#[tokio::test(start_paused = true)]
async fn lock_handed_to_an_unpolled_future_expires() {
    let (masters, redlock) = masters(3);
    let first = redlock.lock(RESOURCE).await.unwrap();
    let mut waiting = Box::pin(redlock.lock(RESOURCE).into_future());
    assert!(timeout(ms(1), &mut waiting).await.is_err());
    first.release().await.unwrap();
    settle().await;
    assert_eq!(redlock.stats().handed_over, 1);
    let other = handle(&masters.another_client()).build().unwrap();
    let begin = masters.clock().now();
    other.lock(RESOURCE).await.unwrap().release().await.unwrap();
    let waited = masters.clock().now().saturating_since(begin);
    assert!(waited < TTL * 2, "{waited:?}");
    assert!(waiting.await.is_err(), "it comes too late for that");
}

/// No caller relies on a lock that it has not taken.
#[tokio::test(start_paused = true)]
async fn shutdown_releases_an_untaken_handed_over_lock() {
    let (masters, redlock) = masters(5);
    let first = redlock.lock(RESOURCE).await.unwrap();
    let waiting: Vec<_> =
        (0..3).map(|_| tokio::spawn(redlock.lock(RESOURCE).into_future())).collect();
    settle().await;
    drop(first);
    redlock.clone().shutdown(TTL).await.unwrap();
    assert_eq!(redlock.stats().handed_over, 1);
    assert!(masters.iter().all(|master| master.holder(RESOURCE).is_none()));
    for waiting in waiting {
        let refused = waiting.await.unwrap().unwrap_err();
        assert!(matches!(refused, AcquireError::Shutdown), "{refused}");
    }
}
