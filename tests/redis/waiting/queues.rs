//! Queues between clients on real servers, in cases that depend on the server: full memory, missing
//! rights, flushed scripts, and long queues.

use std::sync::Arc;
use std::time::Duration;

use redlock_core::{
    Answer, Call, Clock, Entry, Events, Exit, Facts, Instant, Leaving, Node, NodeEvent, Op,
    QueueTicket, RedisNode, RedisSetup, Reservation, Resource, SharedQueue, Token, Verdict, Vote,
    VoteSlot,
};
use redlock_testkit::lab::Report;
use redlock_testkit::{RedisServer, ServerOptions};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const KEY: &[u8] = b"locks:job";
const QUEUE: &str = "locks:redlock-quorum:1:queue:job";
const PATIENCE: Duration = Duration::from_secs(20);
/// The rights of a user of the version before queues.
const FORMER: [&str; 20] = [
    "+set",
    "+get",
    "+del",
    "+pttl",
    "+pexpire",
    "+eval",
    "+evalsha",
    "+info",
    "+client|id",
    "+client|kill",
    "+client|tracking",
    "+client|caching",
    "+hello",
    "+hgetall",
    "+hset",
    "+hdel",
    "+zcard",
    "+zadd",
    "+zscore",
    "+time",
];
const OF_QUEUES: [&str; 6] = ["+publish", "+subscribe", "+pubsub", "+zrange", "+zrank", "+zrem"];
const CHANNELS: &str = "&locks:redlock-quorum:1:go:*";

fn server() -> RedisServer {
    RedisServer::with(&ServerOptions::new().brand_new()).unwrap()
}

/// Grants the user `few` only these rights, on all keys.
fn allow(server: &RedisServer, rights: &[&str]) {
    let user = ["ACL", "SETUSER", "few", "reset", "on", ">secret", "~*", "resetchannels"];
    server.command(&[&user[..], rights].concat()).unwrap();
}

struct Client {
    node: Arc<RedisNode>,
    sink: Arc<Report>,
    votes: UnboundedReceiver<Vote>,
    events: UnboundedReceiver<NodeEvent>,
    queue: SharedQueue,
    facts: Facts,
    driving: JoinHandle<()>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.driving.abort();
    }
}

impl Client {
    async fn new(server: &RedisServer, number: u64) -> Self {
        Self::at(&server.url(), number).await
    }

    async fn of_few(server: &RedisServer, number: u64) -> Self {
        Self::at(&format!("redis://few:secret@{}", server.name()), number).await
    }

    async fn at(url: &str, number: u64) -> Self {
        let mut setup = RedisSetup::new(Clock::system(), Duration::from_secs(5));
        setup.namespace = Some((*b"locks:").into());
        let node = Arc::new(RedisNode::new(url, &setup).unwrap());
        let (sink, votes, mut events) = Report::new();
        let driving = tokio::spawn(node.clone().drive(Events::new(sink.clone(), 0)).unwrap());
        let Some(NodeEvent::Up(facts)) = timeout(PATIENCE, events.recv()).await.unwrap() else {
            panic!("it is not connected");
        };
        let queue = SharedQueue::new(b"locks:", &Resource::from("job"), QueueTicket::new(number));
        Self { node, sink, votes, events, queue, facts, driving }
    }

    async fn ask(&mut self, op: Op) -> Answer {
        self.node.submit(op, VoteSlot::new(self.sink.clone(), 0, 0, Instant::ORIGIN));
        timeout(PATIENCE, self.votes.recv()).await.unwrap().unwrap().answer
    }

    async fn enter(&mut self, token: &str) -> Answer {
        let ask = Some((Token::parse(token).unwrap(), 60_000));
        let entry = Entry { queue: self.queue.clone(), ask, waited_us: 0, reservation_ms: 30_000 };
        self.ask(Op::enter(KEY, entry, None)).await
    }

