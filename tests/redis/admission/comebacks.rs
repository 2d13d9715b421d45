//! Real masters that come back with something old, one after the other, or under other rules.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::join_all;
use redlock_quorum::{Redlock, Standing};
use redlock_testkit::{RedisServer, RedisServers, ServerOptions};
use tokio::time::{Instant, sleep};

use crate::admission::identity::back_up;
use crate::admission::{AGAIN, LENGTH, TTL, admitted, field, full, handle, handle_on, run, until};
use crate::lab::{eventually, in_time, ms, secs, text};

/// The name of the one ballot set that the server has.
fn set(server: &RedisServer) -> String {
    let mut sets: Vec<String> = text(server, &["KEYS", "redlock-quorum:1:ballots:*"]);
    assert_eq!(sets.len(), 1, "{sets:?}");
    sets.remove(0)
}

async fn serves(redlock: &Redlock, key: &str) {
    let guard = in_time(redlock.lock(key).wait(secs(5)).into_future()).await.unwrap();
    in_time(guard.release()).await.unwrap();
}

/// It has its record and its ballots, but no lock.
#[tokio::test]
async fn master_restarted_with_an_old_snapshot_is_in_quarantine() {
    let (servers, redlock) = admitted(3).await;
    run(&servers[0], &["SAVE"]);
    let old = field(&servers[0], "run").unwrap();
    let guard = full(&redlock, &servers).await;
    let begun = Instant::now();
    servers[0].kill();
    servers[0].restart().unwrap();
    until(&redlock, 0, Standing::Quarantine).await;
    assert_eq!((field(&servers[0], "run"), field(&servers[0], "floor").is_some()), (None, true));
    eventually("it is given a copy", || text::<u32>(&servers[0], &["EXISTS", "a"]) == 1).await;
    guard.check().unwrap();
    eventually("its copy does not count", || guard.copies() <= 2).await;
    until(&redlock, 0, Standing::Admitted).await;
    assert!(begun.elapsed() >= LENGTH, "{:?}", begun.elapsed());
    assert_ne!(field(&servers[0], "run"), Some(old));
    eventually("its copy counts", || guard.copies() == 3).await;
    guard.release().await.unwrap();
}

/// For four seconds the server shows the history that it was saved with, and then none.
#[tokio::test]
async fn identity_changing_back_begins_no_second_quarantine() {
    let options = ServerOptions::new().brand_new();
    let options = options.arguments(["--repl-backlog-ttl", "4", "--repl-diskless-sync-delay", "0"]);
    let servers = RedisServers::with(3, &options).unwrap();
    let redlock = handle(&servers).build().unwrap();
    assert_eq!(redlock.init().await.unwrap().admitted(), 3);
    let has_history = || {
        let info: String = text(&servers[0], &["INFO", "replication"]);
        !info.contains("second_repl_offset:-1\r\n")
    };
    serves(&redlock, "a").await;
    back_up(&servers[0]);
    run(&servers[0], &["SAVE"]);
    servers[0].kill();
    servers[0].restart().unwrap();
    if !has_history() {
        println!("skipped: a restarted server forgets its replication history");
        return;
    }
    until(&redlock, 0, Standing::Quarantine).await;
    let id = field(&servers[0], "q:id").unwrap();
    assert!(id.contains(':'), "{id}");
    let nonce = field(&servers[0], "q:nonce");
    until(&redlock, 0, Standing::Admitted).await;
    eventually("it has forgotten the history", || !has_history()).await;
    let newcomer = handle(&servers).build().unwrap();
    serves(&newcomer, "b").await;
    until(&newcomer, 0, Standing::Admitted).await;
    let now = (field(&servers[0], "q:nonce"), field(&servers[0], "run"));
    assert_eq!(now, (nonce, Some(id)), "it was one quarantine");
}

/// A ballot that a majority of five accepted is known to one of the three that stay.
#[tokio::test]
async fn init_after_list_changes_keeps_the_largest_ballot() {
    let (servers, _) = admitted(5).await;
    let ballot = "4000000000000031";
    for place in [0, 3, 4] {
        run(&servers[place], &["ZADD", &set(&servers[place]), "XX", "GT", ballot, "7"]);
    }
    for count in [4, 3] {
        // The client proposes no ballots, so the score is the one from the change.
        let urls = servers.urls().into_iter().take(count);
        let redlock = handle_on(urls).fencing(false).build().unwrap();
        serves(&redlock, "a").await;
        assert_eq!(redlock.init().await.unwrap().admitted(), count);
    }
    for server in &servers[..3] {
        let name = set(server);
        let score: String = text(server, &["ZSCORE", &name, "7"]);
        assert_eq!(score, ballot);
        assert_eq!(text::<u32>(server, &["ZCARD", &name]), 1_024);
    }
}

