//! Futures that are dropped wherever they may be dropped: no key of ours is left.

use std::future::{pending, poll_fn};
use std::task::Poll;
use std::time::Duration;

use redlock_quorum::Redlock;
use redlock_testkit::{Direction, RedisServer};
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::lab::{
    again, calls, eventually, hasty, in_time, masters, ms, no_key_is_left, patient, secs, urls_of,
    value, warm_up,
};

/// How many turns a future is given at most: more than it takes on healthy masters.
const TURNS: usize = 40;

/// The next number of turns: each up to [`TURNS`], and beyond that ever more while none was enough,
/// because a busy machine takes its time.
fn more_turns(turns: usize, were_enough: bool) -> Option<usize> {
    const TURNS_MAX: usize = 1 << 20;
    match turns {
        0..TURNS => Some(turns + 1),
        _ if were_enough => None,
        _ => Some(turns * 2).filter(|turns| *turns < TURNS_MAX),
    }
}

/// Polls a future in so many turns of the runtime, and then drops it, whatever it is at.
async fn dropped_after<F: IntoFuture>(turns: usize, future: F) -> Option<F::Output> {
    let mut future = Box::pin(future.into_future());
    for _ in 0..turns {
        let polled = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
        if let Poll::Ready(output) = polled {
            return Some(output);
        }
        yield_now().await;
    }
    None
}

/// The same for every number of turns, one future each.
async fn dropped_everywhere<F: IntoFuture>(mut future: impl FnMut(usize) -> F) {
    for turns in 0..TURNS {
        let _ = dropped_after(turns, future(turns)).await;
    }
}

/// The same with a driver on a separate thread, which does not wait for turns of this one.
async fn acquire_is_dropped_at_any_time(redlock: &Redlock) {
    for waited in 0..20 {
        let request = redlock.lock(format!("dropped:{waited}")).into_future();
        drop(timeout(waited * Duration::from_micros(500), request).await);
    }
}

async fn acquire_is_dropped_everywhere(redlock: &Redlock) {
    dropped_everywhere(|turns| redlock.lock(format!("dropped:{turns}"))).await;
}

fn sets(servers: &[RedisServer]) -> u64 {
    servers.iter().filter(|server| !server.is_paused()).map(|server| calls(server, "set")).sum()
}

