//! A driven `RedisNode`, and what it answered.

use std::sync::Arc;
use std::time::Duration;

use redlock_core::{
    Answer, Ballot, Cause, Clock, Node, NodeState, Op, RedisNode, RedisSetup, Token, Vote, VoteSlot,
};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::server::{PATIENCE, Peer, Server};

struct Urn(UnboundedSender<Vote>);

impl Ballot for Urn {
    fn cast(self: Arc<Self>, vote: Vote) {
        // A test that has failed does not listen any more.
        let _ = self.0.send(vote);
    }
}

pub(crate) struct Client {
    pub(crate) node: Arc<RedisNode>,
    clock: Clock,
    changed: Arc<Notify>,
    driving: Option<JoinHandle<()>>,
    urn: Arc<Urn>,
    votes: UnboundedReceiver<Vote>,
}

pub(crate) fn setup(connect_timeout: Duration) -> RedisSetup {
    RedisSetup::new(Clock::system(), connect_timeout)
}

impl Client {
    /// Not driven yet.
    pub(crate) fn new(url: &str, setup: &RedisSetup) -> Self {
        let node = Arc::new(RedisNode::new(url, setup).unwrap());
        let (urn, votes) = unbounded_channel();
        let (clock, urn, changed) = (setup.clock.clone(), Arc::new(Urn(urn)), Arc::default());
        Self { node, clock, changed, driving: None, urn, votes }
    }

    /// Driven, with all the time in the world to connect.
    pub(crate) fn start(url: &str) -> Self {
        Self::impatient(url, PATIENCE)
    }

    pub(crate) fn impatient(url: &str, connect_timeout: Duration) -> Self {
        let mut client = Self::new(url, &setup(connect_timeout));
        client.drive();
        client
    }

    /// Driven, and connected to a master in good health.
    pub(crate) async fn connected() -> (Server, Peer, Self) {
        let server = Server::bind().await;
        let client = Self::start(&server.url());
        let peer = server.admit("abc", 1).await;
        client.up().await;
        (server, peer, client)
    }

    pub(crate) fn drive(&mut self) {
        let changed = self.changed.clone();
        let drive = self.node.clone().drive(Arc::new(move || changed.notify_one())).unwrap();
        self.driving = Some(tokio::spawn(drive));
    }

    /// Drops the future that drives the node.
    pub(crate) async fn stop(&mut self) {
        let driving = self.driving.take().unwrap();
        driving.abort();
        assert!(driving.await.unwrap_err().is_cancelled());
    }

    /// Waits for a state, and gives it.
    pub(crate) async fn until(&self, wanted: impl Fn(&NodeState) -> bool) -> NodeState {
        let reached = async {
            loop {
                let state = self.node.state();
                if wanted(&state) {
                    return state;
                }
                self.changed.notified().await;
            }
        };
        let reached = timeout(PATIENCE, reached).await;
        reached.unwrap_or_else(|_| panic!("it is still {:?}", self.node.state()))
    }

    pub(crate) async fn up(&self) -> u64 {
        match self.until(|state| matches!(state, NodeState::Up { .. })).await {
            NodeState::Up { incarnation } => incarnation,
            state => panic!("{state:?}"),
        }
    }

    /// Waits until it is down, and not only not driven yet.
    pub(crate) async fn down(&self) -> Cause {
        let never_driven = NodeState::Down(Cause::NotConnected("".into()));
        let down =
            |state: &NodeState| matches!(state, NodeState::Down(_)) && *state != never_driven;
        match self.until(down).await {
            NodeState::Down(cause) => cause,
            state => panic!("{state:?}"),
        }
    }

    pub(crate) fn submit(&self, attempt: u32, op: Op) {
        let slot = VoteSlot::new(self.urn.clone(), 0, attempt, self.clock.now());
        self.node.submit(op, slot);
    }

    pub(crate) async fn vote(&mut self) -> Vote {
        timeout(PATIENCE, self.votes.recv()).await.expect("a vote in time").unwrap()
    }

    pub(crate) async fn answer(&mut self) -> Answer {
        self.vote().await.answer
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
