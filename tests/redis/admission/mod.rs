//! Admission on real servers, end to end: what the driver, the wire and the scripts do together.

mod blind;
pub(crate) mod clocks;
mod comebacks;
mod forgetting;
mod identity;
mod lists;
mod mixing;
mod put_back;
mod scripts;
mod two_inits;
mod upgrade;
mod voteless;

use std::time::Duration;

use redlock_quorum::{
    AcquireError, Ended, Guard, Init, NodeReport, Quarantine, Redlock, RedlockBuilder, Standing,
};
use redlock_testkit::lab::{ScriptedServer, bulk};
use redlock_testkit::{Direction, FaultProxy, RedisServer, RedisServers, ServerOptions};
use tokio::time::{Instant, sleep};

use crate::lab::{calls, eventually, in_time, ms, ordinary, secs, text};

/// An operator's statement that no lock is held on any of the masters.
pub(crate) const AGAIN: Init = Init { again: true, floor: None, far_floor: false };

const RECORD: &str = "redlock-quorum:1";

/// The longest and usual TTL of a lock. A machine that is busy with other tests extends it in time.
pub(crate) const TTL: Duration = secs(4);
/// How long a quarantine takes, in which locks are held.
pub(crate) const LENGTH: Duration = ms(4_400);

/// Retries with a longer TTL until the lock outlives the changes to its masters, because otherwise
/// the test shows nothing. `shown` is `None` if it was too late.
pub(crate) async fn outlived<T>(shown: impl AsyncFn(Duration) -> Option<T>) -> T {
    for ttl in [TTL, TTL * 2, TTL * 4, TTL * 8] {
        if let Some(shown) = shown(ttl).await {
            return shown;
        }
    }
    panic!("it took too long each time: nothing is shown");
}

pub(crate) fn handle(servers: &RedisServers) -> RedlockBuilder {
    handle_on(servers.urls())
}

pub(crate) fn handle_on(urls: impl IntoIterator<Item = String>) -> RedlockBuilder {
    let builder = Redlock::builder().nodes(urls).quarantine(Quarantine::On);
    builder.max_ttl(TTL).ttl(TTL).node_timeout(ms(400))
}

pub(crate) async fn admitted(count: usize) -> (RedisServers, Redlock) {
    let servers = RedisServers::with(count, &ServerOptions::new().brand_new()).unwrap();
    let redlock = handle(&servers).build().unwrap();
    let report = redlock.init().await.unwrap();
    assert_eq!(report.admitted(), count, "{report:?}");
    (servers, redlock)
}

pub(crate) async fn full(redlock: &Redlock, servers: &RedisServers) -> Guard {
    let guard = redlock.lock("a").wait(secs(5)).min_copies(servers.len()).await.unwrap();
    eventually("all masters hold it", || guard.copies() == servers.len()).await;
    guard
}

pub(crate) fn field(server: &RedisServer, name: &str) -> Option<String> {
    text(server, &["HGET", RECORD, name])
}

pub(crate) fn run(server: &RedisServer, words: &[&str]) {
    server.command(words).unwrap();
}

/// Waits until the master at this position has the expected state, and returns its report. A
/// quarantine shows only after a record was read, so the script has removed the previous data.
pub(crate) async fn until(redlock: &Redlock, at: usize, wanted: Standing) -> NodeReport {
    let deadline = Instant::now() + secs(20);
    loop {
        let report = redlock.inspect().await.remove(at);
        if report.standing == wanted {
            return report;
        }
        assert!(Instant::now() < deadline, "{report:?}");
        sleep(ms(5)).await;
    }
}

#[tokio::test]
async fn new_masters_report_the_fix_and_wait_or_are_admitted() {
    let servers = RedisServers::with(3, &ServerOptions::new().brand_new()).unwrap();
    let redlock = handle(&servers).build().unwrap();
    let error = redlock.try_lock("a").await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    let text = error.to_string();
    for words in ["new, or lost its data, in quarantine; votes again in", "run `redlock init`"] {
        assert!(text.contains(words), "{words:?} in {text}");
    }
    assert!(error.retry_after().is_some_and(|wait| wait <= LENGTH + ms(10)));
    let guard = in_time(redlock.lock("a").wait(secs(10)).into_future()).await.unwrap();
    guard.release().await.unwrap();
    let (_servers, redlock) = admitted(3).await;
    redlock.try_lock("a").await.unwrap().release().await.unwrap();
    assert_eq!(redlock.init().await.unwrap().floor, None);
}

