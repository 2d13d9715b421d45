//! Permits: at most so many holders of one name.

use std::collections::BTreeSet;
use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::ensure;
use futures::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redlock_quorum::{AcquireError, Hold, InvalidRequest, Permit, Redlock, Semaphore, State};
use redlock_testkit::{Nemesis, SimNodes};
use tokio::time::{sleep, timeout};

use crate::arena::{
    NODE_TIMEOUT, TTL, acquires, admitted, drop_after, handle, masters, ms, partition, requests,
    trusting_handle, until_free,
};
use crate::seeds;

const NAME: &str = "backups";

/// A process of its own.
fn process(masters: &SimNodes) -> Redlock {
    handle(&masters.another_client()).build().unwrap()
}

async fn permit(semaphore: &Semaphore) -> Permit {
    timeout(TTL * 4, semaphore.acquire().into_future()).await.expect("soon").unwrap()
}

#[tokio::test(start_paused = true)]
async fn there_are_so_many_permits_and_each_has_its_slot() {
    let (masters, redlock) = masters(5);
    let semaphore = redlock.semaphore(NAME, 3);
    let permits = [permit(&semaphore).await, permit(&semaphore).await, permit(&semaphore).await];
    let slots: BTreeSet<u32> = permits.iter().map(Permit::slot).collect();
    assert_eq!(slots, BTreeSet::from([0, 1, 2]));
    for permit in &permits {
        assert_eq!(permit.resource().to_string(), format!("{NAME}#{}", permit.slot()));
        assert!(permit.fencing_token().is_some() && permit.is_held());
    }
    let other = process(&masters);
    for refused in [
        semaphore.try_acquire().await.unwrap_err(),
        other.semaphore(NAME, 3).acquire().wait(ms(300)).await.unwrap_err(),
    ] {
        assert!(
            matches!(&refused, AcquireError::Held { resource, .. } if *resource == NAME.into())
        );
    }
    // A larger number applies.
    let fourth = other.semaphore(NAME, 4).acquire().await.unwrap();
    assert_eq!(fourth.slot(), 3);
    drop((permits, fourth));
    until_free(&masters, TTL * 2).await;
}

/// How many requests ten rounds send.
async fn cost(masters: &SimNodes, round: impl AsyncFn()) -> usize {
    round().await;
    sleep(NODE_TIMEOUT).await;
    let before = requests(masters);
    for _ in 0..10 {
        round().await;
        sleep(NODE_TIMEOUT).await;
    }
    requests(masters) - before
}

#[tokio::test(start_paused = true)]
async fn a_single_caller_sends_what_a_lock_sends() {
    let (masters, redlock) = masters(5);
    let semaphore = redlock.semaphore(NAME, 3);
    let permits = cost(&masters, async || {
        semaphore.acquire().await.unwrap().release().await.unwrap();
    });
    let permits = permits.await;
    let locks = cost(&masters, async || {
        redlock.lock("one").await.unwrap().release().await.unwrap();
    });
    assert_eq!(permits, locks.await);
}

