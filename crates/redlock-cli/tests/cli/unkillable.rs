//! Commands and processes that cannot be killed, or have left their group.

use redlock_testkit::RedisServers;
use rustix::process::Signal;

use crate::loss::pids;
use crate::support::{Lines, Running, is_alive, redlock, send};

/// Creates `redlock run k` with a script as its command, with all output on stdout. As root, it
/// runs without the right to signal other users, and `AS` in the script runs a program as another
/// user. Other users cannot run such a program.
fn powerless(servers: &RedisServers, script: &str) -> (std::process::Command, bool) {
    let is_root = rustix::process::geteuid().is_root();
    let run = redlock(servers, ["run", "k", "-q", "--ttl", "6s", "--kill-after", "2s", "--"]);
    let mut command = std::process::Command::new("env");
    command.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if is_root {
        command.args(["setpriv", "--bounding-set=-kill", "--inh-caps=-kill"]);
    }
    command.args(["sh", "-c", r#"exec "$@" 2>&1"#, "_"]);
    command.args(run.get_args().skip(1));
    let other = if is_root { "setpriv --reuid=65534 --clear-groups" } else { "" };
    command.args(["sh", "-c", &script.replace("AS", other)]);
    (command, is_root)
}

/// Starts a command whose script prints `up` first, and returns it with the rest of its output.
pub(crate) fn up(command: std::process::Command) -> (Running, Lines) {
    let mut run = Running::start(command);
    let mut lines = run.lines();
    assert_eq!(lines.next(), "up");
    (run, lines)
}

/// The first line that begins so, or the end of the output.
fn line(lines: &mut Lines, begin: &str) -> Option<String> {
    std::iter::from_fn(|| lines.next_or_end()).find(|line| line.starts_with(begin))
}

#[test]
fn unkillable_command_is_reported_immediately() {
    let servers = RedisServers::start(3).unwrap();
    let (command, is_root) =
        powerless(&servers, "exec AS sh -c \"trap '' TERM; echo up; sleep 15\"");
    let (mut run, mut lines) = up(command);
    servers[0].pause().unwrap();
    servers[1].pause().unwrap();
    if is_root {
        assert!(lines.next().starts_with("note: SIGTERM was not delivered: "));
        let killed = lines.next();
        let said = "note: SIGKILL was not delivered: the command runs as another user and keeps";
        assert!(killed.starts_with(said), "{killed}");
        assert!(!run.has_ended(), "it works without the lock");
    }
    let end = line(&mut lines, "redlock: ");
    let said = match is_root {
        true => "could not be killed (it runs as another user) and ran for ",
        false => "SIGKILL",
    };
    assert!(end.as_ref().is_some_and(|end| end.contains(said)), "{end:?}");
    assert_eq!(run.answer().code, 79);
}

#[test]
fn unkillable_group_members_are_counted() {
    let servers = RedisServers::start(3).unwrap();
    let (command, is_root) = powerless(&servers, "AS sleep 15 & echo up; wait");
    let (_run, mut lines) = up(command);
    servers[0].pause().unwrap();
    servers[1].pause().unwrap();
    if is_root {
        let killed = line(&mut lines, "note: SIGKILL").unwrap();
        let said =
            "note: SIGKILL was not delivered to 1 process of the command: it runs as another";
        assert!(killed.starts_with(said), "{killed}");
    }
    let end = line(&mut lines, "redlock: ").unwrap();
    let escaped = ", but 1 process that it started is still running without the lock";
    assert_eq!(end.contains(escaped), is_root, "{end}");
}

/// The watchdog ends the command then, and no one else is left to report that it could not.
#[test]
fn command_unkillable_by_the_watchdog_is_reported() {
    let servers = RedisServers::start(3).unwrap();
    let (command, is_root) = powerless(&servers, "exec AS sh -c 'echo up; sleep 6'");
    let (run, mut lines) = up(command);
    run.signal(Signal::KILL);
    let said = line(&mut lines, "note: SIGKILL was not delivered: the command runs as another");
    assert_eq!(said.is_some(), is_root, "{said:?}");
}

#[test]
fn processes_outside_the_group_are_counted() {
    let servers = RedisServers::start(3).unwrap();
    let mut command = redlock(&servers, ["run", "k", "--ttl", "6s", "--kill-after", "2s"]);
    command.args(["-c", "setsid sleep 60 >/dev/null 2>&1 & echo $$ $!; wait"]);
    let mut run = Running::start(command);
    let pids = pids(&mut run);
    servers[0].pause().unwrap();
    servers[1].pause().unwrap();
    let answer = run.answer();
    assert_eq!(answer.code, 79, "{answer:?}");
    let escaped =
        ", but 1 process that it started is still running without the lock (as another user, or";
    assert!(answer.cause().contains(escaped), "{answer:?}");
    assert!(is_alive(pids[1]), "it is in a separate session");
    send(pids[1], Signal::KILL);
}