#[tokio::test]
async fn master_restarted_empty_votes_after_its_quarantine() {
    let (servers, redlock) = admitted(3).await;
    let guard = full(&redlock, &servers).await;
    servers[0].restart_empty().unwrap();
    let reports = async || redlock.inspect().await;
    let mut standing = Standing::Admitted;
    let begun = Instant::now();
    while standing != Standing::Quarantine {
        assert!(begun.elapsed() < secs(10), "{:?}", reports().await);
        standing = reports().await[0].standing;
    }
    assert!(guard.is_held());
    eventually("it votes again, and has a copy", || guard.copies() == 3).await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn only_a_flush_of_its_own_database_ends_a_lock() {
    let (servers, redlock) = admitted(3).await;
    let guard = full(&redlock, &servers).await;
    for server in servers.iter() {
        run(server, &["EVAL", "redis.call('SELECT', 7); return redis.call('FLUSHDB')", "0"]);
    }
    // Checks that nothing happens. Only waiting can show that.
    sleep(ms(500)).await;
    guard.check().unwrap();
    eventually("its copies count", || guard.copies() == 3).await;
    servers[..2].iter().for_each(|server| run(server, &["FLUSHALL"]));
    assert!(matches!(in_time(guard.lost()).await, Ended::Lost(_)));
}

#[tokio::test]
async fn handle_without_quarantine_refuses_only_prefixes_with_one() {
    let (servers, _) = admitted(3).await;
    let off = ordinary(servers.urls()).quarantine(Quarantine::Off);
    let error = off.clone().build().unwrap().try_lock("a").await.unwrap_err();
    assert!(
        error.to_string().contains("other clients use this prefix with a quarantine"),
        "{error}"
    );
    let elsewhere = off.prefix("elsewhere:").build().unwrap();
    elsewhere.try_lock("a").await.unwrap().release().await.unwrap();
}

/// No master answers before all requests of a round trip were sent.
#[tokio::test]
async fn first_lock_takes_two_round_trips_on_admitted_masters() {
    const RUN: &str = "0123456789abcdef0123456789abcdef01234567";
    let server = ScriptedServer::bind().await;
    let redlock = handle_on([server.url()]).build().unwrap();
    let locking = tokio::spawn(redlock.try_lock("a").into_future());
    let mut peer = server.accept().await;
    let facts = peer.facts(RUN, 1, "master").await;
    // The record, and what ballots and queues need.
    for word in ["HGETALL", "ZADD", "EVAL"] {
        peer.expect(word).await;
    }
    let set = ["set", "00000000000000aa 1", "names", "10.0.0.1:6379"];
    let record =
        ["run", RUN, "max_ttl", "4000"].into_iter().chain(set).map(bulk).collect::<String>();
    peer.say(format!("{facts}*8\r\n{record}:0\r\n:1\r\n")).await;
    peer.expect("ZCARD").await;
    let token = bulk(&peer.expect("SET").await[2]);
    for word in ["ZADD", "GET"] {
        peer.expect(word).await;
    }
    peer.say(format!(":1024\r\n+OK\r\n:1\r\n{token}")).await;
    in_time(locking).await.unwrap().unwrap().forget();
}

/// After a flush, the record is as empty as it was when `init` read it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn script_of_an_ended_init_does_nothing() {
    let server = RedisServer::with(&ServerOptions::new().brand_new()).unwrap();
    let proxy = FaultProxy::before(&server).await.unwrap();
    // Its scripts act for 3 s, and a quarantine takes 3.3 s.
    let handle =
        |url| handle_on([url]).max_ttl(secs(3)).ttl(secs(3)).connect_timeout(ms(1_500)).build();
    let (person, holder) = (handle(proxy.url()).unwrap(), handle(server.url()).unwrap());
    proxy.delay(Direction::ToServer, ms(700));
    let typed = tokio::spawn({
        let person = person.clone();
        async move { person.init().await }
    });
    eventually("init has read the record", || calls(&server, "zrevrangebyscore") > 0).await;
    proxy.hold(Direction::ToServer);
    let guard = in_time(holder.lock("a").wait(secs(15)).into_future()).await.unwrap();
    guard.forget();
    holder.shutdown(secs(1)).await.unwrap();
    in_time(typed).await.unwrap().ok();
    run(&server, &["FLUSHALL"]);
    let before = calls(&server, "eval");
    proxy.release(Direction::ToServer);
    eventually("its script arrives", || calls(&server, "eval") > before).await;
    assert_eq!(field(&server, "run"), None);
    assert_eq!(field(&server, "floor"), None);
}
