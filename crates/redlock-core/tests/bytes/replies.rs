//! What the master says, in any pieces, and what is no answer at all.

use std::time::Duration;

use redlock_core::{Answer, Cause, Op, Verdict};

use crate::client::{Client, acquire, inspect, release, token};
use crate::server::{KNOWS_NONE, Peer, Server, bulk};

fn held(holder: &[u8], millis: u64) -> Answer {
    Answer::refused().held_by(holder.to_vec(), Some(Duration::from_millis(millis)))
}

fn lost() -> Answer {
    Answer::unknown(Cause::ConnectionClosed)
}

#[tokio::test]
async fn replies_in_pieces_of_any_size_are_put_together() {
    for size in [1, 2, 5] {
        let (_server, mut peer, mut client) = Client::connected().await;
        client.submit(0, acquire());
        client.submit(1, inspect());
        client.submit(2, release());
        peer.say_in_pieces(b"+OK\r\n*2\r\n$3\r\n\r\n+\r\n:77\r\n:0\r\n", size).await;
        assert_eq!(client.answer().await, Answer::granted(), "{size} bytes at a time");
        assert_eq!(client.answer().await, held(b"\r\n+", 77), "{size} bytes at a time");
        assert_eq!(client.answer().await, Answer::refused(), "{size} bytes at a time");
    }
}

#[tokio::test]
async fn replies_that_come_in_one_read_are_told_apart() {
    let (_server, mut peer, mut client) = Client::connected().await;
    for attempt in 0..3 {
        client.submit(attempt, acquire());
        peer.expect("SET").await;
    }
    peer.say("+OK\r\n$-1\r\n-OOM no\r\n").await;
    let oom = Answer::unknown(Cause::ErrorReply("OOM no".into()));
    for (attempt, answer) in [Answer::granted(), Answer::refused(), oom].into_iter().enumerate() {
        let vote = client.vote().await;
        assert_eq!((vote.attempt as usize, vote.answer), (attempt, answer));
    }
}

#[tokio::test]
async fn a_server_that_reads_late_gets_everything_in_order() {
    let (_server, mut peer, mut client) = Client::connected().await;
    // More than the socket's buffers hold.
    let keys: Vec<_> = (0..12_000).map(|i| format!("{i:0>512}")).collect();
    for key in &keys {
        client.submit(0, Op::acquire(key.as_bytes(), token(), 1_000));
        tokio::task::yield_now().await;
    }
    for key in &keys {
        let words = peer.expect("SET").await;
        assert_eq!(words[1..], [key.as_str(), "t", "NX", "PX", "1000"]);
    }
    peer.say(b"+OK\r\n".repeat(keys.len())).await;
    for _ in &keys {
        assert_eq!(client.answer().await, Answer::granted());
    }
}

#[tokio::test]
async fn garbage_ends_the_connection_and_what_is_owed_is_unknown() {
    let huge = "$1048577\r\n";
    for garbage in
        ["HTTP/1.1 400\r\n", "+OK\rx", "\r\n", huge, "*3\r\n:1\r\n:1\r\n:1\r\n", ":5\r\n"]
    {
        let (_server, mut peer, mut client) = Client::connected().await;
        for attempt in 0..3 {
            client.submit(attempt, acquire());
            peer.expect("SET").await;
        }
        peer.say(format!("+OK\r\n{garbage}")).await;
        assert_eq!(client.answer().await, Answer::granted());
        assert_eq!(client.answer().await, lost(), "{garbage:?}");
        assert_eq!(client.answer().await, lost(), "{garbage:?}");
        assert!(client.down().await.to_string().contains("no reply of a Redis"), "{garbage:?}");
        peer.expect_end().await;
    }
}

#[tokio::test]
async fn a_reply_that_nobody_asked_for_ends_the_connection_and_is_no_vote() {
    let (server, mut peer, mut client) = Client::connected().await;
    client.submit(0, acquire());
    peer.expect("SET").await;
    peer.say("$-1\r\n+OK\r\n").await;
    assert_eq!(client.answer().await, Answer::refused());
    client.down().await;
    peer.expect_end().await;

    let mut peer = server.admit("def", 2).await;
    client.up().await;
    client.submit(1, acquire());
    peer.expect("SET").await;
    assert!(client.vote_at_once().is_none(), "the extra reply waited for it");
    peer.say("$-1\r\n").await;
    assert_eq!(client.answer().await, Answer::refused());
}

#[tokio::test]
async fn a_push_is_skipped_wherever_it_comes() {
    let (_server, mut peer, mut client) = Client::connected().await;
    let push = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n";
    peer.say(push).await;
    client.submit(0, acquire());
    client.submit(1, release());
    peer.expect("SET").await;
    peer.say(format!("{push}+OK\r\n{push}:1\r\n{push}")).await;
    assert_eq!(client.answer().await, Answer::granted());
    assert_eq!(client.answer().await, Answer::granted());
    client.submit(2, acquire());
    peer.say("$-1\r\n").await;
    assert_eq!(client.answer().await, Answer::refused(), "the connection is as good as before");
}