/// Under a quarantine of half the length: three of them pass one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_two_lengths_apart_always_leave_a_quorum() {
    let servers = RedisServers::with(3, &ServerOptions::new().brand_new()).unwrap();
    let redlock = handle(&servers).max_ttl(TTL / 2).ttl(TTL / 2).build().unwrap();
    assert_eq!(redlock.init().await.unwrap().admitted(), 3);
    let is_over = Arc::new(AtomicBool::new(false));
    let (busy, until_then) = (redlock.clone(), is_over.clone());
    let load = tokio::spawn(async move {
        let mut locks = 0;
        while !until_then.load(Ordering::SeqCst) {
            serves(&busy, "a").await;
            locks += 1;
            sleep(ms(20)).await;
        }
        locks
    });
    for server in servers.iter() {
        server.restart_empty().unwrap();
        // The pause is part of the test and waits for nothing.
        sleep(LENGTH).await;
    }
    is_over.store(true, Ordering::SeqCst);
    let locks = load.await.unwrap();
    assert!(locks > 50, "{locks} locks");
    for at in 0..3 {
        until(&redlock, at, Standing::Admitted).await;
    }
}

/// They leave a note with the only master that votes, and come back before a quarantine is over.
#[tokio::test]
async fn short_lived_clients_end_a_quarantine_with_a_dead_master() {
    let (servers, _) = admitted(3).await;
    servers[2].kill();
    servers[0].restart_empty().unwrap();
    let begun = Instant::now();
    while field(&servers[0], "run").is_none() {
        assert!(begun.elapsed() < LENGTH * 8, "it never ends");
        let visitor = handle(&servers).build().unwrap();
        let _ = visitor.try_lock("a").await;
        visitor.shutdown(ms(100)).await.unwrap();
        sleep(LENGTH * 61 / 66).await;
    }
    assert!(begun.elapsed() >= LENGTH, "{:?}", begun.elapsed());
    serves(&handle(&servers).build().unwrap(), "a").await;
}

/// The other masters show the value to the master that was away and has lost its own.
#[tokio::test]
async fn quarantine_uses_a_max_ttl_raised_in_the_meantime() {
    let (servers, _) = admitted(3).await;
    servers[0].kill();
    let person = handle(&servers).max_ttl(secs(8)).build().unwrap();
    assert_eq!(person.init_with(AGAIN).await.unwrap().admitted(), 2);
    assert_eq!(field(&servers[1], "max_ttl").as_deref(), Some("8000"));
    let begun = Instant::now();
    servers[0].restart_empty().unwrap();
    let redlock = handle(&servers).build().unwrap();
    let guard = redlock.lock("a").ttl(secs(8)).await.unwrap();
    until(&redlock, 0, Standing::Quarantine).await;
    assert_eq!(field(&servers[0], "max_ttl").as_deref(), Some("8000"));
    until(&redlock, 0, Standing::Admitted).await;
    assert!(begun.elapsed() >= ms(8_800), "{:?}", begun.elapsed());
    guard.release().await.unwrap();
}

/// The records then contain a value that is too short for a lock acquired since. The setting of the
/// clients is long enough.
#[tokio::test]
async fn clients_max_ttl_applies_if_all_masters_have_old_records() {
    let (servers, _) = admitted(3).await;
    servers.iter().for_each(|server| run(server, &["SAVE"]));
    let client = || handle(&servers).max_ttl(secs(8)).build().unwrap();
    assert_eq!(client().init().await.unwrap().admitted(), 3);
    let held = Instant::now();
    in_time(client().lock("a").ttl(secs(8)).into_future()).await.unwrap().forget();
    servers.iter().for_each(|server| server.kill());
    servers.iter().for_each(|server| server.restart().unwrap());
    assert_eq!(field(&servers[0], "max_ttl").as_deref(), Some("4000"));
    let next = in_time(client().lock("a").wait(secs(18)).into_future()).await.unwrap();
    assert!(held.elapsed() >= secs(8), "{:?}", held.elapsed());
    assert_eq!(field(&servers[0], "max_ttl").as_deref(), Some("8000"));
    next.release().await.unwrap();
}

