//! A process that keeps futures without polling them, and another process that waits.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::lab::{in_time, masters, ms, patient, warm_up};

/// Longer than the time after which the next caller of a holder looks for itself.
const TTL: Duration = ms(1_200);
/// Three leases, the pause after them, and a short stall of the test run.
const LONGEST: Duration = ms(3 * 1_200 + 600 + 800);

#[tokio::test]
async fn unpolled_futures_do_not_starve_another_process() {
    let servers = masters();
    let [keeper, waiter] =
        [(); 2].map(|()| patient(servers.urls()).ttl(TTL).node_timeout(ms(300)).build().unwrap());
    warm_up(&keeper, &servers).await;
    warm_up(&waiter, &servers).await;
    let mut kept = Vec::new();
    for _ in 0..200 {
        let mut asking = Box::pin(keeper.lock("kept").wait_forever().into_future());
        let _ = poll_fn(|cx| Poll::Ready(asking.as_mut().poll(cx))).await;
        kept.push(asking);
    }
    for _ in 0..3 {
        let asked = Instant::now();
        let waiting = pin!(waiter.lock("kept").wait_forever().into_future());
        let guard = in_time(waiting).await.unwrap();
        assert!(asked.elapsed() <= LONGEST, "{:?}", asked.elapsed());
        let _ = guard.release().await;
    }
    drop(kept);
}
