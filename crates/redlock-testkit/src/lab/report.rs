//! `Report`: where the votes, events and answers of a node go in a test.

use std::sync::Arc;

use redlock_core::admission::Ordered;
use redlock_core::{NodeEvent, Sink, Vote};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// What a node casts, reports and answers goes to the test. A test that has failed does not listen.
#[derive(Debug)]
pub struct Report {
    votes: UnboundedSender<Vote>,
    events: UnboundedSender<NodeEvent>,
    answers: UnboundedSender<Ordered>,
}

/// What comes out of a [`Report`]: votes, events, and answers to orders.
pub type Reported =
    (UnboundedReceiver<Vote>, UnboundedReceiver<NodeEvent>, UnboundedReceiver<Ordered>);

impl Report {
    /// One for a node that gets no orders, and what comes out of it.
    pub fn new() -> (Arc<Self>, UnboundedReceiver<Vote>, UnboundedReceiver<NodeEvent>) {
        let (report, (votes, events, _)) = Self::with_answers();
        (report, votes, events)
    }

    /// One for a node, and what comes out of it.
    pub fn with_answers() -> (Arc<Self>, Reported) {
        let (to_votes, votes) = unbounded_channel();
        let (to_events, events) = unbounded_channel();
        let (to_answers, answers) = unbounded_channel();
        let report = Self { votes: to_votes, events: to_events, answers: to_answers };
        (Arc::new(report), (votes, events, answers))
    }
}

impl Sink for Report {
    fn vote(&self, vote: Vote) {
        let _ = self.votes.send(vote);
    }

    fn event(&self, _master: usize, event: NodeEvent) {
        let _ = self.events.send(event);
    }

    fn ordered(&self, ordered: Ordered) {
        let _ = self.answers.send(ordered);
    }
}
