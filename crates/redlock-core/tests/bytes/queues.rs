//! Shared queues: their requests, and every way in which a master answers them.

use std::time::Duration;

use redlock_core::{
    Answer, Ballot, Balloted, Bid, Call, Cause, Entry, Exit, Leaving, Member, Node, NodeEvent, Op,
    QueueTicket, Queued, Resource, SharedQueue, Verdict,
};
use redlock_testkit::lab::{NO_RESP3, NO_TRACKING, PATIENCE, Peer, ScriptedServer};

use crate::client::{Client, setup, token};

const HELLO: &str = "%1\r\n$5\r\nproto\r\n:3\r\n";
const CHANNEL: &str = "p:redlock-quorum:1:go:0000000000000007";
const SUBSCRIBED: &str =
    ">3\r\n$9\r\nsubscribe\r\n$38\r\np:redlock-quorum:1:go:0000000000000007\r\n:1\r\n";

fn queue() -> SharedQueue {
    SharedQueue::new(b"p:", &Resource::from("k"), QueueTicket::new(7))
}

fn enter() -> Op {
    let ask = Some((token(), 1_000));
    Op::enter(*b"p:k", Entry { queue: queue(), ask, waited_us: 5, reservation_ms: 50 }, None)
}

fn fenced(verb: fn(Bid) -> Op) -> Op {
    let ballot = Ballot::new(55_117_343_750_000).unwrap();
    verb(Bid { ballot, member: Member::new(7).unwrap() })
}

fn take_fenced() -> Op {
    fenced(|bid| Op::take(*b"p:k", token(), 1_000, Some(bid)))
}

/// The ballot is not above this score.
fn refused(score: u64) -> Answer {
    Answer::new(Verdict::BallotRefused).with_ballot(Balloted::Score(score))
}

fn leave(leaving: Leaving) -> Op {
    let (queue, token) = (queue(), Some(token()));
    let exit = Exit { queue, token, gives_up_place: true, reservation_ms: 50, leaving };
    Op::leave(*b"p:k", exit)
}

/// A client of a server that answers the probe for queues with this.
async fn probed(
    quarantine: bool,
    hello: &str,
    answer: &str,
) -> (ScriptedServer, Peer, Client, Option<String>) {
    let server = ScriptedServer::bind().await;
    let mut setup = setup(PATIENCE);
    setup.namespace = Some((*b"p:").into());
    (setup.quarantine, setup.fenced) = (quarantine, !quarantine);
    let mut client = Client::new(&server.url(), &setup);
    client.drive();
    let mut peer = server.accept().await;
    let facts = peer.facts("abc", 1, "master").await;
    peer.expect("HGETALL").await;
    let mut ballots = "";
    if !quarantine {
        peer.expect("ZADD").await;
        ballots = ":0\r\n";
    }
    let probe = peer.expect("EVAL").await;
    assert_eq!(probe[2..], ["1", "p:redlock-quorum:1:queue:", "p:redlock-quorum:1:go:"]);
    let facts = facts.replace(NO_RESP3, hello).replace(NO_TRACKING, "+OK\r\n");
    peer.say(facts + "%0\r\n" + ballots + answer).await;
    let facts = client.up().await;
    if quarantine {
        peer.expect("ZCARD").await;
        peer.say(":0\r\n").await;
    }
    (server, peer, client, facts.no_queue)
}

async fn connected() -> (ScriptedServer, Peer, Client) {
    let (server, peer, client, no_queue) = probed(true, HELLO, ":1\r\n").await;
    assert_eq!(no_queue, None);
    (server, peer, client)
}

/// A client whose ballots go to the set of those without quarantine.
async fn balloting() -> (ScriptedServer, Peer, Client) {
    let (server, peer, client, _) = probed(false, HELLO, ":1\r\n").await;
    client.node.set_admitted(None);
    (server, peer, client)
}

#[tokio::test]
async fn the_answer_to_a_probe_shows_whether_queues_work() {
    let denied = "*2\r\n$7\r\nPUBLISH\r\n$9\r\nNOPERM no\r\n";
    for (hello, answer, expected) in [
        (HELLO, ":1\r\n", None),
        (HELLO, denied, Some("PUBLISH was rejected: NOPERM no")),
        (HELLO, "-NOPERM no scripts\r\n", Some("EVAL was rejected: NOPERM no scripts")),
        (HELLO, "-LOADING it loads\r\n", None),
        (NO_RESP3, ":1\r\n", Some("the server pushes nothing: it does not speak RESP3")),
    ] {
        let (_server, _peer, _client, no_queue) = probed(true, hello, answer).await;
        assert_eq!(no_queue.as_deref(), expected);
    }
}

