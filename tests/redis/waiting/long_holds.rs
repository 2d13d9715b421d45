//! A process that repeatedly acquires the lock, and another process that waits for it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redlock_quorum::Redlock;
use redlock_testkit::lab::Delays;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::lab::{eventually, in_time, masters, ms, patient, warm_up};

/// A process whose callers take the lock again and again, hold it for this long and pause.
fn take_again_and_again(
    redlock: &Redlock,
    callers: usize,
    (holds, pauses): (Duration, Duration),
    begun: &Arc<Mutex<Vec<Instant>>>,
) -> Vec<JoinHandle<()>> {
    let caller = |_| {
        let (redlock, begun) = (redlock.clone(), begun.clone());
        tokio::spawn(async move {
            loop {
                let guard = redlock.lock("long").wait_forever().await.unwrap();
                begun.lock().unwrap().push(Instant::now());
                sleep(holds).await;
                guard.release().await.unwrap();
                sleep(pauses).await;
            }
        })
    };
    (0..callers).map(caller).collect()
}

/// A waiter that does not come within its reservation, which lasts twice as long, loses its turn. A
/// master and the waiter come one after the other.
const LATE: Duration = ms(25);

/// One hold for each caller of that process and one more pass the waiter, or two if the release left
/// the key to anybody, as one in 64 does. That is so for so many waits. On a machine that is too
/// busy to serve the waiter within its reservation, one more passes each time.
async fn is_next(waits: usize, callers: usize, holds: Duration, pauses: Duration) {
    let servers = masters();
    let [holder, waiter] = [(); 2].map(|()| patient(servers.urls()).build().unwrap());
    warm_up(&waiter, &servers).await;
    let (delays, begun) = (Delays::watch(), Arc::<Mutex<Vec<Instant>>>::default());
    let taking = take_again_and_again(&holder, callers, (holds, pauses), &begun);
    eventually("it is held", || !begun.lock().unwrap().is_empty()).await;
    for _ in 0..waits {
        let (asked, before) = (Instant::now(), delays.longer_than(LATE));
        let guard = in_time(waiter.lock("long").wait_forever().into_future()).await.unwrap();
        let passed = begun.lock().unwrap().iter().filter(|at| **at > asked).count();
        let missed = delays.longer_than(LATE) - before;
        let what = format!("{passed} of {callers} callers, {holds:?} {pauses:?}, {missed} missed");
        assert!(passed <= callers + 2 + missed, "{what}");
        guard.release().await.unwrap();
    }
    taking.into_iter().for_each(|task| task.abort());
}

#[tokio::test]
async fn waiting_process_is_next_after_long_holds() {
    tokio::join!(
        is_next(20, 1, ms(300), ms(0)),
        is_next(20, 1, ms(1_500), ms(0)),
        is_next(20, 2, ms(700), ms(30)),
        is_next(20, 4, ms(300), ms(5)),
        is_next(3, 1, ms(8_000), ms(0)),
    );
}
