//! `redlock run` inside of `redlock run`.

use std::process::Command;

use redlock_testkit::RedisServers;

use crate::support::{Answer, Running, ask, copies, poll, redlock};

const REDLOCK: &str = env!("CARGO_BIN_EXE_redlock");

/// Returns the output of a script that runs under a lock on `key`, with the command as `$R`.
fn inside(servers: &RedisServers, key: &str, script: &str) -> Answer {
    let mut command = redlock(servers, ["run", "--pass-nodes", "--ttl", "5s", key]);
    command.env("R", REDLOCK).args(["--", "sh", "-c", script]);
    Running::start(command).answer()
}

#[test]
fn run_waiting_for_its_outer_run_is_refused_immediately() {
    let servers = RedisServers::start(3).unwrap();
    for (script, code) in [
        ("$R run k --wait forever -- true", 75),
        ("$R run k -n -- true", 75),
        ("$R run k -E 9 --wait 1h -- true", 9),
        ("$R run other --pass-nodes -- $R run k --wait forever -- true", 75),
        ("$R acquire k --wait forever", 75),
    ] {
        let answer = inside(&servers, "k", script);
        assert_eq!((answer.code, answer.out.as_str()), (code, ""), "{script}: {answer:?}");
        let said = "redlock: k: this lock is held by the enclosing `redlock run`: ";
        assert!(answer.cause().starts_with(said), "{script}: {answer:?}");
        let are_all = answer.cause().contains(": 3 masters: held; ");
        assert!(are_all || answer.shows_two_as_held(), "{answer:?}");
    }
    let silent = inside(&servers, "k", "$R run k -q --wait forever -- true");
    assert_eq!((silent.code, silent.err.as_str()), (75, ""));
    assert_eq!(copies(&servers, "k"), 0, "the outer lock is released as usual");
}

/// The value of the key identifies the lock, not its name.
#[test]
fn same_key_with_another_prefix_or_masters_is_another_lock() {
    let servers = RedisServers::start(3).unwrap();
    ask(&servers, ["init", "--yes", "--prefix", "p:"]).success();
    inside(&servers, "k", "$R run k --prefix p: -- true").success();
    let others = RedisServers::start(1).unwrap();
    let script = format!("$R run k --node {} -- true", others[0].url());
    inside(&servers, "k", &script).success();
}

#[test]
fn nested_run_waits_for_locks_of_others() {
    let servers = RedisServers::start(3).unwrap();
    for server in servers.iter() {
        server.command(&["SET", "k", "stranger", "PX", "1500"]).unwrap();
    }
    inside(&servers, "other", "$R run k --wait 30s -- true").success();
}

#[test]
fn command_gets_the_list_of_all_outer_locks() {
    let servers = RedisServers::start(3).unwrap();
    let script = "echo $REDLOCK_TOKEN; $R run inner -- sh -c 'echo $REDLOCK_TOKEN $REDLOCK_HELD'";
    let answer = inside(&servers, "a b=%/\u{e9}", script);
    let lines: Vec<_> = answer.success().lines().collect();
    let (inner, held) = lines[1].split_once(' ').unwrap();
    assert_eq!(held, format!("a%20b%3D%25%2F%C3%A9={} inner={inner}", lines[0]));
}

/// A value that another program has written there is not a lock.
#[test]
fn invalid_list_of_locks_is_ignored() {
    let servers = RedisServers::start(1).unwrap();
    for held in ["", " ", "k", "=", "k=", "k%=x %zz=y", "\u{e9}"] {
        let mut command = redlock(&servers, ["run", "k", "--", "sh", "-c", "echo $REDLOCK_HELD"]);
        command.env("REDLOCK_HELD", held);
        let answer = Running::start(command).answer();
        let words = answer.success().split(' ').filter(|word| word.starts_with("k=")).count();
        assert!(words >= 1, "{held:?}: {answer:?}");
    }
}

/// The one around it may lose the lock to a stranger while the one inside waits.
#[test]
fn nested_run_waits_if_the_lock_is_not_its_outer_runs() {
    let servers = RedisServers::start(1).unwrap();
    let script = "$R run k --wait forever -- true";
    let mut command: Command = redlock(&servers, ["run", "--pass-nodes", "other", "--"]);
    command.env("R", REDLOCK).args(["sh", "-c", script]);
    servers[0].command(&["SET", "k", "stranger"]).unwrap();
    let mut run = Running::start(command);
    poll("it holds the other lock", || (copies(&servers, "other") == 1).then_some(()));
    assert!(!run.has_ended());
    servers[0].command(&["DEL", "k"]).unwrap();
    assert_eq!(run.answer().code, 0);
}
