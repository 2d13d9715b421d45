//! `redlock run --reentrant` under a lock that a `redlock run` around it has.

use std::fs;
use std::process::{Command, Stdio};

use redlock_testkit::RedisServers;
use rustix::process::Signal;

use crate::support::{Answer, Running, Scratch, ask, copies, is_alive, poll, redlock};

/// A script that runs under a lock on `k`, knows the command as `$R`, and what it has to say as `$S`.
fn under<const N: usize>(servers: &RedisServers, options: [&str; N], script: &str) -> Command {
    under_all(servers, &["k"], options, script)
}

fn under_all<const N: usize>(
    servers: &RedisServers,
    keys: &[&str],
    options: [&str; N],
    script: &str,
) -> Command {
    let mut command = redlock(servers, ["run", "--pass-nodes"]);
    command.args(options).args(keys).args(["--", "sh", "-c", script]);
    command.env("R", env!("CARGO_BIN_EXE_redlock"));
    command.env("S", "echo $REDLOCK_KEY $REDLOCK_TOKEN ${REDLOCK_FENCING_TOKEN-none}");
    command
}

fn inside(servers: &RedisServers, script: &str) -> Answer {
    Running::start(under(servers, ["--ttl", "5s"], script)).answer()
}

#[test]
fn reentering_command_gets_the_same_tokens() {
    let servers = RedisServers::start(3).unwrap();
    for script in [
        r#"eval "$S"; $R run --reentrant k -- sh -c "$S""#,
        r#"eval "$S"; exec $R run k --reentrant -c "$S""#,
        r#"eval "$S"; $R run k -n --reentrant --pass-nodes -- $R run --reentrant k -c "$S" & wait"#,
    ] {
        let answer = inside(&servers, script);
        let lines: Vec<_> = answer.success().lines().collect();
        assert_eq!(lines.len(), 2, "{script}: {answer:?}");
        assert_eq!(lines[0], lines[1], "{script}");
        assert!(lines[0].starts_with("k ") && !lines[0].contains("none"), "{answer:?}");
        assert_eq!(copies(&servers, "k"), 0, "the outer lock is released");
    }
}

#[test]
fn reentering_writes_nothing_and_releases_nothing() {
    let servers = RedisServers::start(3).unwrap();
    let each = |command: &str| -> String {
        servers.iter().map(|server| format!("redis-cli -p {} {command};", server.port())).collect()
    };
    let script = format!(
        "{} $R run --reentrant k -- true; {} {}",
        each("config resetstat >/dev/null"),
        each("info commandstats"),
        each("get k"),
    );
    let answer = Running::start(under(&servers, ["--ttl", "60s"], &script)).answer();
    let said = answer.success();
    for written in ["set", "delifeq", "delex"] {
        assert!(!said.contains(&format!("cmdstat_{written}:")), "{written}: {answer:?}");
    }
    // Each connection tries once whether it may do that.
    for tried in ["pexpire", "del", "hello"] {
        let times = said.matches(&format!("cmdstat_{tried}:calls=1,")).count();
        assert_eq!(times, 3, "{tried}: {answer:?}");
    }
    assert!(said.contains("cmdstat_get:"), "{answer:?}");
    let kept: Vec<_> = said.lines().rev().take(3).collect();
    assert!(kept.iter().all(|token| token.contains('@') && *token == kept[0]), "{answer:?}");
}

