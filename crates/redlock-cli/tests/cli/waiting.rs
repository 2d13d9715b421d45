//! Waiting: conditions that end it early, and messages during the wait.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use redlock_testkit::lab::{Delays, calls, fill, pttl, text};
use redlock_testkit::{RedisServer, RedisServers, ServerOptions};
use rustix::process::Signal;

use crate::support::{
    Answer, Lines, Running, Scratch, answer_of, ask, bare, copies, poll, redlock, value,
    waited_for_processor,
};
use crate::terminal::Terminal;

/// A wait that lasts until the test ends it, or until the test says that this took too long.
fn ended(command: Command) -> (Answer, Duration) {
    let began = Instant::now();
    let answer = Running::start(command).answer();
    (answer, began.elapsed())
}

#[test]
fn permanent_error_ends_the_wait_immediately() {
    let servers = RedisServers::with(3, &ServerOptions::new().password("right")).unwrap();
    let wrong = servers.urls().join(",").replace("right", "wrong");
    for wait in ["forever", "1h"] {
        for words in [&["acquire", "k"][..], &["run", "k"]] {
            let mut command = bare([]);
            command.env("REDLOCK_NODES", &wrong).args(words).args(["--wait", wait]);
            if words[0] == "run" {
                command.args(["--", "true"]);
            }
            let (answer, took) = ended(command);
            assert_eq!((answer.code, answer.out.as_str()), (69, ""), "{answer:?}");
            assert!(answer.cause().contains("waiting will not help"), "{answer:?}");
            assert!(answer.cause().contains(": 3 masters: error reply: WRONGPASS"), "{answer:?}");
            assert!(answer.cause().ends_with("; run `redlock doctor`"), "{answer:?}");
            assert!(took < Duration::from_secs(30), "{took:?}");
        }
    }
}

#[test]
fn replicas_and_masters_denying_a_command_are_not_awaited() {
    let servers = RedisServers::start(3).unwrap();
    servers[1].command(&["REPLICAOF", "127.0.0.1", &servers[0].port().to_string()]).unwrap();
    servers[2].command(&["ACL", "SETUSER", "default", "-set"]).unwrap();
    let (answer, _) = ended(redlock(&servers, ["acquire", "k", "--wait", "forever"]));
    assert_eq!(answer.code, 69, "{answer:?}");
    for said in ["not admitted: it is a replica", "error reply: NOPERM"] {
        assert!(answer.cause().contains(said), "{answer:?}");
    }
    assert_eq!(copies(&servers, "k"), 0);
}

#[test]
fn wait_that_becomes_hopeless_ends() {
    let servers = RedisServers::start(1).unwrap();
    servers[0].command(&["SET", "k", "stranger"]).unwrap();
    let waiting = Running::start(redlock(&servers, ["-v", "acquire", "k", "--wait", "forever"]));
    poll("it has tried", || {
        (calls(&servers[0], "eval") + calls(&servers[0], "evalsha") > 0).then_some(())
    });
    // A replica of a missing master. The client has to connect again.
    servers[0].command(&["REPLICAOF", "127.0.0.1", "1"]).unwrap();
    servers[0].command(&["CLIENT", "KILL", "TYPE", "normal"]).ok();
    let answer = waiting.answer();
    assert_eq!(answer.code, 69, "{answer:?}");
    // The cause comes from its role, or from its answer to a client that joined the queue in the
    // meantime.
    let says = ["it is a replica", "READONLY"].map(|why| answer.cause().contains(why));
    assert!(says.contains(&true), "{answer:?}");
}

