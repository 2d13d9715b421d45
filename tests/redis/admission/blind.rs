//! Servers that push nothing: a loss of data is seen by what is read, and by nothing else.

use std::time::Duration;

use redlock_quorum::{AcquireError, RedlockBuilder, Standing};
use redlock_testkit::{RedisServer, RedisServers};
use tokio::time::Instant;

use crate::admission::{admitted, field, handle, handle_on, run, until};
use redlock_testkit::lab::NO_TRACKING_RIGHTS;

use crate::lab::{eventually, in_time, secs};

/// How long the lock of the first holder is valid.
const HELD: Duration = secs(20);

/// A user that may do all but have its connection report changes.
fn blind(servers: &RedisServers) -> Vec<String> {
    let few = ["ACL", "SETUSER", "few", "on", ">secret", "~*", "+@all"];
    let few = [&few[..], &NO_TRACKING_RIGHTS].concat();
    servers.iter().for_each(|server| run(server, &few));
    servers.iter().map(|server| format!("redis://few:secret@{}", server.name())).collect()
}

fn long(builder: RedlockBuilder) -> RedlockBuilder {
    builder.max_ttl(HELD).ttl(HELD)
}

/// Starts three masters on which an unknown client holds a lock, and returns how long it is valid.
async fn held() -> (RedisServers, Instant) {
    let (servers, _) = admitted(3).await;
    let holder = long(handle(&servers)).build().unwrap();
    holder.init().await.unwrap();
    let guard = holder.try_lock("k").await.unwrap();
    let valid_until = Instant::now() + guard.remaining();
    guard.forget();
    (servers, valid_until)
}

fn is_in_quarantine(server: &RedisServer) -> bool {
    field(server, "q:until").is_some()
}

#[tokio::test]
async fn flush_read_by_a_report_makes_no_second_holder() {
    let (servers, valid_until) = held().await;
    let second = long(handle_on(blind(&servers))).build().unwrap();
    second.try_lock("another").await.unwrap().release().await.unwrap();
    servers.iter().for_each(|server| run(server, &["FLUSHALL"]));

    for report in second.inspect().await {
        assert_ne!(report.standing, Standing::Admitted, "{report:?}");
    }
    let error = second.try_lock("k").await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    assert!(error.to_string().contains("lost its data, or was added later"), "{error}");
    eventually("the quarantine begins", || servers.iter().all(is_in_quarantine)).await;
    assert!(Instant::now() < valid_until, "it took too long: nothing is shown");
}

/// A client reads the records of the others because one master needs a quarantine.
#[tokio::test]
async fn flush_read_by_begin_makes_no_second_holder() {
    let (servers, valid_until) = held().await;
    let second = long(handle_on(blind(&servers))).build().unwrap();
    second.try_lock("another").await.unwrap().release().await.unwrap();
    servers[1..].iter().for_each(|server| run(server, &["FLUSHALL"]));
    servers[0].restart_empty().unwrap();
    blind(&servers);

    until(&second, 0, Standing::Quarantine).await;
    let error = second.try_lock("k").await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    eventually("the quarantine begins", || servers.iter().all(is_in_quarantine)).await;
    assert!(Instant::now() < valid_until, "it took too long: nothing is shown");
}

#[tokio::test]
async fn without_ballots_untracked_server_does_not_vote() {
    let (servers, _) = held().await;
    let urls = blind(&servers);
    let plain = long(handle_on(urls.clone())).fencing(false).build().unwrap();
    let begun = Instant::now();
    let error = in_time(plain.lock("k").wait_forever().into_future()).await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    assert!(error.to_string().contains("cannot report data loss"), "{error}");
    assert!(begun.elapsed() < HELD, "waiting does not help");
    let fenced = long(handle_on(urls)).build().unwrap();
    fenced.try_lock("another").await.unwrap().release().await.unwrap();
    let tracked = long(handle(&servers)).fencing(false).build().unwrap();
    tracked.try_lock("another").await.unwrap().release().await.unwrap();
}
