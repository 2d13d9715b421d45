//! Fencing tokens: the output, the environment of a command, and masters without support for them.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use redlock_quorum::FencingToken;
use redlock_testkit::lab::text;
use redlock_testkit::{RedisServer, RedisServers};

use crate::admission::brand_new;
use crate::support::{Answer, answer_of, ask, copies, redlock};

/// Prints the fencing token of the lock around it.
const SAY: &str = "echo ${REDLOCK_FENCING_TOKEN-none}";

/// The fencing token of a line that `acquire` has printed.
fn fence(answer: &Answer) -> FencingToken {
    answer.success().split(' ').nth(1).unwrap().parse().unwrap()
}

fn release(servers: &RedisServers, acquired: &Answer) {
    let token = acquired.success().split(' ').next().unwrap();
    ask(servers, ["release", "k", token]).success();
}

#[test]
fn each_lock_has_a_larger_fencing_token_than_earlier_ones() {
    let servers = RedisServers::start(5).unwrap();
    let mut last = FencingToken::new(0).unwrap();
    for _ in 0..3 {
        let line = ask(&servers, ["acquire", "k"]);
        assert!(fence(&line) > last, "{line:?} after {last}");
        last = fence(&line);
        let token = line.success().split(' ').next().unwrap();
        let extended = ask(&servers, ["extend", "k", token]);
        assert!(fence(&extended) > last, "{extended:?} after {last}");
        assert_eq!(extended.success().split(' ').next(), Some(token));
        last = fence(&extended);
        let object = ask(&servers, ["extend", "k", token, "--json"]).json();
        let number = object["fencing_token"].as_u64().unwrap();
        assert!(number > last.get() && object["token"] == token, "{object} after {last}");
        last = FencingToken::new(number).unwrap();
        release(&servers, &line);
    }
    let object = ask(&servers, ["acquire", "k", "--json"]).json();
    assert!(object["fencing_token"].as_u64().is_some_and(|fence| fence > last.get()), "{object}");
}

#[test]
fn the_command_gets_the_fencing_token_of_its_lock() {
    let servers = RedisServers::start(3).unwrap();
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let mut command = redlock(&servers, ["run", "k", "--", "sh", "-c", SAY]);
        // That of a lock around it is another.
        let answer = answer_of(command.env("REDLOCK_FENCING_TOKEN", "96"));
        tokens.push(answer.success().parse::<FencingToken>().unwrap());
    }
    assert!(tokens[0].get() > 96 && tokens[0] < tokens[1], "{tokens:?}");
}

#[test]
fn a_plain_lock_has_no_fencing_token() {
    let servers = RedisServers::start(3).unwrap();
    let line = ask(&servers, ["--plain", "acquire", "k"]);
    assert_eq!(line.success().split(' ').nth(1), Some("-"));
    let object = ask(&servers, ["acquire", "other", "--json", "--plain"]).json();
    assert!(object["fencing_token"].is_null(), "{object}");
    let token = object["token"].as_str().unwrap();
    let extended = ask(&servers, ["extend", "other", token, "--plain"]);
    assert_eq!(extended.success().split(' ').nth(1), Some("-"));
    let object = ask(&servers, ["extend", "other", token, "--plain", "--json"]).json();
    assert!(object["fencing_token"].is_null() && object["key"] == "other", "{object}");
    // A lock that was acquired without a fencing token also gets one.
    let extended = ask(&servers, ["extend", "other", token]);
    assert!(fence(&extended).get() > 0, "{extended:?}");
    for (value, is_plain) in [("1", true), ("0", false), ("", false)] {
        let mut command = redlock(&servers, ["run", "third", "--", "sh", "-c", SAY]);
        let said = answer_of(command.env("REDLOCK_PLAIN", value));
        assert_eq!(said.success() == "none", is_plain, "{value:?}: {said:?}");
    }
}

#[test]
fn plain_command_does_not_inherit_an_outer_fencing_token() {
    let servers = RedisServers::start(3).unwrap();
    let mut command = redlock(&servers, ["run", "--plain", "k", "--", "sh", "-c", SAY]);
    let inherited = answer_of(command.env("REDLOCK_FENCING_TOKEN", "96"));
    assert_eq!(inherited.success(), "none");
    let plain = format!("{} run inner -- sh -c '{SAY}'", env!("CARGO_BIN_EXE_redlock"));
    let words = ["--plain", "run", "k", "--pass-nodes", "--", "sh", "-c", plain.as_str()];
    assert_eq!(ask(&servers, words).success(), "none", "--plain is passed on with the masters");
}

#[test]
fn plain_and_fenced_commands_exclude_each_other() {
    let servers = RedisServers::start(3).unwrap();
    for (first, second) in [("0", "1"), ("1", "0")] {
        let acquire = |plain: &str| {
            let mut command = redlock(&servers, ["acquire", "k"]);
            answer_of(command.env("REDLOCK_PLAIN", plain))
        };
        let held = acquire(first);
        held.success();
        assert_eq!(acquire(second).code, 75, "plain {second} while plain {first} holds it");
        release(&servers, &held);
    }
}

