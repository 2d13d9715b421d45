//! A command under a lock, when nothing goes wrong.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use redlock_testkit::{RedisServers, ServerOptions};
use rustix::process::Signal;

use crate::support::{
    Running, Scratch, answer_of, ask, bare, copies, is_alive, is_stopped, poll, redlock, send,
    value,
};

#[test]
fn command_gets_key_and_token_and_its_exit_code_is_returned() {
    let servers = RedisServers::start(3).unwrap();
    let script = "echo $REDLOCK_KEY $REDLOCK_TOKEN $1; exit 7";
    let mut run =
        Running::start(redlock(&servers, ["run", "k", "--", "sh", "-c", script, "_", "a b"]));
    let line = run.lines().next();
    let words: Vec<_> = line.split(' ').collect();
    assert_eq!((words[0], &words[2..]), ("k", &["a", "b"][..]));
    assert_eq!(words[1].split('/').next().unwrap().len(), 36, "a UUID, then a label");
    let answer = run.answer();
    assert_eq!((answer.code, answer.err.as_str()), (7, ""));
    assert_eq!(copies(&servers, "k"), 0, "released");
}

#[test]
fn run_holds_the_lock_and_passes_on_stdin() {
    let servers = RedisServers::start(3).unwrap();
    let mut command =
        redlock(&servers, ["run", "k", "--", "sh", "-c", "echo $REDLOCK_TOKEN; read x; echo $x"]);
    command.stdin(Stdio::piped());
    let mut run = Running::start(command);
    let mut lines = run.lines();
    let token = lines.next();
    let holds = |server| value(server, "k").as_ref() == Some(&token);
    assert!(servers.iter().filter(|server| holds(server)).count() >= 2);
    run.type_in("hello\n");
    assert_eq!(lines.next(), "hello");
    assert_eq!(run.answer().code, 0);
}

#[test]
fn command_running_longer_than_the_ttl_keeps_its_lock() {
    let servers = RedisServers::start(3).unwrap();
    let mut command =
        redlock(&servers, ["run", "k", "--ttl", "3s", "--", "sh", "-c", "sleep 7; echo; read x"]);
    command.env("REDLOCK_NODE_TIMEOUT", "700ms").stdin(Stdio::piped());
    let mut run = Running::start(command);
    run.lines().next();
    assert_eq!(ask(&servers, ["acquire", "k"]).code, 75);
    run.type_in("x\n");
    assert_eq!(run.answer().code, 0);
    ask(&servers, ["acquire", "k"]).success();
}

#[test]
fn missing_command_exits_with_127_and_unexecutable_with_126() {
    let servers = RedisServers::start(3).unwrap();
    let scratch = Scratch::new("not-executable");
    let file = scratch.file("script");
    fs::write(&file, "true\n").unwrap();
    for (command, code) in [("no-such-command", 127), (file.to_str().unwrap(), 126), ("/", 126)] {
        let answer = ask(&servers, ["run", "k", "--", command]);
        assert_eq!((answer.code, answer.out.as_str()), (code, ""));
        assert!(answer.cause().starts_with(&format!("redlock: {command}: ")), "{answer:?}");
        assert_eq!(copies(&servers, "k"), 0, "released");
    }
}

#[test]
fn signaled_command_exits_as_in_shells() {
    let servers = RedisServers::start(1).unwrap();
    for (signal, code) in [("TERM", 143), ("KILL", 137), ("USR1", 138), ("PIPE", 141)] {
        let answer = ask(&servers, ["run", "k", "--", "sh", "-c", &format!("kill -{signal} $$")]);
        assert_eq!((answer.code, answer.err.as_str()), (code, ""));
    }
}

#[test]
fn background_processes_are_not_awaited() {
    let servers = RedisServers::start(1).unwrap();
    const ONE: &str = "sleep 600 >/dev/null 2>&1 & echo $!; ";
    for (script, said) in [
        (ONE.to_owned(), "1 process of its group is"),
        (ONE.repeat(2), "2 processes of its group are"),
    ] {
        let mut run = Running::start(redlock(&servers, ["run", "k", "-c", &script]));
        let mut lines = run.lines();
        let left: Vec<i32> = script.matches("600").map(|_| lines.next().parse().unwrap()).collect();
        let answer = run.answer();
        assert!(left.iter().all(|left| is_alive(*left)));
        left.iter().for_each(|left| send(*left, Signal::KILL));
        let note = format!(
            "note: the command exited, but {said} still running without the lock; use --wait-group to \
             hold it until all have exited\n"
        );
        assert_eq!((answer.code, answer.err), (0, note));
        assert_eq!(copies(&servers, "k"), 0);
    }
}