/// A client that cannot release must not acquire, so the right to release is tested in each mode.
#[tokio::test]
async fn plain_connection_tests_the_right_to_release() {
    let server = ScriptedServer::bind().await;
    let mut setup = setup(PATIENCE);
    setup.namespace = Some((*b"p:").into());
    (setup.quarantine, setup.fenced, setup.queues) = (false, false, false);
    let mut client = Client::new(&server.url(), &setup);
    client.drive();
    let mut peer = server.accept().await;
    let facts = peer.facts("abc", 1, "master").await;
    peer.expect("HGETALL").await;
    let probe = peer.expect("EVAL").await;
    assert!(
        probe[1].contains("{'GET', 'DEL'}") && probe[2..] == ["1", "p:redlock-quorum:1:queue:"]
    );
    peer.say(facts + "%0\r\n" + ":1\r\n").await;
    client.up().await;
    client.submit(0, Op::acquire(*b"p:k", token(), 1_000));
    assert_eq!(peer.command().await.unwrap().join(" "), format!("SET p:k {} NX PX 1000", token()));
    peer.say("+OK\r\n").await;
    assert_eq!(client.answer().await, Answer::granted());
    client.submit(1, Op::release(*b"p:k", token()));
    assert_eq!(peer.expect("EVAL").await[2..], ["1", "p:k", token().as_str()]);
    peer.say(":1\r\n").await;
    assert_eq!(client.answer().await, Answer::granted());
    client.stop().await;
    peer.expect_end().await;
}

#[tokio::test]
async fn entry_is_not_sent_if_the_queue_is_unusable() {
    let denied = "*2\r\n$7\r\nPUBLISH\r\n$9\r\nNOPERM no\r\n";
    let (_server, _peer, mut client, _) = probed(true, HELLO, denied).await;
    client.submit(0, enter());
    let answer = client.answer().await;
    assert!(!answer.sent, "{answer:?}");
    assert_eq!(answer.verdict.to_string(), "not sent: no queue: PUBLISH was rejected: NOPERM no");
}

#[tokio::test]
async fn first_entry_of_a_connection_subscribes_without_a_reply() {
    let (_server, mut peer, mut client) = connected().await;
    client.submit(0, enter());
    assert_eq!(peer.expect("SUBSCRIBE").await[1..], [CHANNEL]);
    let sent = peer.expect("EVAL").await;
    let queue = "p:redlock-quorum:1:queue:k";
    let channels = "p:redlock-quorum:1:go:";
    let arguments =
        ["2", "p:k", queue, "0000000000000007", "t", "1000", "5", "3000", "50", channels, "10000"];
    assert_eq!(sent[2..], arguments);
    peer.say(format!("{SUBSCRIBED}*2\r\n:1\r\n:4\r\n")).await;
    let granted = Answer::granted().with_queued(Queued { waiters: 4, rank: None });
    assert_eq!(client.answer().await, granted);

    client.submit(1, enter());
    assert_eq!(peer.expect("EVALSHA").await[2..], arguments);
    peer.say("*5\r\n:0\r\n:4\r\n:3\r\n$1\r\na\r\n:50\r\n").await;
    let fifty = Some(Duration::from_millis(50));
    let refused = Answer::held(Some(b"a"), fifty);
    let refused = refused.with_queued(Queued { waiters: 4, rank: Some(3) });
    assert_eq!(client.answer().await, refused);
}

#[tokio::test]
async fn a_new_connection_subscribes_again() {
    let (server, mut peer, mut client) = connected().await;
    client.submit(0, enter());
    peer.expect("SUBSCRIBE").await;
    drop(peer);
    client.down().await;
    let mut peer = server.accept().await;
    let facts = peer.facts("def", 1, "master").await;
    for command in ["HGETALL", "EVAL"] {
        peer.expect(command).await;
    }
    let facts = facts.replace(NO_RESP3, HELLO).replace(NO_TRACKING, "+OK\r\n");
    peer.say(facts + "%0\r\n:1\r\n").await;
    client.up().await;
    peer.expect("ZCARD").await;
    client.submit(0, enter());
    assert_eq!(peer.expect("SUBSCRIBE").await[1..], [CHANNEL]);
}

