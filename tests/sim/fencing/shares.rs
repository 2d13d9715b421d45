//! Shares of clients whose clocks are apart: refused ballots keep none from its turn.

use std::time::Duration;

use futures::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redlock_core::{Clock, Member};
use redlock_quorum::Redlock;
use tokio::time::sleep;

use super::tokens::{HOUR, token};
use crate::arena::{RESOURCE, TTL, admitted, handle, ms};
use crate::seeds;

// No contender starves.

/// Returns how many locks each client got in this time. Each knows the masters' clocks as of its
/// connection.
async fn shares(steps: &[i64], resources: &[&str], length: Duration) -> Vec<usize> {
    let masters = admitted(5, 1);
    let mut clients = Vec::new();
    for (nth, step) in steps.iter().enumerate() {
        let client = masters.another_client();
        for master in client.iter() {
            master.delay(ms(0)..=ms(1), ms(0)..=ms(1));
        }
        let redlock = handle(&client).seed(nth as u64).build().unwrap();
        // It is connected from here on.
        token(&redlock, &format!("own:{nth}")).await;
        masters.iter().for_each(|master| master.step_clock(*step));
        clients.push(redlock);
    }
    let clock = masters.clock();
    let until = clock.now().saturating_add(length);
    let work = clients.iter().enumerate().map(|(nth, redlock)| {
        let (clock, resource) = (clock.clone(), resources[nth % resources.len()].to_owned());
        contend(redlock.clone(), resource, clock, until, StdRng::seed_from_u64(nth as u64))
    });
    join_all(work).await
}

async fn contend(
    redlock: Redlock,
    resource: String,
    clock: Clock,
    until: redlock_core::Instant,
    mut rng: StdRng,
) -> usize {
    let mut got = 0;
    while clock.now() < until {
        if let Ok(guard) = redlock.lock(resource.clone()).wait(TTL * 10).await {
            got += 1;
            sleep(ms(rng.random_range(1..5))).await;
            let _ = guard.release().await;
        }
        sleep(ms(rng.random_range(0..5))).await;
    }
    got
}

fn assert_fair(shares: &[usize]) {
    let mean = shares.iter().sum::<usize>() / shares.len();
    let least = shares.iter().min().unwrap();
    assert!(least * 2 >= mean && mean > 10, "{least} of {mean}: {shares:?}");
}

#[test]
fn contender_an_hour_behind_gets_its_share() {
    let steps = [HOUR, 0, 0, 0, 0, 0, 0, 0];
    let shares = seeds::simulate(shares(&steps, &[RESOURCE], Duration::from_secs(15)));
    assert_fair(&shares);
}

#[test]
fn thirty_contenders_with_different_clocks_get_their_shares() {
    let shares = seeds::simulate(shares(&[1_000; 30], &[RESOURCE], Duration::from_secs(25)));
    assert_fair(&shares);
}

#[test]
fn resources_sharing_a_member_do_not_starve_each_other() {
    let member = Member::of(RESOURCE.as_bytes());
    let twin = (0..).map(|nth| format!("twin:{nth}"));
    let twin = twin.into_iter().find(|name| Member::of(name.as_bytes()) == member).unwrap();
    let steps = [HOUR, 0, 0, 0, 0, 0, 0, 0];
    let resources = [RESOURCE, twin.as_str()];
    let shares = seeds::simulate(shares(&steps, &resources, Duration::from_secs(15)));
    assert_fair(&shares);
}
