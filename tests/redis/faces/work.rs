//! `run`: work under a lock.

use redlock_quorum::{AcquireError, RunError};
use tokio::time::sleep;

use crate::lab::{keys, masters, ms, no_key_is_left, patient, secs};

#[tokio::test]
async fn run_returns_the_result_and_releases_the_lock() {
    let servers = masters();
    let redlock = patient(servers.urls()).build().unwrap();
    let seen = redlock
        .lock("work")
        .run(|hold| async move {
            hold.check().unwrap();
            (hold.is_held(), hold.remaining() > secs(20))
        })
        .await
        .unwrap();
    assert_eq!(seen, (true, true));
    no_key_is_left(&servers).await;
}

#[tokio::test]
async fn the_work_is_done_under_the_lock() {
    let servers = masters();
    let redlock = patient(servers.urls()).build().unwrap();
    let other = redlock.clone();
    let inside = redlock
        .lock("work")
        .min_copies(5)
        .run(|_| async move { other.try_lock("work").await.map(drop) })
        .await
        .unwrap();
    let Err(AcquireError::Held { .. }) = inside else { panic!("{inside:?}") };
    no_key_is_left(&servers).await;
}

#[tokio::test]
async fn work_that_fails_keeps_its_error() {
    let servers = masters();
    let redlock = patient(servers.urls()).build().unwrap();
    let failed = redlock.lock("work").run(|_| async { Err::<(), _>("out of paper") }).await;
    assert_eq!(failed.unwrap(), Err("out of paper"));
    no_key_is_left(&servers).await;
}

#[tokio::test]
async fn work_does_not_start_without_the_lock() {
    let servers = masters();
    let redlock = patient(servers.urls()).build().unwrap();
    servers.iter().for_each(|server| {
        server.command(&["SET", "work", "a stranger"]).unwrap();
    });
    let mut begun = false;
    let refused = redlock.lock("work").wait(ms(50)).run(|_| {
        begun = true;
        async {}
    });
    let refused = refused.await.unwrap_err();
    let RunError::Acquire(AcquireError::Held { .. }) = refused else { panic!("{refused}") };
    assert!(!begun);
}

#[tokio::test]
async fn work_that_panics_releases_the_lock() {
    let servers = masters();
    let redlock = patient(servers.urls()).build().unwrap();
    let request = redlock.lock("work").min_copies(5);
    let work = tokio::spawn(request.run(|_| async {
        sleep(ms(20)).await;
        panic!("on purpose: the test wants to see what becomes of the lock");
    }));
    assert!(work.await.unwrap_err().is_panic());
    no_key_is_left(&servers).await;
}

#[tokio::test]
async fn failed_release_keeps_the_result() {
    let servers = masters();
    let redlock = patient(servers.urls()).node_timeout(ms(300)).build().unwrap();
    let quorum = &servers[..3];
    let done = redlock
        .lock("work")
        .min_copies(5)
        .run(|_| async {
            quorum.iter().for_each(|server| server.pause().unwrap());
            "done"
        })
        .await
        .unwrap();
    assert_eq!(done, "done");
    assert!(quorum.iter().all(|server| server.is_paused()));
    quorum.iter().for_each(|server| server.resume().unwrap());
    no_key_is_left(&servers).await;
    assert!(servers.iter().all(|server| keys(server).is_empty()));
}
