//! The states of a connection to a real server, as the node reports them.

use std::io::{Read, Write};
use std::net::TcpStream;

use redlock_core::{Answer, Cause, NodeEvent, Op, Role, Token, Verdict};
use redlock_testkit::lab::poll;
use redlock_testkit::{RedisServer, ServerOptions};

use crate::connection::driven::Driven;

fn server<const N: usize>(arguments: [&str; N]) -> RedisServer {
    RedisServer::with(&ServerOptions::new().arguments(arguments)).unwrap()
}

fn acquire() -> Op {
    Op::acquire(*b"key", Token::random(None), 60_000)
}

#[tokio::test]
async fn idle_closed_connection_is_reopened_immediately() {
    let server = server(["--timeout", "1"]);
    let mut node = Driven::start(&server.url());
    node.up().await;
    for _ in 0..2 {
        let (_, retries_now) = node.down().await;
        assert!(retries_now);
        node.up().await;
    }
}

#[tokio::test]
async fn full_server_is_reported() {
    let server = server([]);
    server.command(&["CONFIG", "SET", "maxclients", "1"]).unwrap();
    // The server may not have noticed yet that the earlier connections have ended.
    let other = poll("the server is full", || {
        let mut other = TcpStream::connect(server.name()).ok()?;
        other.write_all(b"PING\r\n").ok()?;
        let mut reply = [0; 7];
        other.read_exact(&mut reply).ok()?;
        (&reply == b"+PONG\r\n").then_some(other)
    });
    let mut node = Driven::start(&server.url());
    let (cause, _) = node.down().await;
    assert_eq!(cause, Cause::ErrorReply("ERR max number of clients reached".into()));
    drop(other);
    while let NodeEvent::Down { .. } = node.event().await {}
}

#[tokio::test]
async fn user_with_few_rights_has_no_barrier_and_no_pushes() {
    let server = server([]);
    let rights = "on >secret ~* +set +eval +evalsha +get +del +pttl +pexpire +info +client|id";
    let words: Vec<_> = ["ACL", "SETUSER", "few"].into_iter().chain(rights.split(' ')).collect();
    server.command(&words).unwrap();
    let mut node = Driven::start(&format!("redis://few:secret@{}", server.name()));
    let first = node.up().await;
    assert!(first.has_barrier && !first.tracks, "{first:?}");
    assert_eq!(node.ask(acquire()).await, Answer::granted());
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
    node.down().await;
    let second = node.up().await;
    assert_eq!(second.run_id, first.run_id);
    assert!(!second.has_barrier, "the former connection may still be served");
}

#[tokio::test]
async fn each_role_change_is_reported() {
    let server = server([]);
    let mut node = Driven::start(&server.url());
    let before = node.up().await;
    assert_eq!(before.role, Role::Master);
    // There is no master at that port, so nothing is copied from it.
    server.command(&["REPLICAOF", "127.0.0.1", "1"]).unwrap();
    let verdict = node.ask(acquire()).await.verdict;
    assert!(matches!(verdict, Verdict::Unknown(Cause::Demoted(_))), "{verdict:?}");
    assert!(matches!(node.down().await, (Cause::Demoted(_), true)));
    assert_eq!(node.up().await.role, Role::Replica);
    server.command(&["REPLICAOF", "NO", "ONE"]).unwrap();
    node.down().await;
    let after = node.up().await;
    assert_eq!((&after.run_id, after.role), (&before.run_id, Role::Master));
    let recorded = before.identity.unwrap();
    assert!(!recorded.covers(after.identity.unwrap()), "its data may have another history");
    assert_eq!(node.ask(acquire()).await, Answer::granted());
}
