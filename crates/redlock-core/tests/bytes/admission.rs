//! Requests about admission: the record, and orders.

use redlock_core::admission::{
    AdmissionOp, AdmissionReply, Begin, Identity, MEMBERS, Nonce, Record,
};
use redlock_core::{Answer, Cause, Facts, NodeEvent, Op, Role, Unread, Verdict};
use redlock_testkit::lab::{NO_RESP3, NO_TRACKING, Peer, ScriptedServer, bulk};

use crate::client::{Client, acquire, inspect};

const RUN: &str = "0123456789abcdef0123456789abcdef01234567";
pub(crate) const SET: &str = "p:redlock-quorum:1:ballots:0123456789abcdef";
pub(crate) const RECORD: &str = "p:redlock-quorum:1";
/// The ballot set of clients without quarantine.
pub(crate) const OFF: &str = "p:redlock-quorum:1:ballots";

/// A record in the form of RESP2.
fn record(run: &str) -> String {
    let fields = ["run", run, "max_ttl", "60000"].map(bulk);
    format!("*4\r\n{}", fields.concat())
}

fn replication(role: &str) -> String {
    bulk(&format!("role:{role}\r\nsecond_repl_offset:-1\r\n"))
}

fn server() -> String {
    bulk(&format!("run_id:{RUN}\r\nserver_time_usec:1700000000000999\r\n"))
}

fn identity(run: &str) -> Identity {
    run.parse().unwrap()
}

/// A connection to a server of RESP2 with this record, its handshake done, and its members counted.
async fn connected(record: &str) -> (ScriptedServer, Peer, Client, Facts) {
    let server = ScriptedServer::bind().await;
    let mut client = Client::within(&server.url(), "p:");
    let mut peer = server.accept().await;
    let facts = peer.facts(RUN, 1, "master").await;
    assert_eq!(peer.expect("HGETALL").await[1..], [RECORD], "before anything was answered");
    peer.expect("ZADD").await;
    peer.say(facts + record + ":0\r\n").await;
    let facts = client.up().await;
    (server, peer, client, facts)
}

async fn admitted() -> (ScriptedServer, Peer, Client) {
    let (server, mut peer, mut client, _) = connected(&record(RUN)).await;
    peer.expect("ZCARD").await;
    peer.say(":1024\r\n").await;
    assert_eq!(client.event().await, NodeEvent::Members(MEMBERS));
    (server, peer, client)
}

#[tokio::test]
async fn handshake_reads_the_record_without_awaiting_members() {
    let (_server, mut peer, mut client, facts) = connected(&record(RUN)).await;
    let expected = Record { run: Some(identity(RUN)), max_ttl: Some(60_000), ..Record::default() };
    assert_eq!((facts.identity, facts.record), (Some(identity(RUN)), Ok(Box::new(expected))));
    assert_eq!(peer.expect("ZCARD").await[1..], [SET]);
    client.submit(0, inspect());
    peer.expect("EVAL").await;
    peer.say(":1023\r\n:0\r\n").await;
    assert_eq!(client.event().await, NodeEvent::Members(1023));
    assert_eq!(client.answer().await, Answer::new(Verdict::Free));
}

#[tokio::test]
async fn ballots_without_quarantine_are_counted_if_run_is_missing() {
    let (_server, mut peer, mut client, facts) = connected("*0\r\n").await;
    assert_eq!(facts.record, Ok(Box::default()));
    assert_eq!(peer.expect("ZCARD").await[1..], [OFF]);
    peer.say(":7\r\n").await;
    assert_eq!(client.event().await, NodeEvent::Members(7));
    client.submit(1, Op::admission(AdmissionOp::ReadFacts));
    for words in ["INFO", "INFO", "HGETALL"] {
        peer.expect(words).await;
    }
    peer.say([server(), replication("master"), "*0\r\n".into()].concat()).await;
    assert_eq!(peer.expect("ZCARD").await[1..], [OFF]);
    peer.say(":8\r\n").await;
    let Ok(AdmissionReply::Facts { members, .. }) = client.said().await else {
        panic!("the facts")
    };
    assert_eq!(members, Some(8));
}

#[tokio::test]
async fn a_key_of_another_type_has_no_members() {
    let (_server, mut peer, mut client, _) = connected(&record(RUN)).await;
    peer.expect("ZCARD").await;
    peer.say("-WRONGTYPE Operation against a key holding the wrong kind of value\r\n").await;
    assert_eq!(client.event().await, NodeEvent::Members(0));
}

