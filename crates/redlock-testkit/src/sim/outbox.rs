//! `Outbox`: what clients are to receive.

use std::fmt;

use redlock_core::{Answer, Events, NodeEvent, VoteSlot};

/// Votes and events for the clients of a [`World`](super::World), in this order. They are delivered
/// once the change of the world is complete, because their receiver may change it again.
#[derive(Default)]
pub struct Outbox(Vec<Message>);

enum Message {
    Vote(VoteSlot, Answer),
    /// A slot to drop, which reports that there was no answer.
    Unanswered(VoteSlot),
    Event(Events, NodeEvent),
}

impl Outbox {
    pub(super) fn vote(&mut self, slot: VoteSlot, answer: Answer) {
        self.0.push(Message::Vote(slot, answer));
    }

    pub(super) fn unanswered(&mut self, slots: Vec<VoteSlot>) {
        self.0.extend(slots.into_iter().map(Message::Unanswered));
    }

    pub(super) fn event(&mut self, (events, event): (Events, NodeEvent)) {
        self.0.push(Message::Event(events, event));
    }

    /// Casts all votes and reports all events, and is empty afterwards.
    pub fn deliver(&mut self) {
        for message in self.0.drain(..) {
            match message {
                Message::Vote(slot, answer) => slot.cast(answer),
                Message::Unanswered(slot) => drop(slot),
                Message::Event(events, event) => events.report(event),
            }
        }
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("messages", &self.0.len()).finish()
    }
}