/// It may hold a key for longer than the others let it be known.
#[tokio::test]
async fn smallest_readable_max_ttl_is_the_limit() {
    let (servers, _) = admitted(3).await;
    servers[0].pause().unwrap();
    let person = handle(&servers).max_ttl(secs(8)).build().unwrap();
    assert_eq!(person.init_with(AGAIN).await.unwrap().admitted(), 2);
    servers[0].resume().unwrap();
    let redlock = handle(&servers).build().unwrap();
    until(&redlock, 0, Standing::Admitted).await;
    let error = redlock.lock("a").ttl(secs(8)).await.unwrap_err().to_string();
    assert!(error.contains("max_ttl (4s)"), "{error}");
}

/// A master may evict locks, and what it keeps of admission does not expire.
#[tokio::test]
async fn evicting_master_keeps_its_record_and_a_full_one_reports_oom() {
    let options = ServerOptions::new().brand_new();
    let options = options.arguments(["--maxmemory", "6mb", "--maxmemory-policy", "volatile-lru"]);
    let servers = RedisServers::with(1, &options).unwrap();
    let redlock = handle(&servers).build().unwrap();
    assert_eq!(redlock.init().await.unwrap().admitted(), 1);
    let filler = "x".repeat(100_000);
    for key in 0..100 {
        run(&servers[0], &["SET", &format!("filler:{key}"), &filler, "EX", "100"]);
    }
    let info: String = text(&servers[0], &["INFO", "stats"]);
    assert!(!info.contains("evicted_keys:0\r\n"), "nothing was evicted: {info}");
    let newcomer = handle(&servers).build().unwrap();
    serves(&newcomer, "a").await;
    assert_eq!(text::<u32>(&servers[0], &["ZCARD", &set(&servers[0])]), 1_024);

    // Nothing can be evicted, and nothing be written.
    let servers = RedisServers::with(1, &options.arguments(["--maxmemory", "1"])).unwrap();
    let error = handle(&servers).build().unwrap().try_lock("a").await.unwrap_err().to_string();
    assert!(error.contains("its quarantine has not started") && error.contains("OOM"), "{error}");
}

/// Creates a handle of a user with all rights except this one, on new masters.
fn without(right: &str) -> (RedisServers, Redlock) {
    let servers = RedisServers::with(3, &ServerOptions::new().brand_new()).unwrap();
    let right = format!("-{right}");
    for server in servers.iter() {
        run(server, &["ACL", "SETUSER", "few", "on", ">secret", "~*", "+@all", &right]);
    }
    let urls = servers.iter().map(|server| format!("redis://few:secret@{}", server.name()));
    // Fenced locks need ZADD themselves.
    let redlock = handle_on(urls.collect::<Vec<_>>()).fencing(right != "-zadd").build().unwrap();
    (servers, redlock)
}

#[tokio::test]
async fn missing_right_is_named_and_other_masters_vote() {
    // Without EVAL a client cannot release, so it acquires nothing.
    let rights =
        [("info", false), ("hgetall", false), ("eval", false), ("hset", true), ("zadd", true)];
    join_all(rights.map(|(right, may_vote)| names_the_right(right, may_vote))).await;
}

async fn names_the_right(right: &str, may_vote: bool) {
    let (servers, redlock) = without(right);
    // No quarantine starts, so waiting does not help.
    let asked = redlock.lock("a").wait_forever().into_future();
    let error = in_time(asked).await.expect_err(right);
    assert_eq!(error.retry_after(), None, "{right}: {error}");
    let error = error.to_string().to_lowercase();
    assert!(error.contains("noperm") && error.contains(right), "{right}: {error}");
    let report = handle(&servers).build().unwrap().init().await.unwrap();
    assert_eq!(report.admitted(), 3, "{right}: {report:?}");
    // The next look shows the state of the masters, within about a second.
    let deadline = Instant::now() + secs(5);
    let mut outcome = redlock.lock("a").wait(secs(5)).await;
    while may_vote && outcome.is_err() && Instant::now() < deadline {
        sleep(ms(20)).await;
        outcome = redlock.lock("a").wait(secs(5)).await;
    }
    assert_eq!(outcome.is_ok(), may_vote, "{right}: {:?}", outcome.err());
}
