//! A key on its way from one process to the next: releases that end half-way or are sent again,
//! reservations that are over too early, and leases that others release.

use redlock_core::Leaving;
use redlock_testkit::SimNode;

use super::*;
use crate::arena::{GUARD, TTL, again, is_extend, partition};

/// Longer than any process sleeps, so that all waiters are in the queue by then.
const LONG: Duration = Duration::from_millis(1_500);

/// Creates a process that got the key from the queue, and so knows of the processes after it.
async fn a_holder_with_waiters(
    masters: &SimNodes,
    holds: Duration,
    waiters: u64,
    served: &Served,
) -> (Waiter, Vec<Waiter>) {
    let before = handle(masters).build().unwrap().lock(RESOURCE).await.unwrap();
    let holder = wait(masters, 0, holds, served);
    sleep(ms(20)).await;
    let waiting = behind_a_holder(masters, waiters, served).await;
    before.release().await.unwrap();
    until_served(served, 1).await;
    (holder, waiting)
}

async fn until_served(served: &Served, number: usize) {
    while served.lock().unwrap().len() < number {
        sleep(ms(1)).await;
    }
}

/// Returns the requests to this master that release the first lease from the queue.
fn releases(master: &SimNode) -> Vec<Verb> {
    let log = master.log();
    let is_queued = |verb| matches!(verb, Verb::Enter { .. } | Verb::Take { .. });
    let is_granted = |verdict: &Verdict| *verdict == Verdict::Granted;
    let first = log.iter().find(|done| is_queued(done.verb) && is_granted(&done.verdict));
    let first = first.expect("a lease from the queue").token.clone();
    let releases = log.iter().filter(|done| done.token == first && is_exit(done.verb));
    releases.map(|done| done.verb).collect()
}

fn is_exit(verb: Verb) -> bool {
    matches!(verb, Verb::Release | Verb::Reserve { .. } | Verb::Leave { leaving: Leaving::Done })
}

/// Trap 2.
#[tokio::test(start_paused = true)]
async fn retried_release_is_plain() {
    for lost in 0..5 {
        let (masters, served) = (admitted(5, 0), Served::default());
        let (holder, waiting) = a_holder_with_waiters(&masters, ms(20), 1, &served).await;
        holder.client[lost].lose_replies(true);
        all_served(waiting).await;
        sleep(ms(50)).await;
        holder.client[lost].lose_replies(false);
        sleep(ms(100)).await;
        let is_meeting_point = lost == meeting_point(&masters);
        match releases(&masters[lost])[..] {
            [Verb::Reserve { .. }, Verb::Release] if !is_meeting_point => {}
            [Verb::Leave { .. }, Verb::Release] if is_meeting_point => {}
            ref sent => panic!("{lost}: {sent:?}"),
        }
        holder.task.await.unwrap();
    }
}

/// Trap 4. If the meeting point and two others know of the release, the next process is notified.
#[tokio::test(start_paused = true)]
async fn holder_killed_during_its_release_delays_for_one_expiry() {
    for (reached, reaches_m) in (0..=4).flat_map(|reached| [(reached, false), (reached, true)]) {
        let (masters, served) = (admitted(5, 0), Served::default());
        let (holder, waiting) = a_holder_with_waiters(&masters, LONG, 2, &served).await;
        let at = meeting_point(&masters);
        sleep(LONG - ms(10)).await;
        let others = (0..5).filter(|other| *other != at).skip(reached);
        others.for_each(|other| holder.client[other].lose_requests(true));
        holder.client[at].lose_requests(!reaches_m);
        sleep(ms(15)).await;
        holder.task.abort();
        partition(&holder.client);
        let begun = masters.clock().now();
        until_served(&served, 2).await;
        let took = masters.clock().now().saturating_since(begun);
        let most = if reaches_m && reached >= 2 { ms(15) } else { TTL + GUARD + ms(15) };
        assert!(took <= most, "{reached} others, the meeting point {reaches_m}: {took:?}");
        all_served(waiting).await;
    }
}

