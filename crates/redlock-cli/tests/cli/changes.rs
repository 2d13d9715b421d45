//! `status --watch`: each change on one line, on real servers that fail.

use std::io::{BufRead, BufReader};

use redlock_testkit::RedisServers;
use redlock_testkit::lab::Paused;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Lines, Running, ask, redlock};
use crate::terminal::Terminal;

fn watch(servers: &RedisServers, key: &str) -> (Running, Lines) {
    let mut running = Running::start(redlock(servers, ["status", key, "--watch", "--json"]));
    let lines = running.lines();
    (running, lines)
}

/// The next state, and the label of the holder.
fn next(lines: &mut Lines) -> (String, Option<String>) {
    let object: Value = serde_json::from_str(&lines.next()).unwrap();
    let label = object["token"].as_str().and_then(|token| token.split('/').nth(1));
    (object["state"].as_str().unwrap().to_owned(), label.map(str::to_owned))
}

/// The next holder, whatever is between two of them.
fn next_holder(lines: &mut Lines) -> String {
    loop {
        if let (_, Some(label)) = next(lines) {
            return label;
        }
    }
}

#[test]
fn each_change_is_one_line_until_ctrl_c() {
    let servers = RedisServers::start(5).unwrap();
    let mut text = Running::start(redlock(&servers, ["status", "deploy", "--watch"]));
    let mut texts = text.lines();
    let (json, mut objects) = watch(&servers, "deploy");
    assert!(texts.next().ends_with(" deploy is free"));
    assert_eq!(next(&mut objects), ("free".into(), None));
    let held = ask(&servers, ["acquire", "deploy", "--ttl", "30s", "--label", "web-1"]);
    let token = held.success().split(' ').next().unwrap().to_owned();
    assert!(texts.next().contains(&format!("deploy is held by {token}")));
    assert_eq!(next(&mut objects), ("held".into(), Some("web-1".into())));
    ask(&servers, ["release", "deploy", &token]).success();
    assert!(texts.next().ends_with(" deploy is free"));
    assert_eq!(next(&mut objects), ("free".into(), None));
    for running in [text, json] {
        running.signal(Signal::INT);
        assert_eq!(running.answer().success(), "");
    }
}

/// `head -1` closes the pipe after the first line, and no change may follow.
#[test]
fn closed_pipe_ends_the_stream_without_a_change() {
    let servers = RedisServers::start(3).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    let command = &mut redlock(&servers, ["status", "deploy", "--watch"]);
    let running = Running::start_into(command, writer.into());
    let first = BufReader::new(reader).lines().next().unwrap().unwrap();
    assert!(first.ends_with(" deploy is free"), "{first}");
    let answer = running.answer();
    assert_eq!((answer.code, &*answer.err), (74, ""));
}

#[test]
fn a_terminal_is_redrawn_in_place() {
    let servers = RedisServers::start(3).unwrap();
    let mut terminal = Terminal::start(&redlock(&servers, ["status", "deploy", "--watch"]));
    terminal.shows("\x1b[H\x1b[J");
    terminal.shows("deploy is free");
    ask(&servers, ["acquire", "deploy", "--ttl", "30s"]).success();
    terminal.shows("deploy is held by");
    terminal.type_in("\x03");
    assert_eq!(terminal.code(), 0);
}

#[test]
fn stream_survives_killed_and_paused_masters() {
    let servers = RedisServers::start(5).unwrap();
    let (_running, mut lines) = watch(&servers, "deploy");
    assert_eq!(next(&mut lines).0, "free");
    // One of these pairs has the meeting point.
    for (number, pair) in [[0, 1], [2, 3], [4, 0]].into_iter().enumerate() {
        let _paused = Paused::all(pair.map(|master| &servers[master]));
        let label = format!("web-{number}");
        let held = ask(&servers, ["acquire", "deploy", "--ttl", "30s", "--label", &label]);
        let token = held.success().split(' ').next().unwrap().to_owned();
        assert_eq!(next_holder(&mut lines), label);
        ask(&servers, ["release", "deploy", &token]);
        assert_eq!(next(&mut lines).0, "free");
    }
    servers[..3].iter().for_each(|server| server.kill());
    assert_eq!(next(&mut lines).0, "undecided");
    servers[..3].iter().for_each(|server| server.restart().unwrap());
    assert_eq!(ask(&servers, ["init", "--again"]).code, 0);
    assert_eq!(next(&mut lines).0, "free");
}

#[test]
fn next_leader_follows_a_killed_or_paused_one() {
    let servers = RedisServers::start(5).unwrap();
    let candidate = |name: &str| {
        let words = ["run", "scheduler", "--ttl", "3s", "--wait", "forever", "--label", name];
        let mut command = redlock(&servers, words);
        command.args(["--", "sleep", "600"]);
        Running::start(command)
    };
    let (_running, mut lines) = watch(&servers, "scheduler");
    assert_eq!(next(&mut lines).0, "free");
    let first = candidate("a");
    assert_eq!(next_holder(&mut lines), "a");
    let second = candidate("b");
    first.signal(Signal::KILL);
    assert_eq!(next_holder(&mut lines), "b");
    let third = candidate("c");
    second.signal(Signal::STOP);
    assert_eq!(next_holder(&mut lines), "c");
    second.signal(Signal::CONT);
    assert_eq!(second.answer().code, 79, "its own clock has ended its leadership");
    drop(third);
}
