//! Wrong lists of masters on real servers, through the library.

use std::collections::BTreeMap;

use redlock_quorum::{AcquireError, Cause, InitError, Verdict, WhyNot};
use redlock_testkit::{RedisServers, ServerOptions};

use crate::admission::{AGAIN, TTL, field, handle_on, run};
use crate::lab::{eventually, everywhere, in_time, ms, no_key_is_left, secs, text};

fn brand_new(count: usize) -> RedisServers {
    RedisServers::with(count, &ServerOptions::new().brand_new()).unwrap()
}

fn on(servers: &RedisServers, list: &[usize]) -> redlock_quorum::Redlock {
    let urls = servers.urls();
    handle_on(list.iter().map(|place| urls[*place].clone())).build().unwrap()
}

#[tokio::test]
async fn cause_of_a_wrong_list_has_both_lists_as_data() {
    let servers = brand_new(5);
    on(&servers, &[0, 1, 2, 3, 4]).init().await.unwrap();
    let redlock = on(&servers, &[0, 1, 2]);
    let error = redlock.lock("a").wait(secs(20)).await.unwrap_err();
    let AcquireError::NoQuorum { votes, .. } = &error else { panic!("{error}") };
    for vote in votes.iter() {
        let Verdict::Unknown(Cause::NotAdmitted(not)) = &vote.verdict else { panic!("{vote:?}") };
        assert_eq!(not.why, WhyNot::SetSize);
        let lists = not.lists.as_ref().unwrap();
        let set = lists.set.as_ref().unwrap();
        let names: Vec<_> = servers.iter().map(|server| server.name()).collect();
        assert_eq!(
            (set.size, set.names.iter().collect::<Vec<_>>()),
            (5, names.iter().map(String::as_str).collect())
        );
        assert_eq!(lists.list.iter().collect::<Vec<_>>(), names[..3]);
    }
    let refused = redlock.init().await.unwrap_err();
    let InitError::OtherSet { lists, .. } = &refused else { panic!("{refused}") };
    assert_eq!((lists.set.as_ref().unwrap().size, lists.list.len()), (5, 3));
}

#[tokio::test]
async fn init_names_duplicate_addresses_and_never_records_them() {
    let servers = brand_new(3);
    let port = servers[0].port();
    let urls = servers.urls().into_iter().chain([format!("redis://localhost:{port}")]);
    let redlock = handle_on(urls).build().unwrap();
    let refused = redlock.init().await.unwrap_err();
    assert!(matches!(refused, InitError::Unread { .. }), "{refused:?}");
    let said = refused.to_string();
    let why =
        "refused, nothing was written: the list has duplicate addresses; list each server once";
    assert!(said.starts_with(why), "{said}");
    assert_eq!(field(&servers[1], "set"), None);
    let set = redlock.init_with(AGAIN).await.unwrap().set.unwrap();
    let names: Vec<_> = servers.iter().map(|server| server.name()).collect();
    assert_eq!(set.size, 3);
    assert_eq!(set.names.iter().collect::<Vec<_>>(), names);
    on(&servers, &[0, 1, 2]).try_lock("a").await.unwrap().release().await.unwrap();
}

/// How often each command was executed on all masters together. Excludes those that look for
/// remaining keys, and the search for a queue, which only some releases need. EVAL and EVALSHA count
/// as one, because their shares depend on when a server shows that it has a script.
fn commands(servers: &RedisServers) -> BTreeMap<String, u64> {
    let mut commands = BTreeMap::new();
    for server in servers.iter() {
        let stats: String = text(server, &["INFO", "commandstats"]);
        let lines = stats.lines().filter_map(|line| line.strip_prefix("cmdstat_"));
        for (command, rest) in lines.filter_map(|line| line.split_once(":calls=")) {
            let calls: u64 = rest.split(',').next().unwrap().parse().unwrap();
            let command = if command == "eval" { "evalsha" } else { command };
            *commands.entry(command.to_owned()).or_default() += calls;
        }
    }
    commands.retain(|command, _| !["keys", "zcard"].contains(&&**command));
    commands
}

const LOCKS: u64 = 10;

/// The fewest commands of a handle that connects and takes uncontended locks, in some trials. A
/// second ballot on a busy machine only adds commands.
async fn least_cost(servers: &RedisServers) -> BTreeMap<String, u64> {
    let mut trials = Vec::new();
    for _ in 0..5 {
        let before = commands(servers);
        let redlock = handle_on(servers.urls()).build().unwrap();
        for _ in 0..LOCKS {
            everywhere(&redlock, "a").await.release().await.unwrap();
            no_key_is_left(servers).await;
        }
        redlock.shutdown(secs(5)).await.unwrap();
        let mut spent = commands(servers);
        spent.iter_mut().for_each(|(name, calls)| *calls -= before.get(name).unwrap_or(&0));
        spent.retain(|_, calls| *calls > 0);
        trials.push(spent);
    }
    trials.into_iter().min_by_key(|spent| spent.values().sum::<u64>()).unwrap()
}

#[tokio::test]
async fn recorded_set_adds_no_command_to_connections_and_locks() {
    let servers = brand_new(3);
    let floor = on(&servers, &[0, 1, 2]).init().await.unwrap().floor.unwrap().get();
    eventually("first ballots exceed the floor", || {
        let [seconds, micros] = text::<[u64; 2]>(&servers[0], &["TIME"]);
        seconds * 1_000_000 + micros > floor + 100_000
    })
    .await;
    let with = least_cost(&servers).await;
    assert_eq!((with["set"], with["hgetall"]), (3 * LOCKS, 3), "{with:?}");
    for server in servers.iter() {
        run(server, &["HDEL", "redlock-quorum:1", "set", "names"]);
    }
    assert_eq!(least_cost(&servers).await, with);
}

/// The list of the holder becomes wrong under it.
#[tokio::test]
async fn held_lease_outlives_a_set_that_refuses_its_list() {
    let servers = brand_new(5);
    let three = on(&servers, &[0, 1, 2]);
    three.init().await.unwrap();
    let guard = three.lock("held").wait(secs(5)).await.unwrap();
    let report = on(&servers, &[0, 1, 2, 3, 4]).init_with(AGAIN).await.unwrap();
    assert_eq!(report.set.unwrap().size, 5);
    // The records come with each report.
    three.inspect().await;
    let error = three.try_lock("a").await.unwrap_err();
    assert!(error.to_string().contains("it belongs to a set of 5 masters"), "{error}");
    tokio::time::sleep(TTL + ms(500)).await;
    guard.check().unwrap();
    assert_eq!(guard.copies(), 3);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn readmitted_server_gets_the_common_set() {
    let servers = brand_new(3);
    let redlock = on(&servers, &[0, 1, 2]);
    redlock.init().await.unwrap();
    let before = field(&servers[1], "set");
    servers[0].restart_empty().unwrap();
    in_time(redlock.lock("a").wait(secs(5)).into_future()).await.unwrap().forget();
    eventually("it is admitted again", || field(&servers[0], "run").is_some()).await;
    assert!(before.is_some());
    assert_eq!(field(&servers[0], "set"), before);
    assert_eq!(field(&servers[0], "names"), field(&servers[1], "names"));
}
