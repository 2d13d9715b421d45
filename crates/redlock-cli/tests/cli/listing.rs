//! `status` without a key lists the held locks.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redlock_testkit::{Direction, FaultProxy, RedisServers, ServerOptions};
use rustix::process::Signal;
use serde_json::json;

use crate::support::{PATIENCE, Running, answer_of, ask, bare, is_stopped, poll, prefixed};
use crate::terminal::Terminal;

#[test]
fn held_locks_are_listed_and_other_keys_are_not() {
    let servers = RedisServers::start(3).unwrap();
    let none = ask(&servers, ["status"]);
    assert_eq!(none.success(), "no lock is held");
    assert_eq!(
        ask(&servers, ["status", "--json"]).json(),
        json!({"locks": [], "done": [], "truncated": false})
    );
    let mut tokens = Vec::new();
    for key in ["b", "a"] {
        let acquired = ask(&servers, ["acquire", key, "--ttl", "50s"]);
        tokens.push(acquired.success().split(' ').next().unwrap().to_owned());
    }
    for server in servers.iter() {
        server.command(&["SET", "for-ever", "f81d4fae-7dec-41d0-a765-00a0c91e6bf6"]).unwrap();
        server.command(&["SET", "cached", "<p>two words</p>", "PX", "60000"]).unwrap();
        server.command(&["SET", "visits", "42", "PX", "60000"]).unwrap();
        server.command(&["HSET", "hash", "f", "v"]).unwrap();
        server.command(&["PEXPIRE", "hash", "60000"]).unwrap();
        for internal in ["redlock-quorum:x", "prefix:redlock-quorum:1"] {
            server.command(&["SET", internal, &tokens[0], "PX", "60000"]).unwrap();
        }
    }
    servers[0].command(&["SET", "one-copy", &tokens[0], "PX", "60000"]).unwrap();
    let listing = ask(&servers, ["status"]);
    let lines: Vec<_> = listing.success().lines().collect();
    assert_eq!(lines.len(), 3, "{listing:?}");
    assert!(
        lines[0].starts_with(&format!("a         held by {}, expires in ", tokens[1])),
        "{listing:?}"
    );
    assert!(
        lines[1].starts_with(&format!("b         held by {}, expires in ", tokens[0])),
        "{listing:?}"
    );
    let token = "f81d4fae-7dec-41d0-a765-00a0c91e6bf6";
    assert_eq!(lines[2], format!("for-ever  held by {token}, never expires"));
    let object = ask(&servers, ["status", "--json"]).json();
    assert_eq!(object["truncated"], false);
    let locks = object["locks"].as_array().unwrap();
    assert_eq!((&locks[0]["key"], &locks[0]["token"]), (&json!("a"), &json!(tokens[1])));
    assert!((30_000..56_000).contains(&locks[0]["ttl_ms"].as_u64().unwrap()), "{object}");
}

/// The time is part of the token, so a token without one shows none.
#[test]
fn status_shows_since_when_a_lock_is_held() {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let servers = RedisServers::start(3).unwrap();
    let before = now();
    ask(&servers, ["acquire", "timed", "--ttl", "50s"]).success();
    let after = now();
    for server in servers.iter() {
        let token = "f81d4fae-7dec-41d0-a765-00a0c91e6bf6/ann@web-1:7";
        server.command(&["SET", "untimed", token, "PX", "50000"]).unwrap();
    }
    let one = ask(&servers, ["status", "timed", "--json"]).json();
    let all = ask(&servers, ["status", "--json"]).json();
    for object in [&one, &all["locks"][0]] {
        let since = object["since_ms"].as_u64().unwrap();
        assert!((before..=after).contains(&since), "{before} {object} {after}");
    }
    let untimed = ask(&servers, ["status", "untimed", "--json"]).json();
    for object in [&untimed, &all["locks"][1]] {
        assert_eq!(object.get("since_ms"), Some(&serde_json::Value::Null), "{object}");
    }
    let lines = [ask(&servers, ["status"]), ask(&servers, ["status", "timed"])];
    for answer in &lines {
        let line = answer.success().lines().find(|line| line.starts_with("timed")).unwrap();
        let (_, since) = line.split_once("s, since 20").unwrap_or_else(|| panic!("{line}"));
        assert!(since.ends_with(" UTC by its host's clock"), "{line}");
    }
    let untimed = lines[0].out.lines().find(|line| line.starts_with("untimed")).unwrap();
    assert!(!untimed.contains("since"), "{untimed}");
}

#[test]
fn a_prefix_with_wildcards_lists_its_own_locks_without_it() {
    let servers = prefixed(1, "p*:");
    ask(&servers, ["acquire", "k", "--prefix", "p*:"]).success();
    ask(&servers, ["init", "--yes", "--prefix", "pp:"]).success();
    ask(&servers, ["acquire", "k", "--prefix", "pp:"]).success();
    let object = ask(&servers, ["status", "--json", "--prefix", "p*:"]).json();
    assert_eq!(object["locks"].as_array().unwrap().len(), 1, "{object}");
    assert_eq!(object["locks"][0]["key"], "k");
}

