//! Waiters on real servers: what wakes them, and what a wait costs.

mod broken_queues;
mod crowds;
mod hand_over;
mod kept_futures;
mod load;
mod long_holds;
mod lost_rights;
mod no_quorum;
mod queues;

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use redlock_core::Token;
use redlock_quorum::Redlock;
use redlock_testkit::lab::{NO_TRACKING_RIGHTS, Paused, put};
use redlock_testkit::{RedisServer, RedisServers, ServerOptions};
use tokio::task::JoinHandle;

use crate::exclusion::interop::COMPARE_AND_DELETE;
use crate::lab::{
    calls, eventually, everywhere, in_time, masters, ms, no_key_is_left, patient, text, urls_of,
    warm_up,
};

/// The first waiter looks again after no less than this. A waiter served sooner was woken by
/// something else.
pub(crate) const POLL_EVERY: Duration = ms(750);
/// The number of repetitions of a test that a stalled machine may disturb once.
pub(crate) const ROUNDS: usize = 5;

/// A holder and a waiter, as two processes would be.
pub(crate) async fn two(servers: &RedisServers) -> (Redlock, Redlock) {
    let holder = patient(servers.urls()).build().unwrap();
    let waiter = patient(servers.urls()).build().unwrap();
    warm_up(&holder, servers).await;
    warm_up(&waiter, servers).await;
    (holder, waiter)
}

/// How many looks there were: each has the next change of a key reported. One more is in each
/// handshake.
pub(crate) fn watches(servers: &[RedisServer]) -> u64 {
    servers.iter().map(|server| calls(server, "client|caching")).sum()
}

/// How many requests there were for a key that may be free.
fn attempts(servers: &[RedisServer]) -> u64 {
    servers.iter().map(|server| calls(server, "set")).sum()
}

/// Returns the answering masters at which some key is watched.
fn meeting_points(servers: &[RedisServer]) -> Vec<usize> {
    let is_one = |server: &RedisServer| {
        let stats: String = text(server, &["INFO", "stats"]);
        !stats.contains("\r\ntracking_total_keys:0\r\n")
    };
    let awake = |server: &RedisServer| server.is_running() && !server.is_paused();
    (0..servers.len()).filter(|at| awake(&servers[*at]) && is_one(&servers[*at])).collect()
}

/// A caller that waits for `key`. It says when it got it, and gives it back.
pub(crate) fn wait(waiter: &Redlock, key: &str) -> JoinHandle<Instant> {
    let request = waiter.lock(key).wait_forever();
    tokio::spawn(async move {
        let guard = request.await.unwrap();
        let granted = Instant::now();
        guard.release().await.unwrap();
        granted
    })
}

/// The same, when it has been refused and looks.
async fn watch(waiter: &Redlock, servers: &[RedisServer], key: &str) -> JoinHandle<Instant> {
    let before = watches(servers);
    let waiting = wait(waiter, key);
    eventually("it looks", || watches(servers) > before).await;
    waiting
}

/// Waits until the caller has its lock, which `release` frees now. Returns how many looks that
/// took.
async fn watches_needed(
    servers: &[RedisServer],
    waiting: JoinHandle<Instant>,
    release: impl Future<Output = ()>,
) -> u64 {
    let before = watches(servers);
    release.await;
    in_time(waiting).await.unwrap();
    no_key_is_left(servers).await;
    watches(servers) - before
}

/// Checks that most rounds took this many looks. On a stalled machine, a look may coincide with the
/// release, or its answer may come too late.
fn assert_mostly(needed: &[u64], expected: RangeInclusive<u64>) {
    let count = needed.iter().filter(|watches| expected.contains(watches)).count();
    assert!(count * 2 > ROUNDS, "{expected:?} reads are needed, not {needed:?}");
}

#[tokio::test]
async fn release_wakes_a_waiter_of_another_handle() {
    let servers = masters();
    let (holder, waiter) = two(&servers).await;
    let mut needed = Vec::new();
    for _ in 0..ROUNDS {
        let guard = everywhere(&holder, "woken").await;
        let waiting = watch(&waiter, &servers, "woken").await;
        let release = async { guard.release().await.unwrap() };
        needed.push(watches_needed(&servers, waiting, release).await);
    }
    assert_mostly(&needed, 0..=0);
}

/// As redis-py's lock does it: `SET NX PX`, and a script that compares and deletes.
#[tokio::test]
async fn single_master_client_wakes_the_waiter() {
    let servers = RedisServers::start(1).unwrap();
    let (_, waiter) = two(&servers).await;
    let mut needed = Vec::new();
    for _ in 0..ROUNDS {
        put(&servers[0], "woken", "theirs", 20_000);
        let waiting = watch(&waiter, &servers, "woken").await;
        let release = async { delete(&servers[0], "woken", "theirs") };
        needed.push(watches_needed(&servers, waiting, release).await);
    }
    assert_mostly(&needed, 0..=0);
}

