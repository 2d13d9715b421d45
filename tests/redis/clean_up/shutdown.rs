//! The end of a handle: what it waits for, what it reports, and what becomes of its locks.

use redlock_quorum::{AcquireError, Ended, ExtendError, LostReason};
use redlock_testkit::{Direction, RedisServer};
use tokio::time::Instant;

use crate::lab::{
    eventually, everywhere, hasty, in_time, keys, masters, ms, no_key_is_left, patient, secs,
    urls_of, warm_up,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_waits_until_every_release_is_acknowledged() {
    let servers = masters();
    let proxies = servers.proxied().await.unwrap();
    let redlock = patient(urls_of(&proxies)).build().unwrap();
    let guard = everywhere(&redlock, "released").await;
    proxies.iter().for_each(|proxy| proxy.delay(Direction::ToServer, ms(300)));
    let start = Instant::now();
    drop(guard);
    in_time(redlock.shutdown(secs(10))).await.unwrap();
    assert!(start.elapsed() >= ms(300), "it cannot have been acknowledged yet");
    assert!(servers.iter().all(|server| keys(server).is_empty()));
}

#[tokio::test]
async fn shutdown_names_masters_that_may_keep_a_key_with_the_time() {
    let servers = masters();
    let redlock = hasty(servers.urls()).build().unwrap();
    let guard = everywhere(&redlock, "kept").await;
    servers[1].pause().unwrap();
    servers[4].pause().unwrap();
    guard.release().await.unwrap();
    let start = Instant::now();
    let unreleased = in_time(redlock.shutdown(ms(500))).await.unwrap_err();
    assert!(start.elapsed() >= ms(500), "it did not wait for them");
    let nodes: Vec<_> = unreleased.keys().iter().map(|key| key.node.clone()).collect();
    assert_eq!(nodes, [servers[1].name(), servers[4].name()]);
    for key in unreleased.keys() {
        assert_eq!(key.resource.as_bytes(), b"kept");
        assert!(secs(25) < key.within && key.within <= secs(33), "{:?}", key.within);
    }
    assert!(unreleased.to_string().contains(&servers[4].name()), "{unreleased}");
    servers[1].resume().unwrap();
    servers[4].resume().unwrap();
}

/// A shorter extension shortens nothing, so the longest one says until when a key may be left.
#[tokio::test]
async fn shutdown_reports_the_longest_expiry_of_a_key() {
    let servers = masters();
    let redlock = hasty(servers.urls()).build().unwrap();
    let guard = everywhere(&redlock, "long").await;
    guard.extend(secs(60)).await.unwrap();
    guard.extend(secs(10)).await.unwrap();
    servers[3].pause().unwrap();
    guard.release().await.unwrap();
    let unreleased = in_time(redlock.shutdown(ms(100))).await.unwrap_err();
    assert!(unreleased.keys()[0].within > secs(50), "{unreleased}");
    servers[3].resume().unwrap();
}

#[tokio::test]
async fn shutdown_waits_for_a_returning_master() {
    let servers = masters();
    let redlock = hasty(servers.urls()).build().unwrap();
    let guard = everywhere(&redlock, "kept").await;
    servers[2].pause().unwrap();
    guard.release().await.unwrap();
    let closing = tokio::spawn(redlock.shutdown(secs(20)));
    eventually("the others are done", || {
        servers.iter().all(|server| server.is_paused() || keys(server).is_empty())
    })
    .await;
    assert!(!closing.is_finished());
    servers[2].resume().unwrap();
    in_time(closing).await.unwrap().unwrap();
    assert!(keys(&servers[2]).is_empty());
}

#[tokio::test]
async fn shutdown_ends_held_locks_and_names_their_keys() {
    let servers = masters();
    let redlock = patient(servers.urls()).build().unwrap();
    let guard = everywhere(&redlock, "held").await;
    let lost = guard.lost();
    let unreleased = in_time(redlock.shutdown(secs(5))).await.unwrap_err();
    assert_eq!(unreleased.keys().len(), 5, "{unreleased}");
    let Ended::Lost(lost) = in_time(lost).await else { panic!("it was not released") };
    assert_eq!(lost.reason, LostReason::Shutdown);
    assert_eq!(guard.check().unwrap_err().reason, LostReason::Shutdown);
    let refused = guard.extend(secs(30)).await.unwrap_err();
    let ExtendError::Lost(_) = refused else { panic!("{refused}") };
    assert!(in_time(guard.release()).await.is_err(), "nothing remains that could release it");
    // The work under the lock may not have noticed yet.
    assert!(servers.iter().all(|server| !keys(server).is_empty()));
}

#[tokio::test]
async fn waiting_caller_gets_an_error_on_shutdown() {
    let servers = masters();
    let redlock = patient(servers.urls()).build().unwrap();
    warm_up(&redlock, &servers).await;
    let take = |server: &RedisServer| {
        server.command(&["SET", "contended", "a stranger"]).unwrap();
    };
    servers.iter().for_each(take);
    let before = crate::lab::calls(&servers[0], "set");
    let waiting = tokio::spawn(redlock.lock("contended").wait_forever().into_future());
    let asked = || crate::lab::calls(&servers[0], "set") > before;
    eventually("it is being asked for", asked).await;
    let clone = redlock.clone();
    in_time(redlock.shutdown(secs(5))).await.unwrap();
    let refused = in_time(waiting).await.unwrap().unwrap_err();
    let AcquireError::Shutdown = refused else { panic!("{refused}") };
    let refused = in_time(clone.lock("contended").into_future()).await.unwrap_err();
    let AcquireError::Shutdown = refused else { panic!("{refused}") };
}

#[tokio::test]
async fn unused_handle_shuts_down_immediately() {
    let redlock = patient(["redis://127.0.0.1:1".to_owned()]).build().unwrap();
    in_time(redlock.shutdown(secs(60))).await.unwrap();
}

#[tokio::test]
async fn dropped_handle_still_releases() {
    let servers = masters();
    let redlock = hasty(servers.urls()).build().unwrap();
    let guard = everywhere(&redlock, "released").await;
    servers[0].pause().unwrap();
    drop(guard);
    drop(redlock);
    eventually("the others are done", || servers[1..].iter().all(|server| keys(server).is_empty()))
        .await;
    servers[0].resume().unwrap();
    no_key_is_left(&servers).await;
}
