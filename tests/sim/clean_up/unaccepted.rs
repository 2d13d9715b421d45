//! Locks that were won for a caller that does not take them, because its future is no longer
//! polled.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

use redlock_core::{Verb, Verdict};
use redlock_quorum::{AcquireError, ExtendError, Guard, Redlock};
use redlock_testkit::SimNodes;
use tokio::time::sleep;

use crate::arena::{
    RESOURCE, TTL, acquires, again, count, full, handle, is_extend, masters, ms, settle,
};

async fn poll_once<F: Future + Unpin>(mut future: F) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut future).poll(cx))).await
}

/// Requests the lock while it is held, and lets the holder release it. The lock is won, and the
/// future is not polled.
async fn won<F>(mut asking: F, holder: Guard)
where
    F: Future<Output = Result<Guard, AcquireError>> + Unpin,
{
    assert!(poll_once(&mut asking).await.is_pending());
    settle().await;
    holder.release().await.unwrap();
    sleep(ms(20)).await;
}

/// Returns how many times the masters granted the lock to a new token.
fn tokens(masters: &SimNodes) -> usize {
    let granted = acquires(&masters[0]).into_iter().filter(|one| one.2 == Verdict::Granted);
    granted.count()
}

/// Another handle on these masters.
fn another(masters: &SimNodes) -> Redlock {
    handle(&masters.another_client()).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn untaken_lock_is_not_extended_and_passes_on_within_a_ttl() {
    for auto_extend in [true, false] {
        let (masters, redlock) = masters(3);
        let other = another(&masters);
        let request = redlock.lock(RESOURCE).wait_forever().auto_extend(auto_extend);
        let mut asking = pin!(request.into_future());
        won(&mut asking, other.try_lock(RESOURCE).await.unwrap()).await;
        assert_eq!(tokens(&masters), 2, "it was won");
        let guard = other.lock(RESOURCE).wait(TTL).await.expect("it is released in time");
        assert_eq!(count(&masters[0], is_extend), 0);
        assert!(matches!(asking.await, Err(AcquireError::TooLate { .. })));
        sleep(TTL * 3).await;
        assert_eq!(guard.check(), Ok(()), "a late caller releases nothing");
    }
}

#[tokio::test(start_paused = true)]
async fn next_local_caller_gets_an_untaken_lock() {
    let (masters, redlock) = masters(3);
    let mut asking = pin!(redlock.lock(RESOURCE).wait_forever().into_future());
    won(&mut asking, another(&masters).try_lock(RESOURCE).await.unwrap()).await;
    let guard = redlock.lock(RESOURCE).wait(TTL).await.expect("it is released in time");
    assert!(matches!(asking.await, Err(AcquireError::TooLate { .. })));
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn lock_taken_late_is_extended_afterwards() {
    for late in [ms(100), ms(400), ms(900)] {
        let (masters, redlock) = masters(3);
        let mut asking = pin!(redlock.lock(RESOURCE).wait_forever().into_future());
        won(&mut asking, another(&masters).try_lock(RESOURCE).await.unwrap()).await;
        sleep(late).await;
        let guard = asking.await.unwrap();
        sleep(TTL * 5).await;
        assert_eq!(guard.check(), Ok(()));
        guard.release().await.unwrap();
    }
}

/// Its holder may continue with it.
#[tokio::test(start_paused = true)]
async fn untaken_resumed_lease_stays_with_its_holder() {
    let (masters, redlock) = masters(3);
    let lease = full(&redlock, &masters).await.into_lease();
    let mut resuming = Box::pin(redlock.resume(again(&lease)));
    assert!(poll_once(&mut resuming).await.is_pending());
    sleep(TTL * 3).await;
    assert_eq!(count(&masters[0], |verb| matches!(verb, Verb::Resume { .. })), 1);
    assert_eq!(count(&masters[0], is_extend), 0);
    assert_eq!(count(&masters[0], |verb| matches!(verb, Verb::Release)), 0);
    let late = resuming.await.unwrap_err();
    assert!(matches!(late, ExtendError::TooLate { .. }), "{late}");
}

/// A master reports that its data may be gone, and then shows that it is not.
#[tokio::test(start_paused = true)]
async fn untaken_lock_is_not_extended_after_a_report() {
    let (masters, redlock) = masters(3);
    let other = another(&masters);
    let mut asking = pin!(redlock.lock(RESOURCE).wait_forever().into_future());
    won(&mut asking, other.try_lock(RESOURCE).await.unwrap()).await;
    assert_eq!(tokens(&masters), 2, "it was won");
    masters.iter().for_each(|master| master.flush_another_database());
    settle().await;
    assert_eq!(count(&masters[0], is_extend), 0);
    let guard = asking.await.expect("it may still be taken");
    masters.iter().for_each(|master| master.flush_another_database());
    sleep(TTL).await;
    assert_eq!((guard.check(), guard.copies()), (Ok(()), 3));
}
