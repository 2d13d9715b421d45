//! Waiting for a lock: bounded by what the caller allows, and a turn for each contender.

mod hand_over;
mod load;
mod pace;
mod queue;
mod turns;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redlock_core::Verb;
use redlock_quorum::{AcquireError, Redlock};
use redlock_testkit::{SimNode, SimNodes};
use tokio::time::sleep;

use crate::arena::{
    NODE_TIMEOUT, RESOURCE, acquires, handle, hold, is_asking, masters, ms, settle,
};

#[tokio::test(start_paused = true)]
async fn a_wait_is_kept_to_whether_the_lock_is_held_or_the_masters_are_silent() {
    for silent in [false, true] {
        for wait in [0, 1, 7, 100, 1_000, 30_000].map(ms) {
            let (masters, redlock) = masters(5);
            if silent {
                hold(&masters[..3]);
            } else {
                masters.iter().for_each(|master| master.put(RESOURCE, "stranger", 100_000));
            }
            let begin = masters.clock().now();
            let error = redlock.lock(RESOURCE).wait(wait).await.unwrap_err();
            let waited = masters.clock().now().saturating_since(begin);
            assert!(waited >= wait && waited <= wait + NODE_TIMEOUT * 2, "{wait:?}: {waited:?}");
            assert_eq!(matches!(error, AcquireError::NoQuorum { .. }), silent, "{error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_try_is_one_attempt_and_without_pushes_a_wait_is_several_with_pauses_in_between() {
    let (masters, redlock) = masters(3);
    masters.iter().for_each(|master| master.set_tracking(false));
    masters.iter().for_each(|master| master.put(RESOURCE, "stranger", 100_000));
    redlock.try_lock(RESOURCE).await.unwrap_err();
    assert_eq!(acquires(&masters[0]).len(), 1);
    redlock.lock(RESOURCE).wait(ms(10_000)).await.unwrap_err();
    let attempts = acquires(&masters[0]).len();
    assert!((50..400).contains(&attempts), "{attempts} attempts in ten seconds");
}

#[tokio::test(start_paused = true)]
async fn waits_without_end_end_with_the_lock() {
    let (masters, redlock) = masters(3);
    for forever in [false, true] {
        masters.iter().for_each(|master| master.put(RESOURCE, "stranger", 3_600_000));
        let request = redlock.lock(RESOURCE);
        let request = if forever { request.wait_forever() } else { request.wait(Duration::MAX) };
        let begin = masters.clock().now();
        let guard = request.await.unwrap();
        let waited = masters.clock().now().saturating_since(begin);
        assert!(waited >= ms(3_600_000) && waited <= ms(3_600_300), "{waited:?}");
        guard.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_without_limit_outlasts_masters_that_are_away() {
    let (masters, redlock) = masters(5);
    masters[..3].iter().for_each(|master| master.down());
    let waiter = tokio::spawn(redlock.lock(RESOURCE).wait_forever().into_future());
    sleep(Duration::from_secs(600)).await;
    assert!(!waiter.is_finished());
    masters[0].up();
    sleep(ms(500)).await;
    assert!(waiter.is_finished(), "it notices within a pause or two");
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

/// How many commands of this kind the masters have carried out.
fn counted(masters: &SimNodes, is_wanted: impl Fn(Verb) -> bool) -> usize {
    let of = |master: &SimNode| master.log().iter().filter(|entry| is_wanted(entry.verb)).count();
    masters.iter().map(|master| of(master)).sum()
}

fn is_acquire(verb: Verb) -> bool {
    matches!(verb, Verb::Acquire { .. })
}

/// Another process on the same masters.
fn another(masters: &SimNodes, seed: u64) -> (SimNodes, Redlock) {
    let client = masters.another_client();
    let redlock = handle(&client).seed(seed).build().unwrap();
    (client, redlock)
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_woken_by_the_release_and_not_by_time() {
    let (masters, holder) = masters(5);
    let (_client, waiter) = another(&masters, 1);
    let guard = holder.lock(RESOURCE).await.unwrap();
    let waiting = tokio::spawn(waiter.lock(RESOURCE).wait_forever().into_future());
    sleep(ms(400)).await;
    guard.release().await.unwrap();
    let begin = masters.clock().now();
    let guard = waiting.await.unwrap().unwrap();
    let waited = masters.clock().now().saturating_since(begin);
    assert!(waited <= ms(40), "a push and a pause: {waited:?}");
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_stays_held_costs_a_waiting_process_one_question_a_second() {
    let (masters, _) = masters(5);
    masters.iter().for_each(|master| master.put(RESOURCE, "stranger", 100_000));
    let (_client, waiter) = another(&masters, 1);
    let waiters: Vec<_> =
        (0..50).map(|_| tokio::spawn(waiter.lock(RESOURCE).wait_forever().into_future())).collect();
    sleep(ms(1_000)).await;
    let (acquires, looks) =
        (counted(&masters, is_acquire), counted(&masters, |verb| verb == Verb::Watch));
    let last = tokio::spawn(waiter.lock(RESOURCE).wait_forever().into_future());
    sleep(ms(20_000)).await;
    last.abort();
    let acquires = counted(&masters, is_acquire) - acquires;
    assert!(acquires <= 28 * 4, "the others are asked with each look: {acquires}");
    let looks = counted(&masters, |verb| verb == Verb::Watch) - looks;
    assert!((19..=28).contains(&looks), "{looks} looks in twenty seconds");
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn without_a_single_push_a_waiter_is_served_within_a_second_of_the_release() {
    let (masters, holder) = masters(5);
    let (client, waiter) = another(&masters, 1);
    let guard = holder.lock(RESOURCE).wait_forever().await.unwrap();
    let waiting = tokio::spawn(waiter.lock(RESOURCE).wait_forever().into_future());
    sleep(ms(300)).await;
    client.iter().for_each(|master| master.lose_replies(true));
    guard.release().await.unwrap();
    sleep(ms(5)).await;
    client.iter().for_each(|master| master.lose_replies(false));
    let begin = masters.clock().now();
    let guard = waiting.await.unwrap().unwrap();
    let waited = masters.clock().now().saturating_since(begin);
    assert!(waited <= ms(1_300), "{waited:?}");
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_expiry_is_noticed_by_its_time_where_no_push_reports_it() {
    let (masters, _) = masters(5);
    masters.iter().for_each(|master| master.put(RESOURCE, "a dead holder", 700));
    let (_client, waiter) = another(&masters, 1);
    let begin = masters.clock().now();
    let guard = waiter.lock(RESOURCE).wait_forever().await.unwrap();
    let waited = masters.clock().now().saturating_since(begin);
    assert!(waited >= ms(700) && waited <= ms(760), "{waited:?}");
    guard.release().await.unwrap();
}

/// Before there was a queue, each of ten thousand parallel callers queried all masters.
#[tokio::test(start_paused = true)]
async fn of_many_callers_that_come_together_one_asks_and_the_others_stand_behind_it() {
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
async fn the_caller_that_asked_first_loses_nobody_the_turn() {
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
async fn callers_of_one_process_get_the_key_in_the_order_in_which_they_asked() {
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
async fn waits_of_a_queue_end_each_in_its_time_with_what_the_masters_say() {
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
async fn waits_that_end_at_one_moment_cost_one_attempt_and_share_the_question_who_holds_the_key() {
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

/// The first pauses and patience of a handle are guesses, which no lock that was won has corrected.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_never_won_learns_from_its_refusals_how_long_masters_take() {
    let (masters, _) = masters(5);
    masters.iter().for_each(|master| master.put(RESOURCE, "stranger", 100_000));
    let (client, waiter) = another(&masters, 1);
    client.iter().for_each(|master| master.delay(ms(10)..=ms(12), ms(10)..=ms(12)));
    let waiting = tokio::spawn(waiter.lock(RESOURCE).wait_forever().into_future());
    sleep(ms(2_000)).await;
    let before = counted(&masters, is_acquire);
    sleep(ms(20_000)).await;
    let asked = counted(&masters, is_acquire) - before;
    assert!(asked <= 28 * 4, "{asked} requests in twenty seconds: its answers came too late");
    waiting.abort();
}

#[tokio::test(start_paused = true)]
async fn a_try_does_not_stand_in_the_queue() {
    let (masters, _) = masters(5);
    masters.iter().for_each(|master| master.put(RESOURCE, "stranger", 100_000));
    let (_client, redlock) = another(&masters, 1);
    let waiting = tokio::spawn(redlock.lock(RESOURCE).wait_forever().into_future());
    sleep(ms(100)).await;
    let begin = masters.clock().now();
    redlock.try_lock(RESOURCE).await.unwrap_err();
    assert!(masters.clock().now().saturating_since(begin) <= NODE_TIMEOUT);
    waiting.abort();
}

#[tokio::test(start_paused = true)]
async fn a_try_that_wins_takes_nobody_out_of_the_queue() {
    let (masters, holder) = masters(5);
    let (client, redlock) = another(&masters, 1);
    let guard = holder.lock(RESOURCE).await.unwrap();
    let waiting = tokio::spawn(redlock.lock(RESOURCE).wait_forever().into_future());
    sleep(ms(300)).await;
    // The push of the release is lost.
    client.iter().for_each(|master| master.lose_replies(true));
    guard.release().await.unwrap();
    settle().await;
    client.iter().for_each(|master| master.lose_replies(false));
    let guard = redlock.try_lock(RESOURCE).await.unwrap();
    guard.release().await.unwrap();
    let guard = tokio::time::timeout(ms(1_300), waiting).await.unwrap().unwrap().unwrap();
    guard.release().await.unwrap();
}

/// Wherever the key's meeting point is: the master that is cut off, stopped or killed while a
/// waiter sleeps costs time, and the waiter gets the lock.
#[tokio::test(start_paused = true)]
async fn a_meeting_point_that_goes_away_costs_time_only() {
    for fault in 0..3 {
        for victim in 0..5 {
            let (masters, holder) = masters(5);
            let (client, waiter) = another(&masters, victim as u64);
            let guard = holder.lock(RESOURCE).wait_forever().await.unwrap();
            let waiting = tokio::spawn(waiter.lock(RESOURCE).wait_forever().into_future());
            sleep(ms(300)).await;
            match fault {
                0 => client[victim].partition(),
                1 => masters[victim].hold(),
                _ => masters[victim].down(),
            }
            sleep(ms(100)).await;
            let begin = masters.clock().now();
            guard.release().await.unwrap();
            let guard = waiting.await.unwrap().unwrap();
            let waited = masters.clock().now().saturating_since(begin);
            // A paused process is noticed at the next look, and the others immediately.
            let limit = if fault == 1 { 1_300 } else { 60 };
            assert!(waited <= ms(limit), "{fault} {victim}: {waited:?}");
            guard.release().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_meeting_point_that_stands_still_is_asked_again_after_a_while() {
    let (masters, _) = masters(5);
    masters.iter().for_each(|master| master.put(RESOURCE, "stranger", 100_000));
    let (_client, waiter) = another(&masters, 1);
    let waiting = tokio::spawn(waiter.lock(RESOURCE).wait_forever().into_future());
    sleep(ms(300)).await;
    let is_watched =
        |master: &Arc<SimNode>| master.log().iter().any(|entry| entry.verb == Verb::Watch);
    let at = masters.iter().position(is_watched).unwrap();
    masters[at].hold();
    sleep(ms(2_000)).await;
    let before = counted(&masters, is_asking);
    sleep(ms(20_000)).await;
    let tried = counted(&masters, is_asking) - before;
    assert!((20..=28 * 4).contains(&tried), "{tried} requests to the others in twenty seconds");
    waiting.abort();
}

#[tokio::test(start_paused = true)]
async fn nothing_is_asked_for_callers_that_went_away() {
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
