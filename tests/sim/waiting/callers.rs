//! Many callers of one process: they share requests, and keep their order.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redlock_core::Verb;
use redlock_quorum::AcquireError;
use tokio::time::sleep;

use super::{another, counted, is_acquire};
use crate::arena::{NODE_TIMEOUT, RESOURCE, masters, ms, settle};

/// Before there was a queue, each of ten thousand parallel callers queried all masters.
#[tokio::test(start_paused = true)]
async fn only_one_of_many_parallel_callers_queries_the_masters() {
    const CALLERS: usize = 10_000;
    let (masters, redlock) = masters(5);
    let (order, expected) = (Arc::new(Mutex::new(Vec::new())), (1..CALLERS).collect::<Vec<_>>());
    let mut waiting = Vec::new();
    for number in 0..CALLERS {
        let (order, request) = (order.clone(), redlock.lock(RESOURCE).wait_forever());
        waiting.push(tokio::spawn(async move {
            let guard = request.await.unwrap();
            order.lock().unwrap().push(number);
            sleep(ms(1)).await;
            guard.release().await.unwrap();
        }));
    }
    settle().await;
    assert_eq!(counted(&masters, is_acquire), 5, "one attempt");
    // The first caller may leave at any time, and then the next one is the first.
    waiting[0].abort();
    settle().await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(*order.lock().unwrap(), [&[0][..], &expected].concat());
    assert!(counted(&masters, is_acquire) <= 5 * (CALLERS + 5), "one attempt for each");
    assert_eq!(redlock.stats().waiting, 0);
}

/// The caller that queries first, with the others after it, is like any other: it may leave, end
/// its wait, or be refused.
#[tokio::test(start_paused = true)]
async fn leaving_first_caller_passes_on_the_turn() {
    for fate in 0..3 {
        let (masters, redlock) = masters(5);
        masters.iter().for_each(|master| master.delay(ms(5)..=ms(5), ms(5)..=ms(5)));
        redlock.status(RESOURCE).await;
        if fate > 0 {
            masters.iter().for_each(|master| master.put(RESOURCE, "stranger", 300));
        }
        let request = redlock.lock(RESOURCE);
        let request = if fate == 1 { request.wait(ms(2)) } else { request.wait_forever() };
        let first = tokio::spawn(async move { request.await.map(drop) });
        settle().await;
        let next = tokio::spawn(redlock.lock(RESOURCE).wait_forever().into_future());
        settle().await;
        if fate == 0 {
            first.abort();
        } else {
            assert_eq!(first.await.unwrap().is_ok(), fate == 2);
        }
        let guard = tokio::time::timeout(ms(1_000), next).await.unwrap().unwrap().unwrap();
        guard.release().await.unwrap();
        assert_eq!(redlock.stats().waiting, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn local_callers_get_the_key_in_order_of_arrival() {
    let (masters, redlock) = masters(5);
    let guard = redlock.lock(RESOURCE).await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for number in 0..20 {
        let (redlock, order) = (redlock.clone(), order.clone());
        waiters.push(tokio::spawn(async move {
            let request = redlock.lock(RESOURCE).ttl(ms(500 + number)).wait(ms(60_000));
            let guard = request.label(format!("n{number}")).await.unwrap();
            order.lock().unwrap().push(number);
            guard.release().await.unwrap();
        }));
        settle().await;
    }
    let is_queued = |verb| matches!(verb, Verb::Enter { .. } | Verb::Take { .. });
    let is_attempt = |verb| is_acquire(verb) || is_queued(verb);
    let attempts = counted(&masters, is_attempt);
    // Cancelled waiters cost no other waiter its turn.
    waiters[3].abort();
    waiters[0].abort();
    settle().await;
    guard.release().await.unwrap();
    sleep(ms(100)).await;
    let expected: Vec<u64> = (0..20).filter(|number| ![0, 3].contains(number)).collect();
    assert_eq!(*order.lock().unwrap(), expected);
    assert_eq!(counted(&masters, is_attempt) - attempts, 18 * 5, "one attempt each");
}

#[tokio::test(start_paused = true)]
async fn queued_waits_end_on_time_with_the_masters_answers() {
    let (masters, _) = masters(5);
    masters.iter().for_each(|master| master.put(RESOURCE, "stranger", 100_000));
    let (_client, redlock) = another(&masters, 1);
    let begin = masters.clock().now();
    let waits = [2_000, 100, 700, 1_500].map(ms);
    let waiting = waits.map(|wait| {
        let (request, clock) = (redlock.lock(RESOURCE).wait(wait), masters.clock());
        tokio::spawn(async move {
            let error = request.await.unwrap_err();
            (wait, clock.now().saturating_since(begin), error)
        })
    });
    for waiter in waiting {
        let (wait, waited, error) = waiter.await.unwrap();
        assert!(waited >= wait && waited <= wait + NODE_TIMEOUT * 2, "{wait:?}: {waited:?}");
        let AcquireError::Held { votes, .. } = error else { panic!("{error}") };
        assert!(votes.to_string().contains("held ("), "{votes}");
    }
    let asked = counted(&masters, is_acquire);
    // The first waiter also queries the other four after 100, 200, 400 and 800 ms, or a quarter
    // less.
    assert!((2 * 5..=2 * 5 + 5 * 4).contains(&asked), "{asked}: the first and last of the head");
}

/// Callers that began together give up together.
#[tokio::test(start_paused = true)]
async fn waits_ending_together_share_an_attempt_and_a_query() {
    let (masters, _) = masters(5);
    masters.iter().for_each(|master| master.put(RESOURCE, "stranger", 100_000));
    let (_client, redlock) = another(&masters, 1);
    let first = tokio::spawn(redlock.lock(RESOURCE).wait(ms(900)).into_future());
    sleep(ms(100)).await;
    let wait = || tokio::spawn(redlock.lock(RESOURCE).wait(ms(800)).into_future());
    let waiting: Vec<_> = (0..100).map(|_| wait()).collect();
    sleep(ms(700)).await;
    let asked = || [is_acquire, |verb| verb == Verb::Inspect].map(|kind| counted(&masters, kind));
    let before = asked();
    for waiter in waiting {
        let AcquireError::Held { votes, .. } = waiter.await.unwrap().unwrap_err() else {
            panic!("a quorum says who holds it")
        };
        assert!(votes.to_string().contains("held ("), "{votes}");
    }
    first.await.unwrap().unwrap_err();
    let after = asked();
    let [attempts, questions] = [0, 1].map(|kind| after[kind] - before[kind]);
    assert_eq!(attempts, 5, "one attempt");
    assert!(questions <= 3 * 5, "{questions} questions");
}

#[tokio::test(start_paused = true)]
async fn callers_that_left_cause_no_requests() {
    let (masters, _) = masters(5);
    masters.iter().for_each(|master| master.put(RESOURCE, "stranger", 100_000));
    let (_client, waiter) = another(&masters, 1);
    for waiters in [1, 3] {
        let wait = || tokio::spawn(waiter.lock(RESOURCE).wait_forever().into_future());
        let waiting: Vec<_> = (0..waiters).map(|_| wait()).collect();
        sleep(ms(300)).await;
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
        settle().await;
        let before = counted(&masters, |_| true);
        assert!(before > 0);
        sleep(ms(10_000)).await;
        assert_eq!(counted(&masters, |_| true), before, "{waiters} waiters have gone");
    }
}
