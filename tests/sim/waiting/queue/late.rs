//! Waiters that do not come when they are called, that come and are not served, and that win
//! without the meeting point.

use redlock_core::SharedQueue;

use super::meeting_points::where_they_meet;
use super::*;
use crate::arena::NODE_TIMEOUT;

/// Returns how long four waiters take from the release to the last grant. The absent ones do not
/// react to their notification.
async fn without(absent: &[usize]) -> Duration {
    let (masters, holder) = masters(5);
    let served = Served::default();
    let guard = holder.lock(RESOURCE).await.unwrap();
    let waiting = behind_a_holder(&masters, 4, &served).await;
    // They still listen, but none of their requests arrives.
    let lose = |one: &usize| {
        waiting[*one].client.iter().for_each(|master| master.lose_requests(true));
    };
    absent.iter().for_each(lose);
    guard.release().await.unwrap();
    let begun = masters.clock().now();
    let mut waiting: Vec<_> = waiting.into_iter().map(Some).collect();
    let last = waiting[3].take().unwrap();
    last.task.await.unwrap();
    let took = masters.clock().now().saturating_since(begun);
    waiting.into_iter().flatten().for_each(|waiter| waiter.task.abort());
    took
}

/// Trap 6.
#[tokio::test(start_paused = true)]
async fn absent_waiters_cost_their_reservations() {
    let all_come = without(&[]).await;
    let (one, two) = (without(&[1]).await - all_come, without(&[1, 2]).await - all_come);
    assert!((ms(40)..=ms(60)).contains(&one), "{one:?}");
    assert!((ms(100)..=ms(1_000)).contains(&two), "{two:?}");
}

/// Trap 7: strangers have a majority, and it ends about when the waiter gives up.
#[tokio::test(start_paused = true)]
async fn repeated_and_cancelled_request_leaves_no_key() {
    let at = where_they_meet(0).await;
    let mut repeated = 0;
    for (half, more) in (4..24_u32).flat_map(|half| [(half, 1), (half, 2), (half, 3)]) {
        let (masters, served) = (admitted(5, 0), Served::default());
        let strangers: Vec<_> = (0..5).filter(|other| *other != at).take(3).collect();
        let px = u64::from(half / 2 + more);
        strangers.iter().for_each(|other| masters[*other].put(RESOURCE, "stranger", px));
        let waiter = wait(&masters, u64::from(half * 4 + more), ms(1_000), &served);
        sleep(Duration::from_micros(500) * half).await;
        // The reply to its last request is lost.
        waiter.client.iter().for_each(|master| master.lose_replies(true));
        waiter.task.abort();
        let takes = strangers.iter().map(|other| count(&masters[*other], is_take)).max();
        repeated += usize::from(takes > Some(1));
        sleep(ms(10)).await;
        waiter.client.iter().for_each(|master| master.lose_replies(false));
        until_free(&masters, ms(60)).await;
    }
    assert!(repeated > 10, "{repeated} were repeated");
}

fn is_take(verb: &Verb) -> bool {
    matches!(verb, Verb::Take { .. })
}

/// Trap 7.
#[tokio::test(start_paused = true)]
async fn process_reaching_only_the_meeting_point_blocks_no_other() {
    let (masters, holder) = masters(5);
    let served = Served::default();
    let guard = holder.lock(RESOURCE).await.unwrap();
    let alone = wait(&masters, 0, ms(5), &served);
    sleep(ms(20)).await;
    let waiting = behind_a_holder(&masters, 8, &served).await;
    let at = meeting_point(&masters);
    let others = (0..5).filter(|other| *other != at);
    others.for_each(|other| alone.client[other].lose_requests(true));
    let begun = masters.clock().now();
    guard.release().await.unwrap();
    all_served(waiting).await;
    let took = masters.clock().now().saturating_since(begun);
    assert!(took <= ms(8 * 15 + 150), "{took:?}");
    alone.client.iter().for_each(|master| master.lose_requests(false));
    alone.task.await.unwrap();
}

/// Trap 9: an orphan at the meeting point blocks it there, and it may not learn that.
#[tokio::test(start_paused = true)]
async fn lock_won_without_the_meeting_point_leaves_nothing_there() {
    for is_deaf in [false, true] {
        let (masters, _) = masters(5);
        masters.iter().for_each(|master| master.put(RESOURCE, "stranger", 300));
        let served = Served::default();
        let waiter = wait(&masters, 1, ms(500), &served);
        sleep(ms(150)).await;
        let at = meeting_point(&masters);
        let queue = SharedQueue::key_of(b"", &RESOURCE.into());
        assert_eq!(masters[at].waiters(&queue), 1);
        masters[at].put(RESOURCE, "orphan", 100_000);
        waiter.client[at].lose_replies(is_deaf);
        while served.lock().unwrap().is_empty() {
            sleep(ms(1)).await;
        }
        sleep(NODE_TIMEOUT + ms(10)).await;
        assert_eq!(masters[at].waiters(&queue), 0, "its ticket is gone");
        assert_eq!(masters[at].holder(RESOURCE).as_deref(), Some("orphan"));
        waiter.client[at].lose_replies(false);
        waiter.task.await.unwrap();
    }
}
