//! Requests with a ballot or a score: their bytes, and every way in which they are answered.

mod rows;

use redlock_core::admission::{AdmissionOp, Admit, Nonce, Way};
use redlock_core::{Answer, Ballot, Balloted, Bid, Cause, Member, Node, NodeEvent, Op, WhyNot};
use redlock_testkit::lab::{NO_RESP3, NO_TRACKING, PATIENCE, Peer, ScriptedServer, bulk};

use crate::client::{Client, acquire, setup, token};
use rows::{accepted, at, held, not_admitted, rows, written};

const RUN: &str = "0123456789abcdef0123456789abcdef01234567";
const OTHER: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const SET: &str = "p:redlock-quorum:1:ballots:0123456789abcdef";
const OFF: &str = "p:redlock-quorum:1:ballots";
const HELLO: &str = "%1\r\n$5\r\nproto\r\n:3\r\n";
/// As many digits as every ballot has that is about the time.
const BALLOT: &str = "1763755000000031";

fn bid() -> Bid {
    let ballot = Ballot::new(55_117_343_750_000).unwrap();
    assert_eq!(ballot.score().to_string(), BALLOT);
    Bid { ballot, member: Member::new(7).unwrap() }
}

fn fenced() -> Op {
    Op::acquire_fenced(*b"k", token(), 1_000, bid())
}

fn ballot() -> Op {
    Op::ballot(*b"k", token(), bid())
}

fn score() -> Op {
    Op::score(*b"k", token(), bid().member)
}

fn give_back() -> Op {
    Op::give_back(*b"k", token(), 1_000, bid().member)
}

fn resume() -> Op {
    Op::resume(*b"k", token(), 1_000, bid())
}

/// The facts of a server that the handshake learns.
struct Server {
    record: String,
    probe: String,
    tracks: bool,
    quarantine: bool,
}

impl Default for Server {
    fn default() -> Self {
        let fields = ["run", RUN, "max_ttl", "60000"].map(bulk).concat();
        let record = format!("*4\r\n{fields}");
        Self { record, probe: ":0\r\n".into(), tracks: true, quarantine: true }
    }
}

impl Server {
    /// A client of it, with its members counted where there are any.
    async fn connect(self) -> (ScriptedServer, Peer, Client) {
        let server = ScriptedServer::bind().await;
        let mut setup = setup(PATIENCE);
        setup.namespace = Some((*b"p:").into());
        setup.quarantine = self.quarantine;
        setup.queues = false;
        let mut client = Client::new(&server.url(), &setup);
        client.drive();
        let mut peer = server.accept().await;
        let mut facts = peer.facts(RUN, 1, "master").await;
        peer.expect("HGETALL").await;
        let probe = peer.expect("ZADD").await;
        assert_eq!(probe[1..], ["p:redlock-quorum:1:ballots:0", "XX", "GT", "CH", "0", "0"]);
        if self.tracks {
            facts = facts.replace(NO_RESP3, HELLO).replace(NO_TRACKING, "+OK\r\n");
        }
        peer.say(facts + &self.record + &self.probe).await;
        let facts = client.up().await;
        let expected = self.probe.strip_prefix('-').map(|error| error.trim_end().to_owned());
        assert_eq!(facts.no_ballots, expected.filter(|error| !error.starts_with("OOM")));
        let run = facts.record.unwrap().run;
        client.node.set_admitted(run.filter(|run| run.covers(facts.identity.unwrap())));
        if self.record != "*0\r\n" {
            peer.expect("ZCARD").await;
            peer.say(":1024\r\n").await;
            client.event().await;
        }
        (server, peer, client)
    }
}

async fn admitted() -> (ScriptedServer, Peer, Client) {
    Server::default().connect().await
}

/// Reads the commands of a request.
async fn sent(peer: &mut Peer, commands: usize) -> Vec<String> {
    let mut sent = Vec::new();
    for _ in 0..commands {
        sent.push(peer.command().await.unwrap().join(" "));
    }
    sent
}

