//! One node on a real server, below the quorum.

use std::sync::Arc;

use redlock_core::admission::{AdmissionOp, AdmissionReply, Identity};
use redlock_core::{
    Answer, Cause, Clock, Events, Facts, Node, NodeEvent, Op, RedisNode, RedisSetup, Vote, VoteSlot,
};
use redlock_testkit::lab::{PATIENCE, Report, in_time};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;

/// A driven node.
pub(crate) struct Driven {
    node: Arc<RedisNode>,
    clock: Clock,
    sink: Arc<Report>,
    votes: UnboundedReceiver<Vote>,
    pub(crate) events: UnboundedReceiver<NodeEvent>,
    driving: JoinHandle<()>,
}

impl Driven {
    /// Creates a node without a prefix.
    pub(crate) fn start(url: &str) -> Self {
        Self::with(url, &RedisSetup::new(Clock::system(), PATIENCE))
    }

    /// Creates a node with a prefix.
    pub(crate) fn within(url: &str, prefix: &str) -> Self {
        let mut setup = RedisSetup::new(Clock::system(), PATIENCE);
        setup.namespace = Some(prefix.as_bytes().into());
        Self::with(url, &setup)
    }

    fn with(url: &str, setup: &RedisSetup) -> Self {
        let node = Arc::new(RedisNode::new(url, setup).unwrap());
        let (sink, votes, events) = Report::new();
        let drive = node.clone().drive(Events::new(sink.clone(), 0)).unwrap();
        let clock = setup.clock.clone();
        Self { node, clock, sink, votes, events, driving: tokio::spawn(drive) }
    }

    pub(crate) async fn event(&mut self) -> NodeEvent {
        in_time(self.events.recv()).await.unwrap()
    }

    pub(crate) async fn up(&mut self) -> Facts {
        match self.event().await {
            NodeEvent::Up(facts) => facts,
            event => panic!("{event:?}"),
        }
    }

    pub(crate) async fn down(&mut self) -> (Cause, bool) {
        match self.event().await {
            NodeEvent::Down { cause, retries_now } => (cause, retries_now),
            event => panic!("{event:?}"),
        }
    }

    pub(crate) async fn ask(&mut self, op: Op) -> Answer {
        self.node.submit(op, VoteSlot::new(self.sink.clone(), 0, 0, self.clock.now()));
        in_time(self.votes.recv()).await.unwrap().answer
    }

    pub(crate) fn admitted_as(&self, run: Option<Identity>) {
        self.node.set_admitted(run);
    }

    pub(crate) async fn admission(&mut self, op: AdmissionOp) -> Result<AdmissionReply, Cause> {
        self.ask(Op::admission(op)).await.into_admission()
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        self.driving.abort();
    }
}
