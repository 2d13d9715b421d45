//! Masters that answer, and not as they should.

use redlock_quorum::{AcquireError, Redlock, Verdict};
use redlock_testkit::{RedisServer, RedisServers, ServerOptions};
use tokio::time::Instant;

use crate::lab::{
    PATIENCE, calls, eventually, everywhere, hasty, in_time, keys, masters, no_key_is_left,
    patient, said, secs, value, warm_up,
};

/// Returns why this master does not vote, once all masters have answered.
async fn unknown_at(guard: &redlock_quorum::Guard, server: &RedisServer) -> String {
    in_time(guard.settled()).await;
    match said(&guard.votes(), &server.name()) {
        Verdict::Unknown(cause) => cause.to_string(),
        said => panic!("{said}"),
    }
}

#[tokio::test]
async fn forgotten_scripts_are_loaded_again() {
    let servers = masters();
    let redlock = patient(servers.urls()).build().unwrap();
    warm_up(&redlock, &servers).await;
    let forget = || {
        servers.iter().for_each(|server| {
            server.command(&["SCRIPT", "FLUSH"]).unwrap();
        });
    };
    for number in 0..20 {
        let guard = redlock.lock(format!("forgetful:{number}")).await.unwrap();
        forget();
        guard.extend(secs(40)).await.unwrap();
        forget();
        guard.release().await.unwrap();
    }
    no_key_is_left(&servers).await;
}

#[tokio::test]
async fn key_of_another_type_costs_only_its_masters_vote() {
    let servers = masters();
    let redlock = patient(servers.urls()).build().unwrap();
    warm_up(&redlock, &servers).await;
    servers[3].command(&["LPUSH", "typed", "no lock"]).unwrap();
    let guard = redlock.lock("typed").await.unwrap();
    eventually("the others hold it", || guard.copies() == 4).await;
    guard.extend(secs(40)).await.unwrap();
    guard.release().await.unwrap();
    eventually("the others are free", || {
        servers.iter().all(|server| server.port() == servers[3].port() || keys(server).is_empty())
    })
    .await;
    assert_eq!(keys(&servers[3]), ["typed"], "keys of others remain");
}

#[tokio::test]
async fn keys_of_another_type_on_a_quorum_refuse_the_lock() {
    let servers = masters();
    let redlock = patient(servers.urls()).build().unwrap();
    servers[..3].iter().for_each(|server| {
        server.command(&["LPUSH", "typed", "no lock"]).unwrap();
    });
    let refused = in_time(redlock.try_lock("typed").into_future()).await.unwrap_err();
    let AcquireError::Held { .. } = refused else { panic!("{refused}") };
}

/// A foreign key needs no release. Otherwise every attempt on such a key would be remembered
/// forever.
#[tokio::test]
async fn key_of_another_type_needs_no_release() {
    let servers = masters();
    let redlock = patient(servers.urls()).build().unwrap();
    servers[3].command(&["LPUSH", "typed", "no lock"]).unwrap();
    redlock.lock("typed").await.unwrap().release().await.unwrap();
    in_time(redlock.shutdown(secs(2))).await.expect("nothing is left of ours");
}

#[tokio::test]
async fn full_master_does_not_vote_but_extends_and_releases() {
    let servers = masters();
    let redlock = patient(servers.urls()).build().unwrap();
    let before = everywhere(&redlock, "before").await;
    servers[0].command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).unwrap();
    servers[0].command(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    let guard = redlock.lock("full").await.unwrap();
    let cause = unknown_at(&guard, &servers[0]).await;
    assert!(cause.starts_with("error reply: OOM"), "{cause}");
    eventually("the others hold it", || guard.copies() == 4).await;
    let extended = calls(&servers[0], "pexpire");
    before.extend(secs(50)).await.unwrap();
    eventually("it extends", || calls(&servers[0], "pexpire") > extended).await;
    before.release().await.unwrap();
    guard.release().await.unwrap();
    no_key_is_left(&servers).await;
    redlock.shutdown(secs(5)).await.expect("all have acknowledged");
}

