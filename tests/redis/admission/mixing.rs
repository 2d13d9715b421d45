//! Clients with and without a quarantine under one prefix, on real servers.

use redlock_quorum::{AcquireError, InitError, Quarantine, Redlock, RedlockBuilder};
use redlock_testkit::{RedisServer, RedisServers, ServerOptions};

use crate::admission::{AGAIN, admitted, handle, run};
use crate::lab::{everywhere, in_time, ms, text};

const RECORD: &str = "redlock-quorum:1";
const OFF: &str = "redlock-quorum:1:ballots";
fn off(servers: &RedisServers) -> RedlockBuilder {
    handle(servers).quarantine(Quarantine::Off)
}

fn brand_new() -> RedisServers {
    RedisServers::with(3, &ServerOptions::new().brand_new()).unwrap()
}

/// The keys of admission that a server has.
fn keys(server: &RedisServer) -> Vec<String> {
    let mut keys: Vec<String> = text(server, &["KEYS", "redlock-quorum:1*"]);
    keys.sort_unstable();
    keys
}

async fn serves(redlock: &Redlock) {
    let guard = in_time(redlock.lock("a").into_future()).await.unwrap();
    in_time(guard.release()).await.unwrap();
}

async fn refused(redlock: &Redlock) -> String {
    let error = redlock.try_lock("a").await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    error.to_string()
}

/// The lowest score of a set, and how many members it has.
fn set(server: &RedisServer, key: &str) -> (u64, u32) {
    let lowest: Vec<String> = text(server, &["ZRANGE", key, "0", "0", "WITHSCORES"]);
    (lowest[1].parse().unwrap(), text(server, &["ZCARD", key]))
}

#[tokio::test]
async fn quarantine_of_another_client_is_removed_and_use_is_shown() {
    let servers = brand_new();
    let other = handle(&servers).build().unwrap();
    assert!(refused(&other).await.contains("in quarantine"));
    other.shutdown(ms(100)).await.unwrap();
    assert_eq!(keys(&servers[0]), [RECORD]);
    let redlock = off(&servers).fencing(false).build().unwrap();
    redlock.status("a").await;
    assert_eq!(keys(&servers[0]), [RECORD], "a status writes nothing");
    // A master that was reached later has the mark of the use with the next lock.
    in_time(everywhere(&redlock, "a").await.release()).await.unwrap();
    redlock.shutdown(ms(1_000)).await.unwrap();
    for server in servers.iter() {
        assert_eq!((keys(server), set(server, OFF)), (vec![OFF.to_owned()], (0, 1)));
    }
    let other = handle(&servers).build().unwrap();
    assert!(refused(&other).await.contains("other clients use this prefix without a quarantine"));
}

/// The handle still works, and other clients do not notice it.
#[tokio::test]
async fn plain_handle_works_without_the_right_to_ballots() {
    let servers = brand_new();
    for server in servers.iter() {
        run(server, &["ACL", "SETUSER", "few", "on", ">secret", "~*", "&*", "+@all", "-zadd"]);
    }
    let urls = servers.iter().map(|server| format!("redis://few:secret@{}", server.name()));
    let plain = Redlock::builder().nodes(urls).quarantine(Quarantine::Off).fencing(false);
    let redlock = plain.build().unwrap();
    serves(&redlock).await;
    serves(&redlock).await;
    redlock.shutdown(ms(1_000)).await.unwrap();
    assert!(servers.iter().all(|server| keys(server).is_empty()));
}

#[tokio::test]
async fn init_again_converts_a_prefix_and_back() {
    let (servers, on) = admitted(3).await;
    let sets = [0, 1, 2].map(|at| keys(&servers[at])[1].clone());
    let far = 4_000_000_000_000_031_u64;
    run(&servers[1], &["ZADD", &sets[1], "GT", &far.to_string(), "7"]);
    on.shutdown(ms(100)).await.unwrap();

    // The handle has no ballots of its own, so the scores are those of the conversions.
    let without = off(&servers).fencing(false).build().unwrap();
    assert!(refused(&without).await.contains("other clients use this prefix with a quarantine"));
    assert_eq!(without.init().await, Err(InitError::Off));
    let report = without.init_with(AGAIN).await.unwrap();
    assert_eq!((report.admitted(), report.floor.map(|floor| floor.get())), (3, Some(far)));
    for server in servers.iter() {
        assert_eq!((keys(server), set(server, OFF)), (vec![OFF.to_owned()], (far, 1_024)));
    }
    serves(&without).await;
    without.shutdown(ms(1_000)).await.unwrap();

    let on = handle(&servers).build().unwrap();
    let words = "other clients use this prefix without a quarantine";
    assert!(refused(&on).await.contains(words));
    let error = on.init().await.unwrap_err();
    assert!(matches!(error, InitError::Refused { .. }), "{error}");
    assert!(error.to_string().contains(words), "{error}");
    assert_eq!(keys(&servers[0]), [OFF], "nothing was written");
    assert_eq!(on.init_with(AGAIN).await.unwrap().admitted(), 3);
    for (server, name) in servers.iter().zip(&sets) {
        assert_eq!(keys(server), [RECORD, name]);
        assert_eq!(set(server, name), (far, 1_024));
    }
    serves(&on).await;
}

/// One master was away while the others were converted.
#[tokio::test]
async fn one_unconverted_master_blocks_a_handle_without_quarantine() {
    let (servers, _) = admitted(3).await;
    servers[2].kill();
    let without = off(&servers).build().unwrap();
    assert_eq!(without.init_with(AGAIN).await.unwrap().admitted(), 2);
    serves(&without).await;
    // It restarts with its own record, because the kit admits it.
    servers[2].restart().unwrap();
    servers[2].init().unwrap();
    let again = off(&servers).build().unwrap();
    assert!(refused(&again).await.contains("other clients use this prefix with a quarantine"));
    assert_eq!(again.init_with(AGAIN).await.unwrap().admitted(), 3);
    serves(&again).await;
}

/// The user of a version before admission has no right to read the record.
#[tokio::test]
async fn missing_right_to_the_record_is_reported() {
    let servers = brand_new();
    let rights = "~* +set +evalsha +eval +get +del +pttl +pexpire +info +client|id +client|kill";
    for server in servers.iter() {
        let user = ["ACL", "SETUSER", "old", "on", ">secret"].into_iter();
        run(server, &user.chain(rights.split_whitespace()).collect::<Vec<_>>());
    }
    let urls = servers.iter().map(|server| format!("redis://old:secret@{}", server.name()));
    let redlock = Redlock::builder().nodes(urls).quarantine(Quarantine::Off).build().unwrap();
    let said = refused(&redlock).await.to_lowercase();
    assert!(said.contains("noperm") && said.contains("hgetall"), "{said}");
}