#[test]
fn no_fencing_token_is_smaller_than_the_floor_of_init() {
    let servers = brand_new(3);
    let floor = "4000000000000000";
    ask(&servers, ["init", "--yes", "--far-floor", "--floor", floor]).success();
    for key in ["a", "b", "c"] {
        let line = ask(&servers, ["acquire", key]);
        assert!(fence(&line) >= floor.parse().unwrap(), "{line:?}");
    }
}

/// It sends no ballots, but creates their set, so that clients with a quarantine notice it.
#[test]
fn command_without_quarantine_shows_its_use() {
    for plain in [true, false] {
        let servers = brand_new(3);
        let mut command = redlock(&servers, ["--quarantine", "off"]);
        command.args(plain.then_some("--plain")).args(["run", "k", "--", "true"]);
        answer_of(&mut command).success();
        // A command that has its quorum waits for no third master.
        let shows_it = |server: &&RedisServer| {
            let keys: Vec<String> = text(server, &["KEYS", "*"]);
            let members = || text::<u32>(server, &["ZCARD", &keys[0]]);
            keys == ["redlock-quorum:1:ballots"] && members() == 1
        };
        assert!(servers.iter().filter(shows_it).count() >= 2, "{plain}");
        let refused = ask(&servers, ["run", "k", "--", "true"]);
        assert_eq!(refused.code, 69, "{refused:?}");
        let words = "other clients use this prefix without a quarantine";
        let said = refused.cause();
        assert!(said.contains(words), "{said}");
        let doctor = ask(&servers, ["doctor"]);
        assert!(doctor.out.contains("use this prefix without a quarantine"), "{doctor:?}");
    }
}

/// Masters whose user lacks some rights, as URLs.
fn without(servers: &RedisServers, rights: &[&str]) -> String {
    let user = ["ACL", "SETUSER", "few", "on", ">secret", "~*", "+@all"];
    let url = |server: &RedisServer| {
        server.command(&[&user[..], rights].concat()).unwrap();
        server.url().replace("redis://", "redis://few:secret@")
    };
    servers.iter().map(url).collect::<Vec<_>>().join(",")
}

#[test]
fn master_without_ballots_is_named_and_grants_plain_locks() {
    let servers = RedisServers::start(3).unwrap();
    let nodes = without(&servers, &["-zadd"]);
    let ask =
        |words: &[&str]| answer_of(redlock(&servers, []).env("REDLOCK_NODES", &nodes).args(words));
    let refused = ask(&["acquire", "k", "--wait", "60s"]);
    assert_eq!(refused.code, 69, "and the wait has ended: {refused:?}");
    assert!(refused.cause().contains("not admitted: it cannot store the ballots"), "{refused:?}");
    let doctor = ask(&["doctor", "--json"]);
    assert_eq!(doctor.code, 1);
    let found = doctor.json()["findings"].as_array().unwrap().clone();
    let is_about = |finding: &serde_json::Value| finding["node"] == servers[2].name();
    let found = found.iter().find(|finding| is_about(finding)).unwrap();
    assert!(found["what"].as_str().unwrap().contains("it cannot store the ballots"), "{found}");
    assert!(found["fix"].as_str().unwrap().contains("--plain"), "{found}");
    let plain = ask(&["acquire", "k", "--plain"]);
    assert_eq!(plain.success().split(' ').nth(1), Some("-"));
}

/// Raises the score of a member all the time, faster than any client can follow.
struct Raiser {
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Raiser {
    fn start(server: &RedisServer, set: &str, member: &str) -> Self {
        let mut stream = TcpStream::connect(server.name()).unwrap();
        stream.write_all(b"CLIENT REPLY OFF\r\n").unwrap();
        // Within the test it stays far below 2^53.
        let raise = format!("ZINCRBY {set} 100000000 {member}\r\n").repeat(100);
        let stops = Arc::new(AtomicBool::new(false));
        let is_over = stops.clone();
        let thread = thread::spawn(move || {
            while !is_over.load(Ordering::SeqCst) {
                stream.write_all(raise.as_bytes()).unwrap();
            }
        });
        Self { stops, thread: Some(thread) }
    }
}

impl Drop for Raiser {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::SeqCst);
        // It has ended well, or the test has failed already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[test]
fn lock_with_only_refused_ballots_exits_with_75() {
    let servers = RedisServers::start(1).unwrap();
    let line = ask(&servers, ["acquire", "k"]);
    release(&servers, &line);
    let sets: Vec<String> = text(&servers[0], &["KEYS", "redlock-quorum:1:ballots:*"]);
    let highest: Vec<String> = text(&servers[0], &["ZREVRANGE", &sets[0], "0", "0"]);
    let raiser = Raiser::start(&servers[0], &sets[0], &highest[0]);
    let answer = ask(&servers, ["acquire", "k"]);
    drop(raiser);
    assert_eq!((answer.code, answer.out.as_str()), (75, ""), "{answer:?}");
    let said = "redlock: k was not acquired, too few masters accepted its ballot: ";
    assert!(answer.cause().starts_with(said), "{answer:?}");
    assert!(answer.cause().ends_with("granted but ballot refused"), "{answer:?}");
    assert_eq!(copies(&servers, "k"), 0, "and released");
    // The masters are still executing the requests of the raiser.
    let later = ask(&servers, ["acquire", "k", "--wait", "20s"]);
    assert!(fence(&later) > fence(&line), "{later:?}");
}