#[tokio::test]
async fn denied_count_is_omitted() {
    let (_server, mut peer, mut client, _) = connected(&record(RUN)).await;
    peer.expect("ZCARD").await;
    client.submit(0, inspect());
    peer.say("-NOPERM no ZCARD\r\n:0\r\n").await;
    assert_eq!(client.answer().await, Answer::new(Verdict::Free));
    assert_eq!(client.event_at_once(), None);
}

#[tokio::test]
async fn loading_or_denied_record_is_reported_by_the_connection() {
    let (_server, _peer, _client, facts) = connected("-LOADING Redis is loading\r\n").await;
    assert!(facts.is_loading());
    let (_server, mut peer, client, facts) = connected("-NOPERM no HGETALL\r\n").await;
    let refused = Unread::Refused(Cause::ErrorReply("NOPERM no HGETALL".into()));
    assert_eq!(facts.record, Err(refused));
    client.submit(0, acquire());
    client.submit(1, inspect());
    peer.expect("SET").await;
    peer.expect("EVAL").await;
}

#[tokio::test]
async fn acquire_is_not_followed_by_a_read_of_the_facts() {
    const HELLO: &str = "%1\r\n$5\r\nproto\r\n:3\r\n";
    for is_new in [true, false] {
        let server = ScriptedServer::bind().await;
        let mut client = Client::within(&server.url(), "p:");
        let mut peer = server.accept().await;
        let facts = peer.facts(RUN, 1, "master").await;
        peer.expect("HGETALL").await;
        peer.expect("ZADD").await;
        let new = facts.replace(NO_RESP3, HELLO).replace(NO_TRACKING, "+OK\r\n");
        let facts = if is_new { new + "%0\r\n" } else { facts + "*0\r\n" };
        peer.say(facts + ":0\r\n").await;
        let facts = client.up().await;
        assert_eq!((facts.tracks, facts.record), (is_new, Ok(Box::default())));
        client.submit(0, acquire());
        client.submit(1, inspect());
        peer.expect("ZCARD").await;
        peer.expect("SET").await;
        peer.expect("EVAL").await;
    }
}

#[tokio::test]
async fn unanswered_order_fails_with_its_connection() {
    let (_server, mut peer, mut client) = admitted().await;
    client.submit(0, Op::admission(AdmissionOp::ReadFacts));
    peer.expect("INFO").await;
    peer.say(server()).await;
    drop(peer);
    assert_eq!(client.said().await, Err(Cause::ConnectionClosed));
    client.down().await;
    client.submit(1, Op::admission(AdmissionOp::ReadTime));
    assert!(client.said().await.is_err(), "known immediately");
}

#[tokio::test]
async fn facts_are_read_after_earlier_requests_and_before_the_count() {
    let (_server, mut peer, mut client, _) = connected("*0\r\n").await;
    client.submit(0, inspect());
    client.submit(7, Op::admission(AdmissionOp::ReadFacts));
    client.submit(1, inspect());
    for words in ["ZCARD", "EVAL", "INFO", "INFO", "HGETALL", "EVALSHA"] {
        peer.expect(words).await;
    }
    let look = [server(), replication("master"), record(RUN)].concat();
    peer.say(format!(":0\r\n:0\r\n{look}:0\r\n")).await;
    assert_eq!(peer.expect("ZCARD").await[1..], [SET]);
    peer.say(":5\r\n").await;
    for _ in 0..2 {
        assert_eq!(client.answer().await, Answer::new(Verdict::Free));
    }
    let Ok(AdmissionReply::Facts { facts, members }) = client.said().await else {
        panic!("the facts")
    };
    assert_eq!((facts.role, facts.time_us), (Role::Master, Some(1_700_000_000_000_999)));
    assert_eq!((facts.record.unwrap().run, members), (Some(identity(RUN)), Some(5)));
}

/// Its members are counted after the requests submitted in the meantime.
#[tokio::test]
async fn read_overtaken_by_later_facts_is_repeated() {
    let (_server, mut peer, mut client) = admitted().await;
    let look = |record: &str| [&server(), &replication("master"), record].concat();
    client.submit(1, Op::admission(AdmissionOp::ReadFacts));
    client.submit(2, Op::admission(AdmissionOp::ReadScores(Some(identity(RUN)))));
    for words in ["INFO", "INFO", "HGETALL", "ZREVRANGEBYSCORE"] {
        peer.expect(words).await;
    }
    peer.say(look(&record(RUN))).await;
    for words in ["INFO", "INFO", "HGETALL", "ZCARD"] {
        peer.expect(words).await;
    }
    peer.say(format!("*0\r\n{}:1024\r\n", look("*0\r\n"))).await;
    let Ok(AdmissionReply::Scores { facts, .. }) = client.said().await else { panic!("a score") };
    assert_eq!(facts.record, Ok(Box::default()), "flushed");
    for words in ["INFO", "INFO", "HGETALL"] {
        peer.expect(words).await;
    }
    peer.say(look("*0\r\n")).await;
    peer.expect("ZCARD").await;
    peer.say(":0\r\n").await;
    let Ok(AdmissionReply::Facts { facts, members }) = client.said().await else {
        panic!("the facts")
    };
    assert_eq!((facts.record, members), (Ok(Box::default()), Some(0)));
}

