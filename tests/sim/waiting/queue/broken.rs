//! Broken queues, because a key of another type is in their place or a right is missing. Clients
//! wait without them.

use redlock_core::SharedQueue;

use super::*;

/// How many leases all handles get at least. One handle has the key three times in a row, and a few
/// turns at the beginning and after each failure are unequal.
const LOCKS: u32 = 550;

/// Why the queue does not work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    WrongType,
    NoRight,
}

/// Four handles with so many callers each, at masters of which some have no queue that works. The
/// meeting point is one of those.
#[derive(Clone, Copy, Debug)]
struct Load {
    fault: Fault,
    masters: usize,
    broken: usize,
    callers: u64,
    holds: Duration,
    seed: u64,
}

/// How many locks one caller got.
async fn take_again(redlock: Redlock, clock: Clock, holds: Duration) -> usize {
    let mut got = 0;
    let end = (holds * LOCKS).max(ms(6_000));
    while u128::from(clock.now().as_nanos()) < end.as_nanos() {
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
        match load.fault {
            Fault::WrongType => masters[master].put_other_type(&queue, 100_000_000),
            Fault::NoRight => masters[master].refuse_queues(Some("NOPERM no ZRANGE")),
        }
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

/// Returns the meeting point of contenders on this many masters with this seed.
async fn where_they_meet_of(n: usize, seed: u64) -> usize {
    let masters = admitted(n, seed);
    let _guard = handle(&masters).seed(seed).build().unwrap().lock(RESOURCE).await.unwrap();
    let waiter = wait(&masters, seed * 100 + 99, ms(1), &Served::default());
    sleep(ms(20)).await;
    waiter.task.abort();
    meeting_point(&masters)
}

/// The smallest share as a part of the largest.
async fn evenness(load: Load) -> (f64, Vec<usize>) {
    let got = contend(load).await;
    let (least, most) = (*got.iter().min().unwrap(), *got.iter().max().unwrap());
    (least as f64 / most as f64, got)
}

/// The process without a lease for the longest time comes first, so chance has little effect.
#[tokio::test(start_paused = true)]
async fn handles_have_similar_shares_if_no_queue_works() {
    for (masters, callers, holds) in [1, 3, 5].into_iter().flat_map(|masters| {
        let holds = [0, 1, 5, 40].map(ms);
        holds.into_iter().flat_map(move |holds| [1, 3].map(|callers| (masters, callers, holds)))
    }) {
        for seed in 1..=5 {
            for fault in [Fault::WrongType, Fault::NoRight] {
                let load = Load { fault, masters, broken: masters, callers, holds, seed };
                let (even, got) = evenness(load).await;
                assert!(even >= 0.5, "{load:?}: {got:?}");
            }
        }
    }
}

/// They meet at another master, and wait in its queue.
#[test]
fn handles_have_equal_shares_if_another_masters_queue_works() {
    seeds::each(
        "handles_have_equal_shares_if_another_masters_queue_works",
        0..4,
        |seed| async move {
            for (masters, holds) in
                [3, 5].into_iter().flat_map(|n| [0, 1, 5, 40].map(|h| (n, ms(h))))
            {
                for fault in [Fault::WrongType, Fault::NoRight] {
                    let load = Load { fault, masters, broken: 1, callers: 3, holds, seed };
                    let (even, got) = evenness(load).await;
                    assert!(even >= 0.8, "{load:?}: {got:?}");
                }
            }
            Ok(())
        },
    );
}