    async fn leave(&mut self, token: &str) -> Answer {
        let token = Some(Token::parse(token).unwrap());
        let (queue, leaving) = (self.queue.clone(), Leaving::Done);
        let exit = Exit { queue, token, gives_up_place: false, reservation_ms: 30_000, leaving };
        self.ask(Op::leave(KEY, exit)).await
    }

    async fn take(&mut self, token: &str) -> Answer {
        self.ask(Op::take(KEY, Token::parse(token).unwrap(), 60_000, None)).await
    }

    async fn event(&mut self) -> NodeEvent {
        timeout(PATIENCE, self.events.recv()).await.unwrap().unwrap()
    }
}

fn text(server: &RedisServer, words: &[&str]) -> Option<String> {
    redlock_testkit::lab::text(server, words)
}

fn count(server: &RedisServer) -> u32 {
    redlock_testkit::lab::text(server, &["ZCARD", QUEUE])
}

fn go() -> NodeEvent {
    NodeEvent::Called(Call::Go, KEY.into())
}

fn is_error(answer: &Answer, code: &str) -> bool {
    matches!(&answer.verdict, Verdict::Unknown(cause) if cause.to_string().contains(code))
}

/// Trap 15.
#[tokio::test]
async fn full_memory_frees_the_key_and_refuses_entries() {
    let server = server();
    let (mut a, mut b) = (Client::new(&server, 1).await, Client::new(&server, 2).await);
    assert_eq!(a.enter("a").await.verdict, Verdict::Granted);
    b.enter("b").await;
    a.ask(Op::take(*b"other", Token::parse("a").unwrap(), 60_000, None)).await;
    for words in [["maxmemory-policy", "noeviction"], ["maxmemory", "1"]] {
        server.command(&["CONFIG", "SET", words[0], words[1]]).unwrap();
    }
    assert_eq!(a.leave("a").await.verdict, Verdict::Granted);
    let reserved = a.ask(Op::reserve(*b"other", Token::parse("a").unwrap(), 50)).await;
    assert_eq!(reserved, Answer::granted());
    for key in ["locks:job", "other"] {
        let value = text(&server, &["GET", key]);
        assert!(
            value.as_deref().is_none_or(|value| Reservation::is_one(value.as_bytes())),
            "{value:?}"
        );
    }
    assert_eq!(b.event().await, go(), "who is called finds the key free, or its own");
    let entered = b.enter("b2").await;
    assert!(is_error(&entered, "OOM"), "{entered:?}");
}

#[tokio::test]
async fn wrong_type_queue_frees_the_key_and_entries_leave_nothing() {
    let server = server();
    let mut a = Client::new(&server, 1).await;
    server.command(&["SET", QUEUE, "no queue"]).unwrap();
    let entered = a.enter("a").await;
    assert!(is_error(&entered, "WRONGTYPE"), "{entered:?}");
    assert_eq!(text(&server, &["GET", "locks:job"]), None);
    a.take("a").await;
    assert_eq!(a.leave("a").await.verdict, Verdict::Granted);
    assert_eq!(text(&server, &["GET", "locks:job"]), None);
    assert_eq!(a.leave("a").await.verdict, Verdict::NotOurs);
}

/// Trap 16.
#[tokio::test]
async fn without_publish_right_the_key_is_freed_and_tickets_kept() {
    let server = server();
    let rights = [&FORMER[..], &OF_QUEUES[1..], &[CHANNELS]].concat();
    allow(&server, &rights);
    let (mut a, mut b) = (Client::of_few(&server, 1).await, Client::new(&server, 2).await);
    let why = a.facts.no_queue.clone().unwrap();
    assert!(why.starts_with("PUBLISH was rejected"), "{why}");
    a.take("a").await;
    b.enter("b").await;
    assert_eq!(a.leave("a").await.verdict, Verdict::Granted);
    assert_eq!((text(&server, &["GET", "locks:job"]), count(&server)), (None, 1));
}