#[tokio::test]
async fn each_request_is_plain_commands_that_name_the_set_of_run() {
    let (_server, mut peer, client) = admitted().await;
    let set = "SET k t NX PX 1000".to_owned();
    let (zadd, zscore) = (format!("ZADD {SET} XX GT CH {BALLOT} 7"), format!("ZSCORE {SET} 7"));
    let get = "GET k".to_owned();
    for (op, commands) in [
        (fenced(), vec![&set, &zadd, &get]),
        (ballot(), vec![&zadd, &zscore, &get]),
        (score(), vec![&zscore]),
        (give_back(), vec![&set, &zscore]),
    ] {
        client.submit(0, op);
        assert_eq!(sent(&mut peer, commands.len()).await.iter().collect::<Vec<_>>(), commands);
    }
}

#[tokio::test]
async fn a_resume_is_one_script_whose_text_is_sent_once() {
    let (_server, mut peer, mut client) = admitted().await;
    let arguments = format!("2 k {SET} t 1000 XX GT CH {BALLOT} 7");
    for evaluates in ["EVAL ", "EVALSHA ", "EVALSHA "] {
        client.submit(0, resume());
        let sent = sent(&mut peer, 1).await.remove(0);
        assert!(sent.starts_with(evaluates) && sent.ends_with(&arguments), "{sent}");
        peer.say(written("*3 :1 :1 63")).await;
        assert_eq!(client.answer().await, accepted());
    }
    client.submit(0, resume());
    peer.expect("EVALSHA").await;
    peer.say("-NOSCRIPT No matching script.\r\n").await;
    let text = sent(&mut peer, 1).await.remove(0);
    assert!(text.starts_with("EVAL ") && text.ends_with(&arguments), "{text}");
    peer.say(written("*3 :1 :1 63")).await;
    assert_eq!(client.answer().await, accepted());
}

#[tokio::test]
async fn resume_only_extends_if_the_ballot_set_is_unknown() {
    let server = Server { record: "*0\r\n".into(), ..Server::default() };
    let (_server, mut peer, mut client) = server.connect().await;
    peer.expect("ZCARD").await;
    client.submit(0, resume());
    let sent = sent(&mut peer, 1).await.remove(0);
    assert!(sent.ends_with("1 k t 1000"), "{sent}");
    peer.say(":0\r\n:1\r\n").await;
    assert_eq!(client.answer().await, not_admitted(WhyNot::AskedTooEarly));
}

#[tokio::test]
async fn without_quarantine_one_ballot_set_is_used_and_grows() {
    let off = || Server { quarantine: false, record: "*0\r\n".into(), ..Server::default() };
    let (_server, mut peer, mut client) = off().connect().await;
    client.submit(0, fenced());
    client.submit(1, give_back());
    let [set, get] = ["SET k t NX PX 1000", "GET k"].map(String::from);
    let (zadd, zscore) = (format!("ZADD {OFF} GT CH {BALLOT} 7"), format!("ZSCORE {OFF} 7"));
    assert_eq!(sent(&mut peer, 5).await, [set.clone(), zadd, get, set, zscore]);
    peer.say(format!("+OK\r\n:1\r\n{}+OK\r\n_\r\n", bulk("t"))).await;
    assert_eq!(client.answer().await, accepted());
    assert_eq!(client.answer().await, at(0), "it has accepted nothing so far");
}

#[tokio::test]
async fn the_set_is_named_after_both_digits_of_a_former_replica() {
    let run = format!("{RUN}:{OTHER}");
    let fields = ["run", &run, "max_ttl", "60000"].map(bulk).concat();
    let record = format!("*4\r\n{fields}");
    let (_server, mut peer, client) = Server { record, ..Server::default() }.connect().await;
    client.submit(0, score());
    assert_eq!(sent(&mut peer, 1).await, [format!("ZSCORE {SET}.aaaaaaaaaaaaaaaa 7")]);
}

