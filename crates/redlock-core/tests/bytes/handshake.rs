//! The handshake of a connection, and servers that it cannot use.

use std::time::{Duration, Instant};

use redlock_core::{Answer, Cause, Facts, Node, Role};
use redlock_testkit::lab::{PATIENCE, ScriptedServer};
use tokio::net::TcpListener;

use crate::client::{Client, acquire};

#[tokio::test]
async fn non_redis_server_is_reported_with_its_reply() {
    for (said, shown) in [
        ("HTTP/1.1 400 Bad Request\r\n\r\n", "an HTTP server or proxy answers on this port"),
        ("SSH-2.0-OpenSSH_9.2\r\n", "not a Redis server: it sent \"SSH-2.0"),
    ] {
        let server = ScriptedServer::bind().await;
        let mut client = Client::start(&server.url());
        let mut peer = server.accept().await;
        peer.say(said).await;
        let cause = client.down().await.to_string();
        assert!(cause.contains(shown), "{cause}");
    }
}

/// OpenSSL, and so Redis, hangs up on what is not TLS. Others send an alert before.
#[tokio::test]
async fn tls_server_at_a_plain_address_is_recognized() {
    for (said, shown) in [
        (
            "",
            "closed the connection without an answer: it might speak TLS on this port (use rediss://)",
        ),
        ("\x15\x03\x01\x00\x02\x02\x46", "the server speaks TLS on this port: use rediss://"),
    ] {
        let server = ScriptedServer::bind().await;
        let mut client = Client::start(&server.url());
        let mut peer = server.accept().await;
        peer.say(said).await;
        drop(peer);
        let cause = client.down().await.to_string();
        assert!(cause.contains(shown), "{cause}");
    }
}

#[tokio::test]
async fn login_precedes_the_handshake() {
    let server = ScriptedServer::bind().await;
    let url = format!("redis://me:p%40ss@{}/3", server.name());
    let mut client = Client::start(&url);
    let mut peer = server.accept().await;
    assert_eq!(peer.expect("AUTH").await[1..], ["me", "p@ss"]);
    assert_eq!(peer.expect("SELECT").await[1..], ["3"]);
    peer.say("+OK\r\n+OK\r\n").await;
    peer.handshake("abc", 1).await;
    client.up().await;
}

#[tokio::test]
async fn handshake_works_byte_by_byte() {
    let server = ScriptedServer::bind().await;
    let mut client = Client::start(&server.url());
    let mut peer = server.accept().await;
    let facts = peer.facts("abc", 1, "master").await;
    peer.say_in_pieces(facts.as_bytes(), 1).await;
    client.up().await;
}

#[tokio::test]
async fn old_server_without_setinfo_is_accepted() {
    let server = ScriptedServer::bind().await;
    let mut client = Client::start(&server.url());
    let mut peer = server.accept().await;
    let facts = peer.facts("abc", 1, "master").await;
    peer.say(facts.replace("+OK", "-ERR unknown subcommand 'SETINFO'")).await;
    client.up().await;
}

#[tokio::test]
async fn a_wrong_password_is_reported_and_the_password_is_not() {
    let server = ScriptedServer::bind().await;
    let mut client = Client::start(&format!("redis://somebody:sesame@{}", server.name()));
    let mut peer = server.accept().await;
    let facts = peer.facts("abc", 1, "master").await;
    let refused = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    let replies = facts.matches("+OK").count() + facts.matches("-ERR").count() + 4;
    let denied = "-NOAUTH Authentication required.\r\n".repeat(replies - 1);
    peer.say(format!("{refused}{denied}")).await;
    let cause = client.down().await;
    assert!(cause.to_string().starts_with("error reply: WRONGPASS invalid"), "{cause}");
    peer.expect_end().await;
    client.submit(0, acquire());
    let vote = client.vote_at_once().expect("known at once");
    let event = client.event_at_once();
    let shown = format!("{:?} {:?} {cause} {vote:?} {}", client.node, event, client.node.name());
    assert!(!shown.contains("sesame") && !shown.contains("somebody"), "{shown}");
}

#[tokio::test]
async fn silent_server_is_down_after_the_connect_timeout() {
    let server = ScriptedServer::bind().await;
    let (limit, began) = (Duration::from_millis(500), Instant::now());
    let mut client = Client::impatient(&server.url(), limit);
    let _silent = server.accept().await;
    assert_eq!(client.event_at_once(), None, "it is still connecting");
    assert_eq!(client.down().await, Cause::TimedOut);
    assert!(began.elapsed() >= limit && began.elapsed() < PATIENCE / 2);
    let mut peer = server.accept().await;
    peer.handshake("abc", 1).await;
    client.up().await;
}

#[tokio::test]
async fn address_without_a_server_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    drop(listener);
    let mut client = Client::start(&url);
    assert_eq!(client.down().await, Cause::ConnectionRefused);
    client.submit(0, acquire());
    let vote = client.vote_at_once().expect("known at once");
    assert_eq!(vote.answer, Answer::unsent(Cause::ConnectionRefused));
}

#[tokio::test]
async fn server_closing_during_the_handshake_is_down() {
    let server = ScriptedServer::bind().await;
    let mut client = Client::start(&server.url());
    let mut peer = server.accept().await;
    let facts = peer.facts("abc", 1, "master").await;
    peer.say(&facts[..facts.len() - 1]).await;
    drop(peer);
    assert_eq!(client.down().await, Cause::ConnectionClosed);
}

/// The replies of a server that rejects a client, whatever the command.
const TURNED_AWAY: [&str; 2] = [
    "ERR max number of clients reached",
    "DENIED Redis is running in protected mode because protected mode is enabled",
];

#[tokio::test]
async fn server_rejecting_clients_is_reported_with_its_error() {
    for error in TURNED_AWAY {
        let server = ScriptedServer::bind().await;
        let mut client = Client::start(&server.url());
        let mut peer = server.accept().await;
        peer.say(format!("-{error}\r\n")).await;
        // Commands that the server has not read make the end of the connection a reset.
        drop(peer);
        assert_eq!(client.down().await, Cause::ErrorReply(error.into()));
    }
}

#[tokio::test]
async fn error_to_an_optional_command_is_not_the_cause() {
    let server = ScriptedServer::bind().await;
    let mut client = Client::start(&server.url());
    let mut peer = server.accept().await;
    let facts = peer.facts("abc", 1, "master").await;
    let facts = facts.replace("+OK", "-ERR unknown subcommand 'SETINFO'");
    peer.say(&facts[..facts.len() / 2]).await;
    drop(peer);
    assert_eq!(client.down().await, Cause::ConnectionClosed);
}

#[tokio::test]
async fn connection_is_reported_with_the_servers_facts() {
    let server = ScriptedServer::bind().await;
    let mut client = Client::start(&server.url());
    let mut peer = server.admit("abc", 1).await;
    assert_eq!(client.up().await, Facts::master("abc"));
    drop(peer);

    client.down().await;
    peer = server.accept().await;
    peer.handshake_as_replica("def").await;
    let facts = client.up().await;
    assert_eq!((facts.run_id.as_str(), facts.role), ("def", Role::Replica));
    drop(peer);

    client.down().await;
    peer = server.accept().await;
    let facts = peer.facts("ghi", 1, "master").await;
    // The length stays right.
    peer.say(facts.replace("standalone\r\n", "cluster\r\nx\r\n")).await;
    assert!(client.up().await.is_cluster);
}