#[test]
fn waiting_line_names_the_key_and_holder_after_a_second() {
    let servers = RedisServers::start(3).unwrap();
    for server in servers.iter() {
        server.command(&["SET", "k", "f00/deploy@host:7", "PX", "60000"]).unwrap();
    }
    let mut command = redlock(&servers, ["-v", "acquire", "k", "--wait", "1h"]);
    command.stderr(std::process::Stdio::piped()).stdout(std::process::Stdio::null());
    let mut waiting = command.spawn().unwrap();
    let mut lines = Lines::of(waiting.stderr.take().unwrap());
    let line = lines.next();
    let said = "note: waiting up to 1h for k: k is held by f00/deploy@host:7, expires in ";
    assert!(line.starts_with(said), "{line}");
    rustix::process::kill_process(rustix::process::Pid::from_child(&waiting), Signal::TERM)
        .unwrap();
    let line = lines.next();
    assert!(
        line.starts_with("redlock: interrupted by SIGTERM"),
        "one line, and then the last: {line}"
    );
    assert_eq!(poll("it ends", || waiting.try_wait().unwrap()).code(), Some(143));
}

/// How many processes wait for `k` in its queue.
fn queued(servers: &RedisServers) -> u32 {
    text(&servers[0], &["ZCARD", "redlock-quorum:1:queue:k"])
}

/// So many stopped processes wait before so many live ones: how long the key is held by none of them,
/// without the time for which the machine had no processor for the master, for those that wait or for
/// this test. There is one master: on a busy machine, not all of them would meet at the same one of
/// several.
fn behind_stopped(stopped: u32, live: u32) -> Duration {
    let servers = RedisServers::start(1).unwrap();
    servers[0].command(&["SET", "k", "stranger"]).unwrap();
    let files = Scratch::new("behind-stopped");
    let go = files.file("go");
    // Until then the first one keeps the key, so that this test sees it.
    let script = format!("until [ -e {} ]; do sleep 0.02; done", go.display());
    let wait_in_queue = |number| {
        let words = ["run", "k", "--wait", "forever", "--", "sh", "-c", &script];
        let waits = Running::start(redlock(&servers, words));
        poll("it is in the queue", || (queued(&servers) == number).then_some(()));
        waits
    };
    let _stopped: Vec<_> = (1..=stopped)
        .map(|number| {
            let waits = wait_in_queue(number);
            waits.signal(Signal::STOP);
            waits
        })
        .collect();
    let live: Vec<_> = (1..=live).map(|number| wait_in_queue(stopped + number)).collect();
    let at_work: Vec<_> =
        live.iter().map(|waits| waits.pid().unsigned_abs()).chain(servers[0].pid()).collect();
    let waited = || at_work.iter().map(waited_for_processor).sum::<Duration>();
    let (delays, before, began) = (Delays::watch(), waited(), Instant::now());
    servers[0].command(&["DEL", "k"]).unwrap();
    // What comes after the first live one waits for a command, and not for one that is stopped.
    poll("a live one has the key", || value(&servers[0], "k").filter(|value| is_held(value)));
    let took = began.elapsed().saturating_sub(delays.sum() + waited() - before);
    fs::write(go, "").unwrap();
    for waits in live {
        assert_eq!(waits.answer().code, 0);
    }
    took
}

/// Whether the value of a key is the token of a holder.
fn is_held(value: &str) -> bool {
    !value.starts_with("redlock-quorum:next:")
}

/// A fifth of a second per process, and 0.3 s in addition.
#[test]
fn stopped_processes_do_not_block_later_waiters() {
    for (stopped, live) in [(1, 1), (3, 1), (10, 1), (3, 3)] {
        let most = Duration::from_millis(200) * stopped + Duration::from_millis(300);
        let took = behind_stopped(stopped, live);
        assert!(took <= most, "{live} behind {stopped}: {took:?}");
    }
}

#[test]
fn waiting_line_is_printed_on_a_terminal() {
    let servers = RedisServers::start(1).unwrap();
    servers[0].command(&["SET", "k", "stranger"]).unwrap();
    let command = redlock(&servers, ["acquire", "k", "--wait", "forever"]);
    let mut terminal = Terminal::start(&command);
    let line = terminal.shows("note: waiting for k: k is held by stranger, never expires: ");
    assert_eq!(line, format!("{} held", servers[0].name()));
    terminal.type_in("\x03");
    assert_eq!(terminal.code(), 130);
}