/// Waits for the vote on `op`, and for what is reported before it.
async fn assert_answer(client: &mut Client, expected: &Answer, context: &str) {
    assert_eq!(client.answer().await, *expected, "{context}");
    let is_gone = expected.balloted == Some(Balloted::NoMember);
    let reported = client.event_at_once();
    assert_eq!(reported, is_gone.then_some(NodeEvent::DataLost), "{context}");
}

#[tokio::test]
async fn all_replies_to_a_request_are_one_vote() {
    let (_server, mut peer, mut client) = admitted().await;
    for (op, rows) in rows() {
        for (replies, expected) in rows {
            client.submit(0, op.clone());
            client.submit(1, acquire());
            peer.say(format!("{replies}+OK\r\n")).await;
            assert_answer(&mut client, &expected, &replies).await;
            assert_eq!(client.answer().await, Answer::granted(), "behind {replies:?}");
        }
    }
}

#[tokio::test]
async fn vote_is_cast_only_after_the_last_reply() {
    let (_server, mut peer, mut client) = admitted().await;
    // An answer to another request shows that all before it was read.
    for (op, rows) in rows() {
        for (replies, expected) in rows {
            for at in 1..replies.len() {
                client.submit(0, op.clone());
                peer.say(&replies[..at]).await;
                tokio::task::yield_now().await;
                assert!(client.vote_at_once().is_none(), "{:?}", &replies[..at]);
                peer.say(&replies[at..]).await;
                assert_answer(&mut client, &expected, &replies).await;
            }
        }
    }
}

#[tokio::test]
async fn replies_byte_by_byte_are_put_together() {
    let (_server, mut peer, mut client) = admitted().await;
    for (op, rows) in rows() {
        for (replies, expected) in rows.into_iter().take(12) {
            client.submit(0, op.clone());
            peer.say_in_pieces(replies.as_bytes(), 1).await;
            assert_answer(&mut client, &expected, &replies).await;
        }
    }
}

#[tokio::test]
async fn a_push_between_two_replies_belongs_to_neither() {
    const CHANGED: &str = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n";
    let (_server, mut peer, mut client) = admitted().await;
    for (replies, expected) in [
        (["+OK\r\n", ":1\r\n", "$1\r\nt\r\n"], accepted()),
        (["_\r\n", ":0\r\n", "$1\r\nx\r\n"], held()),
    ] {
        client.submit(0, fenced());
        peer.say(replies.join(CHANGED)).await;
        assert_eq!(client.answer().await, expected);
        for _ in 0..2 {
            assert_eq!(client.event().await, NodeEvent::KeyChanged((*b"k").into()));
        }
    }
}

#[tokio::test]
async fn unexpected_reply_closes_the_connection() {
    for (op, replies) in [
        (fenced(), ":1"),
        (fenced(), "+OK +OK"),
        (fenced(), "+OK :2"),
        (fenced(), "+OK :1 :1"),
        (fenced(), "+OK :1 +OK"),
        (fenced(), "_ _"),
        (fenced(), "_ :0 :0"),
        (ballot(), "+OK"),
        (ballot(), ":1 :1"),
        (ballot(), ":1 no-number"),
        (score(), ":31"),
        (score(), "+OK"),
        (give_back(), "+OK :31"),
        (resume(), "+OK"),
        (resume(), ":2"),
        (resume(), "*3 :2 :1 63"),
        (resume(), "*3 :1 :2 63"),
        (resume(), "*3 :1 :1 :63"),
        (resume(), "*3 :1 $-1 63"),
        (resume(), "*4 :1 :1 63 :1"),
    ] {
        let (_server, mut peer, mut client) = admitted().await;
        client.submit(0, op);
        client.submit(1, acquire());
        peer.say(written(replies)).await;
        for _ in 0..2 {
            let lost = Answer::unknown(Cause::ConnectionClosed);
            assert_eq!(client.answer().await, lost, "{replies}");
        }
        assert!(
            client.down().await.to_string().contains("it sent bytes that are not a Redis reply"),
            "{replies}"
        );
    }
}

