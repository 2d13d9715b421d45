//! A key of another type in the place of a queue: those that wait do without it.

use redlock_core::SharedQueue;

use super::*;

/// How long the handles contend.
const SECONDS: u64 = 10;

/// Four handles with so many callers each, at masters of which some have a key of another type in the
/// place of the queue. The meeting point is one of those.
#[derive(Clone, Copy, Debug)]
struct Load {
    masters: usize,
    broken: usize,
    callers: u64,
    holds: Duration,
    seed: u64,
}

/// How many locks one caller got.
async fn take_again(redlock: Redlock, clock: Clock, holds: Duration) -> usize {
    let mut got = 0;
    while clock.now().as_nanos() < SECONDS * 1_000_000_000 {
        let guard = redlock.lock(RESOURCE).wait_forever().await.unwrap();
        got += 1;
        sleep(holds).await;
        guard.release().await.unwrap();
    }
    got
}

/// How many locks the callers of each handle got.
async fn contend(load: Load) -> Vec<usize> {
    let masters = admitted(load.masters, load.seed);
    let at = where_they_meet_of(load.masters, load.seed).await;
    let queue = SharedQueue::key_of(b"", &RESOURCE.into());
    let others = (0..load.masters).filter(|master| *master != at);
    for master in std::iter::once(at).chain(others).take(load.broken) {
        masters[master].put_other_type(&queue, 100_000_000);
    }
    let handles: Vec<_> =
        (0..4).map(|number| process(&masters, load.seed * 100 + number)).collect();
    let work = handles.iter().map(|(_, redlock)| {
        let caller = |_| take_again(redlock.clone(), masters.clock(), load.holds);
        futures::future::join_all((0..load.callers).map(caller))
    });
    let got = futures::future::join_all(work).await;
    got.iter().map(|callers| callers.iter().sum()).collect()
}

/// Where contenders meet on so many masters of this seed.
async fn where_they_meet_of(n: usize, seed: u64) -> usize {
    let masters = admitted(n, seed);
    let _guard = handle(&masters).build().unwrap().lock(RESOURCE).await.unwrap();
    let waiter = wait(&masters, 99, ms(1), &Served::default());
    sleep(ms(20)).await;
    waiter.task.abort();
    meeting_point(&masters)
}

#[tokio::test(start_paused = true)]
async fn handles_have_about_equal_shares_where_no_queue_works() {
    for masters in [1, 3, 5] {
        for callers in [1, 3] {
            for (holds, seed) in [(ms(0), 1), (ms(1), 2), (ms(5), 3), (ms(40), 4)] {
                let load = Load { masters, broken: masters, callers, holds, seed };
                let got = contend(load).await;
                let (least, most) = (got.iter().min().unwrap(), got.iter().max().unwrap());
                assert!(least * 3 >= *most, "{load:?}: {got:?}");
            }
        }
    }
}

/// They meet at another master, and wait in its queue.
#[tokio::test(start_paused = true)]
async fn handles_have_equal_shares_where_a_queue_works_at_another_master() {
    for masters in [3, 5] {
        for (holds, seed) in [(ms(0), 1), (ms(1), 2), (ms(5), 3), (ms(40), 4)] {
            let load = Load { masters, broken: 1, callers: 3, holds, seed };
            let got = contend(load).await;
            let (least, most) = (got.iter().min().unwrap(), got.iter().max().unwrap());
            assert!(least * 10 >= *most * 8, "{load:?}: {got:?}");
        }
    }
}
