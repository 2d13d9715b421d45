//! How often processes get a key that each of them wants again immediately, and how long they wait.

use super::*;

/// The results of one process.
#[derive(Debug, Default)]
pub(super) struct Got {
    pub(super) grants: usize,
    /// How long it waited for each of them.
    waits: Vec<Duration>,
}

impl Got {
    pub(super) fn longest(&self) -> Duration {
        self.waits.iter().max().copied().unwrap_or_default()
    }
}

/// Returns the results of each of these processes in this many seconds. Each has one caller, and
/// all hold the key for the same time.
pub(super) async fn come_again(
    masters: &SimNodes,
    clients: &[(SimNodes, Redlock)],
    holds: Duration,
    seconds: u64,
) -> Vec<Got> {
    let work = |redlock: Redlock, clock: Clock| async move {
        let mut got = Got::default();
        while clock.now().as_nanos() < seconds * 1_000_000_000 {
            let begun = clock.now();
            let guard = redlock.lock(RESOURCE).wait_forever().await.unwrap();
            got.waits.push(clock.now().saturating_since(begun));
            got.grants += 1;
            sleep(holds).await;
            guard.release().await.unwrap();
        }
        got
    };
    let work = clients.iter().map(|(_, redlock)| work(redlock.clone(), masters.clock()));
    futures::future::join_all(work).await
}

fn processes_of(masters: &SimNodes, number: u64, seed: u64) -> Vec<(SimNodes, Redlock)> {
    (0..number).map(|one| process(masters, seed * 100 + one)).collect()
}

/// By how much the shares are apart, as a part of an equal one.
fn spread(got: &[Got]) -> f64 {
    let grants = || got.iter().map(|one| one.grants);
    let all: usize = grants().sum();
    let apart = grants().max().unwrap() - grants().min().unwrap();
    apart as f64 * got.len() as f64 / all as f64
}

/// Trap 23: two of which one would never be refused; and many.
#[tokio::test(start_paused = true)]
async fn returning_processes_have_equal_shares() {
    for (processes, holds, seconds) in [(2, ms(20), 10), (8, ms(1), 5)] {
        for seed in 0..2 {
            let masters = admitted(5, seed);
            let clients = processes_of(&masters, processes, seed);
            let got = come_again(&masters, &clients, holds, seconds).await;
            assert!(spread(&got) < 0.02, "{processes} processes, seed {seed}: {got:?}");
        }
    }
}

/// Returns how long each of the same processes waits if each knows whose turn it is and none is
/// refused.
async fn ring(
    masters: &SimNodes,
    clients: &[(SimNodes, Redlock)],
    holds: Duration,
    rounds: usize,
) -> Vec<Duration> {
    let clock = masters.clock();
    let mut released: Vec<Option<redlock_core::Instant>> = vec![None; clients.len()];
    let mut waits = Vec::new();
    for _ in 0..rounds {
        for ((_, redlock), released) in clients.iter().zip(&mut released) {
            let guard = redlock.try_lock(RESOURCE).await.unwrap();
            waits.extend(released.map(|at| clock.now().saturating_since(at)));
            sleep(holds).await;
            guard.release().await.unwrap();
            *released = Some(clock.now());
        }
    }
    waits
}

fn p99(mut waits: Vec<Duration>) -> Duration {
    waits.sort_unstable();
    waits[waits.len() * 99 / 100]
}

/// Trap 25.
#[tokio::test(start_paused = true)]
async fn thirty_two_processes_have_equal_shares_and_waits() {
    let holds = ms(1);
    let masters = admitted(5, 7);
    let in_ring = ring(&masters, &processes_of(&masters, 32, 7), holds, 30).await;
    let masters = admitted(5, 7);
    let until = masters.clock().now().as_nanos() / 1_000_000_000 + 40;
    let got = come_again(&masters, &processes_of(&masters, 32, 7), holds, until).await;
    assert!(spread(&got) <= 0.01, "{got:?}");
    // The first wait of each includes the processes that came before it.
    let waits = got.iter().flat_map(|one| one.waits.iter().skip(1).copied()).collect();
    let (ours, least) = (p99(waits), p99(in_ring));
    assert!(ours <= least.mul_f64(1.2), "{ours:?}, and {least:?} in a ring");
}

/// A process that takes the key again and again, and holds it for this time, until it is stopped.
fn takes_again(masters: &SimNodes, seed: u64, holds: Duration) -> (SimNodes, JoinHandle<()>) {
    let (client, holder) = process(masters, seed);
    let again = tokio::spawn(async move {
        loop {
            let guard = holder.lock(RESOURCE).await.unwrap();
            sleep(holds).await;
            guard.release().await.unwrap();
        }
    });
    (client, again)
}

/// It checks for other waiters about every ten votes, and no more often.
#[tokio::test(start_paused = true)]
async fn repeated_holder_sometimes_queries_for_waiters() {
    for seed in 0..10 {
        let masters = admitted(5, seed);
        let (_client, again) = takes_again(&masters, seed, ms(0));
        sleep(ms(200)).await;
        let asked: usize = masters.iter().map(|master| count(master, is_leave)).sum();
        let won = count(&masters[0], |verb| matches!(verb, Verb::Acquire { .. }));
        assert!(won >= 40, "seed {seed}: {won} locks");
        assert!((7..=20).contains(&asked), "seed {seed}: {asked} requests");
        again.abort();
    }
}

/// M's answer to a release of a missing key proves nothing: a client that M has admitted is on its
/// way to the others. And a plain release wakes no client there.
#[tokio::test(start_paused = true)]
async fn lease_without_the_meeting_points_key_queries_for_waiters() {
    let (masters, holder) = masters(5);
    let asked = || masters.iter().map(|master| count(master, is_leave)).sum::<usize>();
    let take = async || {
        let guard = holder.lock(RESOURCE).await.unwrap();
        guard.settled().await;
        guard.release().await.unwrap();
        settle().await;
        asked()
    };
    assert_eq!([take().await, take().await, take().await], [0, 1, 1]);
    let is_asked = |at: &usize| count(&masters[*at], is_leave) > 0;
    let at = (0..masters.len()).find(is_asked).expect("it was asked");
    masters[at].put(RESOURCE, "stranger", 2);
    assert_eq!(take().await, 2, "M has another client's key");
    sleep(ms(3)).await;
    assert_eq!([take().await, take().await], [3, 3], "M, which had the key, reports no waiter");
}

/// Nearer to the masters than that process or farther, and at any moment.
#[tokio::test(start_paused = true)]
async fn newcomer_to_a_busy_key_is_served_soon() {
    for (seed, holds) in (0..400).flat_map(|seed| [0, 1, 3].map(|holds| (seed, ms(holds)))) {
        let (masters, served) = (admitted(5, seed), Served::default());
        let (client, again) = takes_again(&masters, seed, holds);
        // If that is the meeting point, a new process may arrive there between two locks.
        client[seed as usize % 5].delay(ms(1)..=ms(3), ms(1)..=ms(3));
        sleep(ms(50) + Duration::from_micros(seed * 137)).await;
        let waiter = wait(&masters, 1_000 + seed, ms(0), &served);
        // It may also stop at any moment, and the last plain release wakes the waiter.
        sleep(Duration::from_micros(seed * 71)).await;
        if seed % 2 == 0 {
            again.abort();
        }
        waiter.task.await.unwrap();
        let (_, took) = served.lock().unwrap()[0];
        assert!(took <= ms(50), "seed {seed}, {holds:?}: {took:?}");
        again.abort();
    }
}

fn is_leave(verb: &Verb) -> bool {
    matches!(verb, Verb::Leave { .. })
}
