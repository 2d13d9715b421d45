//! Signals that `redlock` gets, and its own death.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use redlock_testkit::RedisServers;
use redlock_testkit::lab::calls;
use rustix::process::{Pid, Signal};

use crate::support::{
    Running, ask, copies, is_alive, is_stopped, poll, redlock, send, undisturbed,
};

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
fn signals_reach_descendants_of_the_command() {
    let servers = RedisServers::start(1).unwrap();
    // It prints its own pid once it is a separate program, because a shell that has just forked
    // loses signals.
    let script = "trap 'wait; exit 4' TERM; sh -c 'echo $$; exec sleep 600' & wait";
    let mut run = Running::start(redlock(&servers, ["run", "k", "--", "sh", "-c", script]));
    let grandchild: i32 = run.lines().next().parse().unwrap();
    run.signal(Signal::TERM);
    assert_eq!(run.answer().code, 4);
    assert!(!is_alive(grandchild));
}

#[test]
fn previously_ignored_signal_stays_ignored() {
    let servers = RedisServers::start(1).unwrap();
    let script = "grep SigIgn /proc/self/status; read x; echo on";
    let run = redlock(&servers, ["run", "k", "--", "sh", "-c", script]);
    let mut command = started_by(&["env", "--ignore-signal=HUP"], &run);
    command.stdin(Stdio::piped());
    let mut run = Running::start(command);
    let mut lines = run.lines();
    let ignored = mask(&lines.next());
    assert_ne!(ignored & bit(Signal::HUP), 0, "SIGHUP is ignored by the command");
    run.signal(Signal::HUP);
    run.type_in("x\n");
    assert_eq!(lines.next(), "on");
    assert_eq!(run.answer().code, 0);
}

/// Runs in its own mount namespace, which any user can create together with a user namespace.
#[test]
fn missing_proc_is_named_early_and_dev_fd_is_not_needed() {
    let servers = RedisServers::start(1).unwrap();
    let run = redlock(&servers, ["run", "k", "--", "echo", "ran"]);
    let text = "mount -t tmpfs none /proc && exec \"$@\"";
    let mut command = started_by(&["unshare", "-rm", "sh", "-c", text, "_"], &run);
    let refused = crate::support::Answer::from(command.output().unwrap());
    assert_eq!(refused.code, 126, "{refused:?}");
    assert!(refused.cause().contains("needs /proc, which is missing here"), "{refused:?}");
    let tried = calls(&servers[0], "eval") + calls(&servers[0], "evalsha");
    assert_eq!((tried, copies(&servers, "k")), (0, 0), "no lock was requested");
    // /dev/fd is a link into /proc, and a /dev with nothing but /dev/null has none.
    let bare = "mkdir /tmp/d && touch /tmp/d/null && mount --bind /dev/null /tmp/d/null && \
                mount --rbind /tmp/d /dev && exec \"$@\"";
    let text = format!("mount -t tmpfs none /tmp && {bare}");
    let mut command = started_by(&["unshare", "-rm", "sh", "-c", &text, "_"], &run);
    let ran = crate::support::Answer::from(command.output().unwrap());
    assert_eq!(ran.success(), "ran");
}

#[test]
fn signal_ends_the_wait_and_leaves_no_key() {
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
                stats.contains("cmdstat_set:").then_some(())
            });
            run.signal(signal);
            let answer = run.answer();
            assert_eq!((answer.code, answer.out.as_str()), (code, ""));
            let said = "before acquiring k: k is held by stranger, never expires: ";
            assert!(answer.cause().contains(said), "{answer:?}");
            assert!(answer.shows_three_as_held(), "{answer:?}");
            for server in servers.iter() {
                server.command(&["DEL", "k"]).unwrap();
            }
            assert_eq!(ask(&servers, ["status", "k"]).code, 1);
        }
    }
}

#[test]
fn blocked_signal_still_ends_the_wait_for_a_lock() {
    let servers = RedisServers::start(1).unwrap();
    servers[0].command(&["SET", "k", "stranger"]).unwrap();
    let run = redlock(&servers, ["run", "k", "--wait", "forever", "--", "true"]);
    let run = Running::start(started_by(&["env", "--block-signal=TERM"], &run));
    poll("it has tried", || {
        (calls(&servers[0], "eval") + calls(&servers[0], "evalsha") > 0).then_some(())
    });
    run.signal(Signal::TERM);
    assert_eq!(run.answer().code, 143);
}

#[test]
fn the_command_gets_the_blocked_signals_that_redlock_found() {
    let servers = RedisServers::start(1).unwrap();
    // No shell: some of them unblock everything.
    let run = redlock(&servers, ["run", "k", "--", "cat", "/proc/self/status", "-"]);
    let mut command = started_by(&["env", "--block-signal=CHLD,TERM,ALRM"], &run);
    command.stdin(Stdio::piped());
    let mut run = Running::start(command);
    let mut lines = run.lines();
    let mut line = |name| loop {
        let line = lines.next();
        if line.starts_with(name) {
            return line.split_whitespace().last().unwrap().to_owned();
        }
    };
    let (child, blocked) = (line("Pid:").parse().unwrap(), line("SigBlk:"));
    let found: u64 = [Signal::CHILD, Signal::TERM, Signal::ALARM].map(bit).iter().sum();
    assert_eq!(mask(&blocked), found, "{blocked}");
    run.signal(Signal::TERM);
    poll("SIGTERM is passed on and waits there", || {
        (mask_of(child, "ShdPnd:") & bit(Signal::TERM) != 0).then_some(())
    });
    run.type_in("x\n");
    assert_eq!(run.answer().code, 0, "its end is noticed although SIGCHLD was blocked");
}

fn bit(signal: Signal) -> u64 {
    1 << (signal.as_raw() - 1)
}

