//! The queue in which processes wait for one key. docs/TESTING.md lists its traps.

mod broken;
mod hand_over;
mod kept_futures;
mod late;
mod long_holds;
mod meeting_points;
mod mixed_fleet;
mod no_quorum;
mod order;
mod shares;
mod slow_answers;
mod stopped;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redlock_core::{Clock, Verb, Verdict};
use redlock_quorum::{AcquireError, Guard, Redlock, State};
use redlock_testkit::SimNodes;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use self::shares::come_again;
use crate::arena::{
    RESOURCE, admitted, copies, count, handle, hold, let_go, masters, ms, settle, until_free,
};
use crate::seeds;

/// The seeds of processes begin here.
const FIRST_SEED: u64 = 1_000_000;

/// Another process, a millisecond away at most. Handles with one seed have one ticket, so none has
/// the seed of a handle that a test builds itself.
fn process(masters: &SimNodes, seed: u64) -> (SimNodes, Redlock) {
    let client = masters.another_client();
    client.iter().for_each(|master| master.delay(ms(0)..=ms(1), ms(0)..=ms(1)));
    let redlock = handle(&client).seed(FIRST_SEED + seed).build().unwrap();
    (client, redlock)
}

/// A process that waits, holds the lock for a fixed time, and reports when it got it.
struct Waiter {
    client: SimNodes,
    /// Its task may be over before it is.
    redlock: Redlock,
    task: JoinHandle<()>,
}

type Served = Arc<Mutex<Vec<(u64, Duration)>>>;

fn wait(masters: &SimNodes, number: u64, holds: Duration, served: &Served) -> Waiter {
    let (client, redlock) = process(masters, number);
    let task = take_turn(redlock.clone(), number, holds, masters.clock(), served.clone());
    Waiter { client, redlock, task }
}

fn take_turn(
    redlock: Redlock,
    number: u64,
    holds: Duration,
    clock: Clock,
    served: Served,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        let begun = clock.now();
        let guard = redlock.lock(RESOURCE).wait_forever().await.unwrap();
        served.lock().unwrap().push((number, clock.now().saturating_since(begun)));
        sleep(holds).await;
        guard.release().await.unwrap();
    })
}

/// Starts this many processes, 20 ms apart, that wait for a holder.
async fn behind_a_holder(masters: &SimNodes, waiters: u64, served: &Served) -> Vec<Waiter> {
    let mut waiting = Vec::new();
    for number in 1..=waiters {
        waiting.push(wait(masters, number, ms(5), served));
        sleep(ms(20)).await;
    }
    waiting
}

/// Returns the master at which contenders of the key meet: the one whose queue has an entry.
fn meeting_point(masters: &SimNodes) -> usize {
    let has_entries =
        |at: &usize| count(&masters[*at], |verb| matches!(verb, Verb::Enter { .. })) > 0;
    (0..masters.len()).find(has_entries).expect("a contender waits")
}

