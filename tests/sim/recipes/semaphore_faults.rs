//! Permits while holders, waiters and collectors die, stop or are dropped.

use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::ensure;
use futures::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redlock_quorum::{AcquireError, Hold, Redlock, State};
use redlock_testkit::{Nemesis, SimNodes};
use tokio::time::{sleep, timeout};

use super::semaphore::{NAME, process};
use crate::arena::{
    NODE_TIMEOUT, TTL, drop_after, handle, masters, ms, partition, trusting_handle, until_free,
};
use crate::seeds;

#[tokio::test(start_paused = true)]
async fn dead_holder_or_waiter_delays_the_others_by_one_ttl() {
    // How many permits the victim has before it dies, and how many it then waits for.
    for (has, wants) in [(1, 0), (2, 0), (0, 1), (1, 2)] {
        let (masters, redlock) = masters(5);
        let victim = masters.another_client();
        let dying = handle(&victim).build().unwrap().semaphore(NAME, 2);
        let held = if has > 0 { Some(dying.acquire_many(has).await.unwrap()) } else { None };
        let rest = redlock.semaphore(NAME, 2);
        let others = if has < 2 { Some(rest.acquire_many(2 - has).await.unwrap()) } else { None };
        let waits = (wants > 0)
            .then(|| tokio::spawn(dying.acquire_many(wants).wait_forever().into_future()));
        sleep(ms(300)).await;
        let next = process(&masters).semaphore(NAME, 2);
        let next = tokio::spawn(next.acquire().wait_forever().into_future());
        sleep(ms(100)).await;
        partition(&victim);
        drop(others);
        let died = masters.clock().now();
        let next = timeout(TTL * 10, next).await.expect("it is served").unwrap().unwrap();
        let waited = masters.clock().now().saturating_since(died);
        assert!(waited <= TTL.mul_f64(1.1) + ms(1_000), "{has} {wants}: {waited:?}");
        assert!(next.is_held());
        drop((waits, held));
    }
}

/// Returns who holds these locks.
async fn tokens(redlock: &Redlock, locks: &[&str]) -> Vec<String> {
    let mut tokens = Vec::new();
    for lock in locks {
        match redlock.status(format!("{NAME}{lock}")).await.state {
            State::Held { token, .. } => tokens.push(token),
            state => panic!("{lock} is {state:?}"),
        }
    }
    tokens
}

#[tokio::test(start_paused = true)]
async fn collector_keeps_the_gate_and_its_slots_while_waiting() {
    let (masters, redlock) = masters(5);
    let held = redlock.semaphore(NAME, 2).acquire().await.unwrap();
    let collector = process(&masters).semaphore(NAME, 2);
    let collector = tokio::spawn(collector.acquire_many(2).wait_forever().into_future());
    sleep(ms(300)).await;
    let locks = ["#gate", "#0", "#1"];
    let before = tokens(&redlock, &locks).await;
    sleep(TTL * 3).await;
    assert_eq!(tokens(&redlock, &locks).await, before);
    held.release().await.unwrap();
    let both = timeout(ms(500), collector).await.expect("it is served").unwrap().unwrap();
    assert!(both.is_held());
    sleep(TTL * 3).await;
    assert!(both.is_held(), "they are extended like any lock");
}

/// Its caller has no guards that it could release before.
#[tokio::test(start_paused = true)]
async fn collector_releases_the_gate_and_its_slots_on_shutdown() {
    let (masters, redlock) = masters(5);
    let held = redlock.semaphore(NAME, 2).acquire().await.unwrap();
    for wanted in [1, 2] {
        let (collector, taken) = (process(&masters), redlock.semaphore(NAME, 2).try_acquire());
        // A collector of one permit waits only if both are held.
        let taken = if wanted == 1 { Some(taken.await.unwrap()) } else { None };
        let semaphore = collector.semaphore(NAME, 2);
        let waiting = tokio::spawn(semaphore.acquire_many(wanted).wait_forever().into_future());
        sleep(ms(300)).await;
        tokens(&redlock, &["#gate", "#0", "#1"]).await;
        collector.shutdown(TTL).await.unwrap();
        let refused = waiting.await.unwrap().unwrap_err();
        assert!(matches!(refused, AcquireError::Shutdown), "{refused}");
        drop(taken);
        let next = process(&masters);
        let next = timeout(ms(500), next.semaphore(NAME, 2).acquire().into_future()).await;
        next.expect("soon").unwrap().release().await.unwrap();
    }
    held.release().await.unwrap();
    until_free(&masters, TTL * 2).await;
}

/// Nobody polls it, so it keeps what it has, and no shutdown waits for it without an end.
#[tokio::test(start_paused = true)]
async fn unpolled_collector_delays_shutdown_by_at_most_half() {
    let (masters, redlock) = masters(5);
    let held = redlock.semaphore(NAME, 1).acquire().await.unwrap();
    let collector = process(&masters);
    let mut waiting = collector.semaphore(NAME, 1).acquire().wait_forever().into_future();
    timeout(ms(300), &mut waiting).await.unwrap_err();
    let began = tokio::time::Instant::now();
    let left = collector.shutdown(ms(1_000)).await.unwrap_err();
    assert!(left.to_string().contains("#gate"), "{left}");
    assert!(began.elapsed() <= ms(510), "{:?}", began.elapsed());
    drop((waiting, held));
}