/// The signals in a line of `/proc/PID/status`.
fn mask(line: &str) -> u64 {
    u64::from_str_radix(line.split_whitespace().last().unwrap(), 16).unwrap()
}

fn mask_of(pid: i32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    mask(status.lines().find(|line| line.starts_with(name)).unwrap())
}

#[test]
fn quickly_repeated_sigterm_is_not_passed_on() {
    const MOMENT: Duration = Duration::from_millis(500);
    let servers = RedisServers::start(1).unwrap();
    // On a busy machine the second may come late.
    poll("two within a moment", || {
        let (apart, passed_on) = two_sigterms(&servers, Duration::ZERO);
        if apart < MOMENT {
            assert_eq!(passed_on, 1, "{apart:?} apart");
        }
        (apart < MOMENT).then_some(())
    });
    let (_, passed_on) = two_sigterms(&servers, MOMENT + Duration::from_millis(100));
    assert_eq!(passed_on, 2);
}

/// How far apart they were at most, and how many the command got.
fn two_sigterms(servers: &RedisServers, pause: Duration) -> (Duration, u32) {
    // It starts nothing: a shell that has just forked loses signals.
    let script = "n=0; trap 'n=$((n+1)); echo TERM' TERM; trap 'echo USR1' USR1; echo ready; \
                  while ! read x; do :; done; echo got $n";
    let mut command = redlock(servers, ["run", "k", "--", "sh", "-c", script]);
    command.stdin(Stdio::piped());
    let mut run = Running::start(command);
    let mut lines = run.lines();
    assert_eq!(lines.next(), "ready");
    let began = Instant::now();
    run.signal(Signal::TERM);
    assert_eq!(lines.next(), "TERM");
    thread::sleep(pause);
    run.signal(Signal::TERM);
    let apart = began.elapsed();
    // All earlier signals have reached the command when it answers.
    run.signal(Signal::USR1);
    while lines.next() != "USR1" {}
    run.type_in("x\n");
    let count = loop {
        if let Some(count) = lines.next().strip_prefix("got ") {
            break count.parse().unwrap();
        }
    };
    assert_eq!(run.answer().code, 0);
    (apart, count)
}

#[test]
fn children_that_redlock_did_not_start_are_reaped() {
    let servers = RedisServers::start(1).unwrap();
    // As process 1 of a container it adopts orphans; here it is executed by who has a child. The
    // first one ends before it listens to signals.
    for child in ["true", "sleep 2"] {
        let shell = format!("{child} >/dev/null 2>&1 & echo $!; exec \"$@\"");
        let run = redlock(&servers, ["run", "k", "--", "sh", "-c", "echo up; exec sleep 600"]);
        let mut run = Running::start(started_by(&["sh", "-c", &shell, "_"], &run));
        let mut lines = run.lines();
        let adopted = lines.next();
        assert_eq!(lines.next(), "up");
        let adopted = Path::new("/proc").join(adopted);
        poll("the adopted child is gone", || (!adopted.exists()).then_some(()));
        assert!(!run.has_ended());
        run.signal(Signal::TERM);
        assert_eq!(run.answer().code, 143);
    }
}

#[test]
fn killed_redlock_kills_the_command_and_its_descendants() {
    let servers = RedisServers::start(1).unwrap();
    let script = "trap '' TERM HUP INT; (while :; do sleep 1; done) >/dev/null & \
                  echo $$ $!; while :; do sleep 1; done";
    let words = ["run", "k", "--ttl", "3s", "--", "sh", "-c", script];
    let mut run = Running::start(redlock(&servers, words));
    let line = run.lines().next();
    let pids: Vec<i32> = line.split(' ').map(|pid| pid.parse().unwrap()).collect();
    let watchdog = watchdog_of(run.pid());
    // It tells its watchdog of the command as soon as that is started, and extends afterwards.
    poll("redlock watches over it", || (calls(&servers[0], "pexpire") > 0).then_some(()));
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    run.signal(Signal::KILL);
    poll("the command dies", || (!pids.iter().any(|pid| is_alive(*pid))).then_some(()));
    poll("the watchdog ends", || (!is_alive(watchdog)).then_some(()));
}

#[test]
fn watchdog_has_its_own_session_and_exits_with_redlock() {
    let servers = RedisServers::start(1).unwrap();
    let mut command = redlock(&servers, ["run", "k", "--", "sh", "-c", "echo up; read x"]);
    command.stdin(Stdio::piped());
    let mut run = Running::start(command);
    assert_eq!(run.lines().next(), "up");
    let watchdog = watchdog_of(run.pid());
    poll("it has its own session", || {
        let session = rustix::process::getsid(Pid::from_raw(watchdog)).unwrap();
        (session.as_raw_nonzero().get() == watchdog).then_some(())
    });
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::TSTP, Signal::USR1] {
        send(watchdog, signal);
    }
    assert!(is_alive(watchdog) && !is_stopped(watchdog));
    let environment = fs::read(format!("/proc/{watchdog}/environ")).unwrap();
    assert!(environment.is_empty(), "it does not need the masters' addresses");
    run.type_in("x\n");
    run.answer();
    assert!(!is_alive(watchdog));
}

/// The process that watches over a `redlock run`.
pub(crate) fn watchdog_of(redlock: i32) -> i32 {
    let children = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let pid: i32 = entry.unwrap().file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.to_owned();
        (parent == redlock.to_string()).then_some(pid)
    });
    let is_watchdog = |pid: &i32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).nth(1) == Some(b"__watchdog")
    };
    let watchdogs: Vec<_> = children.filter(is_watchdog).collect();
    assert_eq!(watchdogs.len(), 1, "{watchdogs:?}");
    watchdogs[0]
}
