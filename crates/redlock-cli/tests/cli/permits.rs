//! `run --permits` and `status --permits`, with processes that are killed and paused.

use std::time::{Duration, Instant};

use redlock_testkit::RedisServers;
use rustix::process::Signal;
use serde_json::json;

use crate::support::{Answer, Lines, Running, ask, poll, redlock};

const TTL: Duration = Duration::from_secs(3);
/// How long a busy machine may take to start a process and to notice what has happened.
const SLACK: Duration = Duration::from_secs(2);

/// A command with one of two permits, which prints its slot and stays.
fn holder(servers: &RedisServers) -> (Running, Lines) {
    let words = ["run", "backups", "--permits", "2", "--ttl", "3s", "--wait", "forever", "-c"];
    let mut command = redlock(servers, words);
    command.arg("echo $REDLOCK_KEY $REDLOCK_SLOT; exec sleep 600");
    let mut running = Running::start(command);
    let lines = running.lines();
    (running, lines)
}

fn status(servers: &RedisServers) -> Answer {
    ask(servers, ["status", "backups", "--permits", "2", "--json"])
}

/// Waits until so many processes wait for a permit.
fn until_waiting(servers: &RedisServers, waiters: u64) {
    poll("they wait", || (status(servers).json()["waiters"] == waiters).then_some(()));
}

#[test]
fn third_command_of_two_permits_is_refused_with_the_holders() {
    let servers = RedisServers::start(5).unwrap();
    let free = status(&servers);
    assert_eq!(free.code, 1, "{free:?}");
    assert!(free.cause().contains("no permit of backups is held"), "{free:?}");
    let (_one, mut first) = holder(&servers);
    let (_two, mut second) = holder(&servers);
    let mut lines = [first.next(), second.next()];
    lines.sort();
    assert_eq!(lines, ["backups#0 0", "backups#1 1"]);

    let refused = ask(&servers, ["run", "backups", "--permits", "2", "-n", "--", "true"]);
    assert_eq!(refused.code, 75, "{refused:?}");
    let cause = refused.cause();
    for said in ["backups: all 2 permits are held: ", "backups#0 is held by"] {
        assert!(cause.contains(said), "{cause}");
    }
    let answer = status(&servers);
    assert_eq!((answer.code, answer.err.as_str()), (0, ""), "{answer:?}");
    let object = answer.json();
    assert_eq!((&object["key"], &object["permits"]), (&json!("backups"), &json!(2)));
    for (number, slot) in object["slots"].as_array().unwrap().iter().enumerate() {
        assert_eq!((&slot["slot"], &slot["state"]), (&json!(number), &json!("held")));
        assert!(slot["token"].is_string() && slot["ttl_ms"].is_u64() && slot["since_ms"].is_u64());
    }
    let text = ask(&servers, ["status", "backups", "--permits", "3"]);
    assert_eq!(text.out.lines().count(), 3, "{text:?}");
    assert!(text.success().ends_with("backups#2 is free"), "{text:?}");
    let odd = ask(&servers, ["status", "a; b", "--permits", "2"]);
    assert_eq!(odd.out.lines().collect::<Vec<_>>(), ["a; b#0 is free", "a; b#1 is free"]);
    let third = ask(&servers, ["run", "backups", "--permits", "3", "-c", "echo $REDLOCK_SLOT"]);
    assert_eq!(third.success(), "2");
}

#[test]
fn an_interrupted_wait_names_the_holders_of_the_permits() {
    let servers = RedisServers::start(3).unwrap();
    let (_one, mut first) = holder(&servers);
    let (_two, mut second) = holder(&servers);
    let _ = (first.next(), second.next());
    let words = ["run", "backups", "--permits", "2", "--wait", "1h", "--", "true"];
    let waiting = Running::start(redlock(&servers, words));
    until_waiting(&servers, 1);
    waiting.signal(Signal::TERM);
    let answer = waiting.answer();
    assert_eq!(answer.code, 143, "{answer:?}");
    let cause = answer.cause();
    for said in ["interrupted by SIGTERM before acquiring backups: ", "backups#0 is held by"] {
        assert!(cause.contains(said), "{cause}");
    }
}

#[test]
fn the_exit_code_shows_if_a_permit_is_held_or_undecided() {
    const RESERVED: &str = "redlock-quorum:next:00000000000000ff";
    // The values of each slot on three masters.
    for (slots, code, states) in [
        ([[RESERVED; 3], [""; 3]], 1, ["reserved", "free"]),
        ([["a/x", "b/y", ""], [""; 3]], 69, ["undecided", "free"]),
        ([["a/x", "b/y", ""], ["c/z"; 3]], 0, ["undecided", "held"]),
    ] {
        let servers = RedisServers::start(3).unwrap();
        for (slot, values) in slots.iter().enumerate() {
            for (server, value) in servers.iter().zip(values).filter(|(_, value)| !value.is_empty())
            {
                let key = format!("backups#{slot}");
                server.command(&["SET", &key, value, "PX", "600000"]).unwrap();
            }
        }
        let answer = status(&servers);
        assert_eq!(answer.code, code, "{answer:?}");
        let object = answer.json();
        let shown = object["slots"].as_array().unwrap().iter().map(|slot| &slot["state"]);
        assert_eq!(shown.collect::<Vec<_>>(), states);
    }
}

