//! Pushes of a server: changes of watched keys, and the loss of its data.

use redlock_core::{Answer, NodeEvent, Op, Verdict};
use redlock_testkit::lab::{NO_RESP3, NO_TRACKING, Peer, ScriptedServer};

use crate::client::{Client, acquire, token};

/// A part of the reply to `HELLO 3`.
const HELLO: &str = "%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n";
const CHANGED: &str = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n";
const LOST: &str = ">2\r\n$10\r\ninvalidate\r\n_\r\n";

/// Connects to a server that tracks keys and that sends `more` after the last reply of the
/// handshake.
async fn tracked(more: &str) -> (ScriptedServer, Peer, Client) {
    let server = ScriptedServer::bind().await;
    let mut client = Client::start(&server.url());
    let mut peer = server.accept().await;
    let facts = peer.facts("abc", 1, "master").await;
    peer.say(facts.replace(NO_RESP3, HELLO).replace(NO_TRACKING, "+OK\r\n") + more).await;
    assert!(client.up().await.tracks);
    (server, peer, client)
}

fn changed() -> NodeEvent {
    NodeEvent::KeyChanged((*b"k").into())
}

#[tokio::test]
async fn watch_reads_the_key_and_pushes_its_change() {
    let (_server, mut peer, mut client) = tracked("").await;
    for command in ["EVAL", "EVALSHA"] {
        client.submit(0, Op::watch(*b"k"));
        assert_eq!(peer.expect("CLIENT").await[1..], ["CACHING", "YES"]);
        assert_eq!(peer.expect(command).await[2..], ["1", "k"]);
        peer.say("+OK\r\n*2\r\n$1\r\na\r\n:-1\r\n").await;
        assert_eq!(client.answer().await, Answer::held(Some(b"a"), None));
        peer.say(CHANGED).await;
        assert_eq!(client.event().await, changed());
    }
}

#[tokio::test]
async fn watch_with_a_forgotten_script_is_sent_again_completely() {
    let (_server, mut peer, mut client) = tracked("").await;
    client.submit(0, Op::inspect(*b"k"));
    client.submit(1, Op::watch(*b"k"));
    client.submit(2, acquire());
    for command in ["EVAL", "CLIENT", "EVALSHA", "SET"] {
        peer.expect(command).await;
    }
    peer.say(":0\r\n+OK\r\n-NOSCRIPT No matching script.\r\n_\r\n").await;
    for command in ["CLIENT", "EVAL"] {
        peer.expect(command).await;
    }
    peer.say("+OK\r\n:0\r\n").await;
    let free = Answer::new(Verdict::Free);
    let answers = [(0, free.clone()), (2, Answer::new(Verdict::HELD)), (1, free)];
    for expected in answers {
        let vote = client.vote().await;
        assert_eq!((vote.ticket, vote.answer), expected);
    }
}

#[tokio::test]
async fn untracked_watch_only_reads_the_key() {
    let (_server, mut peer, mut client) = Client::connected().await;
    client.submit(0, Op::watch(*b"k"));
    peer.expect("EVAL").await;
    peer.say(":0\r\n").await;
    assert_eq!(client.answer().await, Answer::new(Verdict::Free));

    let (_server, mut peer, mut client) = tracked("").await;
    client.submit(0, Op::watch(*b"k"));
    peer.expect("CLIENT").await;
    peer.expect("EVAL").await;
    peer.say("-NOPERM this user may not any more\r\n:0\r\n").await;
    assert_eq!(client.answer().await, Answer::new(Verdict::Free));
}

/// Redis 7.0 says that it tracks where `HELLO` is forbidden, and never pushes anything.
#[tokio::test]
async fn resp2_connection_never_tracks() {
    let server = ScriptedServer::bind().await;
    let mut client = Client::start(&server.url());
    let mut peer = server.accept().await;
    let facts = peer.facts("abc", 1, "master").await;
    peer.say(facts.replace(NO_TRACKING, "+OK\r\n")).await;
    assert!(!client.up().await.tracks);
}

#[tokio::test]
async fn user_without_caching_right_does_not_track() {
    let server = ScriptedServer::bind().await;
    let mut client = Client::start(&server.url());
    let mut peer = server.accept().await;
    let facts = peer.facts("abc", 1, "master").await;
    let may_track = facts.replace(NO_RESP3, HELLO).replacen(NO_TRACKING, "+OK\r\n", 1);
    peer.say(may_track).await;
    assert!(!client.up().await.tracks);
}

#[tokio::test]
async fn pushes_are_events_at_any_position() {
    for split in [false, true] {
        // The first push follows the handshake, and may arrive in two reads.
        let more = format!("{LOST}{CHANGED}");
        let now = if split { &more[..LOST.len() + 9] } else { &more };
        let (_server, mut peer, mut client) = tracked(now).await;
        peer.say(&more[now.len()..]).await;
        assert_eq!(client.event().await, NodeEvent::DataLost);
        assert_eq!(client.event().await, changed());

        client.submit(0, acquire());
        client.submit(1, Op::release(*b"k", token()));
        peer.say(format!("{CHANGED}+OK\r\n{LOST}:1\r\n>1\r\n+other\r\n{CHANGED}")).await;
        assert_eq!(client.answer().await, Answer::granted());
        assert_eq!(client.answer().await, Answer::granted());
        for event in [changed(), NodeEvent::DataLost, changed()] {
            assert_eq!(client.event().await, event);
        }
        let behind_the_handshake = ["up", "push", "push"];
        let expected = [&behind_the_handshake[..], &["push", "vote", "push", "vote", "push"]];
        assert_eq!(client.order(), expected.concat());
    }
}

#[tokio::test]
async fn push_during_the_handshake_follows_the_connection() {
    let server = ScriptedServer::bind().await;
    let mut client = Client::start(&server.url());
    let mut peer = server.accept().await;
    let facts = peer.facts("abc", 1, "master").await;
    peer.say(facts.replace(NO_RESP3, &format!("{HELLO}{LOST}"))).await;
    assert!(!client.up().await.tracks, "the server has refused to track");
    assert_eq!(client.event().await, NodeEvent::DataLost);
}

#[tokio::test]
async fn extra_reply_after_the_handshake_is_garbage() {
    let (_server, _peer, mut client) = tracked("+OK\r\n").await;
    assert!(client.down().await.to_string().contains("it sent bytes that are not a Redis reply"));
}
