//! Connections that end, and the ones that take their place.

use std::time::Duration;

use redlock_core::{Answer, Cause, Facts, NodeEvent, Op, Role, Verdict};
use redlock_testkit::lab::{PATIENCE, ScriptedServer, bulk};

use crate::client::{Client, acquire, inspect, release, setup, token};

fn lost() -> Answer {
    Answer::unknown(Cause::ConnectionClosed)
}

#[tokio::test]
async fn nothing_is_sent_before_the_node_is_driven() {
    let server = ScriptedServer::bind().await;
    let mut client = Client::new(&server.url(), &setup(PATIENCE));
    client.submit(0, acquire());
    let answer = client.vote_at_once().expect("known at once").answer;
    assert_eq!(answer, Answer::unsent(Cause::NotConnected("".into())));

    client.drive();
    let mut peer = server.accept().await;
    client.submit(1, acquire());
    let answer = client.vote_at_once().expect("known at once").answer;
    assert!(matches!(&answer.verdict, Verdict::Unknown(Cause::NotConnected(_))), "{answer:?}");
    assert!(!answer.sent);

    peer.handshake("abc", 1).await;
    client.up().await;
    client.submit(2, release());
    peer.expect("EVAL").await;
}

#[tokio::test]
async fn a_connection_that_ends_leaves_all_its_requests_unknown() {
    let (_server, mut peer, mut client) = Client::connected().await;
    for ticket in 0..3 {
        client.submit(ticket, acquire());
        peer.expect("SET").await;
    }
    peer.say("$-1\r\n+O").await;
    drop(peer);
    assert_eq!(client.answer().await, Answer::new(Verdict::HELD));
    assert_eq!(client.answer().await, lost(), "half a reply is not a reply");
    assert_eq!(client.answer().await, lost());
    assert_eq!(client.down().await, Cause::ConnectionClosed);
    client.submit(3, acquire());
    let answer = client.vote_at_once().expect("known at once").answer;
    assert_eq!(answer, Answer::unsent(Cause::ConnectionClosed));
}

#[tokio::test]
async fn votes_precede_the_end_of_their_connection() {
    let (_server, mut peer, mut client) = Client::connected().await;
    for ticket in 0..2 {
        client.submit(ticket, acquire());
        peer.expect("SET").await;
    }
    peer.say("+OK\r\n").await;
    drop(peer);
    client.down().await;
    assert_eq!(client.order(), ["up", "vote", "vote", "down"]);
}

#[tokio::test]
async fn unpolled_node_is_down_when_its_future_is_dropped() {
    let mut client = Client::new("redis://127.0.0.1:1", &setup(PATIENCE));
    drop(client.unpolled());
    assert!(matches!(client.event_at_once(), Some(NodeEvent::Down { retries_now: false, .. })));
    client.submit(0, acquire());
    let answer = client.vote_at_once().expect("known at once").answer;
    assert!(!answer.sent && format!("{answer:?}").contains("runtime"), "{answer:?}");
}

#[tokio::test]
async fn node_driven_again_survives_its_previous_future() {
    let (server, mut peer, mut client) = Client::connected().await;
    client.submit(0, acquire());
    peer.expect("SET").await;
    let former = client.driving.take().unwrap();
    client.drive();
    assert_eq!(client.answer().await, lost(), "the former connection is no longer used");
    let mut peer = server.admit("def", 1).await;
    client.up().await;
    former.abort();
    assert!(former.await.unwrap_err().is_cancelled());
    assert_eq!(client.event_at_once(), None);
    client.submit(1, acquire());
    peer.expect("SET").await;
    peer.say("+OK\r\n").await;
    assert_eq!(client.answer().await, Answer::granted());
}

#[tokio::test]
async fn silent_connection_is_replaced() {
    let server = ScriptedServer::bind().await;
    let mut client = Client::impatient(&server.url(), Duration::from_millis(500));
    let mut silent = server.admit("abc", 1).await;
    client.up().await;
    client.submit(0, acquire());
    silent.expect("SET").await;
    assert_eq!(client.answer().await, lost());
    assert_eq!(client.down().await, Cause::TimedOut);
    silent.expect_end().await;
    let _peer = server.admit("def", 2).await;
    client.up().await;
}

