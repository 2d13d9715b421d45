//! Futures that are dropped at every point where that can happen: nothing of them stays.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use redlock_quorum::Redlock;
use redlock_testkit::SimNodes;
use tokio::time::{sleep, timeout};

use crate::arena::{
    NODE_TIMEOUT, RESOURCE, again, copies, handle, heal, let_go, ms, settle, until_free,
};

/// So long that no key goes away by itself in these tests.
const LONG: Duration = Duration::from_secs(60);

/// Polls a future so many times, if it takes so many, and drops it. Says whether it was ready.
async fn drop_after<F: Future>(future: F, polls: usize) -> bool {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(true),
            // This was the last poll, so the future is dropped now rather than at its wake-up.
            Poll::Pending if left == 0 => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Five masters with a network that takes its time, one of them silent and one out of reach.
fn troubled(seed: u64) -> (SimNodes, Redlock) {
    let masters = crate::arena::admitted(5, seed);
    masters.iter().for_each(|master| master.delay(ms(3)..=ms(9), ms(3)..=ms(9)));
    masters[0].hold();
    masters[1].partition();
    let builder = handle(&masters).ttl(LONG).node_timeout(NODE_TIMEOUT).seed(seed);
    (masters, builder.build().unwrap())
}

/// Checks that all faults have passed: within a second there is no key left, and the next client
/// gets the lock.
async fn assert_clean(masters: &SimNodes, redlock: &Redlock) {
    let_go(masters);
    heal(masters);
    // Messages on their way must arrive before their absence shows anything.
    sleep(NODE_TIMEOUT).await;
    until_free(masters, ms(1_000)).await;
    let guard = redlock.try_lock(RESOURCE).await.unwrap();
    guard.release().await.unwrap();
    until_free(masters, ms(1_000)).await;
}

#[tokio::test(start_paused = true)]
async fn acquire_dropped_at_any_poll_leaves_nothing() {
    for polls in 0..10 {
        let (masters, redlock) = troubled(polls as u64);
        let was_ready = drop_after(redlock.lock(RESOURCE).into_future(), polls).await;
        assert!(polls > 1 || !was_ready, "an attempt takes more than one poll");
        assert_clean(&masters, &redlock).await;
    }
}

#[tokio::test(start_paused = true)]
async fn acquire_dropped_at_any_millisecond_leaves_nothing() {
    for millis in 0..60 {
        let (masters, redlock) = troubled(millis);
        let request = redlock.lock(RESOURCE).min_copies(5);
        let acquired = timeout(ms(millis), request.into_future()).await;
        drop(acquired);
        assert_clean(&masters, &redlock).await;
    }
}

#[tokio::test(start_paused = true)]
async fn acquire_dropped_while_waiting_leaves_nothing() {
    for millis in 0..200 {
        let (masters, redlock) = troubled(millis);
        masters[2].put(RESOURCE, "stranger", 400);
        let acquired = timeout(ms(millis), redlock.lock(RESOURCE).into_future()).await;
        drop(acquired);
        sleep(ms(500)).await;
        assert_clean(&masters, &redlock).await;
    }
}

#[tokio::test(start_paused = true)]
async fn acquire_dropped_with_its_handle_leaves_nothing() {
    for millis in 0..60 {
        let (masters, redlock) = troubled(millis);
        let acquired = timeout(ms(millis), redlock.lock(RESOURCE).into_future()).await;
        drop((acquired, redlock));
        let_go(&masters);
        heal(&masters);
        sleep(NODE_TIMEOUT).await;
        until_free(&masters, ms(1_000)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn aborted_task_releases_its_lock() {
    for millis in 0..60 {
        let (masters, redlock) = troubled(millis);
        let work = redlock.lock(RESOURCE).run(|_| sleep(LONG));
        let task = tokio::spawn(work);
        sleep(ms(millis)).await;
        task.abort();
        let _ = task.await;
        assert_clean(&masters, &redlock).await;
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_release_continues() {
    for polls in 0..4 {
        let (masters, redlock) = troubled(polls as u64);
        let guard = redlock.lock(RESOURCE).await.unwrap();
        drop_after(guard.release(), polls).await;
        assert_clean(&masters, &redlock).await;
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_extension_continues() {
    for polls in 0..4 {
        let (masters, redlock) = troubled(polls as u64);
        let guard = redlock.lock(RESOURCE).ttl(ms(500)).auto_extend(false).await.unwrap();
        let was_ready = drop_after(guard.extend(ms(5_000)), polls).await;
        assert!(polls > 1 || !was_ready);
        sleep(ms(100)).await;
        assert_eq!(guard.remaining() > ms(500), polls > 0, "{:?}", guard.remaining());
        drop(guard);
        assert_clean(&masters, &redlock).await;
    }
}

#[tokio::test(start_paused = true)]
async fn resume_dropped_at_any_poll_leaves_the_lease() {
    for polls in 0..6 {
        let (masters, redlock) = troubled(polls as u64);
        let lease = redlock.lock(RESOURCE).await.unwrap().into_lease();
        sleep(NODE_TIMEOUT).await;
        let before = copies(&masters);
        let was_ready =
            drop_after(async { redlock.resume(again(&lease)).await.unwrap().forget() }, polls);
        assert!(!was_ready.await || polls > 1);
        sleep(NODE_TIMEOUT * 2).await;
        assert_eq!(copies(&masters), before, "nothing was released after {polls} polls");
        assert_eq!(redlock.release(lease).await, Ok(()));
        assert_clean(&masters, &redlock).await;
    }
}

#[tokio::test(start_paused = true)]
async fn run_dropped_at_any_poll_leaves_nothing() {
    for polls in 0..10 {
        let (masters, redlock) = troubled(polls as u64);
        let work = redlock.lock(RESOURCE).run(|_| sleep(ms(5)));
        let was_ready = drop_after(work, polls).await;
        assert!(polls > 1 || !was_ready);
        assert_clean(&masters, &redlock).await;
    }
}

/// Whatever happened to the first call, the second one returns the actual state.
#[tokio::test(start_paused = true)]
async fn shutdown_dropped_at_any_poll_continues() {
    for (polls, is_healed) in [(0, true), (0, false), (1, true), (1, false)] {
        let (masters, redlock) = troubled(polls as u64);
        drop(redlock.lock(RESOURCE).await.unwrap());
        drop_after(redlock.clone().shutdown(LONG / 2), polls).await;
        if is_healed {
            let_go(&masters);
            heal(&masters);
        }
        let closed = redlock.shutdown(ms(2_000)).await;
        settle().await;
        assert_eq!(closed.is_ok(), copies(&masters) == 0 && is_healed, "{polls}: {closed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn lease_release_dropped_at_any_poll_continues() {
    for polls in 1..4 {
        let (masters, redlock) = troubled(polls as u64);
        let lease = redlock.lock(RESOURCE).await.unwrap().into_lease();
        drop_after(redlock.release(lease), polls).await;
        assert_clean(&masters, &redlock).await;
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_status_query_has_no_effect() {
    let (masters, redlock) = troubled(0);
    let guard = redlock.lock(RESOURCE).await.unwrap();
    for polls in 0..4 {
        drop_after(redlock.status(RESOURCE), polls).await;
        assert_eq!(guard.check(), Ok(()));
    }
    drop(guard);
    assert_clean(&masters, &redlock).await;
}
