//! Callers that wait while fewer masters vote than a quorum, some of which are connected.

use std::future::IntoFuture;
use std::time::Duration;

use redlock_quorum::AcquireError;
use redlock_testkit::{SimNode, SimNodes};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::admission::forgetting::{LENGTH, handle, masters, other};
use crate::arena::{RESOURCE, is_asking, ms, settle};

const SEEDS: u64 = 10;
/// The widest spread after a wake-up, and some time for the attempt.
const WOKEN: Duration = ms(60);

fn acquires(master: &SimNode) -> usize {
    master.log().iter().filter(|entry| is_asking(entry.verb)).count()
}

/// At the rhythm of contention it would be ten times as many.
#[tokio::test(start_paused = true)]
async fn callers_waiting_for_a_quarantine_retry_once_per_second() {
    const CALLERS: usize = 20;
    for seed in 0..SEEDS {
        let masters = SimNodes::new(3, 0);
        let redlock = handle(&masters).seed(seed).build().unwrap();
        let mut waiting = JoinSet::new();
        for caller in 0..CALLERS {
            let request = redlock.lock(format!("{RESOURCE}-{caller}")).wait_forever();
            waiting.spawn(async move { request.await.unwrap().release().await.unwrap() });
        }
        timeout(LENGTH + WOKEN, waiting.join_all()).await.unwrap();
        for master in masters.iter() {
            let each = acquires(master) as f64 / CALLERS as f64;
            assert!((3.0..=5.0).contains(&each), "{seed}: {each} attempts of each caller");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn returning_master_that_completes_a_quorum_is_tried() {
    for seed in 0..SEEDS {
        let (masters, _) = masters(3);
        masters[0].crash_and_restart(false);
        masters[1].down();
        let redlock = handle(&masters).seed(seed).build().unwrap();
        let waiting = tokio::spawn(redlock.lock(RESOURCE).wait_forever().into_future());
        sleep(ms(300)).await;
        assert!(!waiting.is_finished());
        masters[1].up();
        let guard = timeout(WOKEN, waiting).await.unwrap().unwrap().unwrap();
        guard.release().await.unwrap();
    }
}

/// It makes no quorum, so no attempt could be won.
#[tokio::test(start_paused = true)]
async fn returning_master_without_a_quorum_causes_no_attempt() {
    let (masters, _) = masters(5);
    masters[..3].iter().for_each(|master| master.crash_and_restart(false));
    masters[3].down();
    let redlock = handle(&masters).build().unwrap();
    let waiting = tokio::spawn(redlock.lock(RESOURCE).wait_forever().into_future());
    sleep(ms(300)).await;
    let before = acquires(&masters[4]);
    masters[3].up();
    sleep(WOKEN).await;
    assert_eq!((before, acquires(&masters[4])), (1, 1));
    assert!(!waiting.is_finished());
    waiting.abort();
}

/// Nothing is sent to unreachable masters, and they may return at any time.
#[tokio::test(start_paused = true)]
async fn attempts_continue_while_masters_are_unreachable() {
    let (masters, redlock) = masters(3);
    masters[..2].iter().for_each(|master| master.down());
    let waiting = tokio::spawn(redlock.lock(RESOURCE).wait_forever().into_future());
    sleep(Duration::from_secs(10)).await;
    let asked = acquires(&masters[2]);
    assert!(asked > 50, "{asked} attempts in ten seconds");
    masters[0].up();
    timeout(ms(500), waiting).await.unwrap().unwrap().unwrap().release().await.unwrap();
}

/// A step that fails for good is news, as a vote is: without it the next attempt comes when a
/// second is over.
#[tokio::test(start_paused = true)]
async fn permanently_refused_step_ends_a_wait_immediately() {
    for seed in 0..SEEDS {
        let masters = SimNodes::new(3, 0);
        masters.iter().for_each(|master| master.error_replies(Some("OOM memory is full")));
        let redlock = handle(&masters).seed(seed).build().unwrap();
        let waiting = tokio::spawn(redlock.lock(RESOURCE).wait_forever().into_future());
        sleep(ms(300)).await;
        masters.iter().for_each(|master| master.error_replies(Some("NOPERM no")));
        assert!(!waiting.is_finished(), "memory may be freed");
        // The client looks at the masters one second after the previous look.
        let error = timeout(ms(700) + WOKEN, waiting).await.unwrap().unwrap().unwrap_err();
        assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
        assert!(error.to_string().contains("NOPERM"), "{error}");
    }
}

/// The end of a wait does not depend on the time of the next attempt.
#[tokio::test(start_paused = true)]
async fn wait_shorter_than_a_quarantine_ends_on_time() {
    for wait in [ms(1), ms(500), ms(1_234), LENGTH - ms(100)] {
        let masters = SimNodes::new(3, 0);
        let redlock = handle(&masters).build().unwrap();
        let begun = masters.clock().now();
        let error = redlock.lock(RESOURCE).wait(wait).await.unwrap_err();
        let took = masters.clock().now().saturating_since(begun);
        assert!(took >= wait && took <= wait + ms(10), "{wait:?}: {took:?}");
        let votes = error.votes().unwrap().to_string();
        assert!(votes.contains("in quarantine"), "{votes}");
    }
}

/// The failure of an earlier step may have been fixed, as the next step shows.
#[tokio::test(start_paused = true)]
async fn earlier_refusal_does_not_end_a_later_wait() {
    let masters = SimNodes::new(3, 0);
    let redlock = handle(&masters).build().unwrap();
    for cured in [false, true] {
        let error = if cured { None } else { Some("NOPERM no") };
        masters.iter().for_each(|master| master.error_replies(error));
        let asked = redlock.lock(RESOURCE).wait_forever().into_future();
        let outcome = timeout(Duration::from_secs(1) + LENGTH + WOKEN, asked).await.unwrap();
        assert_eq!(outcome.is_ok(), cured, "{:?}", outcome.err());
    }
}

/// Nor when another client has admitted the masters, and they forget again.
#[tokio::test(start_paused = true)]
async fn refusal_in_a_previous_incarnation_ends_no_wait() {
    let masters = SimNodes::new(3, 0);
    masters.iter().for_each(|master| master.error_replies(Some("NOPERM no")));
    let redlock = handle(&masters).build().unwrap();
    redlock.lock(RESOURCE).wait_forever().await.unwrap_err();
    masters.iter().for_each(|master| master.error_replies(None));
    assert_eq!(other(&masters).init().await.unwrap().admitted(), 3);
    let guard = redlock.lock(RESOURCE).wait_forever().await.unwrap();
    guard.release().await.unwrap();
    // The query about its data is lost.
    masters[0].lose_requests(true);
    masters.iter().for_each(|master| master.flush());
    settle().await;
    let cause = redlock.inspect().await[0].cause.clone().unwrap().to_string();
    assert!(cause.contains("being checked") && !cause.contains("NOPERM"), "{cause}");
    masters[0].lose_requests(false);
    let asked = redlock.lock(RESOURCE).wait_forever().into_future();
    timeout(LENGTH * 2, asked).await.unwrap().unwrap().release().await.unwrap();
}