#[tokio::test]
async fn stall_timeout_may_exceed_the_connect_timeout() {
    let server = ScriptedServer::bind().await;
    let connect_timeout = Duration::from_secs(1);
    let mut setup = setup(connect_timeout);
    setup.stall_timeout = PATIENCE;
    let mut client = Client::new(&server.url(), &setup);
    client.drive();
    let mut peer = server.admit("abc", 1).await;
    client.up().await;
    client.submit(0, acquire());
    peer.expect("SET").await;
    // The absence of an event can only be shown by waiting.
    tokio::time::sleep(connect_timeout * 3 / 2).await;
    assert_eq!(client.event_at_once(), None);
    peer.say("+OK\r\n").await;
    assert_eq!(client.answer().await, Answer::granted());
}

#[tokio::test]
async fn a_connection_without_requests_may_be_silent() {
    let server = ScriptedServer::bind().await;
    let limit = Duration::from_millis(300);
    let mut client = Client::impatient(&server.url(), limit);
    let mut peer = server.admit("abc", 1).await;
    client.up().await;
    client.submit(0, acquire());
    peer.expect("SET").await;
    peer.say("+OK\r\n").await;
    assert_eq!(client.answer().await, Answer::granted());
    tokio::time::sleep(limit * 2).await;
    client.submit(1, release());
    peer.expect("EVAL").await;
}

#[tokio::test]
async fn previous_connection_to_the_same_process_is_killed_first() {
    let (server, peer, mut client) = Client::connected().await;
    drop(peer);
    client.down().await;
    let mut peer = server.admit("abc", 2).await;
    assert_eq!(peer.expect("CLIENT").await[1..], ["KILL", "ID", "1"]);
    assert_eq!(client.event_at_once(), None, "not before it is answered");
    client.submit(0, release());
    assert!(!client.vote_at_once().expect("known at once").answer.sent);
    peer.say(":1\r\n").await;
    assert_eq!(client.up().await, Facts::master("abc"));
    client.submit(1, release());
    peer.expect("EVAL").await;
    drop(peer);

    client.down().await;
    let mut peer = server.admit("abc", 3).await;
    assert_eq!(peer.expect("CLIENT").await[1..], ["KILL", "ID", "2"], "the latest, not the first");
}

#[tokio::test]
async fn missing_barrier_is_reported() {
    for (reply, has_barrier) in [
        (":1", true),
        (":0", true),
        ("-ERR No such client", true),
        ("-NOPERM this user has no permissions to run the 'client|kill' command", false),
        ("-ERR unknown command 'CLIENT'", false),
        ("-ERR unknown subcommand 'KILL'", false),
    ] {
        let (server, peer, mut client) = Client::connected().await;
        drop(peer);
        client.down().await;
        let mut peer = server.admit("abc", 2).await;
        peer.expect("CLIENT").await;
        peer.say(format!("{reply}\r\n")).await;
        assert_eq!(client.up().await.has_barrier, has_barrier, "{reply}");
    }
}

#[tokio::test]
async fn eight_latest_processes_behind_a_proxy_are_remembered() {
    for (others, remembered) in [(7, true), (8, false)] {
        let (server, mut peer, mut client) = Client::connected().await;
        for other in (0..others).map(|i| format!("other-{i}")) {
            drop(peer);
            client.down().await;
            peer = server.admit(&other, 1).await;
            assert!(client.up().await.has_barrier, "there was no connection to {other} before");
        }
        drop(peer);
        client.down().await;
        let mut peer = server.admit("abc", 9).await;
        if remembered {
            assert_eq!(peer.expect("CLIENT").await[1..], ["KILL", "ID", "1"]);
            peer.say(":1\r\n").await;
        }
        assert!(client.up().await.has_barrier);
    }
}