/// As a shell's `>(cmd)` does, which the shell does not wait for.
#[test]
fn process_exiting_just_after_the_command_causes_no_note() {
    let servers = RedisServers::start(1).unwrap();
    // On a busy machine it may be more than a moment, now and then.
    let mut notes = 0;
    for _ in 0..10 {
        let answer = ask(&servers, ["run", "k", "-c", "sleep 0.02 & :"]);
        assert_eq!(answer.code, 0, "{answer:?}");
        notes += usize::from(!answer.err.is_empty());
    }
    assert!(notes <= 6, "{notes} of 10");
}

#[test]
fn wait_group_keeps_the_lock_for_the_whole_group() {
    let servers = RedisServers::start(3).unwrap();
    // The end of the first is the end of its output.
    let script = "(trap 'echo told; exit' USR1; while :; do sleep 0.1; done) 2>/dev/null & \
                  echo $!; exit 5";
    let words = ["run", "k", "--wait-group", "--ttl", "3s", "-c", script];
    let mut command = redlock(&servers, words);
    command.env("REDLOCK_NODE_TIMEOUT", "700ms");
    let mut run = Running::start(command);
    let mut lines = run.lines();
    let left: i32 = lines.next().parse().unwrap();
    // Well beyond the TTL.
    std::thread::sleep(Duration::from_secs(6));
    assert!(is_alive(left) && !run.has_ended());
    assert!(copies(&servers, "k") >= 2, "it is extended");
    run.signal(Signal::USR1);
    assert_eq!(lines.next(), "told", "signals are passed on to the rest of the group");
    let answer = run.answer();
    assert_eq!((answer.code, answer.err.as_str()), (5, ""), "the code of the command");
    assert_eq!(copies(&servers, "k"), 0);
}

#[test]
fn loss_kills_the_group_that_wait_group_waits_for() {
    let servers = RedisServers::start(1).unwrap();
    let script = "sleep 600 >/dev/null 2>&1 & echo $!";
    let words = ["run", "k", "--wait-group", "--ttl", "6s", "-c", script];
    let mut run = Running::start(redlock(&servers, words));
    let left: i32 = run.lines().next().parse().unwrap();
    servers[0].command(&["SET", "k", "stranger"]).unwrap();
    let answer = run.answer();
    assert_eq!(answer.code, 79, "{answer:?}");
    let said = "its remaining processes were killed (SIGKILL)";
    assert!(answer.cause().contains(said), "{answer:?}");
    poll("it ends", || (!is_alive(left)).then_some(()));
}

#[test]
fn shell_text_is_run_by_the_shell() {
    let servers = RedisServers::start(1).unwrap();
    let text = "x=$(echo $REDLOCK_KEY); echo $x | tr k j; exit 3";
    let answer = ask(&servers, ["run", "k", "-c", text]);
    assert_eq!((answer.code, answer.out.as_str(), answer.err.as_str()), (3, "j\n", ""));
    let words = ask(&servers, ["run", "k", "--", "echo it", "is"]);
    assert_eq!(words.code, 127);
    let said = "redlock: echo it: command not found; -c needs a shell command: ";
    assert!(words.cause().starts_with(said), "{words:?}");
    let one = ask(&servers, ["run", "k", "--", "no-such-command"]);
    assert_eq!((one.code, one.cause()), (127, "redlock: no-such-command: command not found"));
}

