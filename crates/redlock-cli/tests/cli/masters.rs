//! Masters that are silent or gone.

use std::process::Stdio;
use std::time::{Duration, Instant};

use redlock_testkit::RedisServers;
use redlock_testkit::lab::text;

use crate::support::{Running, ask, copies, poll, redlock};

#[test]
fn two_of_five_paused_masters_cost_nothing() {
    let servers = RedisServers::start(5).unwrap();
    servers[1].pause().unwrap();
    servers[3].pause().unwrap();
    let acquired = ask(&servers, ["acquire", "k"]);
    let token = acquired.success().split(' ').next().unwrap();
    assert!(ask(&servers, ["status", "k"]).success().contains("k is held by"));
    ask(&servers, ["extend", "k", token]).success();
    ask(&servers, ["release", "k", token]).success();
    assert_eq!(ask(&servers, ["run", "k", "--", "sh", "-c", "exit 5"]).code, 5);
    servers[1].resume().unwrap();
    servers[3].resume().unwrap();
    assert_eq!(copies(&servers, "k"), 0);
}

#[test]
fn three_of_five_paused_masters_exit_with_69() {
    let servers = RedisServers::start(5).unwrap();
    let acquired = ask(&servers, ["acquire", "k"]);
    let token = acquired.success().split(' ').next().unwrap();
    for server in &servers[..3] {
        server.pause().unwrap();
    }
    let began = Instant::now();
    for answer in [
        ask(&servers, ["acquire", "other"]),
        ask(&servers, ["run", "other", "-n", "--", "true"]),
        ask(&servers, ["extend", "k", token]),
        ask(&servers, ["release", "k", token]),
        ask(&servers, ["status", "k"]),
    ] {
        assert_eq!(answer.code, 69, "{answer:?}");
        for server in servers.iter() {
            assert!(answer.cause().contains(&server.name()), "{answer:?}");
        }
    }
    // Each waits 1 s for connections and then three node timeouts at most.
    assert!(began.elapsed() < Duration::from_secs(5 * 4), "{:?}", began.elapsed());
    for server in &servers[..3] {
        server.resume().unwrap();
    }
    assert_eq!(copies(&servers, "other"), 0, "no key remains of the failed attempt");
}

#[test]
fn dead_masters_are_reported_immediately_as_refused() {
    let servers = RedisServers::start(5).unwrap();
    for server in &servers[2..] {
        server.kill();
    }
    let answer = ask(&servers, ["acquire", "k"]);
    assert_eq!(answer.code, 69);
    let status = ask(&servers, ["status", "k"]);
    let names: Vec<String> = servers[2..].iter().map(|server| server.name()).collect();
    let said = format!("3 masters ({}): connection refused", names.join(", "));
    assert!(answer.cause().contains(&said), "{answer:?}");
    assert!(status.cause().contains(&said), "{status:?}");
    assert_eq!(copies(&servers, "k"), 0);
}

#[test]
fn masters_possibly_keeping_a_key_are_named_with_the_time() {
    let servers = RedisServers::start(3).unwrap();
    let mut command = redlock(&servers, ["run", "k", "--ttl", "3s", "--", "sh", "-c", "read x"]);
    command.stdin(Stdio::piped());
    let mut run = Running::start(command);
    poll("each master grants, at the latest with the first extension", || {
        (copies(&servers, "k") == 3).then_some(())
    });
    servers[2].pause().unwrap();
    run.type_in("done\n");
    let answer = run.answer();
    assert_eq!(answer.code, 0, "the command's own: {answer:?}");
    let note = format!("note: {} may keep the key of k until ", servers[2].name());
    let line = answer.err.lines().find(|line| line.starts_with(&note));
    let line = line.unwrap_or_else(|| panic!("{answer:?}"));
    assert!(line.ends_with(" UTC"), "{line}");
    servers[2].resume().unwrap();
}

/// Each attempt of a command that waits may leave a key there.
#[test]
fn master_possibly_keeping_a_key_is_named_once() {
    let servers = RedisServers::start(3).unwrap();
    // One vote of three is left, so there is no quorum, and attempts continue.
    servers[1..].iter().for_each(|server| drop(server.command(&["FLUSHALL"]).unwrap()));
    let words = ["acquire", "k", "--ttl", "3s", "--wait", "6s"];
    let waits = Running::start(redlock(&servers, words));
    poll("it was refused", || {
        let stats: String = text(&servers[2], &["INFO", "commandstats"]);
        stats.contains("cmdstat_set:").then_some(())
    });
    servers[2].pause().unwrap();
    let answer = waits.answer();
    servers[2].resume().unwrap();
    assert_eq!(answer.code, 69, "{answer:?}");
    let note = format!("note: {} may keep the key of k for up to ", servers[2].name());
    let notes = answer.err.lines().filter(|line| line.starts_with(&note)).count();
    assert_eq!(notes, 1, "{answer:?}");
}