async fn all_served(waiting: Vec<Waiter>) {
    for waiter in waiting {
        waiter.task.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn processes_are_served_in_order_of_arrival() {
    for waiters in [2, 6, 12] {
        let (masters, holder) = masters(5);
        let served = Served::default();
        let guard = holder.lock(RESOURCE).await.unwrap();
        let waiting = behind_a_holder(&masters, waiters, &served).await;
        let status = holder.status(RESOURCE).await;
        assert_eq!(u64::from(status.waiters), waiters);
        guard.release().await.unwrap();
        all_served(waiting).await;
        let order: Vec<u64> = served.lock().unwrap().iter().map(|(number, _)| *number).collect();
        assert_eq!(order, (1..=waiters).collect::<Vec<_>>());
        until_free(&masters, ms(1_200)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn last_process_in_the_queue_reserves_nothing() {
    let (masters, holder) = masters(5);
    let served = Served::default();
    let guard = holder.lock(RESOURCE).await.unwrap();
    let waiting = behind_a_holder(&masters, 2, &served).await;
    guard.release().await.unwrap();
    all_served(waiting).await;
    sleep(ms(5)).await;
    assert_eq!(copies(&masters), 0, "nothing is reserved");
    let reserved = masters.iter().map(|master| count(master, is_reserve)).sum::<usize>();
    assert_eq!(reserved, 4, "the first of the two knew of the other");
}

fn is_reserve(verb: &Verb) -> bool {
    matches!(verb, Verb::Reserve { .. })
}

/// It gives up between its notification and the key, or at any other moment around it, also if its
/// last handle is dropped at the same time.
#[tokio::test(start_paused = true)]
async fn waiter_giving_up_around_its_call_passes_on_the_turn() {
    for (half, ends) in (0..40).flat_map(|half| [(half, false), (half, true)]) {
        let (masters, holder) = masters(5);
        let served = Served::default();
        let guard = holder.lock(RESOURCE).await.unwrap();
        let waiting = behind_a_holder(&masters, 3, &served).await;
        guard.release().await.unwrap();
        // The first of them holds for 5 ms, and then calls the second.
        let begun = masters.clock().now();
        let [first, second, last] = waiting.try_into().ok().unwrap();
        let handle = (!ends).then_some(second.redlock);
        sleep(Duration::from_micros(500) * half).await;
        second.task.abort();
        first.task.await.unwrap();
        last.task.await.unwrap();
        let took = masters.clock().now().saturating_since(begun);
        assert!(took <= ms(45), "{half}, its process ends: {ends}, {took:?}");
        until_free(&masters, ms(60)).await;
        drop(handle);
    }
}

#[tokio::test(start_paused = true)]
async fn absent_waiter_delays_others_for_its_reservation_at_most() {
    let (masters, holder) = masters(5);
    let served = Served::default();
    let guard = holder.lock(RESOURCE).await.unwrap();
    let waiting = behind_a_holder(&masters, 3, &served).await;
    // It still listens, but none of its requests arrives.
    waiting[1].client.iter().for_each(|master| master.lose_requests(true));
    let begun = masters.clock().now();
    guard.release().await.unwrap();
    // The first has given it back, and it is kept for the second.
    sleep(ms(30)).await;
    let status = holder.status(RESOURCE).await;
    assert_eq!(status.state, State::Reserved, "{status:?}");
    let refused = holder.try_lock(RESOURCE).await.unwrap_err();
    assert!(matches!(refused, AcquireError::Held { .. }), "{refused}");
    let [first, second, last] = waiting.try_into().ok().unwrap();
    first.task.await.unwrap();
    last.task.await.unwrap();
    let took = masters.clock().now().saturating_since(begun);
    assert!(took <= ms(200), "{took:?}");
    second.task.abort();
}

/// Its holder died between two masters.
#[tokio::test(start_paused = true)]
async fn orphan_key_at_the_meeting_point_costs_about_a_second() {
    let (masters, _) = masters(5);
    masters.iter().for_each(|master| master.put(RESOURCE, "stranger", 300));
    let served = Served::default();
    let waiter = wait(&masters, 1, ms(5), &served);
    sleep(ms(150)).await;
    masters[meeting_point(&masters)].put(RESOURCE, "orphan", 100_000);
    waiter.task.await.unwrap();
    let [(_, waited)] = served.lock().unwrap()[..] else { panic!("{served:?}") };
    assert!(waited <= ms(1_600), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn clients_with_and_without_a_queue_both_get_the_lock() {
    let (masters, holder) = masters(5);
    let guard = holder.lock(RESOURCE).await.unwrap();
    let client = masters.another_client();
    let plain = handle(&client).seed(9).queue(false).build().unwrap();
    let waiting = tokio::spawn(plain.lock(RESOURCE).wait_forever().into_future());
    let served = Served::default();
    let queued = behind_a_holder(&masters, 3, &served).await;
    guard.release().await.unwrap();
    all_served(queued).await;
    let guard = tokio::time::timeout(ms(2_000), waiting).await.unwrap().unwrap().unwrap();
    guard.release().await.unwrap();
    settle().await;
    assert_eq!(copies(&masters), 0);
}
