//! Servers that forget scripts, or have no memory left, between the steps of a lock.

use redlock_quorum::Redlock;
use redlock_testkit::RedisServers;

use super::{KEY, Tape};
use crate::admission::{admitted, run};
use crate::lab::{in_time, no_key_is_left, secs};

fn on_all(servers: &RedisServers, words: &[&str]) {
    servers.iter().for_each(|server| run(server, words));
}

/// Runs a lock with an extension, and calls `between` between all of its steps.
async fn steps(redlock: &Redlock, tape: &Tape, between: impl Fn()) {
    between();
    let guard = tape.lock(redlock).await.unwrap();
    between();
    for _ in 0..2 {
        in_time(guard.extend(secs(2))).await.unwrap();
        between();
    }
    in_time(guard.release()).await.unwrap();
    between();
}

#[tokio::test]
async fn forgotten_scripts_cost_no_lock_and_no_token() {
    let ((servers, redlock), tape) = (admitted(3).await, Tape::default());
    // The first lock tells how far the clocks of the masters are ahead, and may cost two ballots.
    tape.visit(&redlock).await;
    let before = redlock.stats().second_ballots;
    for _ in 0..3 {
        steps(&redlock, &tape, || on_all(&servers, &["SCRIPT", "FLUSH"])).await;
    }
    assert_eq!(redlock.stats().second_ballots, before);
    no_key_is_left(&servers).await;
}

#[tokio::test]
async fn full_memory_allows_extend_and_release_and_reports_oom() {
    let ((servers, redlock), tape) = (admitted(3).await, Tape::default());
    let guard = tape.lock(&redlock).await.unwrap();
    on_all(&servers, &["CONFIG", "SET", "maxmemory", "1"]);
    in_time(guard.extend(secs(2))).await.unwrap();
    for key in [KEY, "another"] {
        let error = in_time(redlock.try_lock(key).into_future()).await.unwrap_err().to_string();
        assert!(error.contains("OOM"), "{key}: {error}");
    }
    in_time(guard.extend(secs(2))).await.unwrap();
    in_time(guard.release()).await.unwrap();
    no_key_is_left(&servers).await;
    on_all(&servers, &["CONFIG", "SET", "maxmemory", "0"]);
    tape.visit(&redlock).await;
}

/// The right to send ballots is tested with the connection, and full memory does not affect that.
#[tokio::test]
async fn client_connected_with_full_memory_locks_when_it_is_free() {
    let ((servers, redlock), tape) = (admitted(3).await, Tape::default());
    tape.visit(&redlock).await;
    on_all(&servers, &["CONFIG", "SET", "maxmemory", "1"]);
    let newcomer = super::newcomer(&servers);
    let error = in_time(newcomer.try_lock(KEY).into_future()).await.unwrap_err().to_string();
    assert!(error.contains("OOM"), "{error}");
    on_all(&servers, &["CONFIG", "SET", "maxmemory", "0"]);
    tape.visit(&newcomer).await;
}