#[tokio::test(start_paused = true)]
async fn requests_out_of_range_are_refused_before_anything_is_sent() {
    let (masters, redlock) = masters(3);
    for permits in [0, 65] {
        let refused = redlock.semaphore(NAME, permits).acquire().await.unwrap_err();
        assert!(matches!(refused, AcquireError::Invalid(InvalidRequest::Permits { .. })));
    }
    for count in [0, 4] {
        let refused = redlock.semaphore(NAME, 3).acquire_many(count).await.unwrap_err();
        assert!(matches!(refused, AcquireError::Invalid(InvalidRequest::PermitCount { .. })));
    }
    for name in [String::new(), "n".repeat(508)] {
        let refused = redlock.semaphore(name, 3).acquire().await.unwrap_err();
        assert!(matches!(refused, AcquireError::Invalid(InvalidRequest::Resource(_))), "{refused}");
    }
    assert_eq!(requests(&masters), 0);
    let longest = redlock.semaphore("n".repeat(507), 64);
    longest.acquire_many(64).await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn several_permits_are_acquired_together_or_not_at_all() {
    let (masters, redlock) = masters(5);
    let semaphore = redlock.semaphore(NAME, 4);
    let one = permit(&semaphore).await;
    let three = semaphore.acquire_many(3).await.unwrap();
    assert_eq!(three.iter().count(), 3);
    assert!(!three.slots().contains(&one.slot()) && three.is_held());
    let refused = semaphore.acquire_many(2).wait(TTL * 2).await.unwrap_err();
    assert!(matches!(refused, AcquireError::Held { .. }), "{refused}");
    one.release().await.unwrap();
    let refused = semaphore.acquire_many(2).wait(TTL * 2).await.unwrap_err();
    assert!(matches!(refused, AcquireError::Held { .. }), "{refused}");
    let one = permit(&semaphore).await;
    for permit in three {
        permit.release().await.unwrap();
    }
    assert!(one.is_held());
    one.release().await.unwrap();
    until_free(&masters, TTL * 2).await;
    let sum = semaphore.acquire_many(4).run(|set| async move { set.iter().count() });
    assert_eq!(sum.await.unwrap(), 4);
    let failed = semaphore.acquire().try_run(|_| async { Err::<(), _>(anyhow::anyhow!("full")) });
    assert_eq!(failed.await.unwrap_err().to_string(), "full");
    until_free(&masters, TTL * 2).await;
}

#[tokio::test(start_paused = true)]
async fn callers_that_collect_several_never_wait_for_each_other_forever() {
    let (masters, _) = masters(5);
    let clients: Vec<_> = (0..4).map(|_| process(&masters)).collect();
    let calls = clients.iter().map(|redlock| async move {
        for _ in 0..10 {
            let permits = redlock.semaphore(NAME, 3).acquire_many(2).wait_forever().await.unwrap();
            sleep(ms(20)).await;
            permits.check().unwrap();
            permits.release().await.unwrap();
        }
    });
    timeout(ms(60_000), join_all(calls)).await.expect("all are served");
    until_free(&masters, TTL * 2).await;
}

#[tokio::test(start_paused = true)]
async fn waiters_of_all_processes_are_served_in_order_of_arrival() {
    let masters = admitted(5, 0);
    let held = process(&masters).semaphore(NAME, 2).acquire_many(2).await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let waiters = (0..6).map(|number| {
        let (redlock, order) = (process(&masters), order.clone());
        async move {
            sleep(ms(100 * number)).await;
            let permit = redlock.semaphore(NAME, 2).acquire().wait_forever().await.unwrap();
            order.lock().unwrap().push(number);
            sleep(ms(200)).await;
            permit.release().await.unwrap();
        }
    });
    let free = async {
        sleep(ms(900)).await;
        held.release().await.unwrap();
    };
    timeout(ms(20_000), async { tokio::join!(join_all(waiters), free) }).await.expect("served");
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
}

#[tokio::test(start_paused = true)]
async fn processes_that_contend_all_the_time_get_equal_shares() {
    const LENGTH: Duration = ms(20_000);
    let masters = admitted(5, 0);
    masters.iter().for_each(|master| master.delay(ms(0)..=ms(1), ms(0)..=ms(1)));
    let clients = (0..8).map(|_| {
        let semaphore = process(&masters).semaphore(NAME, 2);
        let clock = masters.clock();
        async move {
            let mut served = 0_u32;
            while clock.now().as_nanos() < LENGTH.as_nanos() as u64 {
                let permit = semaphore.acquire().wait_forever().await.unwrap();
                served += 1;
                sleep(ms(20)).await;
                permit.release().await.unwrap();
            }
            served
        }
    });
    let served = join_all(clients).await;
    let mean = f64::from(served.iter().sum::<u32>()) / served.len() as f64;
    let least = served.iter().copied().min().map_or(0.0, f64::from);
    assert!(least >= mean * 0.9, "{served:?}");
    assert!(mean > 100.0, "{served:?}");
}

#[tokio::test(start_paused = true)]
async fn status_names_the_holders_and_counts_the_waiters() {
    let (masters, redlock) = masters(5);
    let semaphore = redlock.semaphore(NAME, 2);
    let held = semaphore.acquire_many(2).await.unwrap();
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let redlock = process(&masters);
            tokio::spawn(redlock.semaphore(NAME, 2).acquire().wait_forever().into_future())
        })
        .collect();
    sleep(ms(500)).await;
    let status = semaphore.status().await;
    assert_eq!(status.waiters, 3);
    for (slot, guard) in status.slots.iter().zip(held.iter()) {
        let State::Held { token, .. } = &slot.state else { panic!("{slot}") };
        assert_eq!(token, guard.token().as_str());
    }
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn a_holder_a_waiter_or_a_collector_that_dies_delays_the_others_by_one_ttl() {
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

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_at_any_poll_leaves_nothing_and_lets_the_others_in() {
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
async fn a_future_that_is_no_longer_polled_blocks_the_others_for_at_most_one_ttl() {
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
fn there_are_never_more_holders_than_permits_and_one_more_is_caught() {
    let test = "there_are_never_more_holders_than_permits_and_one_more_is_caught";
    seeds::each(test, 0..20, |seed| async move {
        let held = campaign(seed, 1 + seed as u32 % 3, true).await?;
        ensure!(held > 10, "{held} permits");
        Ok(())
    });
    let wrong = |seed: &u64| seeds::simulate(campaign(*seed, 2, false)).is_err();
    let caught = (0..10).filter(wrong).count();
    assert!(caught > 5, "one permit too many was caught in {caught} of 10 campaigns");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_was_refused_goes_to_the_gate_first_for_a_second() {
    let (masters, redlock) = masters(5);
    let semaphore = redlock.semaphore(NAME, 1);
    let held = permit(&semaphore).await;
    semaphore.try_acquire().await.unwrap_err();
    held.release().await.unwrap();
    let tokens = || acquires(&masters[0]).len();
    let (before, again) = (tokens(), permit(&semaphore).await);
    assert_eq!(tokens() - before, 2, "the gate and the slot");
    again.release().await.unwrap();
    sleep(ms(1_100)).await;
    let (before, again) = (tokens(), permit(&semaphore).await);
    assert_eq!(tokens() - before, 1, "the slot");
    drop(again);
}