#[test]
fn lock_in_between_keeps_the_outer_tokens() {
    let servers = RedisServers::start(3).unwrap();
    let between = r#"eval "$S"; $R run --reentrant k -c "$S"; $R run --reentrant other -c "$S"; \
                     $R run -n k -- true 2>/dev/null; echo $?"#;
    let script = format!(r#"eval "$S"; $R run other --pass-nodes -- sh -c '{between}'"#);
    let answer = inside(&servers, &script);
    let lines: Vec<_> = answer.success().lines().collect();
    assert_eq!(lines.len(), 5, "{answer:?}");
    assert_eq!((lines[0], lines[1]), (lines[2], lines[3]), "{answer:?}");
    assert!(lines[0].starts_with("k ") && lines[1].starts_with("other "), "{answer:?}");
    assert_eq!(lines[4], "75", "without the option it is refused as usual");
}

#[test]
fn reentered_plain_lock_has_no_fencing_token() {
    let servers = RedisServers::start(3).unwrap();
    let script = r#"$R run --plain p --pass-nodes -- sh -c '$R run fenced --pass-nodes -- \
                    $R run --reentrant p -c "$S"'"#;
    let answer = inside(&servers, script);
    assert!(answer.success().starts_with("p ") && answer.out.ends_with(" none\n"), "{answer:?}");
}

#[test]
fn reentrant_run_acquires_a_lock_that_no_outer_run_holds() {
    let servers = RedisServers::start(3).unwrap();
    ask(&servers, ["run", "--reentrant", "new", "--", "true"]).success();
    let script = "$R run --reentrant new -c 'echo $REDLOCK_HELD | wc -w'";
    assert_eq!(inside(&servers, script).success(), "2");
    assert_eq!(copies(&servers, "new"), 0, "it is also released");
    let stranger = |options: &[&str]| {
        for server in servers.iter() {
            server.command(&[&["SET", "new", "stranger"], options].concat()).unwrap();
        }
    };
    stranger(&["PX", "1500"]);
    inside(&servers, "$R run --reentrant new --wait 30s -- true").success();
    stranger(&[]);
    let answer = inside(&servers, "$R run --reentrant new -n -- true");
    assert_eq!(answer.code, 75);
    assert!(
        answer.cause().starts_with("redlock: new is held by another client: stranger"),
        "{answer:?}"
    );
}

/// The command is ended by the one around it, also when one for another lock is in between.
#[test]
fn loss_ends_commands_that_reentered_the_lock() {
    let servers = RedisServers::start(3).unwrap();
    let stubborn = "trap \"\" TERM; echo $$; while :; do sleep 0.1; done";
    for script in [
        format!("$R run --reentrant k -- sh -c '{stubborn}'; echo on"),
        format!("$R run o --pass-nodes -- $R run --reentrant k -- sh -c '{stubborn}'; echo on"),
    ] {
        let mut run = Running::start(under(&servers, ["--ttl", "5s"], &script));
        let pid: i32 = run.lines().next().parse().unwrap();
        for server in &servers[..2] {
            server.command(&["SET", "k", "stranger"]).unwrap();
        }
        poll("the command that has entered ends", || (!is_alive(pid)).then_some(()));
        let answer = run.answer();
        assert_eq!((answer.code, answer.out.as_str()), (79, ""), "{script}: {answer:?}");
        for server in servers.iter() {
            server.command(&["DEL", "k"]).unwrap();
        }
    }
}

/// The lock is still on the masters, but no process would kill a command that reuses it.
#[test]
fn abandoned_lock_is_not_reentered() {
    let servers = RedisServers::start(3).unwrap();
    let scratch = Scratch::new("left-behind");
    let (out, go) = (scratch.file("out"), scratch.file("go"));
    let script = format!(
        "(while ! [ -e {go} ]; do sleep 0.02; done; $R run --reentrant k -- touch {run}; echo $?) \
         >{out} 2>&1 &",
        go = go.display(),
        run = scratch.file("run").display(),
        out = out.display(),
    );
    let answer = Running::start(under(&servers, ["--keep", "--ttl", "60s"], &script)).answer();
    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(copies(&servers, "k") >= 2);
    fs::write(&go, "").unwrap();
    let said = poll("it has ended", || {
        fs::read_to_string(&out).ok().filter(|said| said.ends_with("75\n"))
    });
    let why =
        "redlock: cannot reuse the lock on k: the outer `redlock run` or its command has exited";
    assert!(said.starts_with(why), "{said}");
    assert!(said.contains(": held"), "{said}");
    assert!(!scratch.file("run").exists());
}

/// A process in another group continues after the lock is lost.
#[test]
fn separate_group_is_refused_with_the_fix() {
    let servers = RedisServers::start(3).unwrap();
    for script in [
        "setsid --wait $R run --reentrant k -- echo on",
        "bash -c 'set -m; $R run --reentrant k -- echo on; exit $?'",
        "setsid --wait $R run other --pass-nodes -- $R run --reentrant k -- echo on",
    ] {
        let answer = inside(&servers, script);
        assert_eq!((answer.code, answer.out.as_str()), (75, ""), "{script}: {answer:?}");
        let why =
            "redlock: cannot reuse the lock on k: this command is not in the process group that";
        assert!(answer.cause().starts_with(why), "{answer:?}");
        assert!(answer.cause().contains("without setsid"), "{answer:?}");
    }
    // A place that is another's, as in a container, or of a process that has ended.
    let script = "REDLOCK_HELD_PLACES=${REDLOCK_HELD_PLACES}0 $R run --reentrant k -- echo on";
    let answer = inside(&servers, script);
    assert_eq!((answer.code, answer.out.as_str()), (75, ""), "{answer:?}");
    let script = "unset REDLOCK_HELD_PLACES; $R run --reentrant k -- echo on";
    assert_eq!(inside(&servers, script).code, 75);
}

#[test]
fn failed_command_under_a_reentered_lock_has_shell_codes() {
    let servers = RedisServers::start(3).unwrap();
    for (command, code) in [("/nowhere/at-all", 127), ("/", 126), ("sh -c 'exit 5'", 5)] {
        let answer = inside(&servers, &format!("$R run --reentrant k -- {command}"));
        assert_eq!(answer.code, code, "{answer:?}");
    }
}

#[test]
fn reentering_command_inherits_the_signal_mask() {
    let servers = RedisServers::start(3).unwrap();
    let masks = "grep -E \"Sig(Blk|Ign|Cgt)\" /proc/self/status";
    let script = format!(
        "env --block-signal=TERM,WINCH --ignore-signal=USR1 sh -c '{masks}; \
         exec $R run --reentrant k -- {masks}'",
    );
    let answer = inside(&servers, &script);
    let lines: Vec<_> = answer.success().lines().collect();
    assert_eq!(lines.len(), 6, "{answer:?}");
    assert_eq!(lines[..3], lines[3..], "{answer:?}");
}

#[test]
fn signals_reach_a_reentering_command() {
    let servers = RedisServers::start(3).unwrap();
    let script = "trap 'wait; exit 4' TERM; \
                  $R run --reentrant k -- sh -c 'echo $$; exec sleep 600' & wait";
    let mut run = Running::start(under(&servers, [], script));
    let pid: i32 = run.lines().next().parse().unwrap();
    run.signal(Signal::TERM);
    assert_eq!(run.answer().code, 4);
    assert!(!is_alive(pid));
}

/// Too few masters report the holder, and the word of the enclosing run is not enough.
#[test]
fn lock_without_a_confirming_quorum_is_not_reentered() {
    let servers = RedisServers::start(3).unwrap();
    let script = "read x; $R run --reentrant k --wait 1s -- echo on";
    let mut command = under(&servers, ["--ttl", "60s"], script);
    let mut run = Running::start({
        command.stdin(Stdio::piped());
        command
    });
    poll("the lock is held", || (copies(&servers, "k") == 3).then_some(()));
    servers[0].pause().unwrap();
    servers[1].pause().unwrap();
    run.type_in("x\n");
    let answer = run.answer();
    assert_eq!((answer.code, answer.out.as_str()), (69, ""), "{answer:?}");
    assert!(answer.cause().contains("no quorum"), "{answer:?}");
}

/// The inner run extends and releases nothing, so options about that apply only to the outer run.
#[test]
fn lease_options_of_the_outer_run_apply() {
    let servers = RedisServers::start(3).unwrap();
    let script = "$R run --reentrant --ttl 5s --max-hold 10ms --keep k -- true";
    inside(&servers, script).success();
    assert_eq!(copies(&servers, "k"), 0);
}

/// The same `redlock run` ends with each of them.
#[test]
fn each_of_several_outer_locks_can_be_reentered() {
    let servers = RedisServers::start(3).unwrap();
    let script = r#"echo "$REDLOCK_TOKEN"; \
                    for key in a b; do $R run --reentrant $key -c "$S"; done"#;
    let command = under_all(&servers, &["a", "b"], [], script);
    let answer = Running::start(command).answer();
    let lines: Vec<_> = answer.success().lines().collect();
    assert!(lines[2].starts_with(&format!("a {} ", lines[0])), "{answer:?}");
    assert!(lines[3].starts_with(&format!("b {} ", lines[1])), "{answer:?}");
    let answer = ask(&servers, ["run", "--reentrant", "a", "b", "--", "true"]);
    assert_eq!(answer.code, 64);
    assert!(answer.cause().contains("--reentrant accepts a single KEY"), "{answer:?}");
}
