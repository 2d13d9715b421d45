//! How often processes get a key that each of them wants again at once, and how long they wait.

use super::*;

/// What one process got.
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

/// What each of these processes got in so many seconds. Each has one caller, which holds the key
/// for the same time.
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
async fn processes_that_come_again_and_again_have_equal_shares() {
    for (processes, holds, seconds) in [(2, ms(20), 10), (8, ms(1), 5)] {
        for seed in 0..2 {
            let masters = admitted(5, seed);
            let clients = processes_of(&masters, processes, seed);
            let got = come_again(&masters, &clients, holds, seconds).await;
            assert!(spread(&got) < 0.02, "{processes} processes, seed {seed}: {got:?}");
        }
    }
}

/// The same processes where each knows whose turn it is, and nobody is refused: how long each
/// waits.
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
async fn thirty_two_processes_have_equal_shares_and_wait_about_as_long_as_in_a_ring() {
    let holds = ms(1);
    let masters = admitted(5, 7);
    let in_ring = ring(&masters, &processes_of(&masters, 32, 7), holds, 30).await;
    let masters = admitted(5, 7);
    let until = masters.clock().now().as_nanos() / 1_000_000_000 + 40;
    let got = come_again(&masters, &processes_of(&masters, 32, 7), holds, until).await;
    assert!(spread(&got) <= 0.01, "{got:?}");
    // The first of each waits for those that came before it.
    let waits = got.iter().flat_map(|one| one.waits.iter().skip(1).copied()).collect();
    let (ours, least) = (p99(waits), p99(in_ring));
    assert!(ours <= least.mul_f64(1.2), "{ours:?}, and {least:?} in a ring");
}

/// Whether others wait it asks every 10 ms, and no more often. One that comes waits that much
/// longer at most.
#[tokio::test(start_paused = true)]
async fn a_process_that_takes_the_key_again_and_again_asks_now_and_then_who_waits() {
    for seed in 0..10 {
        let (masters, served) = (admitted(5, seed), Served::default());
        let (_client, holder) = process(&masters, seed);
        let again = tokio::spawn(async move {
            loop {
                holder.lock(RESOURCE).await.unwrap().release().await.unwrap();
            }
        });
        sleep(ms(200)).await;
        let asked: usize = masters.iter().map(|master| count(master, is_leave)).sum();
        let won = count(&masters[0], |verb| matches!(verb, Verb::Acquire { .. }));
        assert!(won >= 40, "seed {seed}: {won} locks");
        assert!((10..=20).contains(&asked), "seed {seed}: it asked {asked} times");
        let waiter = wait(&masters, 100 + seed, ms(0), &served);
        waiter.task.await.unwrap();
        let (_, took) = served.lock().unwrap()[0];
        assert!(took <= ms(20), "seed {seed}: {took:?}");
        again.abort();
    }
}

fn is_leave(verb: &Verb) -> bool {
    matches!(verb, Verb::Leave { .. })
}
