//! A release never overtakes the acquire it follows: not on one connection, not over two.

use redlock_quorum::AcquireError;
use redlock_testkit::{Direction, RedisServer, RedisServers, ServerOptions};

use crate::clean_up::relay::Relay;
use crate::lab::{
    calls, eventually, everywhere, hasty, in_time, keys, masters, ms, never, no_key_is_left,
    patient, secs, urls_of, warm_up,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_acquire_is_followed_by_its_release() {
    let servers = masters();
    let proxies = servers.proxied().await.unwrap();
    let redlock = hasty(urls_of(&proxies)).build().unwrap();
    warm_up(&redlock, &servers).await;
    let before: Vec<_> = servers.iter().map(|server| calls(server, "set")).collect();
    proxies.iter().for_each(|proxy| proxy.hold(Direction::ToServer));
    let refused = in_time(redlock.try_lock("late").into_future()).await.unwrap_err();
    let AcquireError::NoQuorum { .. } = refused else { panic!("{refused}") };
    proxies.iter().for_each(|proxy| proxy.heal());
    eventually("every master is asked in the end", || {
        servers.iter().zip(&before).all(|(server, before)| calls(server, "set") > *before)
    })
    .await;
    no_key_is_left(&servers).await;
}

/// The request on the old connection arrives after the release was acknowledged on the new one, so
/// it must not be executed any longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquire_arriving_after_a_reconnect_is_not_executed() {
    let server = RedisServer::start().unwrap();
    let relay = Relay::before(&server).await;
    let redlock = patient([relay.url()]).connect_timeout(ms(300)).build().unwrap();
    warm_up(&redlock, std::slice::from_ref(&server)).await;
    relay.hold();
    let refused = in_time(redlock.try_lock("late").into_future()).await.unwrap_err();
    let AcquireError::NoQuorum { .. } = refused else { panic!("{refused}") };
    redlock.shutdown(secs(10)).await.expect("the release is acknowledged");
    relay.deliver().await;
    never("a key that will not be released", || !keys(&server).is_empty()).await;
}

/// A release that was lost with its connection is sent again on the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_lost_with_its_connection_is_retried() {
    let servers = masters();
    let proxies = servers.proxied().await.unwrap();
    let redlock = hasty(urls_of(&proxies)).build().unwrap();
    warm_up(&redlock, &servers).await;
    let guard = everywhere(&redlock, "lost").await;
    proxies.iter().for_each(|proxy| proxy.drop(Direction::ToServer));
    guard.release().await.unwrap_err();
    assert!(servers.iter().all(|server| !keys(server).is_empty()), "nothing can have arrived");
    proxies.iter().for_each(|proxy| proxy.heal());
    proxies.iter().for_each(|proxy| proxy.reset());
    no_key_is_left(&servers).await;
}

/// Connections that break with requests and answers under way, again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_reset_in_the_middle_of_everything_leave_no_key() {
    let servers = masters();
    let proxies = servers.proxied().await.unwrap();
    let redlock = hasty(urls_of(&proxies)).build().unwrap();
    warm_up(&redlock, &servers).await;
    let mut held = 0;
    for round in 0..60 {
        let direction = if round % 2 == 0 { Direction::ToServer } else { Direction::ToClient };
        proxies[round % 5].reset_after(direction, round * 7 % 90);
        proxies[(round + 2) % 5].reset_after(direction, round * 13 % 90);
        let request = redlock.lock(format!("reset:{round}")).wait(secs(5));
        if let Ok(guard) = request.await {
            held += 1;
            drop(guard);
        }
    }
    assert!(held > 30, "two masters are hit at a time: {held} of 60 were acquired");
    proxies.iter().for_each(|proxy| proxy.heal());
    no_key_is_left(&servers).await;
}

#[tokio::test]
async fn a_master_that_restarts_with_its_keys_gets_the_release() {
    let options =
        ServerOptions::new().arguments(["--appendonly", "yes", "--appendfsync", "always"]);
    let servers = RedisServers::with(5, &options).unwrap();
    let redlock = hasty(servers.urls()).build().unwrap();
    warm_up(&redlock, &servers).await;
    let guard = everywhere(&redlock, "kept").await;
    servers[0].kill();
    guard.release().await.unwrap();
    servers[0].restart().unwrap();
    eventually("the key was loaded again, and deleted", || {
        let deletions = ["del", "delifeq", "delex"].map(|command| calls(&servers[0], command));
        deletions.iter().sum::<u64>() > 0 && keys(&servers[0]).is_empty()
    })
    .await;
    assert_eq!(
        calls(&servers[0], "client|kill"),
        0,
        "the process counts connections from one: that number belongs to another client"
    );
    no_key_is_left(&servers).await;
}
