//! A driven `RedisNode`, and what it answered and reported.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use redlock_core::admission::AdmissionReply;
use redlock_core::{
    Answer, Cause, Clock, Events, Facts, Node, NodeEvent, Op, RedisNode, RedisSetup, Sink, Token,
    Vote, VoteSlot,
};
use redlock_testkit::lab::{PATIENCE, Peer, ScriptedServer};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The receiver of the node's votes and events, which passes them to the test. A failed test no
/// longer listens.
struct Report {
    votes: UnboundedSender<Vote>,
    events: UnboundedSender<NodeEvent>,
    /// Votes and events, in the order in which they came.
    order: Mutex<Vec<&'static str>>,
}

impl Sink for Report {
    fn vote(&self, vote: Vote) {
        self.order.lock().unwrap().push("vote");
        let _ = self.votes.send(vote);
    }

    fn event(&self, _master: usize, event: NodeEvent) {
        self.order.lock().unwrap().push(match event {
            NodeEvent::Up(_) => "up",
            NodeEvent::Down { .. } => "down",
            _ => "push",
        });
        let _ = self.events.send(event);
    }
}

pub(crate) struct Client {
    pub(crate) node: Arc<RedisNode>,
    clock: Clock,
    pub(crate) driving: Option<JoinHandle<()>>,
    sink: Arc<Report>,
    votes: UnboundedReceiver<Vote>,
    events: UnboundedReceiver<NodeEvent>,
}

pub(crate) fn setup(connect_timeout: Duration) -> RedisSetup {
    RedisSetup::new(Clock::system(), connect_timeout)
}

impl Client {
    /// Not driven yet.
    pub(crate) fn new(url: &str, setup: &RedisSetup) -> Self {
        let node = Arc::new(RedisNode::new(url, setup).unwrap());
        let (to_votes, votes) = unbounded_channel();
        let (to_events, events) = unbounded_channel();
        let order = Mutex::default();
        let sink = Arc::new(Report { votes: to_votes, events: to_events, order });
        Self { node, clock: setup.clock.clone(), driving: None, sink, votes, events }
    }

    /// Driven, with all the time in the world to connect.
    pub(crate) fn start(url: &str) -> Self {
        Self::impatient(url, PATIENCE)
    }

    /// Driven, with a namespace, and without queues.
    pub(crate) fn within(url: &str, prefix: &str) -> Self {
        let mut setup = setup(PATIENCE);
        setup.namespace = Some(prefix.as_bytes().into());
        setup.queues = false;
        let mut client = Self::new(url, &setup);
        client.drive();
        client
    }

    pub(crate) fn impatient(url: &str, connect_timeout: Duration) -> Self {
        let mut client = Self::new(url, &setup(connect_timeout));
        client.drive();
        client
    }

    /// Driven, and connected to a master in good health.
    pub(crate) async fn connected() -> (ScriptedServer, Peer, Self) {
        let server = ScriptedServer::bind().await;
        let mut client = Self::start(&server.url());
        let peer = server.admit("abc", 1).await;
        client.up().await;
        (server, peer, client)
    }

    pub(crate) fn drive(&mut self) {
        self.driving = Some(tokio::spawn(self.unpolled()));
    }

    /// The future that drives the node.
    pub(crate) fn unpolled(&self) -> BoxFuture<'static, ()> {
        self.node.clone().drive(Events::new(self.sink.clone(), 0)).unwrap()
    }

    /// Drops the future that drives the node.
    pub(crate) async fn stop(&mut self) {
        let driving = self.driving.take().unwrap();
        driving.abort();
        assert!(driving.await.unwrap_err().is_cancelled());
    }

    pub(crate) async fn event(&mut self) -> NodeEvent {
        timeout(PATIENCE, self.events.recv()).await.expect("an event in time").unwrap()
    }

    /// The event that must be there already; none when it is not.
    pub(crate) fn event_at_once(&mut self) -> Option<NodeEvent> {
        self.events.try_recv().ok()
    }

    /// Waits for the next connection.
    pub(crate) async fn up(&mut self) -> Facts {
        loop {
            if let NodeEvent::Up(facts) = self.event().await {
                return facts;
            }
        }
    }

    /// The next event, which must be the end of a connection or of an attempt at one.
    pub(crate) async fn down(&mut self) -> Cause {
        match self.event().await {
            NodeEvent::Down { cause, .. } => cause,
            event => panic!("{event:?}"),
        }
    }

    pub(crate) fn submit(&self, ticket: u128, op: Op) {
        self.submit_after(Duration::ZERO, ticket, op);
    }

    /// A request that is made after this time, as far as the node knows.
    pub(crate) fn submit_after(&self, later: Duration, ticket: u128, op: Op) {
        let sent_at = self.clock.now().saturating_add(later);
        let slot = VoteSlot::new(self.sink.clone(), 0, ticket, sent_at);
        self.node.submit(op, slot);
    }

    pub(crate) async fn vote(&mut self) -> Vote {
        timeout(PATIENCE, self.votes.recv()).await.expect("a vote in time").unwrap()
    }

    pub(crate) async fn answer(&mut self) -> Answer {
        self.vote().await.answer
    }

    /// The next answer, to a question about admission.
    pub(crate) async fn said(&mut self) -> Result<AdmissionReply, Cause> {
        self.answer().await.into_admission()
    }

    /// All votes and events so far, in the order in which they came.
    pub(crate) fn order(&self) -> Vec<&'static str> {
        self.sink.order.lock().unwrap().clone()
    }

    /// The vote that must be there already; none when it is not.
    pub(crate) fn vote_at_once(&mut self) -> Option<Vote> {
        self.votes.try_recv().ok()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(driving) = &self.driving {
            driving.abort();
        }
    }
}

pub(crate) fn token() -> Token {
    Token::parse("t").unwrap()
}

pub(crate) fn acquire() -> Op {
    Op::acquire(*b"k", token(), 1_000)
}

pub(crate) fn release() -> Op {
    Op::release(*b"k", token())
}

pub(crate) fn inspect() -> Op {
    Op::inspect(*b"k")
}