#[tokio::test]
async fn a_script_goes_with_its_text_once_and_again_when_the_master_forgot_it() {
    let (_server, mut peer, mut client) = Client::connected().await;
    let key = |name: &str| Op::release(name.as_bytes(), token());
    client.submit(0, key("a"));
    let taught = peer.expect("EVAL").await;
    assert_eq!(taught[2..], ["1", "a", "t"]);
    peer.say(":1\r\n").await;
    assert_eq!(client.answer().await, Answer::granted());

    client.submit(1, key("b"));
    client.submit(2, key("c"));
    for name in ["b", "c"] {
        assert_eq!(peer.expect("EVALSHA").await[2..], ["1", name, "t"]);
    }
    peer.say("-NOSCRIPT No matching script.\r\n".repeat(2)).await;
    for name in ["b", "c"] {
        let again = peer.expect("EVAL").await;
        assert_eq!((&again[1], &again[2..]), (&taught[1], &["1", name, "t"].map(String::from)[..]));
    }
    peer.say(":1\r\n:0\r\n").await;
    for (attempt, answer) in [(1, Answer::granted()), (2, Answer::refused())] {
        let vote = client.vote().await;
        assert_eq!((vote.attempt, vote.answer), (attempt, answer));
    }
}

/// A master that says of one of two commands that it has it.
async fn connected_to_one_that_knows(what: &str) -> (Server, Peer, Client) {
    let server = Server::bind().await;
    let client = Client::start(&server.url());
    let mut peer = server.accept().await;
    let facts = peer.facts("abc", 1, "master").await;
    peer.say(facts.replace(KNOWS_NONE, what)).await;
    client.up().await;
    (server, peer, client)
}

const KNOWS_DELIFEQ: &str = "*2\r\n*2\r\n$7\r\ndelifeq\r\n:3\r\n*-1\r\n";
const KNOWS_DELEX: &str = "*2\r\n$-1\r\n*2\r\n$5\r\ndelex\r\n:-2\r\n";

#[tokio::test]
async fn a_release_is_the_masters_own_command_where_it_has_one() {
    for (what, command) in [(KNOWS_DELIFEQ, "DELIFEQ k t"), (KNOWS_DELEX, "DELEX k IFEQ t")] {
        let (_server, mut peer, mut client) = connected_to_one_that_knows(what).await;
        client.submit(0, Op::release(*b"k", token()));
        assert_eq!(peer.command().await.unwrap().join(" "), command);
        peer.say(":1\r\n").await;
        assert_eq!(client.answer().await, Answer::granted());
        client.submit(1, Op::release(*b"k", token()));
        peer.expect(command.split(' ').next().unwrap()).await;
        peer.say("-WRONGTYPE Operation against a key holding the wrong kind of value\r\n").await;
        assert_eq!(client.answer().await, Answer::refused(), "it is another's");
    }
}

#[tokio::test]
async fn a_master_whose_own_command_is_forbidden_gets_the_script() {
    let (_server, mut peer, mut client) = connected_to_one_that_knows(KNOWS_DELIFEQ).await;
    client.submit(0, Op::release(*b"k", token()));
    peer.expect("DELIFEQ").await;
    peer.say("-NOPERM this user has no permissions to run the 'delifeq' command\r\n").await;
    assert_eq!(peer.expect("EVAL").await[2..], ["1", "k", "t"]);
    peer.say(":1\r\n").await;
    assert_eq!(client.answer().await, Answer::granted());
    client.submit(1, Op::release(*b"k", token()));
    peer.expect("EVAL").await;
}

#[tokio::test]
async fn an_error_reply_is_unknown_with_its_text_and_harms_nothing_else() {
    let (_server, mut peer, mut client) = Client::connected().await;
    client.submit(0, acquire());
    client.submit(1, acquire());
    peer.say("-OOM command not allowed when used memory > 'maxmemory'.\r\n+OK\r\n").await;
    let answer = client.answer().await;
    let Verdict::Unknown(cause) = &answer.verdict else { panic!("{answer:?}") };
    assert_eq!(
        cause.to_string(),
        "error reply: OOM command not allowed when used memory > 'maxmemory'."
    );
    assert!(answer.sent, "an error of a proxy may hide that it was done");
    assert_eq!(client.answer().await, Answer::granted());
}

#[tokio::test]
async fn a_master_that_became_a_replica_is_left_and_not_admitted_again() {
    let (server, mut peer, mut client) = Client::connected().await;
    client.submit(0, acquire());
    client.submit(1, acquire());
    peer.expect("SET").await;
    peer.say("-READONLY You can't write against a read only replica.\r\n").await;
    let readonly = "READONLY You can't write against a read only replica.";
    assert_eq!(client.answer().await, Answer::unknown(Cause::ErrorReply(readonly.into())));
    assert_eq!(client.answer().await, lost());
    peer.expect("SET").await;
    peer.expect_end().await;

    server.accept().await.handshake_as_replica().await;
    let not_admitted =
        |state: &redlock_core::NodeState| format!("{state:?}").contains("NotAdmitted");
    let state = client.until(not_admitted).await;
    assert!(format!("{state:?}").contains("replica"), "{state:?}");
    client.submit(2, acquire());
    let vote = client.vote_at_once().expect("known at once");
    assert!(!vote.answer.sent, "{vote:?}");
}

#[tokio::test]
async fn a_nil_and_an_unlimited_life_are_understood() {
    let (_server, mut peer, mut client) = Client::connected().await;
    client.submit(0, inspect());
    client.submit(1, inspect());
    client.submit(2, Op::extend(*b"k", token(), 5));
    let value = bulk("them");
    peer.say(format!("*2\r\n$-1\r\n:-2\r\n*2\r\n{value}:-1\r\n*2\r\n{value}:9\r\n")).await;
    assert_eq!(client.answer().await, Answer::granted());
    assert_eq!(client.answer().await, Answer::refused().held_by(b"them".to_vec(), None));
    assert_eq!(client.answer().await, held(b"them", 9));
}