#[tokio::test]
async fn replica_is_probed_until_it_is_a_master() {
    let server = ScriptedServer::bind().await;
    let mut client = Client::start(&server.url());
    let mut peer = server.accept().await;
    peer.handshake_as_replica("abc").await;
    assert_eq!(client.up().await.role, Role::Replica);
    for reply in [bulk("role:slave\r\n"), "-NOPERM not now\r\n".to_owned()] {
        assert_eq!(peer.expect("INFO").await[1..], ["replication"]);
        client.submit(0, inspect());
        peer.command().await.expect("the request");
        peer.say(reply + ":0\r\n").await;
        assert_eq!(client.answer().await, Answer::new(Verdict::Free));
    }
    client.submit(1, acquire());
    peer.expect("SET").await;
    let readonly = "READONLY You can't write against a read only replica.";
    peer.say(format!("-{readonly}\r\n")).await;
    assert_eq!(client.answer().await, Answer::unknown(Cause::Demoted(readonly.into())));
    peer.expect("INFO").await;
    assert_eq!(client.event_at_once(), None, "nothing has changed so far");
    peer.say(bulk("role:master\r\n")).await;
    let changed = client.down().await;
    assert!(changed.to_string().contains("role"), "{changed}");
    let mut peer = server.admit("abc", 2).await;
    peer.expect("CLIENT").await;
    peer.say(":1\r\n").await;
    assert_eq!(client.up().await.role, Role::Master);
}

#[tokio::test]
async fn new_process_is_reported_without_killing_a_connection() {
    let (server, peer, mut client) = Client::connected().await;
    drop(peer);
    client.down().await;
    let mut peer = server.admit("def", 1).await;
    assert_eq!(client.up().await, Facts::master("def"));
    client.submit(0, acquire());
    peer.expect("SET").await;
}

#[tokio::test]
async fn broken_connection_retries_immediately_only_once() {
    let (server, peer, mut client) = Client::connected().await;
    // An idle connection that the server closes, as with `timeout 1`.
    drop(peer);
    let (cause, retries_now) = (Cause::ConnectionClosed, true);
    assert_eq!(client.event().await, NodeEvent::Down { cause, retries_now });
    // On a busy machine the time in which it happens once may be over.
    let mut left_alone = false;
    for run_id in ["b", "c", "d", "e", "f"] {
        drop(server.admit(run_id, 1).await);
        client.up().await;
        let NodeEvent::Down { retries_now, .. } = client.event().await else { panic!() };
        left_alone |= !retries_now;
    }
    assert!(left_alone);
}

#[tokio::test]
async fn a_script_is_loaded_again_on_every_connection() {
    let (server, mut peer, mut client) = Client::connected().await;
    client.submit(0, release());
    client.submit(1, release());
    peer.expect("EVAL").await;
    peer.expect("EVALSHA").await;
    drop(peer);
    client.down().await;
    let mut peer = server.admit("def", 2).await;
    client.up().await;
    client.submit(2, release());
    peer.expect("EVAL").await;
}

#[tokio::test]
async fn requests_beyond_the_in_flight_limit_are_not_sent() {
    let (_server, mut peer, mut client) = Client::connected().await;
    for ticket in 0..16_384 {
        client.submit(ticket, Op::acquire(*b"k", token(), 1_000));
    }
    assert!(client.vote_at_once().is_none());
    client.submit(16_384, acquire());
    let vote = client.vote_at_once().expect("known at once");
    assert_eq!((vote.ticket, vote.answer.sent), (16_384, false));
    let Verdict::Unknown(cause) = &vote.answer.verdict else { panic!("{vote:?}") };
    assert_eq!(
        cause.to_string(),
        "not sent: too many unanswered requests to this master (limit 16384)"
    );

    peer.say("$-1\r\n").await;
    assert_eq!(client.answer().await, Answer::new(Verdict::HELD));
    client.submit(16_385, acquire());
    assert!(client.vote_at_once().is_none(), "there is room for one again");
}

#[tokio::test]
async fn stopped_node_answers_all_and_can_be_driven_again() {
    let (server, mut peer, mut client) = Client::connected().await;
    client.submit(0, acquire());
    peer.expect("SET").await;
    client.submit(1, acquire());
    client.stop().await;
    for _ in 0..2 {
        let vote = client.vote_at_once().expect("no request is left without an answer");
        assert_eq!(vote.answer, lost());
    }
    client.submit(2, acquire());
    let answer = client.vote_at_once().expect("known at once").answer;
    assert!(!answer.sent && format!("{answer:?}").contains("runtime"), "{answer:?}");
    while peer.command().await.is_some() {}

    client.drive();
    let mut peer = server.admit("abc", 2).await;
    assert_eq!(peer.expect("CLIENT").await[1..], ["KILL", "ID", "1"]);
    peer.say(":0\r\n").await;
    client.up().await;
    client.submit(3, release());
    // The acquire that no socket took was answered unknown: it must never be sent.
    peer.expect("EVAL").await;
}
