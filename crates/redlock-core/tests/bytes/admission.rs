//! What is asked beside the locks: the record, orders, and the look behind each acquire.

use redlock_core::admission::{Begin, Identity, MEMBERS, Nonce, Order, Record, Said};
use redlock_core::{Answer, Cause, Facts, NodeEvent, Role, Unread, Verdict, WhyNot};
use redlock_testkit::lab::{NO_RESP3, NO_TRACKING, Peer, ScriptedServer, bulk};

use crate::client::{Client, acquire, inspect};

const RUN: &str = "0123456789abcdef0123456789abcdef01234567";
const OTHER: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const SET: &str = "p:redlock-quorum:1:ballots:0123456789abcdef";
const RECORD: &str = "p:redlock-quorum:1";
/// The ballot set of clients without quarantine.
const OFF: &str = "p:redlock-quorum:1:ballots";

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
async fn the_record_comes_with_the_handshake_and_nothing_waits_for_the_members() {
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
async fn without_a_run_the_ballots_of_clients_without_quarantine_are_counted() {
    let (_server, mut peer, mut client, facts) = connected("*0\r\n").await;
    assert_eq!(facts.record, Ok(Box::default()));
    assert_eq!(peer.expect("ZCARD").await[1..], [OFF]);
    peer.say(":7\r\n").await;
    assert_eq!(client.event().await, NodeEvent::Members(7));
    client.give(1, Order::Look);
    for words in ["INFO", "INFO", "HGETALL"] {
        peer.expect(words).await;
    }
    peer.say([server(), replication("master"), "*0\r\n".into()].concat()).await;
    assert_eq!(peer.expect("ZCARD").await[1..], [OFF]);
    peer.say(":8\r\n").await;
    let Ok(Said::Looked { members, .. }) = client.said().await else { panic!("a look") };
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
async fn a_count_that_is_denied_is_left_out() {
    let (_server, mut peer, mut client, _) = connected(&record(RUN)).await;
    peer.expect("ZCARD").await;
    client.submit(0, inspect());
    peer.say("-NOPERM no ZCARD\r\n:0\r\n").await;
    assert_eq!(client.answer().await, Answer::new(Verdict::Free));
    assert_eq!(client.event_at_once(), None);
}

#[tokio::test]
async fn a_server_that_is_loading_or_denies_the_record_is_connected_and_says_so() {
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
async fn without_tracking_a_vote_waits_for_the_look_behind_it() {
    let (_server, mut peer, mut client) = admitted().await;
    for (set, answer) in [("+OK\r\n", Answer::granted()), ("$-1\r\n", Answer::new(Verdict::HELD))] {
        client.submit(0, acquire());
        client.submit(1, inspect());
        peer.expect("SET").await;
        assert_eq!(peer.expect("INFO").await[1..], ["replication"]);
        assert_eq!(peer.expect("HGET").await[1..], [RECORD, "run"]);
        peer.command().await.unwrap();
        peer.say(format!("{set}{}{}:0\r\n", replication("master"), bulk(RUN))).await;
        assert_eq!(client.answer().await, answer);
        assert_eq!(client.answer().await, Answer::new(Verdict::Free));
    }
}

#[tokio::test]
async fn with_tracking_no_look_is_sent_behind_an_acquire() {
    const HELLO: &str = "%1\r\n$5\r\nproto\r\n:3\r\n";
    let server = ScriptedServer::bind().await;
    let mut client = Client::within(&server.url(), "p:");
    let mut peer = server.accept().await;
    let facts = peer.facts(RUN, 1, "master").await;
    peer.expect("HGETALL").await;
    peer.expect("ZADD").await;
    let facts = facts.replace(NO_RESP3, HELLO).replace(NO_TRACKING, "+OK\r\n");
    peer.say(facts + "%0\r\n:0\r\n").await;
    let facts = client.up().await;
    assert!(facts.tracks && facts.record == Ok(Box::default()), "{facts:?}");
    client.submit(0, acquire());
    client.submit(1, inspect());
    peer.expect("ZCARD").await;
    peer.expect("SET").await;
    peer.expect("EVAL").await;
}

#[tokio::test]
async fn a_master_that_has_changed_behind_an_acquire_is_unknown_and_may_have_lost_its_data() {
    let former = bulk(&format!("role:master\r\nmaster_replid:{OTHER}\r\nsecond_repl_offset:5\r\n"));
    for look in [
        format!("{}$-1\r\n", replication("master")),
        format!("{}{}", replication("master"), bulk(OTHER)),
        format!("{}{}", replication("slave"), bulk(RUN)),
        format!("{former}{}", bulk(RUN)),
    ] {
        let (_server, mut peer, mut client) = admitted().await;
        client.submit(0, acquire());
        peer.expect("SET").await;
        peer.say(format!("+OK\r\n{look}")).await;
        let answer = client.answer().await;
        assert!(matches!(answer.verdict, Verdict::Unknown(Cause::NotAdmitted(_))), "{answer:?}");
        assert!(answer.sent, "the key may be there");
        assert_eq!(client.event().await, NodeEvent::DataLost);
        assert_eq!(client.order()[2..], ["push", "vote"], "no grant is counted before");
    }
}

#[tokio::test]
async fn a_look_that_is_denied_names_why_and_says_nothing_about_the_data() {
    let (_server, mut peer, mut client) = admitted().await;
    client.submit(0, acquire());
    peer.expect("SET").await;
    peer.say(format!("+OK\r\n{}-NOPERM no HGET\r\n", replication("master"))).await;
    let answer = client.answer().await;
    let Verdict::Unknown(Cause::NotAdmitted(why)) = answer.verdict else { panic!("{answer:?}") };
    assert_eq!((why.why, why.hindrance.as_deref()), (WhyNot::Denied, Some("NOPERM no HGET")));
    assert_eq!(client.event_at_once(), None);
    client.submit(0, acquire());
    peer.say(format!("-OOM no\r\n{}{}", replication("master"), bulk(RUN))).await;
    assert_eq!(client.answer().await, Answer::unknown(Cause::ErrorReply("OOM no".into())));
}

#[tokio::test]
async fn an_acquire_whose_look_never_comes_is_unknown() {
    let (_server, mut peer, mut client) = admitted().await;
    client.submit(0, acquire());
    client.give(0, Order::Look);
    peer.expect("SET").await;
    peer.say(format!("+OK\r\n{}", replication("master"))).await;
    drop(peer);
    assert_eq!(client.answer().await, Answer::unknown(Cause::ConnectionClosed));
    assert_eq!(client.said().await, Err(Cause::ConnectionClosed));
    client.down().await;
    client.give(1, Order::Time);
    assert!(client.said().await.is_err(), "known at once");
}

#[tokio::test]
async fn a_look_is_read_behind_what_was_sent_before_and_then_its_set_is_counted() {
    let (_server, mut peer, mut client, _) = connected("*0\r\n").await;
    client.submit(0, inspect());
    client.give(7, Order::Look);
    client.submit(1, inspect());
    for words in ["ZCARD", "EVAL", "INFO", "INFO", "HGETALL", "EVALSHA"] {
        peer.expect(words).await;
    }
    let look = [server(), replication("master"), record(RUN)].concat();
    peer.say(format!(":0\r\n:0\r\n{look}:0\r\n")).await;
    assert_eq!(peer.expect("ZCARD").await[1..], [SET]);
    peer.say(":5\r\n").await;
    let Ok(Said::Looked { facts, members }) = client.said().await else { panic!("a look") };
    assert_eq!((facts.role, facts.time_us), (Role::Master, Some(1_700_000_000_000_999)));
    assert_eq!((facts.record.unwrap().run, members), (Some(identity(RUN)), Some(5)));
    // What was read is what the next look is compared with.
    client.vote().await;
    client.vote().await;
    client.submit(2, acquire());
    peer.expect("SET").await;
    peer.say(format!("+OK\r\n{}{}", replication("master"), bulk(RUN))).await;
    assert_eq!(client.answer().await, Answer::granted());
}

#[tokio::test]
async fn a_look_that_finds_a_replica_ends_the_connection() {
    let (_server, mut peer, mut client) = admitted().await;
    client.give(0, Order::Look);
    peer.expect("INFO").await;
    peer.say([server(), replication("slave"), "*0\r\n".into()].concat()).await;
    let Ok(Said::Looked { facts, .. }) = client.said().await else { panic!("a look") };
    assert_eq!(facts.role, Role::Replica);
    client.down().await;
    assert_eq!(client.order()[2..], ["answer", "down"]);
}

#[tokio::test]
async fn times_and_scores_name_who_has_told_them() {
    let (_server, mut peer, mut client) = admitted().await;
    client.give(0, Order::Time);
    peer.expect("INFO").await;
    peer.say(server()).await;
    let told = Said::Time { process: identity(RUN).run, time: 1_700_000_000_000 };
    assert_eq!(client.said().await, Ok(told));
    for (score, highest) in [
        ("*2\r\n$1\r\n7\r\n$2\r\n95\r\n", Some(95)),
        ("*1\r\n*2\r\n$1\r\n7\r\n,95\r\n", Some(95)),
        ("*0\r\n", None),
    ] {
        client.give(0, Order::Scores(Some(identity(RUN))));
        let asked = peer.expect("ZREVRANGEBYSCORE").await;
        assert_eq!(asked[1..4], [SET, "(9007199254740992", "-inf"]);
        for words in ["INFO", "INFO", "HGETALL"] {
            peer.expect(words).await;
        }
        peer.say([score, &server(), &replication("master"), &record(RUN)].concat()).await;
        match client.said().await {
            Ok(Said::Scores { highest: found, facts }) => {
                assert_eq!((found, facts.identity), (highest, Some(identity(RUN))));
            }
            said => panic!("{said:?}"),
        }
    }
}

fn begin() -> Order {
    let (expect, identity) = (Record::default().seen(), identity(RUN));
    Order::Begin(Begin { expect, identity, nonce: Nonce(1), max_ttl: 1 })
}

#[tokio::test]
async fn an_order_that_is_refused_fails_with_what_the_server_said() {
    let (_server, mut peer, mut client) = admitted().await;
    for error in ["NOPERM no EVAL", "WRONGTYPE the key p:redlock-quorum:1 is of another type"] {
        client.give(0, begin());
        peer.expect("EVAL").await;
        peer.say(format!("-{error}\r\n")).await;
        assert_eq!(client.said().await, Err(Cause::ErrorReply(error.into())));
    }
    for strange in ["+OK\r\n", "*0\r\n", "*4\r\n:9\r\n$1\r\n1\r\n*0\r\n:0\r\n"] {
        client.give(0, begin());
        peer.say(strange).await;
        assert!(matches!(client.said().await, Err(Cause::Unusable(_))), "{strange:?}");
    }
    client.give(0, begin());
    peer.say("-READONLY You can't write against a read only replica.\r\n").await;
    assert!(matches!(client.said().await, Err(Cause::Demoted(_))));
    client.down().await;
}

#[tokio::test]
async fn a_node_without_a_namespace_looks_and_does_no_more() {
    let (_server, mut peer, mut client) = Client::connected().await;
    client.give(0, begin());
    assert!(matches!(client.said().await, Err(Cause::NotSent(_))));
    client.give(0, Order::Look);
    for section in ["server", "replication"] {
        assert_eq!(peer.expect("INFO").await[1..], [section]);
    }
    peer.say([server(), replication("master")].concat()).await;
    let Ok(Said::Looked { facts, members }) = client.said().await else { panic!("a look") };
    assert_eq!((facts.record, members), (Err(Unread::NotAsked), Some(0)));
    client.submit(0, acquire());
    client.submit(1, inspect());
    peer.expect("SET").await;
    peer.expect("EVAL").await;
}