#[test]
fn label_has_the_user_name_without_a_variable() {
    let servers = RedisServers::start(1).unwrap();
    let id = |option: &str| {
        let output = std::process::Command::new("id").arg(option).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let mut command = redlock(&servers, ["run", "k", "-c", "echo $REDLOCK_TOKEN"]);
    let answer = answer_of(command.env_remove("USER").env_remove("LOGNAME"));
    let name = answer.success().split('/').nth(1).unwrap().split('@').next().unwrap();
    assert!([id("-un"), id("-u")].contains(&name.to_owned()), "{answer:?}");
    if id("-u") == "0" {
        assert_eq!(name, "root");
    }
}

#[test]
fn keep_keeps_the_lock_only_after_a_success() {
    let servers = RedisServers::start(3).unwrap();
    for (script, code, is_kept) in [("exit 3", 3, false), ("kill $$", 143, false), ("", 0, true)] {
        let answer = ask(&servers, ["run", "k", "--keep", "--", "sh", "-c", script]);
        assert_eq!((answer.code, answer.err.as_str()), (code, ""));
        // The command does not wait for an unneeded connection.
        assert!(if is_kept { copies(&servers, "k") >= 2 } else { copies(&servers, "k") == 0 });
    }
    let ttl = servers[0].command(&["PTTL", "k"]).unwrap();
    assert!(matches!(ttl, redis::Value::Int(1..=33_000)), "{ttl:?}");
    assert_eq!(ask(&servers, ["run", "k", "--keep", "-n", "--", "true"]).code, 75);
}

#[test]
fn pass_nodes_is_recommended_if_a_command_needs_masters() {
    let servers = RedisServers::start(3).unwrap();
    let extend = format!("{} extend $REDLOCK_KEY $REDLOCK_TOKEN", env!("CARGO_BIN_EXE_redlock"));
    let answer = ask(&servers, ["run", "k", "--", "sh", "-c", &extend]);
    assert_eq!(answer.code, 64);
    assert!(answer.cause().contains("`redlock run` removes REDLOCK_NODES"), "{answer:?}");
    assert!(answer.cause().contains("--pass-nodes"), "{answer:?}");

    let answer = ask(&servers, ["run", "k", "--pass-nodes", "--", "sh", "-c", &extend]);
    assert_eq!(answer.success().split(' ').count(), 3);

    let nested = format!("{} run inner -- echo $REDLOCK_KEY", env!("CARGO_BIN_EXE_redlock"));
    let answer = ask(&servers, ["run", "k", "--pass-nodes", "--", "sh", "-c", &nested]);
    answer.success();
}

#[test]
fn pass_nodes_also_passes_on_options() {
    let options = ServerOptions::new().prefix("p:").max_ttl(Duration::from_secs(120));
    let servers = RedisServers::with(3, &options).unwrap();
    let extend =
        format!("{} extend $REDLOCK_KEY $REDLOCK_TOKEN --ttl 2m", env!("CARGO_BIN_EXE_redlock"));
    let mut command = bare(["--max-ttl", "2m", "--prefix", "p:", "--node-timeout", "1500ms"]);
    for server in servers.iter() {
        command.args(["--node", &server.url()]);
    }
    let acquire = format!("{extend} && {} acquire inner", env!("CARGO_BIN_EXE_redlock"));
    command.args(["--label", "deploy", "run", "k", "--pass-nodes", "--", "sh", "-c", &acquire]);
    let answer = answer_of(&mut command);
    let lines: Vec<_> = answer.success().lines().collect();
    assert!(lines.iter().all(|line| line.split(' ').count() == 3), "{answer:?}");
    assert!(lines[1].contains("/deploy "), "the label of the lock inside, too: {answer:?}");
}

#[test]
fn stopped_command_keeps_its_lock_and_continues() {
    let servers = RedisServers::start(3).unwrap();
    let mut command = redlock(
        &servers,
        [
            "run",
            "k",
            "--ttl",
            "3s",
            "--",
            "sh",
            "-c",
            "echo $$; echo $REDLOCK_TOKEN; sleep 0.1; echo on",
        ],
    );
    command.env("REDLOCK_NODE_TIMEOUT", "700ms");
    let mut run = Running::start(command);
    let mut lines = run.lines();
    let (pid, token): (i32, _) = (lines.next().parse().unwrap(), lines.next());
    send(pid, Signal::STOP);
    poll("the command is stopped", || is_stopped(pid).then_some(()));
    // Well beyond the TTL it is held by the same token.
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!(value(&servers[0], "k"), Some(token));
    send(pid, Signal::CONT);
    assert_eq!(lines.next(), "on");
    assert_eq!(run.answer().code, 0);
}
