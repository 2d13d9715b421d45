//! The status of a lock, and the label of its holder, on real servers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so what it expects")]

use redlock_quorum::{Cause, RedlockBuilder, State, Token, Verdict};
use redlock_testkit::RedisServers;

use crate::lab::{eventually, everywhere, ms, on_all, ordinary, put, warm_up};

// The holder.

#[tokio::test]
async fn status_reports_the_holder_and_then_a_free_lock() {
    let servers = RedisServers::start(5).unwrap();
    let redlock = ordinary(servers.urls()).build().unwrap();
    assert_eq!(redlock.status("a").await.state, State::Free);
    let guard = on_all(|| redlock.lock("a").label("cron@db-1")).await;
    let status = redlock.status("a").await;
    let State::Held { token, ttl } = status.state else { panic!("{status:?}") };
    assert!(token.ends_with("/cron@db-1"), "{token}");
    let ttl = ttl.unwrap();
    assert!(ttl > ms(5_000) && ttl <= ms(11_000), "TTL and clock guard: {ttl:?}");
    assert_eq!(status.nodes.len(), 5);
    assert!(status.nodes.iter().all(|node| node.latency.is_some()));
    guard.release().await.unwrap();
    assert_eq!(redlock.status("a").await.state, State::Free);
}

/// The label of the lock of each recipe, in the asynchronous and in the blocking interface.
async fn labels(builder: RedlockBuilder, fire: u64) -> Vec<Option<String>> {
    let redlock = builder.clone().build().unwrap();
    let blocking = builder.build_blocking().unwrap();
    let label = |token: &Token| token.label().map(str::to_owned);
    let one = label(redlock.lock("a").await.unwrap().token());
    let set = redlock.lock_all(["a", "b"]).await.unwrap();
    let both = set.iter().map(|guard| label(guard.token()));
    let mut labels: Vec<_> = both.chain([one]).collect();
    set.release().await.unwrap();
    let owner = redlock.reentrant("a");
    labels.push(label(owner.lock().await.unwrap().token()));
    let _ = redlock.once("job").fire(fire).run(|_| async {}).await.unwrap();
    labels.push(redlock.last_run("job").await.unwrap().unwrap().by);
    let held = move || blocking.lock("c").acquire().unwrap().token().label().map(str::to_owned);
    labels.push(std::thread::spawn(held).join().unwrap());
    labels
}

/// `status` and `once` name the process, as they do for the locks of the command.
#[tokio::test(flavor = "multi_thread")]
async fn locks_are_labelled_with_user_host_and_process() {
    let servers = RedisServers::start(3).unwrap();
    let found = labels(ordinary(servers.urls()), 1).await;
    let named = ordinary(servers.urls()).build().unwrap();
    let label = found[0].clone().unwrap();
    let process = format!(":{}", std::process::id());
    assert!(label.contains('@') && label.ends_with(&process), "{label}");
    assert_eq!(found, vec![Some(label.clone()); 6]);
    let guard = on_all(|| named.lock("d")).await;
    let shown = named.status("d").await.to_string();
    assert!(shown.contains(&format!("/{label} for ")), "{shown}");
    let refused = named.try_lock("d").await.unwrap_err().to_string();
    assert!(refused.contains(&format!("({label})")), "{refused}");
    guard.release().await.unwrap();

    let nameless = ordinary(servers.urls()).label("web-1").no_label();
    assert_eq!(labels(nameless.clone(), 2).await, vec![None; 6]);
    let nameless = nameless.build().unwrap();
    let guard = named.lock("e").no_label().await.unwrap();
    assert_eq!(guard.token().label(), None);
    let set = named.lock_all(["f"]).no_label().await.unwrap();
    assert_eq!(set.get("f").unwrap().token().label(), None);
    assert_eq!(nameless.lock("g").label("h").await.unwrap().token().label(), Some("h"));
}

#[tokio::test]
async fn status_reports_a_strangers_token() {
    let servers = RedisServers::start(5).unwrap();
    let redlock = ordinary(servers.urls()).build().unwrap();
    warm_up(&redlock, &servers).await;
    for server in servers.iter().take(2) {
        put(server, "a", "a stranger", 10_000);
    }
    let status = redlock.status("a").await;
    assert_eq!(status.state, State::Free, "three of five are free: {status:?}");
    put(&servers[2], "a", "another", 10_000);
    assert_eq!(redlock.status("a").await.state, State::Undecided);
    put(&servers[2], "a", "a stranger", 10_000);
    let status = redlock.status("a").await;
    assert!(matches!(&status.state, State::Held { token, .. } if token == "a stranger"));
    servers[3].command(&["SET", "b", "for ever"]).unwrap();
    let Verdict::Held { token, ttl } = redlock.status("b").await.nodes[3].verdict.clone() else {
        panic!("the key is there")
    };
    assert_eq!((token.as_deref(), ttl), (Some("for ever"), None));
}

#[tokio::test]
async fn status_counts_unreachable_masters_for_no_holder() {
    let servers = RedisServers::start(5).unwrap();
    let redlock = ordinary(servers.urls()).build().unwrap();
    let guard = everywhere(&redlock, "a").await;
    servers[0].kill();
    servers[1].kill();
    let status = redlock.status("a").await;
    assert!(matches!(status.state, State::Held { .. }), "{status:?}");
    for node in &status.nodes[..2] {
        assert!(matches!(node.verdict, Verdict::Unknown(_)), "{node:?}");
    }
    servers[2].kill();
    eventually("the third is known to be down", || {
        guard.votes();
        !servers[2].is_running()
    })
    .await;
    let status = redlock.status("a").await;
    assert_eq!(status.state, State::Undecided, "{status:?}");
    drop(guard);
}

#[tokio::test]
async fn status_of_an_invalid_name_sends_nothing() {
    let servers = RedisServers::start(1).unwrap();
    let redlock = ordinary(servers.urls()).build().unwrap();
    let status = redlock.status("").await;
    let Verdict::Unknown(Cause::NotConnected(why)) = &status.nodes[0].verdict else {
        panic!("{status:?}")
    };
    assert!(why.as_str().contains("the resource name is empty"), "{why}");
}
