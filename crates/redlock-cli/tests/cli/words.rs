//! Messages about missing parts, closed streams and lost peers, with the fix.

use std::fs::File;
use std::process::Stdio;

use redlock_testkit::{RedisServers, ServerOptions};

use crate::support::{Answer, Running, ask, bare, redlock};

fn refused<const N: usize>(words: [&str; N]) -> String {
    let answer: Answer = bare(words).output().unwrap().into();
    assert_eq!(answer.code, 64, "{answer:?}");
    answer.cause().to_owned()
}

#[test]
fn command_without_its_dashes_is_shown_with_them() {
    for (line, fixed) in [
        (&["run", "x", "true"][..], "redlock run x -- true"),
        (&["run", "x", "ls", "-l"], "redlock run x -- ls -l"),
        (&["run", "--ttl", "10s", "x", "ls", "a b"], "redlock run --ttl 10s x -- ls 'a b'"),
        (&["run", "x", "-n", "make", "--jobs=2"], "redlock run x -n -- make --jobs=2"),
    ] {
        let answer: Answer = bare([]).args(line).output().unwrap().into();
        assert_eq!(answer.code, 64, "{answer:?}");
        let cause = answer.cause();
        assert!(cause.contains("`--` is missing before the command"), "{cause}");
        assert!(cause.ends_with(fixed), "{cause}");
    }
    let cause = refused(["run", "x"]);
    assert!(cause.contains("redlock run x -- COMMAND"), "{cause}");
}

#[test]
fn several_masters_in_one_option_are_explained() {
    for given in ["a,b", "redis://a:1,redis://b:2", "redis://u:p@a,redis://u:p@b/0", "redis://a,b"]
    {
        let cause = refused(["status", "k", "--node", given]);
        assert!(cause.contains("repeat --node"), "{given}: {cause}");
    }
}

/// The answer of a command whose reader has gone.
fn into_closed_pipe<const N: usize>(servers: &RedisServers, words: [&str; N]) -> Answer {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    Running::start_into(&mut redlock(servers, words), writer.into()).answer()
}

#[test]
fn closed_output_causes_no_message() {
    let servers = RedisServers::start(3).unwrap();
    ask(&servers, ["acquire", "k"]).success();
    for words in [&["status", "k"][..], &["status"], &["doctor"], &["status", "k", "--json"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = redlock(&servers, []);
        let answer = Running::start_into(command.args(words), writer.into()).answer();
        assert_eq!((answer.code, &*answer.err), (74, ""), "{words:?}");
    }
}

#[test]
fn lock_with_an_unprintable_token_is_reported_released() {
    let servers = RedisServers::start(3).unwrap();
    let full: Stdio = File::options().write(true).open("/dev/full").unwrap().into();
    let answer = Running::start_into(&mut redlock(&servers, ["acquire", "k"]), full).answer();
    assert_eq!(answer.code, 74, "{answer:?}");
    let cause = answer.cause();
    assert!(cause.contains("No space left"), "{cause}");
    assert!(cause.contains("the lock was released"), "{cause}");
    let answer = into_closed_pipe(&servers, ["acquire", "k"]);
    assert_eq!(answer.code, 74, "{answer:?}");
    assert!(answer.cause().contains("the lock was released"), "{answer:?}");
    assert_eq!(ask(&servers, ["status", "k"]).code, 1);
}

#[test]
fn lapsed_lock_is_not_shown_as_held_by_another_client() {
    let servers = RedisServers::start(3).unwrap();
    let words = ["run", "k", "--ttl", "2s", "--max-hold", "1s", "--", "sh", "-c"];
    let mut command = redlock(&servers, words);
    command.arg("echo $REDLOCK_TOKEN; exec sleep 60");
    let answer = Running::start(command).answer();
    assert_eq!(answer.code, 79, "{answer:?}");
    let cause = answer.cause();
    assert!(!cause.contains("is held by"), "{cause}");
    assert!(!cause.contains(answer.out.trim()), "{cause}");
    assert!(cause.contains("our key"), "{cause}");
}

/// It blocks every client from its lock, and only `redlock release --force` deletes it.
#[test]
fn key_without_expiry_is_listed_with_the_fix() {
    let servers = RedisServers::start(3).unwrap();
    for server in &servers[..2] {
        server.command(&["SET", "stuck", "by hand"]).unwrap();
        server.command(&["SET", "other", "{\"data\":\n1}"]).unwrap();
    }
    let list = ask(&servers, ["status"]);
    assert_eq!(list.success(), "stuck  held by by hand, never expires");
    for (answer, key) in [(list, "KEY"), (ask(&servers, ["status", "stuck"]), "stuck")] {
        let cure = format!(": redlock release --force {key}\n");
        assert!(answer.err.ends_with(&cure), "{answer:?}");
        assert!(answer.err.contains("redlock did not create it"), "{answer:?}");
    }
    let json = ask(&servers, ["status", "--json"]).json();
    assert!(json["locks"][0]["ttl_ms"].is_null(), "{json}");
}

#[test]
fn durations_are_printed_with_common_units() {
    let servers = RedisServers::with(3, &ServerOptions::new().max_ttl(LONG)).unwrap();
    ask(&servers, ["acquire", "k", "--ttl", "5m"]).success();
    let status = ask(&servers, ["status", "k"]);
    // The masters keep a key for a tenth longer than its TTL.
    assert!(status.success().contains("is held by"), "{status:?}");
    assert!(status.out.contains("expires in 5m2"), "{status:?}");
    let refused = ask(&servers, ["acquire", "k", "--ttl", "90m"]);
    assert!(refused.cause().contains("--ttl 1h30m exceeds max_ttl (10m);"), "{refused:?}");
    let answer = admitted(&servers);
    assert!(answer.contains("max_ttl 10m"), "{answer}");
}

const LONG: std::time::Duration = std::time::Duration::from_secs(600);

fn admitted(servers: &RedisServers) -> String {
    ask(servers, ["init", "--yes"]).success().to_owned()
}
