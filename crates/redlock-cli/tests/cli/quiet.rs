//! `-q`, and KEYs that begin with `-`.

use std::process::Stdio;

use redlock_testkit::RedisServers;

use crate::support::{Running, ask, redlock};

/// Cron sends a mail for each line.
#[test]
fn successful_quiet_run_prints_nothing_if_a_master_dies() {
    let servers = RedisServers::start(5).unwrap();
    for (code, is_silent) in [("0", true), ("3", false)] {
        let mut command = redlock(&servers, ["run", "k", "-q", "-E", "0", "-c"]);
        command.arg(format!("echo up; read x; exit {code}")).stdin(Stdio::piped());
        let mut run = Running::start(command);
        assert_eq!(run.lines().next(), "up");
        servers[0].pause().unwrap();
        run.type_in("x\n");
        let answer = run.answer();
        servers[0].resume().unwrap();
        assert_eq!((answer.code.to_string(), answer.err.is_empty()), (code.into(), is_silent));
    }
}

#[test]
fn key_starting_with_a_dash_follows_two_dashes() {
    let servers = RedisServers::start(1).unwrap();
    let show = ["run", "-n", "--", "-key", "b", "--", "printenv", "REDLOCK_KEY"];
    assert_eq!(ask(&servers, show).success(), "-key\nb");
    let later = ["run", "k", "--", "echo", "--", "x"];
    assert_eq!(ask(&servers, later).success(), "-- x");
    for words in [&["run", "-key", "--", "true"][..], &["run", "--", "true"]] {
        let mut command = redlock(&servers, []);
        let refused = Running::start({
            command.args(words);
            command
        });
        let refused = refused.answer();
        assert_eq!(refused.code, 64, "{refused:?}");
        assert!(refused.cause().contains("redlock run -- KEY -- COMMAND"), "{refused:?}");
    }
    assert_eq!(ask(&servers, ["run", "--", "k", "--"]).code, 64);
}