#[tokio::test]
async fn missing_queue_rights_are_known_before_the_first_request() {
    let server = server();
    allow(&server, &FORMER);
    let client = Client::of_few(&server, 1).await;
    let why = client.facts.no_queue.clone().unwrap();
    assert!(why.starts_with("ZRANGE was rejected"), "{why}");
    for (missing, named) in [
        ("+zrange", "ZRANGE"),
        ("+zrank", "ZRANK"),
        ("+zrem", "ZREM"),
        ("+pubsub", "PUBSUB"),
        ("+publish", "PUBLISH"),
        (CHANNELS, "PUBLISH"),
    ] {
        let all = [&FORMER[..], &OF_QUEUES, &[CHANNELS]].concat();
        let rights: Vec<_> = all.into_iter().filter(|right| *right != missing).collect();
        allow(&server, &rights);
        let why = Client::of_few(&server, 1).await.facts.no_queue.clone().unwrap();
        assert!(why.starts_with(&format!("{named} was rejected")), "{missing}: {why}");
    }
    allow(&server, &[&FORMER[..], &OF_QUEUES, &[CHANNELS]].concat());
    let mut client = Client::of_few(&server, 1).await;
    assert_eq!(client.facts.no_queue, None);
    assert_eq!(client.enter("a").await.verdict, Verdict::Granted);
    assert_eq!(client.leave("a").await.verdict, Verdict::Granted);
    assert!(client.events.try_recv().is_err(), "nothing was refused");
    assert_eq!(text(&server, &["GET", QUEUE]), None, "the probe has left nothing");
}

#[tokio::test]
async fn missing_subscribe_right_is_reported_by_the_first_entry() {
    let server = server();
    let rights = [&FORMER[..], &OF_QUEUES, &[CHANNELS, "-subscribe"]].concat();
    allow(&server, &rights);
    let mut client = Client::of_few(&server, 1).await;
    assert_eq!(client.enter("a").await.verdict, Verdict::Granted, "the reply is the entry's own");
    let NodeEvent::NoQueue(why) = client.event().await else { panic!("another event") };
    assert!(why.starts_with("SUBSCRIBE was rejected: NOPERM"), "{why}");
    let answer = client.enter("b").await;
    assert!(!answer.sent, "{answer:?}");
}

#[tokio::test]
async fn revoked_channels_end_the_connection() {
    let server = server();
    let all = [&FORMER[..], &OF_QUEUES, &[CHANNELS]].concat();
    allow(&server, &all);
    let mut client = Client::of_few(&server, 1).await;
    client.enter("a").await;
    server.command(&["ACL", "SETUSER", "few", "resetchannels"]).unwrap();
    assert!(matches!(client.event().await, NodeEvent::Down { .. }));
    let NodeEvent::Up(facts) = client.event().await else { panic!("it is not connected again") };
    let why = facts.no_queue.unwrap();
    assert!(why.starts_with("PUBLISH was rejected"), "{why}");
    // Requests without a channel still work.
    assert_eq!(client.leave("a").await.verdict, Verdict::Granted);
}

/// Whatever a user may do no longer, on a connection that it had before: an entry that fails has not
/// set the key, and an exit leaves none.
#[tokio::test]
async fn revoked_right_leaves_no_key() {
    let server = server();
    let rights = ["zrange", "zrank", "zrem", "zcard", "zadd", "zscore", "time", "pexpire"];
    for right in rights {
        for is_ours in [false, true] {
            allow(&server, &[&FORMER[..], &OF_QUEUES, &[CHANNELS]].concat());
            let (mut few, mut other) =
                (Client::of_few(&server, 1).await, Client::new(&server, 2).await);
            if is_ours {
                // The key is reserved for it.
                assert_eq!(other.enter("other").await.verdict, Verdict::Granted);
                few.enter("few").await;
                other.leave("other").await;
            }
            server.command(&["ACL", "SETUSER", "few", &format!("-{right}")]).unwrap();
            let entered = few.enter("few").await;
            let value = text(&server, &["GET", "locks:job"]);
            let is_let_in = entered.verdict == Verdict::Granted;
            assert_eq!(value.as_deref() == Some("few"), is_let_in, "{right}: {entered:?}");
            few.take("few").await;
            other.enter("other").await;
            few.leave("few").await;
            let value = text(&server, &["GET", "locks:job"]);
            let is_free = value.as_deref().is_none_or(|it| Reservation::is_one(it.as_bytes()));
            assert!(is_free, "{right}: {value:?}");
            server.command(&["DEL", "locks:job", QUEUE]).unwrap();
        }
    }
}