#[tokio::test]
async fn an_acquire_dropped_anywhere_leaves_no_key() {
    let servers = masters();
    let redlock = patient(servers.urls()).build().unwrap();
    // The first of them are dropped while the connections are being made.
    acquire_is_dropped_everywhere(&redlock).await;
    warm_up(&redlock, &servers).await;
    acquire_is_dropped_everywhere(&redlock).await;
    no_key_is_left(&servers).await;
    assert!(sets(&servers) > 5 * 10, "nothing was dropped on its way");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_dropped_before_its_requests_arrive_leaves_no_key() {
    let servers = masters();
    let proxies = servers.proxied().await.unwrap();
    let redlock = hasty(urls_of(&proxies)).build().unwrap();
    warm_up(&redlock, &servers).await;
    let before = sets(&servers);
    proxies[1..4].iter().for_each(|proxy| proxy.hold(Direction::ToServer));
    acquire_is_dropped_at_any_time(&redlock).await;
    eventually("two masters are asked", || sets(&servers) >= before + 2).await;
    proxies.iter().for_each(|proxy| proxy.heal());
    eventually("all were asked in the end", || sets(&servers) >= before + 5).await;
    no_key_is_left(&servers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_dropped_before_its_answers_arrive_leaves_no_key() {
    let servers = masters();
    let proxies = servers.proxied().await.unwrap();
    let redlock = hasty(urls_of(&proxies)).build().unwrap();
    warm_up(&redlock, &servers).await;
    let before = sets(&servers);
    proxies[1..4].iter().for_each(|proxy| proxy.hold(Direction::ToClient));
    acquire_is_dropped_at_any_time(&redlock).await;
    eventually("all are asked", || sets(&servers) >= before + 5).await;
    proxies.iter().for_each(|proxy| proxy.heal());
    no_key_is_left(&servers).await;
}

#[tokio::test]
async fn an_acquire_dropped_while_masters_are_silent_leaves_no_key() {
    let servers = masters();
    let redlock = hasty(servers.urls()).build().unwrap();
    warm_up(&redlock, &servers).await;
    servers[..3].iter().for_each(|server| server.pause().unwrap());
    acquire_is_dropped_everywhere(&redlock).await;
    assert!(sets(&servers) > 2, "nothing was requested");
    servers[..3].iter().for_each(|server| server.resume().unwrap());
    no_key_is_left(&servers).await;
}

#[tokio::test]
async fn acquire_dropped_while_waiting_leaves_no_key() {
    let servers = masters();
    let redlock = patient(servers.urls()).build().unwrap();
    warm_up(&redlock, &servers).await;
    servers[..3].iter().for_each(|server| {
        server.command(&["SET", "contended", "a stranger"]).unwrap();
    });
    for waited in (0..40).step_by(2) {
        let request = redlock.lock("contended").into_future();
        assert!(timeout(ms(waited), request).await.is_err(), "it is not free");
    }
    // A key with known contention is requested by entering the queue.
    let entries: u64 = servers.iter().map(|server| calls(server, "zadd")).sum();
    assert!(sets(&servers) + entries > 20, "nothing was requested");
    eventually("only the stranger is left", || {
        let held = |server| value(server, "contended");
        servers[..3].iter().all(|server| held(server).as_deref() == Some("a stranger"))
            && servers[3..].iter().all(|server| held(server).is_none())
    })
    .await;
}

#[tokio::test]
async fn release_dropped_anywhere_continues() {
    let servers = masters();
    let redlock = patient(servers.urls()).build().unwrap();
    warm_up(&redlock, &servers).await;
    let (mut next, mut ended) = (Some(0), 0);
    while let Some(turns) = next {
        let guard = redlock.lock(format!("released:{turns}")).await.unwrap();
        ended += usize::from(dropped_after(turns, guard.release()).await.is_some());
        next = more_turns(turns, ended > 0);
    }
    assert!(ended > 0, "each was dropped before its end");
    no_key_is_left(&servers).await;
}

#[tokio::test]
async fn extension_dropped_anywhere_is_harmless() {
    let servers = masters();
    let redlock = patient(servers.urls()).build().unwrap();
    let guard = redlock.lock("extended").await.unwrap();
    let (mut next, mut ended) = (Some(0), 0);
    while let Some(turns) = next {
        ended += usize::from(dropped_after(turns, guard.extend(secs(40))).await.is_some());
        next = more_turns(turns, ended > 0);
    }
    assert!(ended > 0, "each was dropped before its end");
    guard.check().unwrap();
    eventually("an extension that was sent counts", || guard.remaining() > secs(35)).await;
    drop(guard);
    no_key_is_left(&servers).await;
}

#[tokio::test]
async fn run_dropped_anywhere_leaves_no_key() {
    let servers = masters();
    let redlock = patient(servers.urls()).build().unwrap();
    warm_up(&redlock, &servers).await;
    let (mut next, mut begun) = (Some(0), 0);
    while let Some(turns) = next {
        let work = redlock.lock(format!("work:{turns}")).run(|_| {
            begun += 1;
            pending::<()>()
        });
        assert!(dropped_after(turns, work).await.is_none());
        next = more_turns(turns, begun > 0);
    }
    assert!(begun > 0, "each was dropped before its work was begun");
    no_key_is_left(&servers).await;
}

/// The lease stays with its holder, on every master, and can be released.
#[tokio::test]
async fn resume_dropped_anywhere_leaves_the_lease() {
    let servers = masters();
    let redlock = patient(servers.urls()).build().unwrap();
    warm_up(&redlock, &servers).await;
    let (mut next, mut ended) = (Some(0), 0);
    while let Some(turns) = next {
        let lease = redlock.lock(format!("resumed:{turns}")).await.unwrap().into_lease();
        let resumed = dropped_after(turns, redlock.resume(again(&lease))).await;
        if let Some(resumed) = resumed {
            resumed.unwrap().forget();
            ended += 1;
        }
        assert_eq!(in_time(redlock.release(lease)).await, Ok(()), "after {turns} turns");
        next = more_turns(turns, ended > 0);
    }
    assert!(ended > 0, "each was dropped before its end");
    no_key_is_left(&servers).await;
}