/// The options of the permit do not apply to the gate.
#[tokio::test(start_paused = true)]
async fn a_waiter_keeps_the_gate_for_longer_than_its_permit_may_last() {
    let (masters, redlock) = masters(5);
    let held = redlock.semaphore(NAME, 1).acquire().await.unwrap();
    let waiter = process(&masters).semaphore(NAME, 1).acquire().wait_forever().max_hold(TTL);
    let waiter = tokio::spawn(waiter.into_future());
    sleep(ms(300)).await;
    let before = tokens(&redlock, &["#gate"]).await;
    sleep(TTL * 3).await;
    assert_eq!(tokens(&redlock, &["#gate"]).await, before);
    held.release().await.unwrap();
    let permit = timeout(ms(500), waiter).await.expect("it is served").unwrap().unwrap();
    assert!(timeout(TTL * 2, permit.lost()).await.is_ok(), "the permit itself ends");
}

#[tokio::test(start_paused = true)]
async fn permit_request_dropped_at_any_poll_leaves_nothing() {
    for polls in 0..12 {
        let (masters, redlock) = masters(5);
        masters.iter().for_each(|master| master.delay(ms(1)..=ms(4), ms(1)..=ms(4)));
        let semaphore = redlock.semaphore(NAME, 2);
        drop_after(semaphore.acquire().into_future(), polls).await;
        drop_after(semaphore.acquire_many(2).into_future(), polls).await;
        let both = timeout(TTL * 2, semaphore.acquire_many(2).into_future()).await;
        let both = both.expect("nothing is left").unwrap();
        let other = process(&masters).semaphore(NAME, 2);
        drop_after(other.acquire().into_future(), polls).await;
        both.release().await.unwrap();
        until_free(&masters, TTL * 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn unpolled_future_blocks_the_others_for_at_most_one_ttl() {
    let (masters, redlock) = masters(5);
    let held = redlock.semaphore(NAME, 1).acquire().await.unwrap();
    let stuck = process(&masters).semaphore(NAME, 1);
    let mut stuck = stuck.acquire().wait_forever().into_future();
    assert!(timeout(ms(300), &mut stuck).await.is_err(), "it has the gate");
    let next = process(&masters).semaphore(NAME, 1);
    let next = tokio::spawn(next.acquire().wait_forever().into_future());
    sleep(ms(100)).await;
    let begin = masters.clock().now();
    held.release().await.unwrap();
    let next = timeout(TTL * 4, next).await.expect("it is served").unwrap().unwrap();
    let waited = masters.clock().now().saturating_since(begin);
    assert!(waited <= TTL.mul_f64(1.1) + ms(1_000), "{waited:?}");
    drop((next, stuck));
}

/// Contenders next to a nemesis, and a judge that looks every millisecond. Returns how many permits
/// were held.
async fn campaign(seed: u64, permits: u32, is_ours: bool) -> anyhow::Result<usize> {
    const LENGTH: Duration = ms(15_000);
    let masters = SimNodes::new(5, seed);
    let clients: Vec<_> = (0..4).map(|_| masters.another_client()).collect();
    let holds = Arc::new(Mutex::new(Vec::<Hold>::new()));
    let contenders = clients.iter().enumerate().flat_map(|(number, client)| {
        let redlock = trusting_handle(client).seed(seed * 10 + number as u64).build().unwrap();
        (0..2).map(move |task| (redlock.clone(), number as u64 * 2 + task))
    });
    let contenders = contenders.map(|(redlock, number)| {
        // The wrong recipe: clients that believe in one permit more.
        let permits = permits + u32::from(!is_ours);
        let rng = StdRng::seed_from_u64(seed * 100 + number);
        contend(redlock, permits, rng, holds.clone())
    });
    let contenders = join_all(contenders);
    let judge = async {
        while masters.clock().now().as_nanos() < LENGTH.as_nanos() as u64 {
            let held = holds.lock().unwrap().iter().filter(|hold| hold.is_held()).count();
            ensure!(held <= permits as usize, "{held} holders at {:?}", masters.clock().now());
            sleep(ms(1)).await;
        }
        Ok(())
    };
    let nemesis = Nemesis::new(seed).at_most(2).delay_max(NODE_TIMEOUT);
    tokio::select! {
        judged = async { tokio::join!(judge, nemesis.run(&clients, LENGTH)).0 } => judged?,
        _ = contenders => {}
    }
    let count = holds.lock().unwrap().len();
    Ok(count)
}

async fn contend(redlock: Redlock, permits: u32, mut rng: StdRng, holds: Arc<Mutex<Vec<Hold>>>) {
    let semaphore = redlock.semaphore(NAME, permits);
    loop {
        let count = rng.random_range(1..=permits.min(2));
        let request = semaphore.acquire_many(count).wait(ms(2_000));
        let outcome = match count {
            1 => semaphore.acquire().wait(ms(2_000)).await.map(|permit| vec![permit]),
            _ => request.await.map(|permits| permits.into_iter().collect()),
        };
        if let Ok(held) = outcome {
            holds.lock().unwrap().extend(held.iter().map(|permit| permit.hold()));
            sleep(ms(rng.random_range(0..400))).await;
            drop(held);
        }
        sleep(ms(rng.random_range(0..200))).await;
    }
}

#[test]
fn never_more_holders_than_permits() {
    let test = "never_more_holders_than_permits";
    seeds::each(test, 0..20, |seed| async move {
        let held = campaign(seed, 1 + seed as u32 % 3, true).await?;
        ensure!(held > 10, "{held} permits");
        Ok(())
    });
    let wrong = |seed: &u64| seeds::simulate(campaign(*seed, 2, false)).is_err();
    let caught = (0..10).filter(wrong).count();
    assert!(caught > 5, "one permit too many was caught in {caught} of 10 campaigns");
}
