//! `release --force`: a stuck lock.

use redlock_testkit::RedisServers;
use serde_json::json;

use crate::support::{answer_of, ask, copies, prefixed, redlock};
use crate::terminal::Terminal;

#[test]
fn a_stuck_lock_is_deleted_and_named() {
    let servers = RedisServers::start(3).unwrap();
    for server in servers.iter() {
        server.command(&["SET", "k", "no token at all"]).unwrap();
    }
    let answer = ask(&servers, ["release", "--force", "k", "--yes", "--json"]);
    answer.success();
    let nodes: Vec<_> = servers.iter().map(|server| server.name()).collect();
    assert_eq!(answer.json(), json!({"key": "k", "deleted": nodes}));
    let said = "note: deletes k on 3 masters: held by no token at all, never expires";
    assert!(answer.err.contains(said), "equal keys are shown once: {answer:?}");
    assert_eq!(copies(&servers, "k"), 0);
    ask(&servers, ["acquire", "k"]).success();
}

#[test]
fn without_a_terminal_force_needs_yes() {
    let servers = RedisServers::start(1).unwrap();
    ask(&servers, ["acquire", "k"]).success();
    let answer = ask(&servers, ["release", "--force", "k"]);
    assert_eq!((answer.code, copies(&servers, "k")), (64, 1));
    assert!(answer.cause().contains("--yes"), "{answer:?}");
    assert!(!answer.err.contains("deletes"), "no line about the lock, which remains: {answer:?}");
    ask(&servers, ["release", "k", "--force", "--yes"]).success();
    assert_eq!(copies(&servers, "k"), 0);
}

#[test]
fn force_keeps_foreign_keys_and_free_locks() {
    let servers = RedisServers::start(3).unwrap();
    let free = ask(&servers, ["release", "--force", "k", "--yes", "--json"]);
    assert_eq!((free.code, free.json()), (1, json!({"key": "k", "deleted": []})));
    assert!(free.cause().contains("k is free; nothing to delete: 3 masters: free"), "{free:?}");
    for server in servers.iter() {
        server.command(&["HSET", "k", "f", "v"]).unwrap();
    }
    let answer = ask(&servers, ["release", "--force", "k", "--yes"]);
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.cause().contains("a key of another type"), "{answer:?}");
    servers[0].command(&["HGET", "k", "f"]).unwrap();
}

#[test]
fn masters_possibly_keeping_the_key_are_named() {
    let servers = prefixed(3, "p:");
    let mut command = redlock(&servers, ["--prefix", "p:", "acquire", "k"]);
    answer_of(&mut command).success();
    servers[2].kill();
    let answer = ask(&servers, ["--prefix", "p:", "release", "--force", "k", "--yes"]);
    assert_eq!((answer.code, copies(&servers, "p:k")), (0, 0), "{answer:?}");
    assert!(answer.err.contains(&format!("{} may keep the key", servers[2].name())), "{answer:?}");
    servers[1].kill();
    let answer = ask(&servers, ["release", "--force", "k", "--yes"]);
    assert_eq!(answer.code, 69, "{answer:?}");
}

#[test]
fn force_prompts_on_a_terminal_and_needs_a_yes() {
    let servers = RedisServers::start(1).unwrap();
    ask(&servers, ["acquire", "k"]).success();
    for (typed, code, left) in [("\n", 1, 1), ("n\n", 1, 1), ("y\n", 0, 0)] {
        let mut terminal = Terminal::start(&redlock(&servers, ["release", "--force", "k"]));
        terminal.shows(&format!("note: deletes k on {}: held by ", servers[0].name()));
        terminal.shows("If the holder of k is still running, it will lose the lock");
        terminal.type_in(typed);
        assert_eq!((terminal.code(), copies(&servers, "k")), (code, left), "{typed:?}");
    }
}