#[test]
fn wait_is_silent_without_a_terminal_or_verbose() {
    let servers = RedisServers::start(1).unwrap();
    servers[0].command(&["SET", "k", "stranger"]).unwrap();
    let answer = ask(&servers, ["run", "k", "--wait", "1500ms", "--", "true"]);
    assert_eq!(answer.code, 75);
    assert_eq!(answer.err.lines().count(), 1, "{answer:?}");
}

#[test]
fn stopped_wait_names_refusing_masters() {
    let servers = RedisServers::start(3).unwrap();
    for server in servers.iter() {
        server.kill();
    }
    let waiting = Running::start(redlock(&servers, ["acquire", "k", "--wait", "forever"]));
    poll("it listens to signals", || listens(waiting.pid(), 15).then_some(()));
    waiting.signal(Signal::TERM);
    let answer = waiting.answer();
    assert_eq!(answer.code, 143, "{answer:?}");
    assert!(answer.cause().contains(": 3 masters: connection refused"), "{answer:?}");
}

/// No process releases the lock of a killed process, and servers with many keys report an expiry
/// seconds late.
#[test]
fn lock_of_a_killed_holder_is_acquired_after_expiry() {
    let servers = RedisServers::start(3).unwrap();
    servers.iter().for_each(|server| fill(server, 100_000));
    let held = redlock(&servers, ["run", "k", "--ttl", "3s", "--", "sleep", "60"]);
    let holder = Running::start(held);
    poll("it holds the lock", || (copies(&servers, "k") == 3).then_some(()));
    let waiter = Running::start(redlock(&servers, ["acquire", "k", "--wait", "forever"]));
    poll("another one looks at it", || servers.iter().any(is_watched).then_some(()));
    holder.signal(Signal::KILL);
    let left = servers.iter().map(|server| pttl(server, "k")).max().unwrap();
    let expired = Instant::now() + Duration::from_millis(left.try_into().expect("it expires"));
    waiter.answer().success();
    let late = Instant::now().saturating_duration_since(expired);
    // A waiter that only looks from time to time looks once in this time.
    assert!(late < Duration::from_millis(750), "{late:?} after the expiry");
}

fn is_watched(server: &RedisServer) -> bool {
    let stats: String = text(server, &["INFO", "stats"]);
    !stats.contains("\r\ntracking_total_keys:0\r\n")
}

/// Whether a process has a handler for a signal.
fn listens(pid: i32, signal: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 << (signal - 1) != 0)
}

#[test]
fn minority_unable_to_vote_causes_a_note() {
    let servers = RedisServers::with(3, &ServerOptions::new().password("right")).unwrap();
    let mut nodes = servers.urls();
    nodes[2] = nodes[2].replace("right", "wrong");
    let note = format!("note: {} can't vote: error reply: WRONGPASS", servers[2].name());
    for words in
        [&["acquire", "a"][..], &["run", "b", "--", "sleep", "0.1"], &["run", "c", "--", "true"]]
    {
        let mut command = bare([]);
        let answer = answer_of(command.env("REDLOCK_NODES", nodes.join(",")).args(words));
        assert_eq!(answer.code, 0, "{answer:?}");
        assert_eq!(answer.err.matches(&note).count(), 1, "{answer:?}");
        assert!(answer.err.contains("2 of 3 masters can vote, 0 more can fail"), "{answer:?}");
    }
}

/// Cron would mail each run while one of five masters restarts.
#[test]
fn temporarily_absent_minority_is_named_only_with_verbose() {
    let servers = RedisServers::start(3).unwrap();
    servers[1].restart_empty().unwrap();
    let name = servers[1].name();
    let silent = ask(&servers, ["run", "k", "--", "true"]);
    assert_eq!((silent.code, silent.err.as_str()), (0, ""));
    let asked = ask(&servers, ["run", "k", "-v", "--", "true"]);
    assert!(asked.err.contains(&format!("{name} not admitted: ")), "{asked:?}");
    servers[1].kill();
    let silent = ask(&servers, ["run", "k", "--", "true"]);
    assert_eq!((silent.code, silent.err.as_str()), (0, ""));
    let asked = ask(&servers, ["run", "k", "-v", "--", "true"]);
    assert!(asked.err.contains(&format!("{name} connection refused")), "{asked:?}");
}