#[tokio::test]
async fn demoted_master_is_not_admitted_until_promoted() {
    let servers = masters();
    let redlock = hasty(servers.urls()).build().unwrap();
    warm_up(&redlock, &servers).await;
    servers[1].command(&["REPLICAOF", "127.0.0.1", "1"]).unwrap();
    let mut cause = String::new();
    for number in 0..1_000 {
        let guard = redlock.lock(format!("replica:{number}")).await.unwrap();
        assert!(guard.copies() < 5);
        cause = unknown_at(&guard, &servers[1]).await;
        guard.release().await.unwrap();
        if cause.starts_with("not admitted") {
            break;
        }
    }
    assert!(cause.starts_with("not admitted: it is a replica"), "{cause}");
    servers[1].command(&["REPLICAOF", "NO", "ONE"]).unwrap();
    let guard = redlock.lock("master again").await.unwrap();
    drop(guard);
    eventually("it gets the release", || keys(&servers[1]).is_empty()).await;
    no_key_is_left(&servers).await;
}

/// A key on a replica does not extend the validity of a lease.
#[tokio::test]
async fn a_lock_ends_when_a_quorum_of_its_masters_become_replicas() {
    let servers = masters();
    let redlock = patient(servers.urls()).ttl(secs(20)).node_timeout(secs(1)).build().unwrap();
    let guard = everywhere(&redlock, "demoted").await;
    servers[..3].iter().for_each(|server| {
        server.command(&["REPLICAOF", "127.0.0.1", "1"]).unwrap();
    });
    let refused = guard.extend(secs(21)).await.unwrap_err();
    assert!(!guard.is_held(), "{refused}: {}", guard.votes());
}

async fn without_the_right_password(wrong: &str, reply: &str) {
    let options = ServerOptions::new().password("sesame");
    let (open, locked) = (RedisServers::start(2).unwrap(), RedisServer::with(&options).unwrap());
    let url = format!("redis://{wrong}{}", locked.name());
    let redlock = hasty(open.urls().into_iter().chain([url])).build().unwrap();
    let begun = Instant::now();
    loop {
        let guard = redlock.lock("open").await.unwrap();
        let cause = unknown_at(&guard, &locked).await;
        let _ = guard.release().await;
        assert!(!cause.contains("abracadabra"), "{cause}");
        if cause.starts_with(&format!("error reply: {reply}")) {
            break;
        }
        // It has not answered yet.
        assert!(cause.contains("still connecting") && begun.elapsed() < PATIENCE, "{cause}");
    }
}

#[tokio::test]
async fn missing_password_is_reported_and_other_masters_serve() {
    without_the_right_password("", "NOAUTH").await;
}

#[tokio::test]
async fn wrong_password_is_reported_and_other_masters_serve() {
    without_the_right_password(":abracadabra@", "WRONGPASS").await;
}

#[tokio::test]
async fn correct_password_works() {
    let servers = RedisServers::with(3, &ServerOptions::new().password("sesame")).unwrap();
    let redlock = patient(servers.urls()).build().unwrap();
    let guard = everywhere(&redlock, "open").await;
    assert_eq!(guard.copies(), 3);
    guard.release().await.unwrap();
    no_key_is_left(&servers).await;
}

/// Returns the number of duplicate addresses that the handle has found.
async fn twins(redlock: &Redlock) -> usize {
    let refused = in_time(redlock.try_lock("twins").into_future()).await.unwrap_err();
    let AcquireError::NoQuorum { .. } = &refused else { panic!("{refused}") };
    refused.to_string().matches("duplicate address of").count()
}

#[tokio::test]
async fn two_addresses_of_one_server_are_one_master() {
    let server = RedisServer::start().unwrap();
    let localhost = format!("redis://localhost:{}", server.port());
    let redlock = hasty([server.url(), localhost]).build().unwrap();
    assert_eq!(twins(&redlock).await, 1);
    no_key_is_left(std::slice::from_ref(&server)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_addresses_of_one_server_are_not_a_majority() {
    let server = RedisServer::start().unwrap();
    let mut proxies = Vec::new();
    for _ in 0..3 {
        proxies.push(redlock_testkit::FaultProxy::before(&server).await.unwrap());
    }
    let redlock = hasty(crate::lab::urls_of(&proxies)).build().unwrap();
    // Addresses that are not connected yet are not known to be duplicates.
    let begun = Instant::now();
    while twins(&redlock).await < 2 {
        assert!(begun.elapsed() < PATIENCE);
    }
    assert_eq!(value(&server, "twins"), None);
}