#[tokio::test]
async fn read_that_finds_a_replica_closes_the_connection() {
    let (_server, mut peer, mut client) = admitted().await;
    client.submit(0, Op::admission(AdmissionOp::ReadFacts));
    peer.expect("INFO").await;
    peer.say([server(), replication("slave"), "*0\r\n".into()].concat()).await;
    let Ok(AdmissionReply::Facts { facts, .. }) = client.said().await else { panic!("the facts") };
    assert_eq!(facts.role, Role::Replica);
    client.down().await;
    assert_eq!(client.order()[2..], ["vote", "down"]);
}

#[tokio::test]
async fn times_and_scores_name_their_process() {
    let (_server, mut peer, mut client) = admitted().await;
    client.submit(0, Op::admission(AdmissionOp::ReadTime));
    peer.expect("INFO").await;
    peer.say(server()).await;
    let told = AdmissionReply::Time { process: identity(RUN).run, time: 1_700_000_000_000 };
    assert_eq!(client.said().await, Ok(told));
    for (score, highest) in [
        ("*2\r\n$1\r\n7\r\n$2\r\n95\r\n", Some(95)),
        ("*1\r\n*2\r\n$1\r\n7\r\n,95\r\n", Some(95)),
        ("*0\r\n", None),
    ] {
        client.submit(0, Op::admission(AdmissionOp::ReadScores(Some(identity(RUN)))));
        let asked = peer.expect("ZREVRANGEBYSCORE").await;
        assert_eq!(asked[1..4], [SET, "(9007199254740992", "-inf"]);
        for words in ["INFO", "INFO", "HGETALL"] {
            peer.expect(words).await;
        }
        peer.say([score, &server(), &replication("master"), &record(RUN)].concat()).await;
        match client.said().await {
            Ok(AdmissionReply::Scores { highest: found, facts }) => {
                assert_eq!((found, facts.identity), (highest, Some(identity(RUN))));
            }
            said => panic!("{said:?}"),
        }
    }
}

fn begin() -> AdmissionOp {
    let (expect, identity, nonce) = (Record::default().seen(), identity(RUN), Nonce(1));
    let (max_ttl, is_outdated, until) = (1, false, 7);
    AdmissionOp::Begin(Begin { expect, identity, nonce, max_ttl, is_outdated, until })
}

#[tokio::test]
async fn refused_order_fails_with_the_servers_error() {
    let (_server, mut peer, mut client) = admitted().await;
    for error in ["NOPERM no EVAL", "WRONGTYPE the key p:redlock-quorum:1 is of another type"] {
        client.submit(0, Op::admission(begin()));
        peer.expect("EVAL").await;
        peer.say(format!("-{error}\r\n")).await;
        assert_eq!(client.said().await, Err(Cause::ErrorReply(error.into())));
    }
    for strange in ["+OK\r\n", "*0\r\n", "*4\r\n:9\r\n$1\r\n1\r\n*0\r\n:0\r\n"] {
        client.submit(0, Op::admission(begin()));
        peer.say(strange).await;
        assert!(matches!(client.said().await, Err(Cause::Unusable(_))), "{strange:?}");
    }
    client.submit(0, Op::admission(begin()));
    peer.say("-READONLY You can't write against a read only replica.\r\n").await;
    assert!(matches!(client.said().await, Err(Cause::Demoted(_))));
    client.down().await;
}

#[tokio::test]
async fn node_without_a_namespace_only_reads_facts() {
    let (_server, mut peer, mut client) = Client::connected().await;
    client.submit(0, Op::admission(begin()));
    assert!(matches!(client.said().await, Err(Cause::NotSent(_))));
    client.submit(0, Op::admission(AdmissionOp::ReadFacts));
    for section in ["server", "replication"] {
        assert_eq!(peer.expect("INFO").await[1..], [section]);
    }
    peer.say([server(), replication("master")].concat()).await;
    let Ok(AdmissionReply::Facts { facts, members }) = client.said().await else {
        panic!("the facts")
    };
    assert_eq!((facts.record, members), (Err(Unread::NotAsked), Some(0)));
    client.submit(0, acquire());
    client.submit(1, inspect());
    peer.expect("SET").await;
    peer.expect("EVAL").await;
}