#[tokio::test]
async fn partial_replies_do_not_carry_over_to_the_next_connection() {
    let (server, mut peer, mut client) = admitted().await;
    client.submit(0, fenced());
    peer.expect("SET").await;
    peer.say("+OK\r\n:1\r\n").await;
    drop(peer);
    assert_eq!(client.answer().await, Answer::unknown(Cause::ConnectionClosed));
    client.down().await;
    let mut peer = server.accept().await;
    let facts = peer.facts(OTHER, 2, "master").await;
    let facts = facts.replace(NO_RESP3, HELLO).replace(NO_TRACKING, "+OK\r\n");
    peer.say(facts + "*0\r\n:0\r\n").await;
    client.up().await;
    // Its run is not known: it was never admitted.
    client.submit(0, fenced());
    client.submit(1, acquire());
    while peer.command().await.unwrap()[0] != "SET" {}
    assert_eq!(sent(&mut peer, 1).await[0], "SET k t NX PX 1000", "no request between the two");
    peer.say(":0\r\n+OK\r\n_\r\n").await;
    assert_eq!(client.answer().await, not_admitted(WhyNot::AskedTooEarly));
    assert_eq!(client.answer().await, held());
}

/// Nothing that anybody reads hides from the one who compares that the set is gone.
#[tokio::test]
async fn ballot_set_changes_only_by_set_admitted() {
    let (_server, mut peer, mut client) = admitted().await;
    client.submit(0, Op::admission(AdmissionOp::ReadFacts));
    for words in ["INFO", "INFO", "HGETALL"] {
        peer.expect(words).await;
    }
    let server = bulk(&format!("run_id:{RUN}\r\n"));
    peer.say(format!("{server}{}*0\r\n", bulk("role:master\r\n"))).await;
    peer.expect("ZCARD").await;
    peer.say(":0\r\n").await;
    client.said().await.unwrap();
    client.submit(0, score());
    assert_eq!(sent(&mut peer, 1).await, [format!("ZSCORE {SET} 7")]);
    peer.say("_\r\n").await;
    client.answer().await;
    assert_eq!(client.event().await, NodeEvent::DataLost);

    client.node.set_admitted(None);
    let (nonce, identity, way) = (Nonce(1), RUN.parse().unwrap(), Way::Known);
    let (floor, set, until) = (31, None, 7);
    client.submit(
        1,
        Op::admission(AdmissionOp::Admit(Admit { nonce, identity, way, floor, set, until })),
    );
    peer.expect("EVAL").await;
    let record = format!("*2\r\n{}{}", bulk("run"), bulk(RUN));
    peer.say(format!("*4\r\n:0\r\n{}{record}:1024\r\n", bulk("1"))).await;
    client.said().await.unwrap();
    for op in [fenced(), give_back()] {
        client.submit(2, op);
        assert_eq!(sent(&mut peer, 1).await, ["SET k t NX PX 1000"], "alone");
    }
    client.submit(3, score());
    assert!(!client.vote().await.answer.sent);
    peer.say("_\r\n+OK\r\n").await;
    assert_eq!(client.answer().await, held());
    assert_eq!(client.answer().await, not_admitted(WhyNot::AskedTooEarly));

    client.node.set_admitted(Some(identity));
    client.submit(4, score());
    assert_eq!(sent(&mut peer, 1).await, [format!("ZSCORE {SET} 7")]);
}

#[tokio::test]
async fn the_answer_to_a_probe_shows_whether_ballots_work() {
    for error in [
        "NOPERM this user has no permissions to run the 'zadd' command",
        "ERR syntax error",
        "ERR value is not a valid float",
        "ERR unknown command 'ZADD'",
        "OOM command not allowed when used memory > 'maxmemory'.",
    ] {
        let probe = format!("-{error}\r\n");
        Server { probe, ..Server::default() }.connect().await;
    }
}