#[test]
fn listing_works_with_two_of_five_masters_absent() {
    let servers = RedisServers::with(5, &ServerOptions::new().password("pass word")).unwrap();
    for server in servers.iter() {
        server.command(&["SET", "k", "0123456789abcdef", "PX", "60000"]).unwrap();
    }
    servers[0].kill();
    servers[1].pause().unwrap();
    let listing = ask(&servers, ["status"]);
    assert!(listing.success().starts_with("k  held by "), "{listing:?}");
    servers[2].kill();
    let answer = ask(&servers, ["status"]);
    assert_eq!((answer.code, answer.out.as_str()), (69, ""));
    assert!(answer.cause().contains("connection refused"), "{answer:?}");
    servers[1].resume().unwrap();
}

/// The URL of a master whose replies take a while. It is there until the test ends.
fn slow(server: SocketAddr) -> String {
    let (sender, url) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let proxy = FaultProxy::start(server).await.unwrap();
            proxy.delay(Direction::ToClient, Duration::from_millis(400));
            sender.send(proxy.url()).unwrap();
            std::future::pending::<()>().await;
        });
    });
    url.recv_timeout(PATIENCE).unwrap()
}

#[test]
fn long_search_shows_progress_on_a_terminal() {
    let servers = RedisServers::start(1).unwrap();
    // If the test itself was paused, one slow reply may seem to arrive immediately. The search
    // takes three.
    let fill = "for i = 1, 2500 do redis.call('RPUSH', 'redlock-quorum:other:' .. i, i) end";
    servers[0].command(&["EVAL", fill, "0"]).unwrap();
    let url = slow((Ipv4Addr::LOCALHOST, servers[0].port()).into());
    let terminal = Terminal::start(&bare(["status", "--node", &url, "--node-timeout", "3s"]));
    terminal.shows(" keys searched ...");
    terminal.shows("no lock is held");
    assert_eq!(terminal.code(), 0);
}

#[test]
fn server_with_two_names_is_listed_once() {
    let servers = RedisServers::start(2).unwrap();
    servers[0].command(&["SET", "k", "0123456789abcdef", "PX", "60000"]).unwrap();
    let twin = servers[0].url().replace("127.0.0.1", "localhost");
    let mut command = bare(["status", "--json"]);
    let nodes = [servers[0].url(), twin, servers[1].url()];
    let answer = answer_of(command.env("REDLOCK_NODES", nodes.join(",")));
    assert_eq!(answer.json()["locks"], json!([]), "{answer:?}");
}

#[test]
fn search_examines_at_most_ten_thousand_keys() {
    let servers = RedisServers::start(1).unwrap();
    let fill = "for i = 1, 10500 do redis.call('SET', 'k' .. i, ARGV[1], 'PX', 600000) end";
    servers[0].command(&["EVAL", fill, "0", "0123456789abcdef"]).unwrap();
    let answer = ask(&servers, ["status", "--json"]);
    answer.success();
    let object = answer.json();
    assert_eq!(object["truncated"], true);
    assert_eq!(object["locks"].as_array().unwrap().len(), 10_000);
    assert!(answer.err.starts_with("note: stopped after 10000 keys"), "{}", answer.err);
    ask(&servers, ["init", "--yes", "--prefix", "k105"]).success();
    let narrow = ask(&servers, ["status", "--json", "--prefix", "k105"]).json();
    assert_eq!(narrow["truncated"], false);
    assert_eq!(narrow["locks"].as_array().unwrap().len(), 11, "k1050 to k1059, and k10500");
}

/// Ctrl-Z and `fg` in the middle of the queries. Replies that arrived in between are read
/// afterwards.
#[test]
fn stopped_and_continued_commands_complete_their_queries() {
    let servers = RedisServers::start(1).unwrap();
    let url = slow((Ipv4Addr::LOCALHOST, servers[0].port()).into());
    for word in ["status", "doctor"] {
        let command = || bare([word, "--node", &url, "--node-timeout", "2s"]);
        let undisturbed = answer_of(&mut command());
        let mut running = Running::start(command());
        for _ in 0..20 {
            running.signal(Signal::STOP);
            let pid = running.pid();
            poll("it is stopped", || (is_stopped(pid) || running.has_ended()).then_some(()));
            if running.has_ended() {
                break;
            }
            thread::sleep(Duration::from_millis(20));
            running.signal(Signal::CONT);
            thread::sleep(Duration::from_millis(30));
        }
        let answer = running.answer();
        assert_eq!((answer.code, &answer.err), (undisturbed.code, &undisturbed.err), "{answer:?}");
        assert!(
            !answer.out.contains("timed out") && !answer.out.contains("nterrupted"),
            "{answer:?}"
        );
    }
}

#[test]
fn unlisted_master_is_named() {
    let servers = RedisServers::start(3).unwrap();
    servers[0].command(&["ACL", "SETUSER", "default", "-scan"]).unwrap();
    let list = answer_of(bare(["status", "--json"]).env("REDLOCK_NODES", servers.urls().join(",")));
    list.success();
    let named = format!("note: {} is not included: ", servers[0].name());
    assert!(list.err.contains(&named) && list.err.contains("NOPERM"), "{list:?}");
}
