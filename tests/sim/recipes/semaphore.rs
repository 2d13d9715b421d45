//! Permits: at most so many holders of one name.

use std::collections::BTreeSet;
use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use redlock_quorum::{AcquireError, InvalidRequest, Permit, Redlock, Semaphore, State};
use redlock_testkit::SimNodes;
use tokio::time::{sleep, timeout};

use crate::arena::{
    NODE_TIMEOUT, TTL, acquires, admitted, handle, masters, ms, requests, until_free,
};

pub(super) const NAME: &str = "backups";

/// A process of its own.
pub(super) fn process(masters: &SimNodes) -> Redlock {
    handle(&masters.another_client()).build().unwrap()
}

async fn permit(semaphore: &Semaphore) -> Permit {
    timeout(TTL * 4, semaphore.acquire().into_future()).await.expect("soon").unwrap()
}

#[tokio::test(start_paused = true)]
async fn each_permit_has_its_own_slot() {
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
async fn single_caller_sends_as_much_as_a_lock() {
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

/// Only there does it learn of callers that wait. When it finds none, it requests one slot.
#[tokio::test(start_paused = true)]
async fn a_single_caller_goes_to_the_gate_with_every_17th_call() {
    let (masters, redlock) = masters(5);
    let semaphore = redlock.semaphore(NAME, 3);
    let tokens = || acquires(&masters[0]).len();
    let mut gates = Vec::new();
    for call in 0..40 {
        let before = tokens();
        permit(&semaphore).await.release().await.unwrap();
        match tokens() - before {
            1 => {}
            2 => gates.push(call),
            more => panic!("call {call} requested {more} locks"),
        }
        sleep(NODE_TIMEOUT).await;
    }
    assert_eq!(gates, [16, 33]);
}

#[tokio::test(start_paused = true)]
async fn requests_out_of_range_are_refused_before_anything_is_sent() {
    let (masters, redlock) = masters(3);
    for permits in [0, 65] {
        let semaphore = redlock.semaphore(NAME, permits);
        // The number of permits is the cause, also if no count would do.
        for refused in [
            semaphore.acquire().await.unwrap_err(),
            semaphore.acquire_many(0).await.unwrap_err(),
            semaphore.acquire_many(66).await.unwrap_err(),
        ] {
            assert!(matches!(refused, AcquireError::Invalid(InvalidRequest::Permits { .. })));
        }
    }
    for count in [0, 4] {
        let refused = redlock.semaphore(NAME, 3).acquire_many(count).await.unwrap_err();
        assert!(matches!(refused, AcquireError::Invalid(InvalidRequest::PermitCount { .. })));
    }
    for (name, reason) in [
        (String::new(), "the resource name is empty; it must have 1 to 512 bytes"),
        ("n".repeat(508), "the name of the semaphore has 508 bytes; the limit is 507"),
        ("n".repeat(513), "the name of the semaphore has 513 bytes; the limit is 507"),
    ] {
        let refused = redlock.semaphore(name, 3).acquire().await.unwrap_err();
        assert!(matches!(refused, AcquireError::Invalid(_)), "{refused}");
        assert!(refused.to_string().contains(reason), "{refused}");
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
async fn callers_collecting_several_permits_do_not_deadlock() {
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

/// The others wait for the gate, which is free again while its last holder has a permit.
#[tokio::test(start_paused = true)]
async fn at_most_one_waiter_watches_the_slots() {
    let (masters, redlock) = masters(5);
    let waiters: Vec<_> = (0..5)
        .map(|_| {
            let semaphore = process(&masters).semaphore(NAME, 2);
            tokio::spawn(async move {
                let permit = semaphore.acquire().wait_forever().await.unwrap();
                sleep(ms(700)).await;
                permit.release().await.unwrap();
            })
        })
        .collect();
    let mut most = [0; 3];
    while !waiters.iter().all(tokio::task::JoinHandle::is_finished) {
        for (most, lock) in most.iter_mut().zip(["#0", "#1", "#gate"]) {
            let status = redlock.status(format!("{NAME}{lock}")).await;
            *most = (*most).max(status.waiters);
        }
        sleep(ms(5)).await;
    }
    assert_eq!(most, [1, 1, 2], "clients that wait for the slots and the gate");
    let last = redlock.semaphore(NAME, 2).acquire().await.unwrap();
    assert_eq!(redlock.status(format!("{NAME}#gate")).await.state, State::Free);
    drop(last);
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
async fn status_has_the_holders_and_the_number_of_waiters() {
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

/// However long ago that was: the knowledge ends when the gate is found free.
#[tokio::test(start_paused = true)]
async fn caller_that_found_the_gate_held_queries_it_first() {
    let (masters, redlock) = masters(5);
    let semaphore = redlock.semaphore(NAME, 1);
    let held = permit(&semaphore).await;
    let other = process(&masters).semaphore(NAME, 1);
    let other = tokio::spawn(other.acquire().wait_forever().into_future());
    sleep(ms(300)).await;
    semaphore.try_acquire().await.unwrap_err();
    held.release().await.unwrap();
    drop(other.await.unwrap().unwrap());
    until_free(&masters, TTL * 2).await;
    sleep(ms(10_000)).await;
    let tokens = || acquires(&masters[0]).len();
    let (before, again) = (tokens(), permit(&semaphore).await);
    assert_eq!(tokens() - before, 2, "the gate and the slot");
    again.release().await.unwrap();
}
