//! Replies of a master, split anywhere, and bytes that are not a reply.

use std::time::Duration;

use redlock_core::{Answer, Cause, NodeEvent, Op, Role, Verdict};
use redlock_testkit::lab::{KNOWS_NONE, Peer, ScriptedServer, bulk};

use crate::client::{Client, acquire, inspect, release, token};

fn held(holder: &[u8], millis: u64) -> Answer {
    Answer::held(Some(holder), Some(Duration::from_millis(millis)))
}

fn not_ours() -> Answer {
    Answer::new(Verdict::NotOurs)
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
        assert_eq!(client.answer().await, not_ours(), "{size} bytes at a time");
    }
}

#[tokio::test]
async fn replies_in_one_read_are_separated() {
    let (_server, mut peer, mut client) = Client::connected().await;
    for ticket in 0..3 {
        client.submit(ticket, acquire());
        peer.expect("SET").await;
    }
    peer.say("+OK\r\n$-1\r\n-OOM no\r\n").await;
    let oom = Answer::unknown(Cause::ErrorReply("OOM no".into()));
    for (ticket, answer) in
        [Answer::granted(), Answer::new(Verdict::HELD), oom].into_iter().enumerate()
    {
        let vote = client.vote().await;
        assert_eq!((vote.ticket as usize, vote.answer), (ticket, answer));
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
async fn garbage_closes_the_connection_with_unknown_answers() {
    let huge = "$1048577\r\n";
    for garbage in
        ["HTTP/1.1 400\r\n", "+OK\rx", "\r\n", huge, "*3\r\n:1\r\n:1\r\n:1\r\n", ":5\r\n"]
    {
        let (_server, mut peer, mut client) = Client::connected().await;
        for ticket in 0..3 {
            client.submit(ticket, acquire());
            peer.expect("SET").await;
        }
        peer.say(format!("+OK\r\n{garbage}")).await;
        assert_eq!(client.answer().await, Answer::granted());
        assert_eq!(client.answer().await, lost(), "{garbage:?}");
        assert_eq!(client.answer().await, lost(), "{garbage:?}");
        assert!(
            client.down().await.to_string().contains("it sent bytes that are not a Redis reply"),
            "{garbage:?}"
        );
        peer.expect_end().await;
    }
}

#[tokio::test]
async fn unsolicited_reply_closes_the_connection_without_a_vote() {
    let (server, mut peer, mut client) = Client::connected().await;
    client.submit(0, acquire());
    peer.expect("SET").await;
    peer.say("$-1\r\n+OK\r\n").await;
    assert_eq!(client.answer().await, Answer::new(Verdict::HELD));
    client.down().await;
    peer.expect_end().await;

    let mut peer = server.admit("def", 2).await;
    client.up().await;
    client.submit(1, acquire());
    peer.expect("SET").await;
    assert!(client.vote_at_once().is_none(), "the extra reply precedes it");
    peer.say("$-1\r\n").await;
    assert_eq!(client.answer().await, Answer::new(Verdict::HELD));
}

#[tokio::test]
async fn pushes_are_skipped_at_any_position() {
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
    assert_eq!(
        client.answer().await,
        Answer::new(Verdict::HELD),
        "the connection is as good as before"
    );
}

#[tokio::test]
async fn attribute_is_skipped() {
    let server = ScriptedServer::bind().await;
    let mut client = Client::start(&server.url());
    let mut peer = server.accept().await;
    let facts = peer.facts("abc", 1, "master").await;
    let attribute = "|1\r\n+key-popularity\r\n%1\r\n$1\r\nk\r\n,0.5\r\n";
    let push = ">1\r\n+hello\r\n";
    peer.say(facts.replace("+OK\r\n", &format!("{push}{attribute}+OK\r\n"))).await;
    client.up().await;
    client.submit(0, acquire());
    client.submit(1, acquire());
    peer.say(format!("{attribute}$-1\r\n{attribute}{push}+OK\r\n")).await;
    assert_eq!(client.answer().await, Answer::new(Verdict::HELD));
    assert_eq!(client.answer().await, Answer::granted());
}

#[tokio::test]
async fn script_text_is_sent_once_and_again_after_noscript() {
    let (_server, mut peer, mut client) = Client::connected().await;
    let key = |name: &str| Op::release(name.as_bytes(), token());
    client.submit(0, key("a"));
    let text = peer.expect("EVAL").await;
    assert_eq!(text[2..], ["1", "a", "t"]);
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
        assert_eq!((&again[1], &again[2..]), (&text[1], &["1", name, "t"].map(String::from)[..]));
    }
    peer.say(":1\r\n:0\r\n").await;
    for (ticket, answer) in [(1, Answer::granted()), (2, not_ours())] {
        let vote = client.vote().await;
        assert_eq!((vote.ticket, vote.answer), (ticket, answer));
    }
}

#[tokio::test]
async fn noscript_for_a_script_text_is_an_error() {
    let (_server, mut peer, mut client) = Client::connected().await;
    client.submit(0, release());
    client.submit(1, release());
    peer.expect("EVAL").await;
    peer.expect("EVALSHA").await;
    let noscript = "NOSCRIPT No matching script.";
    let answer = Answer::unknown(Cause::ErrorReply(noscript.into()));
    peer.say(format!("-{noscript}\r\n")).await;
    assert_eq!(client.answer().await, answer, "it was sent with its text");
    peer.say(format!("-{noscript}\r\n")).await;
    peer.expect("EVAL").await;
    peer.say(format!("-{noscript}\r\n")).await;
    assert_eq!(client.answer().await, answer);
}

/// Connects to a master that has one of two commands.
async fn connected_to_one_that_knows(what: &str) -> (ScriptedServer, Peer, Client) {
    let server = ScriptedServer::bind().await;
    let mut client = Client::start(&server.url());
    let mut peer = server.accept().await;
    let facts = peer.facts("abc", 1, "master").await;
    peer.say(facts.replace(KNOWS_NONE, what)).await;
    client.up().await;
    (server, peer, client)
}

const KNOWS_DELIFEQ: &str = "*2\r\n*2\r\n$7\r\ndelifeq\r\n:3\r\n*-1\r\n";
const KNOWS_DELEX: &str = "*2\r\n$-1\r\n*2\r\n$5\r\ndelex\r\n:-2\r\n";

#[tokio::test]
async fn release_uses_the_servers_native_command() {
    for (what, command) in [(KNOWS_DELIFEQ, "DELIFEQ k t"), (KNOWS_DELEX, "DELEX k IFEQ t")] {
        let (_server, mut peer, mut client) = connected_to_one_that_knows(what).await;
        client.submit(0, Op::release(*b"k", token()));
        assert_eq!(peer.command().await.unwrap().join(" "), command);
        peer.say(":1\r\n").await;
        assert_eq!(client.answer().await, Answer::granted());
        client.submit(1, Op::release(*b"k", token()));
        peer.expect(command.split(' ').next().unwrap()).await;
        peer.say("-WRONGTYPE Operation against a key holding the wrong kind of value\r\n").await;
        assert_eq!(client.answer().await, not_ours(), "it belongs to another client");
    }
}

#[tokio::test]
async fn script_replaces_a_forbidden_native_command() {
    let (_server, mut peer, mut client) = connected_to_one_that_knows(KNOWS_DELIFEQ).await;
    for ticket in 0..2 {
        client.submit(ticket, Op::release(*b"k", token()));
        peer.expect("DELIFEQ").await;
    }
    let denied = "-NOPERM this user has no permissions to run the 'delifeq' command\r\n";
    peer.say(denied.repeat(2)).await;
    for _ in 0..2 {
        assert_eq!(peer.expect("EVAL").await[2..], ["1", "k", "t"]);
        peer.say(":1\r\n").await;
        assert_eq!(client.answer().await, Answer::granted());
    }
    client.submit(2, Op::release(*b"k", token()));
    peer.expect("EVAL").await;
}

#[tokio::test]
async fn error_reply_is_unknown_and_affects_no_other_request() {
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
async fn demoted_master_is_reported_and_disconnected() {
    let wrapped = "ERR Error running script (call to f_1): @user_script:5: -READONLY You can't";
    for error in ["READONLY You can't write against a read only replica.", wrapped] {
        let (server, mut peer, mut client) = Client::connected().await;
        client.submit(0, Op::extend(*b"k", token(), 5));
        client.submit(1, acquire());
        peer.expect("EVAL").await;
        peer.say(format!("-{error}\r\n")).await;
        let demoted = Cause::Demoted(error.into());
        assert_eq!(client.answer().await, Answer::unknown(demoted.clone()));
        assert_eq!(client.answer().await, lost());
        peer.expect("SET").await;
        peer.expect_end().await;
        assert_eq!(client.down().await, demoted);

        let mut peer = server.accept().await;
        peer.handshake_as_replica("abc").await;
        peer.expect("CLIENT").await;
        peer.say(":1\r\n").await;
        assert_eq!(client.up().await.role, Role::Replica);
    }
}

#[tokio::test]
async fn a_denied_read_in_a_script_is_an_error_and_not_a_foreign_key() {
    let (_server, mut peer, mut client) = Client::connected().await;
    client.submit(0, inspect());
    peer.say("-NOPERM this user has no permissions to access one of the keys\r\n").await;
    let answer = client.answer().await;
    assert!(matches!(answer.verdict, Verdict::Unknown(Cause::ErrorReply(_))), "{answer:?}");
    assert_eq!(client.event_at_once(), None::<NodeEvent>, "the connection is as good as before");
}

#[tokio::test]
async fn free_endless_and_foreign_keys_are_distinguished() {
    let (_server, mut peer, mut client) = Client::connected().await;
    for ticket in 0..3 {
        client.submit(ticket, inspect());
    }
    client.submit(3, Op::extend(*b"k", token(), 5));
    let value = bulk("them");
    peer.say(format!(":0\r\n*2\r\n{value}:-1\r\n*2\r\n$-1\r\n:7\r\n*2\r\n{value}:9\r\n")).await;
    assert_eq!(client.answer().await, Answer::new(Verdict::Free));
    assert_eq!(client.answer().await, Answer::held(Some(b"them"), None));
    assert_eq!(client.answer().await, Answer::held(None, Some(Duration::from_millis(7))));
    assert_eq!(client.answer().await, held(b"them", 9));
}
