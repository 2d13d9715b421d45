//! Waiting for a lock: bounded by what the caller allows, and a turn for each contender.

mod callers;
mod hand_over;
mod load;
mod pace;
mod queue;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use redlock_core::Verb;
use redlock_quorum::{AcquireError, Redlock};
use redlock_testkit::{SimNode, SimNodes};
use tokio::time::sleep;

use crate::arena::{
    NODE_TIMEOUT, RESOURCE, acquires, handle, hold, is_asking, masters, ms, settle,
};

#[tokio::test(start_paused = true)]
async fn wait_ends_on_time_for_held_locks_and_silent_masters() {
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
async fn try_lock_makes_one_attempt_and_a_wait_several() {
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
async fn unlimited_waits_end_with_the_lock() {
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
async fn unlimited_wait_survives_unreachable_masters() {
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
async fn waiter_is_woken_by_the_release() {
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
async fn waiting_for_a_held_lock_costs_one_query_per_second() {
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
    assert!(acquires <= 28 * 4, "the others are queried with each watch: {acquires}");
    let looks = counted(&masters, |verb| verb == Verb::Watch) - looks;
    assert!((19..=28).contains(&looks), "{looks} looks in twenty seconds");
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn waiter_without_pushes_is_served_within_a_second() {
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
async fn expiry_without_a_push_is_noticed_by_its_time() {
    let (masters, _) = masters(5);
    masters.iter().for_each(|master| master.put(RESOURCE, "a dead holder", 700));
    let (_client, waiter) = another(&masters, 1);
    let begin = masters.clock().now();
    let guard = waiter.lock(RESOURCE).wait_forever().await.unwrap();
    let waited = masters.clock().now().saturating_since(begin);
    assert!(waited >= ms(700) && waited <= ms(760), "{waited:?}");
    guard.release().await.unwrap();
}

/// The first pauses and patience of a handle are guesses, which no lock that was won has corrected.
#[tokio::test(start_paused = true)]
async fn refusals_measure_the_fan_out_for_a_waiter() {
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
async fn try_lock_does_not_enter_the_queue() {
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
async fn won_try_lock_removes_no_waiter_from_the_queue() {
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
async fn lost_meeting_point_costs_only_time() {
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
async fn paused_meeting_point_is_queried_again_later() {
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