/// As redlock-py does it: the same on each of five, one after the other.
#[tokio::test]
async fn five_master_client_alternates_with_a_waiter() {
    let servers = masters();
    let (_, waiter) = two(&servers).await;
    for _ in 0..ROUNDS {
        let token = Token::random(None);
        servers.iter().for_each(|server| put(server, "shared", token.as_str(), 20_000));
        let waiting = watch(&waiter, &servers, "shared").await;
        servers.iter().for_each(|server| delete(server, "shared", token.as_str()));
        in_time(waiting).await.unwrap();
        no_key_is_left(&servers).await;
    }
}

fn delete(server: &RedisServer, key: &str, token: &str) {
    let deleted: i64 = text(server, &["EVAL", COMPARE_AND_DELETE, "1", key, token]);
    assert_eq!(deleted, 1);
}

#[tokio::test]
async fn held_lock_is_queried_less_and_less_often() {
    let servers = masters();
    let (holder, waiter) = two(&servers).await;
    let guard = everywhere(&holder, "held").await;
    let waiting = watch(&waiter, &servers, "held").await;
    let (tried, watched) = (attempts(&servers), watches(&servers));
    eventually("it looks again and again", || watches(&servers) >= watched + 3).await;
    // Each look also queries the other masters, so an orphan at the meeting point stops no client.
    let tried = attempts(&servers) - tried;
    assert!(tried <= 4 * 5, "{tried} attempts");
    assert_eq!(meeting_points(&servers).len(), 1, "one master is looked at");
    guard.release().await.unwrap();
    in_time(waiting).await.unwrap();
}

#[tokio::test]
async fn waiter_without_pushes_is_served_by_its_next_query() {
    let servers = masters();
    let proxies = servers.proxied().await.unwrap();
    let holder = patient(servers.urls()).build().unwrap();
    let waiter = patient(urls_of(&proxies)).build().unwrap();
    warm_up(&holder, &servers).await;
    warm_up(&waiter, &servers).await;
    proxies.iter().for_each(|proxy| proxy.drop_pushes());
    let mut needed = Vec::new();
    for _ in 0..ROUNDS {
        let guard = everywhere(&holder, "unheard").await;
        let waiting = watch(&waiter, &servers, "unheard").await;
        let release = async { guard.release().await.unwrap() };
        needed.push(watches_needed(&servers, waiting, release).await);
    }
    // One may have been under way at the release.
    assert_mostly(&needed, 0..=1);
}

#[tokio::test]
async fn forgotten_scripts_and_killed_connections_cost_only_time() {
    let servers = masters();
    let (holder, waiter) = two(&servers).await;
    let guard = everywhere(&holder, "disturbed").await;
    let waiting = watch(&waiter, &servers, "disturbed").await;
    for server in servers.iter() {
        server.command(&["SCRIPT", "FLUSH"]).unwrap();
        server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).unwrap();
    }
    guard.check().unwrap();
    eventually("it is held again", || guard.copies() == 5).await;
    // The keys that the killed connections could not release go with the new ones.
    let _ = in_time(guard.release()).await;
    in_time(waiting).await.unwrap();
    no_key_is_left(&servers).await;
}

/// Servers on which clients cannot have RESP3, and servers whose user has no right to track.
#[tokio::test]
async fn without_tracking_waiters_keep_retrying() {
    let old = ServerOptions::new().arguments(["--rename-command", "HELLO", ""]);
    for (options, rights) in [(old, &[][..]), (ServerOptions::new(), &NO_TRACKING_RIGHTS)] {
        let servers = RedisServers::with(3, &options).unwrap();
        for server in servers.iter() {
            server.command(&[&["ACL", "SETUSER", "default"], rights].concat()).unwrap();
        }
        let (holder, waiter) = two(&servers).await;
        let guard = everywhere(&holder, "polled").await;
        let (tried, watched) = (attempts(&servers), watches(&servers));
        let waiting = wait(&waiter, "polled");
        eventually("it tries several times", || attempts(&servers) > tried + 9).await;
        assert_eq!(watches(&servers), watched, "nothing would be reported");
        guard.release().await.unwrap();
        in_time(waiting).await.unwrap();
        no_key_is_left(&servers).await;
    }
}

/// The fate of the master that a waiter watches.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Killed,
    Restarted,
    Paused,
}

#[tokio::test]
async fn killed_restarted_or_paused_meeting_point_is_replaced() {
    for fate in [Fate::Killed, Fate::Restarted, Fate::Paused] {
        let servers = masters();
        let (holder, waiter) = two(&servers).await;
        let guard = everywhere(&holder, "moved").await;
        let waiting = watch(&waiter, &servers, "moved").await;
        let [at] = meeting_points(&servers)[..] else { panic!("one master is looked at") };
        let mut paused = None;
        match fate {
            Fate::Killed => servers[at].kill(),
            Fate::Restarted => servers[at].restart().unwrap(),
            Fate::Paused => paused = Some(Paused::new(&servers[at])),
        }
        eventually("it watches again", || !meeting_points(&servers).is_empty()).await;
        assert!(!waiting.is_finished(), "{fate:?}: it is held");
        guard.release().await.unwrap();
        in_time(waiting).await.unwrap();
        drop(paused);
        no_key_is_left(&servers).await;
    }
}
