//! Masters whose wall clocks are an hour apart, or are stepped. Needs `cc`.

use std::sync::Arc;

use redlock_quorum::Redlock;
use redlock_testkit::RedisServer;
use tokio::task::JoinSet;

use super::{KEY, LENGTH, Tape, newcomer};
use crate::admission::clocks::{HOUR, Lab};
use crate::admission::handle_on;
use crate::lab::{in_time, ms, secs};

/// Nothing listens there.
const DEAD: &str = "redis://127.0.0.1:1";

/// The handle of the lock has read other clocks than a new handle.
async fn are_in_order(lab: &Lab, tape: &Tape) {
    tape.visit(&lab.redlock).await;
    tape.visit(&newcomer(&lab.servers)).await;
    tape.visit(&lab.redlock).await;
}

#[tokio::test]
async fn tokens_are_in_order_with_clocks_an_hour_apart() {
    for ahead in [[0, HOUR, -HOUR], [HOUR, HOUR, -HOUR], [-HOUR, -HOUR, HOUR]] {
        let (lab, tape) = (Lab::with(ahead).await, Tape::default());
        are_in_order(&lab, &tape).await;
        // Each newcomer reads two clocks of three, and so another median.
        for dead in 0..3 {
            let mut urls: Vec<String> = lab.servers.iter().map(RedisServer::url).collect();
            urls[dead] = DEAD.to_owned();
            let redlock = handle_on(urls).build().unwrap();
            tape.visit(&redlock).await;
        }
    }
}

#[tokio::test]
async fn tokens_are_in_order_while_clocks_jump_under_a_held_lock() {
    let (lab, tape) = (Lab::new().await, Tape::default());
    let jumps = [[HOUR, 0, 0], [HOUR; 3], [0, HOUR, -HOUR], [-HOUR; 3], [0, -HOUR, HOUR], [0; 3]];
    for jump in jumps {
        let guard = tape.lock(&lab.redlock).await.unwrap();
        let held = guard.hold();
        for (place, ahead) in jump.into_iter().enumerate() {
            lab.set_ahead(place, ahead);
        }
        // Masters that jump an hour ahead let every key expire.
        let _ = in_time(guard.extend(secs(2))).await;
        drop((guard, held));
        are_in_order(&lab, &tape).await;
    }
}

/// Every clock goes back by an hour, so that all scores are ahead of what a newcomer takes for now.
#[tokio::test]
async fn only_one_lock_needs_a_second_ballot_after_clocks_jump_back() {
    let (lab, tape) = (Lab::new().await, Tape::default());
    let all = |ahead| (0..3).for_each(|place| lab.set_ahead(place, ahead));
    all(HOUR);
    tape.visit(&newcomer(&lab.servers)).await;
    all(0);
    let redlock = newcomer(&lab.servers);
    tape.visit(&redlock).await;
    let stats = redlock.stats();
    assert!((1..=2).contains(&stats.second_ballots), "{stats:?}");
    for key in 0..20 {
        let guard = redlock.lock(format!("another:{key}")).await.unwrap();
        let token = guard.fencing_token().unwrap();
        let behind = tape.last().saturating_sub(token.get());
        assert!(behind < 60_000_000, "the lead applies to all resources: {behind} us behind");
        in_time(guard.release()).await.unwrap();
        tape.visit(&redlock).await;
    }
    assert_eq!(redlock.stats().second_ballots, stats.second_ballots);
}

async fn contend(redlock: Redlock, tape: Arc<Tape>) {
    for _ in 0..10 {
        tape.visit(&redlock).await;
        tokio::time::sleep(ms(rand::random_range(0..10))).await;
    }
}

/// One handle each connected while the clocks were an hour behind, right, and an hour ahead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contenders_with_clocks_two_hours_apart_get_ordered_tokens() {
    let (lab, tape) = (Lab::new().await, Arc::new(Tape::default()));
    let mut handles = Vec::new();
    for ahead in [-HOUR, HOUR, 0] {
        (0..3).for_each(|place| lab.set_ahead(place, ahead));
        handles.push(newcomer(&lab.servers));
        tape.visit(&handles[handles.len() - 1]).await;
    }
    let mut contenders = JoinSet::new();
    for redlock in handles {
        contenders.spawn(contend(redlock, tape.clone()));
    }
    in_time(contenders.join_all()).await;
}

/// Only its floor shows the ballot that it accepted and forgot. The only other master with that
/// ballot is dead, and no clock is ahead of it.
#[tokio::test]
async fn readmitted_master_has_a_floor_above_its_lost_ballots() {
    let (lab, tape) = (Lab::new().await, Tape::default());
    (0..3).for_each(|place| lab.set_ahead(place, HOUR));
    let two = [lab.servers[0].url(), lab.servers[1].url(), DEAD.to_owned()];
    let redlock = handle_on(two).build().unwrap();
    tape.visit(&redlock).await;
    redlock.shutdown(ms(500)).await.unwrap();
    (0..3).for_each(|place| lab.set_ahead(place, 0));
    let begun = std::time::Instant::now();
    lab.restart_empty(0);
    // A handle starts a quarantine when it requests a lock.
    lab.redlock.lock("another").await.unwrap().release().await.unwrap();
    super::until(&lab.redlock, 0, redlock_quorum::Standing::Admitted).await;
    assert!(begun.elapsed() >= LENGTH, "{:?}", begun.elapsed());
    lab.servers[1].kill();
    tape.visit(&newcomer(&lab.servers)).await;
    let member = redlock_core::Member::of(KEY.as_bytes()).number().to_string();
    let set = super::complete(&lab.servers[0]);
    let score: u64 = crate::lab::text(&lab.servers[0], &["ZSCORE", &set, &member]);
    assert_eq!(score, tape.last() + 31);
}
