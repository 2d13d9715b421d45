//! Throw-away masters.

use std::net::{Ipv4Addr, TcpListener};

use redlock_testkit::RedisServer;
use rustix::process::Signal;

use crate::support::{Answer, Running, bare};

/// The first of three ports that are free, away from those that the test kit gives to servers.
fn free_ports() -> u16 {
    let is_free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let first = 15_000 + u16::try_from(std::process::id() % 4_000).unwrap();
    (first..19_990).find(|port| (*port..port + 3).all(is_free)).unwrap()
}

#[test]
fn dev_prints_its_masters_when_they_answer_and_stops_them_on_a_signal() {
    for signal in [Signal::INT, Signal::TERM] {
        let port = free_ports().to_string();
        let mut dev = Running::start(bare(["dev", "--nodes", "3", "--port", &port]));
        let line = dev.lines().next();
        let nodes = line.strip_prefix("REDLOCK_NODES=").unwrap();
        assert_eq!(nodes.split(',').count(), 3);
        assert!(nodes.starts_with(&format!("redis://127.0.0.1:{port},")), "{nodes}");
        let ask = |words: [&str; 2]| {
            Answer::from(bare(words).env("REDLOCK_NODES", nodes).output().unwrap())
        };
        ask(["acquire", "k"]).success();
        dev.signal(signal);
        assert_eq!(dev.answer().code, 0);
        assert_eq!(ask(["status", "k"]).code, 69, "they are gone");
    }
}

#[test]
fn dev_names_the_port_that_is_taken() {
    let taken = RedisServer::start().unwrap();
    let port = taken.port().to_string();
    let answer: Answer = bare(["dev", "--port", &port]).output().unwrap().into();
    assert_eq!((answer.code, answer.out.as_str()), (69, ""));
    assert!(answer.cause().contains(&format!("port {port} is taken")), "{answer:?}");
}
