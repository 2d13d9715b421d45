//! Several parallel calls of `init` that set another `max_ttl`.

use std::time::Duration;

use anyhow::ensure;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redlock_core::Instant;
use redlock_quorum::{Init, InitError, Quarantine};
use redlock_testkit::SimNodes;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::arena::{handle, ms};
use crate::seeds;

const AGAIN: Init = Init { again: true, floor: None, far_floor: false };

type Said = Result<(), InitError>;

/// One call: the value it should write, its result, and when it ran.
struct Call {
    max_ttl: u64,
    said: Said,
    begun: Instant,
    ended: Instant,
}

/// Returns the limit of each master.
fn held(masters: &SimNodes) -> Vec<Option<u64>> {
    masters.iter().map(|master| master.data().record.max_ttl).collect()
}

fn are(held: &[Option<u64>], max_ttl: u64) -> bool {
    held.iter().all(|held| *held == Some(max_ttl))
}

/// Runs a call by a separate client far from some masters, whose requests and replies take any time
/// up to `delay_max`.
fn call(
    masters: &SimNodes,
    max_ttl: u64,
    init: Init,
    chance: &mut StdRng,
    delay_max: u64,
) -> JoinHandle<Call> {
    let client = masters.another_client();
    for master in client.iter() {
        // The watched requests take some time.
        let mut delay = || ms(1)..=ms(chance.random_range(1..=delay_max));
        master.delay(delay(), delay());
    }
    let (pause, clock) = (ms(chance.random_range(0..delay_max)), masters.clock());
    tokio::spawn(async move {
        let redlock = handle(&client).max_ttl(ms(max_ttl)).quarantine(Quarantine::On);
        // A look at a master may take as long as it does here.
        let redlock = redlock.ttl(ms(10_000)).node_timeout(ms(1_000)).build().unwrap();
        redlock.inspect().await;
        sleep(pause).await;
        let begun = clock.now();
        let said = redlock.init_with(init).await.map(|_| ());
        Call { max_ttl, said, begun, ended: clock.now() }
    })
}

/// Returns the limits of the masters from now on, at each millisecond.
async fn watched(
    masters: &SimNodes,
    calls: &[JoinHandle<Call>],
) -> Vec<(Instant, Vec<Option<u64>>)> {
    let mut seen = Vec::new();
    while !calls.iter().all(JoinHandle::is_finished) {
        seen.push((masters.clock().now(), held(masters)));
        sleep(Duration::from_micros(500)).await;
    }
    seen.dedup_by(|one, other| one.1 == other.1);
    seen.push((masters.clock().now(), held(masters)));
    seen
}

/// A call that ends well claims its value for all masters: all had it at one moment of the call,
/// and what they all have at the end was claimed. Otherwise every call says that it failed.
async fn at_once(seed: u64, inits: &[(u64, Init)]) -> anyhow::Result<()> {
    let mut chance = StdRng::seed_from_u64(seed);
    let masters = SimNodes::new([1, 3, 5][chance.random_range(0..3)], seed);
    masters.init(ms(60_000));
    let delay_max = [3, 30, 200][chance.random_range(0..3)];
    let calls =
        inits.iter().map(|(max_ttl, init)| call(&masters, *max_ttl, *init, &mut chance, delay_max));
    let calls: Vec<_> = calls.collect();
    let seen = watched(&masters, &calls).await;
    sleep(ms(10_000)).await;
    let end = held(&masters);
    let (mut claimed, mut texts) = (Vec::new(), Vec::new());
    for call in calls {
        let Call { max_ttl, said, begun, ended } = call.await?;
        texts.push(format!("{max_ttl}: {said:?}"));
        match said {
            Ok(()) => {
                let held = seen.iter().filter(|(at, _)| *at >= begun && *at <= ended);
                let mut held = held.map(|(_, held)| held).collect::<Vec<_>>();
                held.dedup();
                ensure!(held.iter().any(|held| are(held, max_ttl)), "{max_ttl} never: {held:?}");
                claimed.push(max_ttl);
            }
            Err(error) => ensure!(
                matches!(error, InitError::MaxTtl { .. }),
                "{error} after {:?}, {seen:?}",
                ended.saturating_since(begun)
            ),
        }
    }
    let is_claimed = claimed.is_empty() || claimed.iter().any(|max_ttl| are(&end, *max_ttl));
    ensure!(is_claimed, "{end:?} at the end: {texts:?}");
    Ok(())
}

#[test]
fn two_concurrent_max_ttl_changes_never_both_succeed_wrongly() {
    let name = "two_concurrent_max_ttl_changes";
    for (one, other) in [(20_000, 40_000), (90_000, 30_000), (120_000, 180_000)] {
        let inits = [(one, AGAIN), (other, AGAIN)];
        seeds::each(name, 0..150, |seed| async move { at_once(seed, &inits).await });
    }
}

/// A start script that calls `init` without `again` takes the largest that it reads.
#[test]
fn concurrent_raise_and_lower_of_max_ttl_agree() {
    let inits = [(20_000, AGAIN), (90_000, Init::default())];
    seeds::each(
        "concurrent_raise_and_lower",
        0..100,
        |seed| async move { at_once(seed, &inits).await },
    );
}

#[test]
fn three_concurrent_max_ttl_changes_agree_or_fail() {
    let inits = [(20_000, AGAIN), (40_000, AGAIN), (30_000, AGAIN)];
    seeds::each("three_concurrent_max_ttl_changes", 0..100, |seed| async move {
        at_once(seed, &inits).await
    });
}
