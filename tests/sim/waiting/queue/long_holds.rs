//! A process that repeatedly acquires the lock, and another process that waits for it.

use redlock_core::Leaving;
use redlock_testkit::SimNode;

use super::*;

/// How process A uses the lock, and how far away the masters are for both processes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) callers: u64,
    pub(super) holds: Duration,
    pub(super) pauses: Duration,
    /// Each way.
    pub(super) trip: Duration,
}

/// How many waits of process B are counted for each load.
const WAITS: usize = 20;

fn far(masters: &SimNodes, trip: Duration, seed: u64) -> (SimNodes, Redlock) {
    let client = masters.another_client();
    client.iter().for_each(|master| master.delay(trip..=trip, trip..=trip));
    // The node timeout lasts for several round trips.
    let node_timeout = ms(200).max(trip * 8);
    let builder = handle(&client).seed(seed).ttl(node_timeout * 10).node_timeout(node_timeout);
    (client, builder.build().unwrap())
}

/// When holds of process A have begun.
type Begun = Arc<Mutex<Vec<redlock_core::Instant>>>;

fn take_again_and_again(
    redlock: &Redlock,
    load: Load,
    clock: &Clock,
    begun: &Begun,
) -> Vec<JoinHandle<()>> {
    let caller = |_| {
        let (redlock, clock, begun) = (redlock.clone(), clock.clone(), begun.clone());
        tokio::spawn(async move {
            loop {
                let guard = redlock.lock(RESOURCE).wait_forever().await.unwrap();
                begun.lock().unwrap().push(clock.now());
                sleep(load.holds).await;
                guard.release().await.unwrap();
                sleep(load.pauses).await;
            }
        })
    };
    (0..load.callers).map(caller).collect()
}

/// How many releases since `from` have left the key to anybody.
fn open_releases(masters: &SimNodes, from: redlock_core::Instant) -> u64 {
    let is_open = |verb| matches!(verb, Verb::Leave { leaving: Leaving::Open });
    let of = |master: &Arc<SimNode>| {
        master.log().iter().filter(|one| one.at >= from && is_open(one.verb)).count() as u64
    };
    masters.iter().map(of).sum()
}

/// No wait of process B is passed by more than two holds of process A, or three if a release was
/// open, however many callers A has.
pub(super) async fn assert_in_order(masters: &SimNodes, load: Load, seed: u64) {
    let clock = masters.clock();
    let ((_a, a), (_b, b)) =
        (far(masters, load.trip, seed * 2), far(masters, load.trip, seed * 2 + 1));
    let begun = Begun::default();
    let callers = take_again_and_again(&a, load, &clock, &begun);
    sleep(load.holds / 3).await;
    for number in 0..WAITS {
        let asked = clock.now();
        let most = load.holds * (load.callers as u32 + 4) + ms(10_000);
        let guard = b.lock(RESOURCE).wait(most).await.expect("it is served");
        let passed = begun.lock().unwrap().iter().filter(|at| **at > asked).count() as u64;
        if passed > 2 {
            let open = open_releases(masters, asked);
            assert!(passed <= 2 + open, "wait {number} of {load:?}: {passed} passed, {open} open");
        }
        sleep(ms(1)).await;
        guard.release().await.unwrap();
        sleep(load.holds / 7 * (number as u32 % 5)).await;
    }
    callers.into_iter().for_each(|caller| caller.abort());
}

/// Every combination with holds of this length.
async fn assert_all_in_order(holds: Duration) {
    for callers in 1..=10 {
        for (pauses, trip) in [0, 1, 5, 30]
            .into_iter()
            .flat_map(|pauses| [0, 1, 5, 10].map(|trip| (ms(pauses), ms(trip))))
        {
            assert_in_order(&admitted(3, 15), Load { callers, holds, pauses, trip }, 15).await;
        }
    }
}

/// Creates one test per length, so that they run in parallel.
macro_rules! one_that_waits_is_next_with_holds_of {
    ($($name:ident: $holds:literal,)*) => {$(
        #[tokio::test(start_paused = true)]
        async fn $name() {
            assert_all_in_order(ms($holds)).await;
        }
    )*};
}

one_that_waits_is_next_with_holds_of! {
    one_that_waits_is_next_with_holds_of_300_ms: 300,
    one_that_waits_is_next_with_holds_of_990_ms: 990,
    one_that_waits_is_next_with_holds_of_1010_ms: 1_010,
    one_that_waits_is_next_with_holds_of_2500_ms: 2_500,
    one_that_waits_is_next_with_holds_of_4_s: 4_000,
    one_that_waits_is_next_with_holds_of_8_s: 8_000,
}

/// A hold of a second is a short one for processes that are so far away. Shorter ones begin while the
/// request to enter the queue is on its way.
#[test]
fn waiting_process_is_next_with_300_ms_round_trips() {
    seeds::each("waiting_process_is_next_with_300_ms_round_trips", 0..40, |seed| async move {
        for callers in [1, 2] {
            for holds in [1_200, 2_500].map(ms) {
                let load = Load { callers, holds, pauses: ms(0), trip: ms(150) };
                assert_in_order(&admitted(3, seed), load, seed).await;
            }
        }
        Ok(())
    });
}

/// Its hold may have been long. A process that has read no record yet knows no meeting point.
#[tokio::test(start_paused = true)]
async fn release_by_token_calls_the_first_in_the_queue() {
    let (masters, holder) = masters(3);
    let served = Served::default();
    let lease = holder.lock(RESOURCE).await.unwrap().into_lease();
    let waiter = wait(&masters, 1, ms(5), &served);
    sleep(ms(500)).await;
    let (_client, other) = process(&masters, 2);
    other.lock("another").await.unwrap().release().await.unwrap();
    other.release(lease).await.unwrap();
    waiter.task.await.unwrap();
    let is_call = |verb: &Verb| matches!(verb, Verb::Leave { leaving: Leaving::Done });
    assert_eq!(count(&masters[meeting_point(&masters)], is_call), 1);
    settle().await;
    assert_eq!(copies(&masters), 0);
}
