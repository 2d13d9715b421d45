//! A process that keeps futures without polling them, and another process that waits.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use redlock_quorum::{AcquireError, Guard};

use super::*;

const TTL: Duration = ms(2_000);
/// Three leases, and the pause after them.
const LONGEST: Duration = ms(3 * 2_000 + 1_250);
/// How many futures the process keeps.
const KEPT: usize = 2_000;

type Asking = Pin<Box<dyn Future<Output = Result<Guard, AcquireError>> + Send>>;

/// A process with masters that are up to `trip` away.
fn far(masters: &SimNodes, trip: Duration, seed: u64) -> (SimNodes, Redlock) {
    let client = masters.another_client();
    client.iter().for_each(|master| master.delay(ms(0)..=trip, ms(0)..=trip));
    let builder = handle(&client).seed(seed).ttl(TTL).node_timeout(ms(200));
    (client, builder.build().unwrap())
}

/// Creates futures of callers that request the lock, each polled once.
async fn keep(redlock: &Redlock, futures: usize) -> Vec<Asking> {
    let mut kept = Vec::with_capacity(futures);
    for _ in 0..futures {
        let mut asking: Asking = Box::pin(redlock.lock(RESOURCE).wait_forever().into_future());
        let _ = poll_fn(|cx| Poll::Ready(asking.as_mut().poll(cx))).await;
        kept.push(asking);
    }
    kept
}

/// Each lease without a taker lasts for a TTL, and others are served after three of them. They may
/// wait at different masters: some are up to 20 ms away, and are not meeting points while they are
/// slow.
#[tokio::test(start_paused = true)]
async fn unpolled_futures_do_not_starve_another_process() {
    for seed in 0..20 {
        for trip in [ms(0), ms(1), ms(10)] {
            let masters = admitted(3, seed);
            let clock = masters.clock();
            let (_a, a) = far(&masters, trip, 10 + seed);
            let (_b, b) = far(&masters, trip, 30 + seed);
            let kept = keep(&a, KEPT).await;
            sleep(ms(137 * seed)).await;
            for number in 0..5 {
                let asked = clock.now();
                let guard = b.lock(RESOURCE).wait(LONGEST).await;
                let waited = clock.now().saturating_since(asked);
                let guard = guard.unwrap_or_else(|error| {
                    panic!("seed {seed}, {trip:?}, wait {number}, {waited:?}: {error}")
                });
                guard.release().await.unwrap();
                sleep(ms(50) * number).await;
            }
            drop(kept);
        }
    }
}