/// Trap 22.
#[tokio::test]
async fn refused_subscription_does_not_shift_replies() {
    let (_server, mut peer, mut client) = connected().await;
    client.submit(0, Op::inspect(*b"p:k"));
    client.submit(1, enter());
    client.submit(2, Op::inspect(*b"p:k"));
    for command in ["EVAL", "SUBSCRIBE", "EVAL", "EVALSHA"] {
        peer.expect(command).await;
    }
    peer.say(":0\r\n-NOPERM no SUBSCRIBE\r\n*5\r\n:0\r\n:1\r\n:0\r\n$1\r\na\r\n:50\r\n:0\r\n")
        .await;
    for (number, verdict) in [(0, "free"), (1, "held (50ms)"), (2, "free")] {
        let vote = client.vote().await;
        assert_eq!((vote.ticket, &*vote.answer.verdict.to_string()), (number, verdict));
    }
    let why = "SUBSCRIBE was rejected: NOPERM no SUBSCRIBE".to_owned();
    assert_eq!(client.event().await, NodeEvent::NoQueue(why));
    client.submit(3, enter());
    assert!(!client.answer().await.sent);
}

#[tokio::test]
async fn revoked_right_is_reported_before_the_answer() {
    let (_server, mut peer, mut client) = connected().await;
    client.submit(0, leave(Leaving::Done));
    peer.expect("EVAL").await;
    peer.say("-NOPERM no ZCARD\r\n").await;
    let denied = Cause::ErrorReply("NOPERM no ZCARD".into());
    assert_eq!(client.answer().await, Answer::unknown(denied));
    assert_eq!(client.event().await, NodeEvent::NoQueue("NOPERM no ZCARD".into()));
}

/// The right is tested again when a lock is requested, so that a connection does not refuse
/// forever.
#[tokio::test]
async fn nothing_is_acquired_until_the_release_right_is_restored() {
    let (_server, mut peer, mut client) = connected().await;
    client.submit(0, Op::release(*b"p:k", token()));
    peer.expect("EVAL").await;
    peer.say("-NOPERM this user has no permissions to run the 'eval' command\r\n").await;
    client.answer().await;
    let refused = |answer: Answer| {
        let said = answer.verdict.to_string();
        assert!(!answer.sent && said.contains("without EVAL no lock can be released"), "{said}");
    };
    let acquire = || Op::acquire(*b"p:k", token(), 1_000);
    client.submit(1, acquire());
    refused(client.answer().await);
    client.submit_after(Duration::from_secs(2), 2, acquire());
    refused(client.answer().await);
    assert!(peer.expect("EVAL").await[1].contains("{'GET', 'DEL'}"));
    client.submit(3, acquire());
    refused(client.answer().await);
    peer.say(":1\r\n").await;
    // The reply to the next request comes after that.
    client.submit(4, Op::release(*b"p:k", token()));
    peer.command().await;
    peer.say(":0\r\n").await;
    client.answer().await;
    client.submit(5, acquire());
    assert_eq!(peer.command().await.unwrap()[0], "SET");
}

#[tokio::test]
async fn channel_message_is_a_call_at_any_position() {
    let (_server, mut peer, mut client) = connected().await;
    client.submit(0, enter());
    peer.expect("SUBSCRIBE").await;
    peer.expect("EVAL").await;
    let message = |text: &str| {
        let (channel, len) = (CHANNEL.len(), text.len());
        format!(">3\r\n$7\r\nmessage\r\n${channel}\r\n{CHANNEL}\r\n${len}\r\n{text}\r\n")
    };
    let (go, strange) = (message("go p:k"), message("hello"));
    peer.say(format!("{SUBSCRIBED}{go}{strange}*2\r\n:1\r\n:0\r\n{}", message("next p:k"))).await;
    assert_eq!(client.event().await, NodeEvent::Called(Call::Go, (*b"p:k").into()));
    assert_eq!(client.answer().await.verdict, Verdict::Granted);
    assert_eq!(client.event().await, NodeEvent::Called(Call::Next, (*b"p:k").into()));
}

#[tokio::test]
async fn exit_sends_how_it_leaves() {
    let (_server, mut peer, mut client) = connected().await;
    for (leaving, word) in
        [(Leaving::Done, "done"), (Leaving::Open, "open"), (Leaving::Undo, "undo")]
    {
        client.submit(0, leave(leaving));
        let sent = peer.command().await.unwrap();
        let (queue, channels) = ("p:redlock-quorum:1:queue:k", "p:redlock-quorum:1:go:");
        assert_eq!(sent[2..], ["2", "p:k", queue, "t", "0000000000000007", "50", channels, word]);
        peer.say("*2\r\n:0\r\n:2\r\n").await;
        let left = Answer::new(Verdict::NotOurs);
        let queued = Queued { waiters: 2, rank: None };
        assert_eq!(client.answer().await, left.with_queued(queued));
    }
}

