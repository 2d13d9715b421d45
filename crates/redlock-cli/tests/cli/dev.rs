//! Disposable masters.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Mutex;

use redlock_testkit::RedisServer;
use rustix::process::Signal;

use crate::support::{Running, Scratch, answer_of, bare, is_alive, poll, send};

/// Returns the first of three free ports, outside the range that the test kit gives to servers.
/// Each call returns different ports, because tests of one process run in parallel, and a port is
/// free until it is used.
fn free_ports() -> u16 {
    static NEXT: Mutex<Option<u16>> = Mutex::new(None);
    let is_free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let mut next = NEXT.lock().unwrap();
    let from = next.unwrap_or_else(|| 15_000 + u16::try_from(std::process::id() % 4_000).unwrap());
    let first = (from..19_990).find(|port| (*port..port + 3).all(is_free)).unwrap();
    *next = Some(first + 3);
    first
}

#[test]
fn dev_prints_ready_masters_and_stops_them_on_a_signal() {
    for signal in [Signal::INT, Signal::TERM] {
        let port = free_ports().to_string();
        let mut dev = Running::start(bare(["dev", "--nodes", "3", "--port", &port]));
        let line = dev.lines().next();
        let nodes = line.strip_prefix("REDLOCK_NODES=").unwrap();
        assert_eq!(nodes.split(',').count(), 3);
        assert!(nodes.starts_with(&format!("redis://127.0.0.1:{port},")), "{nodes}");
        let ask = |words: [&str; 2]| answer_of(bare(words).env("REDLOCK_NODES", nodes));
        ask(["acquire", "k"]).success();
        let alone = nodes.split(',').next().unwrap();
        let refused = answer_of(bare(["acquire", "j"]).env("REDLOCK_NODES", alone));
        assert!(refused.cause().contains("it belongs to a set of 3 masters"), "{refused:?}");
        dev.signal(signal);
        assert_eq!(dev.answer().code, 0);
        assert_eq!(ask(["status", "k"]).code, 69, "they are gone");
    }
}

#[test]
fn dev_admits_its_masters_for_the_given_prefix_and_max_ttl() {
    let port = free_ports().to_string();
    let mut command = bare(["dev", "--nodes", "1", "--port", &port, "--max-ttl", "5s"]);
    let mut dev = Running::start(std::mem::replace(command.env("REDLOCK_PREFIX", "p:"), bare([])));
    let line = dev.lines().next();
    let nodes = line.strip_prefix("REDLOCK_NODES=").unwrap();
    let ask = |words: &[&str]| answer_of(bare([]).args(words).env("REDLOCK_NODES", nodes));
    assert_eq!(ask(&["acquire", "k", "--json", "--prefix", "p:"]).json()["ttl_ms"], 5_000);
    assert_eq!(ask(&["acquire", "k"]).code, 69, "another namespace is new");
    let status = ask(&["status", "k", "--json", "--prefix", "p:"]);
    assert_eq!(status.json()["set"]["size"], 1, "{status:?}");
    let other = ask(&["status", "k", "--json"]);
    assert!(other.json()["set"].is_null(), "{other:?}");
    dev.signal(Signal::TERM);
    assert_eq!(dev.answer().code, 0);
}

#[test]
fn dev_names_an_occupied_port() {
    let taken = RedisServer::start().unwrap();
    let port = taken.port().to_string();
    let answer = answer_of(&mut bare(["dev", "--port", &port]));
    assert_eq!((answer.code, answer.out.as_str()), (69, ""));
    assert!(answer.cause().contains(&format!("port {port} is in use")), "{answer:?}");
}

/// Returns the process ids of the servers in a line of `dev`.
fn pids(nodes: &str) -> Vec<i32> {
    let pid = |url: &str| {
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        let info: redis::InfoDict =
            redis::cmd("INFO").arg("server").query(&mut connection).unwrap();
        info.get("process_id").unwrap()
    };
    nodes.split(',').map(pid).collect()
}

#[test]
fn dev_leaves_no_files_even_when_it_is_killed() {
    let scratch = Scratch::new("dev");
    let port = free_ports().to_string();
    let mut command = bare(["dev", "--nodes", "2", "--port", &port]);
    command.env("TMPDIR", scratch.file(""));
    let mut dev = Running::start(command);
    let line = dev.lines().next();
    let pids = pids(line.strip_prefix("REDLOCK_NODES=").unwrap());
    dev.signal(Signal::KILL);
    poll("dev ends", || dev.has_ended().then_some(()));
    poll("its masters end", || (!pids.iter().any(|pid| is_alive(*pid))).then_some(()));
    let left = std::fs::read_dir(scratch.file("")).unwrap().count();
    assert_eq!(left, 0);
}

#[test]
fn dev_reports_exited_masters_and_exits_with_the_last() {
    let port = free_ports().to_string();
    let mut dev = Running::start(bare(["dev", "--nodes", "2", "--port", &port]));
    let line = dev.lines().next();
    for pid in pids(line.strip_prefix("REDLOCK_NODES=").unwrap()) {
        send(pid, Signal::KILL);
        poll("the master ends", || (!is_alive(pid)).then_some(()));
    }
    let answer = dev.answer();
    assert_eq!(answer.code, 69, "{answer:?}");
    let said = format!("note: 127.0.0.1:{port} exited; ");
    assert!(answer.err.contains(&said), "{answer:?}");
    assert_eq!(answer.err.matches(" exited; ").count(), 2, "{answer:?}");
    assert!(answer.cause().contains("all masters have exited"), "{answer:?}");
}

#[test]
fn dev_rejects_the_node_option() {
    let answer = answer_of(&mut bare(["dev", "--node", "redis://127.0.0.1:1", "--nodes", "1"]));
    assert_eq!((answer.code, answer.out.as_str()), (64, ""), "{answer:?}");
    assert!(answer.cause().contains("does not accept --node"));
}
