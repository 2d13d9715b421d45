//! A process that takes the lock again and again, and one that waits for it.

use redlock_core::Leaving;

use super::*;

/// How process A uses the lock, and how far away the masters are for both processes.
#[derive(Clone, Copy, Debug)]
struct Load {
    callers: u64,
    holds: Duration,
    pauses: Duration,
    /// Each way.
    trip: Duration,
}

/// How many waits of process B are counted for each load.
const WAITS: usize = 20;

fn far(masters: &SimNodes, trip: Duration, seed: u64) -> (SimNodes, Redlock) {
    let client = masters.another_client();
    client.iter().for_each(|master| master.delay(trip..=trip, trip..=trip));
    let builder = handle(&client).seed(seed).ttl(ms(2_000)).node_timeout(ms(200));
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

/// Releases that leave the key to anybody.
fn open_releases(masters: &SimNodes) -> usize {
    let is_open = |verb: &Verb| matches!(verb, Verb::Leave { leaving: Leaving::Open });
    masters.iter().map(|master| count(master, is_open)).sum()
}

/// No wait of process B is passed by more holds of process A than one for each of its callers and
/// one more, or two if a release was open.
async fn assert_in_order(load: Load) {
    let masters = admitted(3, 0);
    let clock = masters.clock();
    let ((_a, a), (_b, b)) = (far(&masters, load.trip, 1), far(&masters, load.trip, 2));
    let begun = Begun::default();
    let callers = take_again_and_again(&a, load, &clock, &begun);
    sleep(load.holds / 3).await;
    for number in 0..WAITS {
        let (asked, open) = (clock.now(), open_releases(&masters));
        let most = load.holds * (load.callers as u32 + 4) + ms(10_000);
        let guard = b.lock(RESOURCE).wait(most).await.expect("it is served");
        let passed = begun.lock().unwrap().iter().filter(|at| **at > asked).count() as u64;
        let open = (open_releases(&masters) - open) as u64;
        let most = load.callers + 1 + open;
        assert!(passed <= most, "wait {number} of {load:?}: {passed} passed, {open} open");
        sleep(ms(1)).await;
        guard.release().await.unwrap();
        sleep(load.holds / 7 * (number as u32 % 5)).await;
    }
    callers.into_iter().for_each(|caller| caller.abort());
}

#[tokio::test(start_paused = true)]
async fn however_long_the_holds_of_a_process_are_one_that_waits_is_next() {
    for callers in [1, 2, 10] {
        for holds in [300, 990, 1_010, 2_500, 4_000, 8_000].map(ms) {
            for (pauses, trip) in [(0, 0), (0, 1), (0, 10), (1, 1), (30, 1), (5, 10), (30, 10)] {
                let (pauses, trip) = (ms(pauses), ms(trip));
                assert_in_order(Load { callers, holds, pauses, trip }).await;
            }
        }
    }
}
