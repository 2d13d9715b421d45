//! A lost lock: the masters prove the loss, and it is reported immediately.

use std::future::pending;

use redlock_quorum::{Ended, Guard, LostReason, RunError};
use redlock_testkit::RedisServer;
use tokio::time::timeout;

use crate::lab::{
    PATIENCE, everywhere, hasty, in_time, keys, masters, no_key_is_left, patient, secs, warm_up,
};

/// Three masters lose all data. The next extension of a lock of 30 s is ten seconds away.
fn lose_a_quorum(servers: &[RedisServer]) {
    servers[..3].iter().for_each(RedisServer::kill);
    servers[..3].iter().for_each(|server| server.restart_empty().unwrap());
}

async fn is_not_ours_any_more(guard: &Guard) {
    // Less than a third of the TTL, so that no extension can have found out.
    let ended = timeout(secs(8), guard.lost()).await.expect("it is reported at once");
    let Ended::Lost(lost) = ended else { panic!("it was not released") };
    assert_eq!(lost.reason, LostReason::DataLost);
    assert!(!guard.is_held());
}

#[tokio::test]
async fn three_emptied_masters_end_the_lock_immediately() {
    let servers = masters();
    let redlock = hasty(servers.urls()).build().unwrap();
    warm_up(&redlock, &servers).await;
    // A keeper would give the first master its key again before the second forgets.
    let guard = redlock.lock("lost").auto_extend(false).min_copies(5).await.unwrap();
    lose_a_quorum(&servers);
    is_not_ours_any_more(&guard).await;
    // Its remaining keys are still cleaned up.
    drop(guard);
    no_key_is_left(&servers).await;
}

#[tokio::test]
async fn two_emptied_masters_do_not_end_the_lock() {
    let servers = masters();
    let redlock = hasty(servers.urls()).ttl(secs(3)).build().unwrap();
    let guard = everywhere(&redlock, "kept").await;
    servers[..2].iter().for_each(RedisServer::kill);
    servers[..2].iter().for_each(|server| server.restart_empty().unwrap());
    crate::lab::eventually("they are given the key again", || {
        guard.check().unwrap();
        servers[..2].iter().all(|server| !keys(server).is_empty())
    })
    .await;
    guard.release().await.unwrap();
    no_key_is_left(&servers).await;
}

#[tokio::test]
async fn next_extension_ends_a_lock_taken_on_three_masters() {
    let servers = masters();
    let redlock = patient(servers.urls()).ttl(secs(15)).node_timeout(secs(1)).build().unwrap();
    let guard = everywhere(&redlock, "stolen").await;
    servers[..3].iter().for_each(|server| {
        server.command(&["SET", "stolen", "a stranger"]).unwrap();
    });
    // At the latest after a third of the TTL, and not when all of it is over.
    let ended = timeout(secs(11), guard.lost()).await.expect("it is reported early");
    let Ended::Lost(lost) = ended else { panic!("it was not released") };
    assert_eq!(lost.reason, LostReason::NotOurs);
}

#[tokio::test]
async fn the_loss_stops_the_work() {
    let servers = masters();
    let redlock = hasty(servers.urls()).build().unwrap();
    warm_up(&redlock, &servers).await;
    let request = redlock.lock("work").auto_extend(false).min_copies(5);
    let work = tokio::spawn(request.run(|_| pending::<()>()));
    crate::lab::eventually("it is held", || servers.iter().all(|server| !keys(server).is_empty()))
        .await;
    lose_a_quorum(&servers);
    let ended = timeout(PATIENCE, work).await.expect("the work is stopped").unwrap();
    let Err(RunError::Lost { lost, output: None }) = ended else { panic!("{ended:?}") };
    assert_eq!(lost.reason, LostReason::DataLost);
    in_time(no_key_is_left(&servers)).await;
}
