//! Signals that `redlock` gets, and its own death.

use std::process::{Command, Stdio};

use redlock_testkit::RedisServers;
use rustix::process::Signal;

use crate::support::{Running, ask, copies, is_alive, poll, redlock, undisturbed};

/// The same command, executed by another in its own place.
fn started_by(words: &[&str], command: &Command) -> Command {
    let mut outer = undisturbed(words[0]);
    outer.args(&words[1..]).args(command.get_args().skip(1));
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer
}

#[test]
fn signals_are_passed_on_to_the_command() {
    let servers = RedisServers::start(1).unwrap();
    let names = ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2"];
    let traps: String =
        names.map(|name| format!("trap 'echo {name}; n=$((n+1))' {name}; ")).concat();
    let script =
        format!("n=0; {traps} echo ready; while [ $n -lt 6 ]; do sleep 0.02; done; exit 9");
    let mut run = Running::start(redlock(&servers, ["run", "k", "--", "sh", "-c", &script]));
    let mut lines = run.lines();
    assert_eq!(lines.next(), "ready");
    let signals =
        [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];
    for (name, signal) in names.into_iter().zip(signals) {
        run.signal(signal);
        assert_eq!(lines.next(), name);
    }
    assert_eq!(run.answer().code, 9);
    assert_eq!(copies(&servers, "k"), 0);
}

#[test]
fn signals_reach_what_the_command_has_started() {
    let servers = RedisServers::start(1).unwrap();
    // It tells its own pid, once it is a program of its own: a shell that has just forked loses signals.
    let script = "trap 'wait; exit 4' TERM; sh -c 'echo $$; exec sleep 600' & wait";
    let mut run = Running::start(redlock(&servers, ["run", "k", "--", "sh", "-c", script]));
    let grandchild = run.lines().next().parse().unwrap();
    run.signal(Signal::TERM);
    assert_eq!(run.answer().code, 4);
    assert!(!is_alive(grandchild));
}

#[test]
fn a_signal_that_was_ignored_before_stays_ignored() {
    let servers = RedisServers::start(1).unwrap();
    let script = "grep SigIgn /proc/self/status; read x; echo on";
    let run = redlock(&servers, ["run", "k", "--", "sh", "-c", script]);
    let mut command = started_by(&["env", "--ignore-signal=HUP"], &run);
    command.stdin(Stdio::piped());
    let mut run = Running::start(command);
    let mut lines = run.lines();
    let mask = lines.next();
    let mask = u64::from_str_radix(mask.trim_start_matches("SigIgn:").trim(), 16).unwrap();
    assert_eq!(mask & 1, 1, "SIGHUP is ignored by the command");
    run.signal(Signal::HUP);
    run.type_in("x\n");
    assert_eq!(lines.next(), "on");
    assert_eq!(run.answer().code, 0);
}

#[test]
fn a_signal_ends_the_wait_for_a_lock_and_nothing_is_left() {
    let servers = RedisServers::start(3).unwrap();
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        for words in [
            &["run", "k", "--wait", "forever", "--", "true"][..],
            &["acquire", "k", "--wait", "1h"],
        ] {
            for server in servers.iter() {
                server.command(&["SET", "k", "stranger"]).unwrap();
                server.command(&["CONFIG", "RESETSTAT"]).unwrap();
            }
            let mut command = redlock(&servers, []);
            command.args(words);
            let run = Running::start(command);
            poll("it has tried", || {
                let stats = format!("{:?}", servers[0].command(&["INFO", "commandstats"]).unwrap());
                stats.contains("cmdstat_evalsha").then_some(())
            });
            run.signal(signal);
            let answer = run.answer();
            assert_eq!((answer.code, answer.out.as_str()), (code, ""));
            assert!(answer.cause().contains("no lock on k was taken"), "{answer:?}");
            for server in servers.iter() {
                server.command(&["DEL", "k"]).unwrap();
            }
            assert_eq!(ask(&servers, ["status", "k"]).code, 1);
        }
    }
}

#[test]
fn the_command_dies_with_a_redlock_that_is_killed() {
    let servers = RedisServers::start(1).unwrap();
    let script = "trap '' TERM HUP INT; echo $$; while :; do sleep 1; done";
    let mut run = Running::start(redlock(&servers, ["run", "k", "--", "sh", "-c", script]));
    let child: i32 = run.lines().next().parse().unwrap();
    assert!(is_alive(child));
    run.signal(Signal::KILL);
    poll("the command dies", || (!is_alive(child)).then_some(()));
}
