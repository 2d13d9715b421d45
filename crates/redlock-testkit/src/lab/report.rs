//! `Report`: the receiver of a node's votes and events in a test.

use std::sync::Arc;

use redlock_core::{NodeEvent, Sink, Vote};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Passes the votes and events of a node to the test. A test that has failed does not receive them.
#[derive(Debug)]
pub struct Report {
    votes: UnboundedSender<Vote>,
    events: UnboundedSender<NodeEvent>,
}

impl Report {
    /// Creates a report for a node, and the receivers of its votes and events.
    pub fn new() -> (Arc<Self>, UnboundedReceiver<Vote>, UnboundedReceiver<NodeEvent>) {
        let (to_votes, votes) = unbounded_channel();
        let (to_events, events) = unbounded_channel();
        (Arc::new(Self { votes: to_votes, events: to_events }), votes, events)
    }
}

impl Sink for Report {
    fn vote(&self, vote: Vote) {
        let _ = self.votes.send(vote);
    }

    fn event(&self, _master: usize, event: NodeEvent) {
        let _ = self.events.send(event);
    }
}