/// Trap 17.
#[tokio::test]
async fn scripts_forgotten_between_call_and_take_are_resent() {
    let server = server();
    let (mut a, mut b) = (Client::new(&server, 1).await, Client::new(&server, 2).await);
    for token in ["b0", "b1"] {
        assert_eq!(b.take(token).await, Answer::granted());
        b.leave(token).await;
    }
    a.enter("a").await;
    b.enter("b").await;
    a.leave("a").await;
    assert_eq!(b.event().await, go());
    server.command(&["SCRIPT", "FLUSH"]).unwrap();
    assert_eq!(b.enter("b2").await.verdict, Verdict::Granted);
    b.leave("b2").await;
    assert_eq!(b.take("b3").await, Answer::granted());
}

/// Adds tickets without a listener.
fn add_dead(server: &RedisServer, tickets: usize) {
    let dead: Vec<String> = (0..tickets).map(|n| format!("{:016x}", n + 1_000_000)).collect();
    for chunk in dead.chunks(1_000) {
        let mut words = vec!["ZADD", QUEUE];
        chunk.iter().for_each(|ticket| words.extend(["1", ticket]));
        server.command(&words).unwrap();
    }
    server.command(&["PEXPIRE", QUEUE, "600000"]).unwrap();
}

/// Trap 18.
#[tokio::test]
async fn queue_of_10000_dead_tickets_drops_64_at_a_time() {
    let server = server();
    let (mut a, mut b) = (Client::new(&server, 1).await, Client::new(&server, 2).await);
    a.take("a").await;
    add_dead(&server, 10_000);
    let full = b.enter("b").await.queued.unwrap();
    assert_eq!((full.waiters, full.rank), (10_000, None));
    a.ask(Op::release(KEY, Token::parse("a").unwrap())).await;
    let mut entries = 1;
    while b.enter("b").await.verdict != Verdict::Granted {
        entries += 1;
        assert!(entries <= 160, "{} are left", count(&server));
    }
    // 9,999 and one's own, 64 at a time.
    assert_eq!((entries, count(&server)), (157, 0));
}

/// Trap 18: a monitor's pattern is not a waiter.
#[tokio::test]
async fn pattern_subscriber_keeps_no_ticket_alive() {
    let server = server();
    let mut monitor = Monitor::new(&server).await;
    let (mut a, mut b) = (Client::new(&server, 1).await, Client::new(&server, 2).await);
    a.take("a").await;
    add_dead(&server, 3);
    b.enter("b").await;
    a.leave("a").await;
    assert_eq!(b.event().await, go());
    assert_eq!(count(&server), 0, "the dead were dropped");
    monitor.hears(b"go locks:job").await;
}

/// A plain connection that listens to all channels.
struct Monitor(tokio::net::TcpStream);

impl Monitor {
    async fn new(server: &RedisServer) -> Self {
        use tokio::io::AsyncWriteExt;
        let mut stream = tokio::net::TcpStream::connect(server.name()).await.unwrap();
        stream.write_all(b"PSUBSCRIBE *\r\n").await.unwrap();
        let mut monitor = Self(stream);
        monitor.hears(b"psubscribe").await;
        monitor
    }

    async fn hears(&mut self, text: &[u8]) {
        use tokio::io::AsyncReadExt;
        let mut heard = Vec::new();
        while !heard.windows(text.len()).any(|part| part == text) {
            let read = timeout(PATIENCE, self.0.read_buf(&mut heard)).await.unwrap().unwrap();
            assert!(read > 0, "the server hung up");
        }
    }
}