#[test]
fn timed_out_is_explained_with_the_option_that_changes_it() {
    let servers = RedisServers::start(3).unwrap();
    servers[0].pause().unwrap();
    servers[1].pause().unwrap();
    let answer = ask(&servers, ["acquire", "k", "--node-timeout", "500ms"]);
    assert_eq!(answer.code, 69);
    let step = "; check that the masters run and can be reached, or use a longer --node-timeout (now \
                500ms)";
    assert!(answer.cause().ends_with(step), "{answer:?}");
}

#[test]
fn line_without_a_quorum_groups_answers_and_ends_with_a_fix() {
    const STEP: &str = "; check that the masters run and can be reached, or use a longer ";
    let servers = RedisServers::start(5).unwrap();
    let assert_line = |answers: &str, step: &str| {
        let answer = ask(&servers, ["acquire", "k", "--ttl", "5s"]);
        let line = answer.cause();
        assert_eq!(answer.code, 69, "{answer:?}");
        assert!(line.starts_with("redlock: k: no quorum, ") && line.len() <= 400, "{line}");
        assert!(line.contains(answers) && line.contains(step), "{line}");
    };
    servers[..3].iter().for_each(|server| server.pause().unwrap());
    assert_line("): timed out, 2 masters (", STEP);
    servers[3..].iter().for_each(RedisServer::kill);
    assert_line("): connection refused", STEP);
    servers[3..].iter().for_each(|server| server.restart_empty().unwrap());
    assert_line("): not admitted: ", STEP);
    servers[..3].iter().for_each(|server| server.resume().unwrap());
    servers.iter().for_each(|server| server.restart_empty().unwrap());
    let new = "5 masters: not admitted: new, or lost its data";
    assert_line(
        new,
        "; if these masters are new, run `redlock init`; otherwise retry with --wait 7",
    );
    for server in servers.iter() {
        server.command(&["CONFIG", "SET", "requirepass", "secret"]).unwrap();
    }
    assert_line("5 masters: error reply: NOAUTH ", "; run `redlock doctor`");
}

#[test]
fn held_lock_is_silent_with_quiet_or_code_0() {
    let servers = RedisServers::start(3).unwrap();
    for server in servers.iter() {
        server.command(&["SET", "k", "stranger"]).unwrap();
    }
    // Our own key can be left on it, which is worth a note elsewhere.
    servers[2].pause().unwrap();
    for (words, code) in [
        (&["run", "k", "-n", "-E", "0", "--", "false"][..], 0),
        (&["run", "k", "-n", "-q", "--", "false"], 75),
        (&["acquire", "k", "-q"], 75),
        (&["-q", "acquire", "k", "-E", "9"], 9),
    ] {
        let mut command = redlock(&servers, []);
        let answer = answer_of(command.args(words));
        assert_eq!((answer.code, answer.err.as_str()), (code, ""), "{words:?}");
    }
    servers[2].resume().unwrap();
    for server in &servers[1..] {
        server.kill();
    }
    assert_eq!(ask(&servers, ["acquire", "k", "-q"]).code, 69);
    let silent = ask(&servers, ["run", "k", "-n", "-q", "-E", "0", "--", "true"]);
    assert!(silent.cause().contains("no quorum"), "no other client holds the lock: {silent:?}");
}

#[test]
fn key_reserved_for_a_waiter_has_no_holder() {
    let servers = RedisServers::start(3).unwrap();
    for server in servers.iter() {
        server.command(&["SET", "k", "redlock-quorum:next:", "PX", "60000"]).unwrap();
    }
    let answer = answer_of(&mut redlock(&servers, ["run", "k", "-n", "--", "true"]));
    assert_eq!(answer.code, 75, "{answer:?}");
    assert!(answer.cause().contains("reserved for the next waiter"), "{answer:?}");
    assert!(!answer.err.contains("redlock-quorum:next:"), "{answer:?}");
}
