//! Inputs that borrow nothing.

use redlock_core::Vote;
use redlock_protocol::client::input::Input;

/// An input, kept.
#[derive(Debug)]
pub(super) enum Kept {
    Vote(Vote),
    Other(Input<'static>),
}

impl Kept {
    pub(super) fn of(input: &Input<'_>) -> Self {
        Self::Other(match input.clone() {
            Input::Vote(vote) => return Self::Vote(vote.clone()),
            Input::Event(master, event) => Input::Event(master, event),
            Input::Turn => Input::Turn,
            Input::Alarms { seen } => Input::Alarms { seen },
            Input::Acquire(id, caller) => Input::Acquire(id, caller),
            Input::Withdrawn(id) => Input::Withdrawn(id),
            Input::Untaken(hold) => Input::Untaken(hold),
            Input::Accepted(hold) => Input::Accepted(hold),
            Input::Extend(hold, ttl, reply) => Input::Extend(hold, ttl, reply),
            Input::Keep(hold) => Input::Keep(hold),
            Input::Forget(hold) => Input::Forget(hold),
            Input::Returned(returned) => Input::Returned(returned),
            Input::ReleaseToken(release, reply) => Input::ReleaseToken(release, reply),
            Input::Inspect(inspect, reply) => Input::Inspect(inspect, reply),
            Input::Observe { key, node_timeout, is_look, reply } => {
                Input::Observe { key, node_timeout, is_look, reply }
            }
            Input::Init(order, reply) => Input::Init(order, reply),
            Input::Report(reply) => Input::Report(reply),
            Input::Close(within, reply) => Input::Close(within, reply),
            Input::Connect => Input::Connect,
            Input::Dismiss => Input::Dismiss,
            Input::Disconnect => Input::Disconnect,
            Input::Park => Input::Park,
        })
    }

    pub(super) fn input(&self) -> Input<'_> {
        match self {
            Self::Vote(vote) => Input::Vote(vote),
            Self::Other(input) => input.clone(),
        }
    }
}