#[test]
fn dead_holder_or_waiter_delays_the_next_by_one_ttl_at_most() {
    for (victim_waits, signal) in
        [(false, Signal::KILL), (false, Signal::STOP), (true, Signal::KILL), (true, Signal::STOP)]
    {
        let servers = RedisServers::start(5).unwrap();
        let (one, mut lines) = holder(&servers);
        lines.next();
        let (two, mut lines) = holder(&servers);
        lines.next();
        // The first that waits has the gate.
        let first = victim_waits.then(|| holder(&servers).0);
        until_waiting(&servers, u64::from(victim_waits));
        let (next, mut served) = holder(&servers);
        until_waiting(&servers, u64::from(victim_waits) + 1);
        let began = Instant::now();
        match &first {
            Some(waiter) => {
                waiter.signal(signal);
                two.signal(Signal::TERM);
            }
            None => one.signal(signal),
        }
        served.next();
        let waited = began.elapsed();
        let limit = TTL.mul_f64(1.1) + Duration::from_secs(1) + SLACK;
        assert!(waited <= limit, "{victim_waits} {signal:?}: {waited:?}");
        // A paused command must not keep the test from ending it.
        for process in [Some(&one), first.as_ref()].into_iter().flatten() {
            if signal == Signal::STOP {
                process.signal(Signal::CONT);
            }
        }
        drop(next);
    }
}

#[test]
fn permits_are_out_of_place_with_several_keys_and_other_recipes() {
    let servers = RedisServers::start(1).unwrap();
    for words in [
        &["run", "a", "b", "--permits", "2", "--", "true"][..],
        &["run", "a", "--permits", "0", "--", "true"],
        &["run", "a", "--permits", "65", "--", "true"],
        &["run", "a", "--permits", "2", "--reentrant", "--", "true"],
        &["run", "a", "--permits", "2", "--once-in", "1h", "--", "true"],
        &["status", "--permits", "2"],
        &["status", "a", "--permits", "2", "--watch"],
        &["status", "--watch"],
    ] {
        let mut command = redlock(&servers, []);
        command.args(words);
        let answer = Running::start(command).answer();
        assert_eq!(answer.code, 64, "{words:?}: {answer:?}");
    }
    let long = "n".repeat(508);
    for words in [["status", &long, "--permits", "2"], ["run", &long, "--permits", "2"]] {
        let mut command = redlock(&servers, words);
        if words[0] == "run" {
            command.args(["--", "true"]);
        }
        let answer = Running::start(command).answer();
        assert_eq!(answer.code, 64, "{answer:?}");
    }
}

/// A command inside of `depth` runs, each with one of two permits of `k`.
fn inside(servers: &RedisServers, depth: usize, script: &str) -> Answer {
    let run = ["run", "k", "--permits", "2", "--pass-nodes", "--"];
    let mut command = redlock(servers, run);
    for _ in 1..depth {
        command.arg(env!("CARGO_BIN_EXE_redlock")).args(run);
    }
    command.env("R", env!("CARGO_BIN_EXE_redlock")).args(["sh", "-c", script]);
    Running::start(command).answer()
}

#[test]
fn nested_run_holding_all_permits_is_refused_immediately() {
    let servers = RedisServers::start(3).unwrap();
    for script in [
        "$R run k --permits 2 --wait forever -- true",
        "$R run k --permits 2 -n -- true",
        "$R run k --permits 1 --wait forever -- true",
        "$R run other --pass-nodes -- $R run k --permits 2 --wait forever -- true",
    ] {
        let answer = inside(&servers, 2, script);
        assert_eq!(answer.code, 75, "{script}: {answer:?}");
        let cause = answer.cause();
        assert!(cause.contains("held by enclosing `redlock run`s: k#0 is held by"), "{cause}");
        assert!(cause.ends_with("; run the nested command directly, without `redlock run`"));
    }
    inside(&servers, 1, "$R run k --permits 2 -n -- true").success();
    inside(&servers, 2, "$R run k --permits 3 -n -- true").success();
}

/// Only one of the two permits is held by an enclosing run, so the wait can end.
#[test]
fn nested_run_waits_for_a_second_permit() {
    let servers = RedisServers::start(3).unwrap();
    for server in servers.iter() {
        server.command(&["SET", "k#0", "stranger", "PX", "1500"]).unwrap();
        server.command(&["SET", "k#1", "stranger", "PX", "600000"]).unwrap();
    }
    let script =
        "echo $REDLOCK_SLOT; $R run k --permits 3 --wait 30s -- sh -c 'echo $REDLOCK_SLOT'";
    let run = ["run", "k", "--permits", "3", "--pass-nodes", "--wait", "30s", "--"];
    let mut command = redlock(&servers, run);
    command.env("R", env!("CARGO_BIN_EXE_redlock")).args(["sh", "-c", script]);
    let answer = Running::start(command).answer();
    assert_eq!(answer.success(), "2\n0");
}