/// Trap 5: it precedes a process that came while its request was on its way.
#[tokio::test(start_paused = true)]
async fn waiter_late_for_its_reservation_keeps_its_place() {
    let (masters, served) = (admitted(5, 0), Served::default());
    let before = handle(&masters).build().unwrap().lock(RESOURCE).await.unwrap();
    let holder = wait(&masters, 0, ms(5), &served);
    sleep(ms(20)).await;
    let client = masters.another_client();
    let late = handle(&client).seed(11).node_timeout(ms(200)).build().unwrap();
    let late = take_turn(late, 1, ms(5), masters.clock(), served.clone());
    sleep(ms(20)).await;
    client.iter().for_each(|master| master.delay(ms(70)..=ms(70), ms(0)..=ms(1)));
    before.release().await.unwrap();
    holder.task.await.unwrap();
    sleep(ms(55)).await;
    let newcomer = handle(&masters.another_client()).seed(13).build().unwrap();
    let guard = newcomer.try_lock(RESOURCE).await.expect("the reservation is over");
    client.iter().for_each(|master| master.delay(ms(0)..=ms(1), ms(0)..=ms(1)));
    let behind = wait(&masters, 2, ms(5), &served);
    sleep(ms(60)).await;
    guard.release().await.unwrap();
    late.await.unwrap();
    behind.task.await.unwrap();
    let order: Vec<u64> = served.lock().unwrap().iter().map(|(number, _)| *number).collect();
    assert_eq!(order, [0, 1, 2]);
}

/// Trap 19: the keeper finds that two copies are gone in the moment of the release.
#[tokio::test(start_paused = true)]
async fn extension_and_readd_before_a_release_leave_nothing() {
    let mut given_back = 0;
    for millis in 0..12 {
        let (masters, served) = (admitted(5, millis), Served::default());
        let holds = TTL / 3 - ms(4) + ms(millis);
        let (holder, waiting) = a_holder_with_waiters(&masters, holds, 1, &served).await;
        let at = meeting_point(&masters);
        let lost = (0..5).filter(|other| *other != at).take(2);
        lost.for_each(|other| masters[other].put(RESOURCE, "lost", 1));
        let begun = masters.clock().now();
        all_served(waiting).await;
        let took = masters.clock().now().saturating_since(begun);
        assert!(took <= holds + ms(30), "{millis}: {took:?}");
        let extensions: usize = masters.iter().map(|master| count(master, is_extend)).sum();
        assert!(millis < 6 || extensions > 0);
        given_back += masters.iter().map(|master| count(master, is_given_back)).sum::<usize>();
        holder.task.await.unwrap();
        until_free(&masters, ms(60)).await;
    }
    assert!(given_back > 0, "the keeper came too late each time");
}

fn is_given_back(verb: &Verb) -> bool {
    matches!(verb, Verb::GiveBack { .. })
}

/// Trap 19: the releasing client does not know of any waiter.
#[tokio::test(start_paused = true)]
async fn lease_released_by_another_process_goes_to_the_next() {
    for (holds, most) in [(LONG, ms(15)), (Duration::ZERO, ms(1_000))] {
        let (masters, served) = (admitted(5, 0), Served::default());
        let before = handle(&masters).build().unwrap().lock(RESOURCE).await.unwrap();
        let (_client, holder) = process(&masters, 9);
        let holding = tokio::spawn(holder.lock(RESOURCE).wait_forever().into_future());
        sleep(ms(20)).await;
        let waiting = behind_a_holder(&masters, 2, &served).await;
        before.release().await.unwrap();
        let first = holding.await.unwrap().unwrap();
        sleep(holds).await;
        let (_client, other) = process(&masters, 10);
        let lease = redlock_quorum::Lease::new(RESOURCE, first.token().as_str(), TTL).unwrap();
        let resumed = other.resume(again(&lease)).await.unwrap();
        let begun = masters.clock().now();
        resumed.release().await.unwrap();
        until_served(&served, 1).await;
        let took = masters.clock().now().saturating_since(begun);
        assert!(took <= most, "after {holds:?}: {took:?}");
        // Its remaining keys now belong to no lock.
        first.release().await.unwrap_err();
        all_served(waiting).await;
        until_free(&masters, ms(60)).await;
    }
}
