//! What becomes of a connection to a real server, as the node reports it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use redlock_core::{
    Cause, Clock, Events, Facts, Node, NodeEvent, Op, RedisNode, RedisSetup, Role, Token, Verdict,
    Vote, VoteSlot,
};
use redlock_testkit::lab::{PATIENCE, Report, in_time};
use redlock_testkit::{RedisServer, ServerOptions};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;

/// A node that is driven.
struct Driven {
    node: Arc<RedisNode>,
    sink: Arc<Report>,
    votes: UnboundedReceiver<Vote>,
    events: UnboundedReceiver<NodeEvent>,
    driving: JoinHandle<()>,
}

impl Driven {
    fn start(url: &str) -> Self {
        let setup = RedisSetup::new(Clock::system(), PATIENCE);
        let node = Arc::new(RedisNode::new(url, &setup).unwrap());
        let (sink, votes, events) = Report::new();
        let drive = node.clone().drive(Events::new(sink.clone(), 0)).unwrap();
        Self { node, sink, votes, events, driving: tokio::spawn(drive) }
    }

    async fn up(&mut self) -> Facts {
        match in_time(self.events.recv()).await.unwrap() {
            NodeEvent::Up(facts) => facts,
            event => panic!("{event:?}"),
        }
    }

    async fn down(&mut self) -> (Cause, bool) {
        match in_time(self.events.recv()).await.unwrap() {
            NodeEvent::Down { cause, retries_now } => (cause, retries_now),
            event => panic!("{event:?}"),
        }
    }

    async fn ask(&mut self, op: Op) -> Verdict {
        let slot = VoteSlot::new(self.sink.clone(), 0, 0, redlock_core::Instant::ORIGIN);
        self.node.submit(op, slot);
        in_time(self.votes.recv()).await.unwrap().answer.verdict
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        self.driving.abort();
    }
}

fn server<const N: usize>(arguments: [&str; N]) -> RedisServer {
    RedisServer::with(&ServerOptions::new().arguments(arguments)).unwrap()
}

fn acquire() -> Op {
    Op::acquire(*b"key", Token::random(None), 60_000)
}

#[tokio::test]
async fn one_that_was_closed_for_being_idle_is_made_again_at_once() {
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
async fn a_server_that_is_full_says_so() {
    let server = server(["--maxclients", "1"]);
    let mut other = TcpStream::connect(server.name()).unwrap();
    other.write_all(b"PING\r\n").unwrap();
    other.read_exact(&mut [0; 7]).unwrap();
    let mut node = Driven::start(&server.url());
    let (cause, _) = node.down().await;
    assert_eq!(cause, Cause::ErrorReply("ERR max number of clients reached".into()));
    drop(other);
    while let NodeEvent::Down { .. } = in_time(node.events.recv()).await.unwrap() {}
}

#[tokio::test]
async fn a_user_with_few_rights_gets_a_connection_without_barrier_and_pushes() {
    let server = server([]);
    let rights = "on >secret ~* +set +eval +evalsha +get +del +pttl +pexpire +info +client|id";
    let words: Vec<_> = ["ACL", "SETUSER", "few"].into_iter().chain(rights.split(' ')).collect();
    server.command(&words).unwrap();
    let mut node = Driven::start(&format!("redis://few:secret@{}", server.name()));
    let first = node.up().await;
    assert!(first.is_barred && !first.tracks, "{first:?}");
    assert_eq!(node.ask(acquire()).await, Verdict::Granted);
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
    node.down().await;
    let second = node.up().await;
    assert_eq!(second.run_id, first.run_id);
    assert!(!second.is_barred, "the former connection may still be served");
}

#[tokio::test]
async fn a_master_that_becomes_a_replica_and_a_master_again_is_reported_as_each() {
    let server = server([]);
    let mut node = Driven::start(&server.url());
    let before = node.up().await;
    assert_eq!(before.role, Role::Master);
    // There is no master at that port, so nothing is copied from it.
    server.command(&["REPLICAOF", "127.0.0.1", "1"]).unwrap();
    let verdict = node.ask(acquire()).await;
    assert!(matches!(verdict, Verdict::Unknown(Cause::Demoted(_))), "{verdict:?}");
    assert!(matches!(node.down().await, (Cause::Demoted(_), true)));
    assert_eq!(node.up().await.role, Role::Replica);
    server.command(&["REPLICAOF", "NO", "ONE"]).unwrap();
    node.down().await;
    assert_eq!(node.up().await, before);
    assert_eq!(node.ask(acquire()).await, Verdict::Granted);
}