#[tokio::test]
async fn ballot_follows_an_entry_or_take() {
    let (_server, mut peer, mut client) = balloting().await;
    client.submit(0, take_fenced());
    assert_eq!(peer.expect("EVAL").await[2..], ["1", "p:k", "t", "1000"]);
    assert_eq!(peer.expect("ZADD").await[2..4], ["GT", "CH"]);
    assert_eq!(peer.expect("ZSCORE").await[1..], ["p:redlock-quorum:1:ballots", "7"]);
    assert_eq!(peer.expect("GET").await[1..], ["p:k"]);
    peer.say("+OK\r\n:1\r\n,63\r\n$1\r\nt\r\n").await;
    assert_eq!(client.answer().await, Answer::granted().with_ballot(Balloted::Accepted));

    for (refusal, expected) in [
        ("*2\r\n$1\r\na\r\n:-1\r\n:1\r\n,63\r\n$1\r\na\r\n", Answer::held(Some(b"a"), None)),
        ("+OK\r\n:0\r\n,95\r\n$1\r\nt\r\n", refused(95)),
        ("+OK\r\n:0\r\n$2\r\n95\r\n$1\r\nt\r\n", refused(95)),
        ("+OK\r\n:1\r\n,63\r\n$1\r\nx\r\n", Answer::new(Verdict::NotOurs)),
    ] {
        client.submit(1, take_fenced());
        for command in ["EVALSHA", "ZADD", "ZSCORE", "GET"] {
            peer.expect(command).await;
        }
        peer.say(refusal).await;
        assert_eq!(client.answer().await, expected, "{refusal:?}");
    }

    client.submit(
        2,
        fenced(|bid| {
            let ask = Some((token(), 1_000));
            let entry = Entry { queue: queue(), ask, waited_us: 0, reservation_ms: 50 };
            Op::enter(*b"p:k", entry, Some(bid))
        }),
    );
    for command in ["SUBSCRIBE", "EVAL", "ZADD", "ZSCORE", "GET"] {
        peer.expect(command).await;
    }
    peer.say(format!("{SUBSCRIBED}*2\r\n:1\r\n:3\r\n:0\r\n,95\r\n$1\r\nt\r\n")).await;
    let queued = Queued { waiters: 3, rank: None };
    assert_eq!(client.answer().await, refused(95).with_queued(queued));
}

/// Trap 17.
#[tokio::test]
async fn forgotten_take_is_resent_unless_released() {
    let (_server, mut peer, mut client) = balloting().await;
    for (number, command) in [(0, "EVAL"), (1, "EVALSHA")] {
        client.submit(number, take_fenced());
        for command in [command, "ZADD", "ZSCORE", "GET"] {
            peer.expect(command).await;
        }
        if number == 0 {
            peer.say("+OK\r\n:1\r\n,63\r\n$1\r\nt\r\n").await;
            client.answer().await;
        }
    }
    peer.say("-NOSCRIPT No matching script.\r\n:1\r\n,63\r\n_\r\n").await;
    for command in ["EVAL", "ZADD", "ZSCORE", "GET"] {
        peer.expect(command).await;
    }
    peer.say("+OK\r\n:0\r\n,63\r\n$1\r\nt\r\n").await;
    assert_eq!(
        client.answer().await,
        refused(63),
        "its ballot was accepted before the key was ours"
    );

    for take in [take_fenced(), Op::take(*b"p:k", token(), 1_000, None)] {
        let is_fenced = take.bid().is_some();
        client.submit(2, take);
        client.submit(3, Op::release(*b"p:k", token()));
        peer.expect("EVALSHA").await;
        let ballot = if is_fenced { ":1\r\n,63\r\n_\r\n" } else { "" };
        while !peer.command().await.unwrap()[0].starts_with("EVAL") {}
        peer.say(format!("-NOSCRIPT No matching script.\r\n{ballot}:0\r\n")).await;
        let answer = client.answer().await;
        let forgotten = Cause::ErrorReply("NOSCRIPT No matching script.".into());
        assert_eq!(answer, Answer::unknown(forgotten), "it would follow its release");
        assert_eq!(client.answer().await, Answer::new(Verdict::NotOurs));
    }
}

#[tokio::test]
async fn waiters_are_counted_by_zcard() {
    let (_server, mut peer, mut client) = connected().await;
    client.submit(0, Op::count_waiters(queue().key()));
    assert_eq!(peer.expect("ZCARD").await[1..], ["p:redlock-quorum:1:queue:k"]);
    peer.say(":12\r\n").await;
    let queued = Queued { waiters: 12, rank: None };
    assert_eq!(client.answer().await, Answer::granted().with_queued(queued));
}
