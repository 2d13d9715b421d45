//! `Closing`: a client that is being closed.

use redlock_core::Instant;

use super::ids::RequestId;

/// A client that is being closed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Closing {
    /// The callers that wait for the end, and until when: all of them get the same outcome.
    pub(super) callers: Vec<(Instant, RequestId)>,
    /// The limit if no caller waits.
    pub(super) until: Instant,
    /// Until when the client waits for admission steps, even if no caller waits, so that short-lived
    /// processes complete a step.
    pub(super) steps_until: Instant,
    /// The callers do not wait any longer.
    pub(super) is_over: bool,
}

impl Closing {
    /// Begins the shutdown. No caller waits for its end yet.
    pub(super) fn new(until: Instant, steps_until: Instant) -> Self {
        Self { callers: Vec::new(), until, steps_until, is_over: false }
    }

    /// One more call to close, whose caller waits until then. Those whose time is over wait only for
    /// the steps: a later call does not prolong that.
    pub(super) fn more(mut self, until: Instant, caller: Option<RequestId>) -> Self {
        self.is_over &= !self.callers.is_empty();
        self.callers.extend(caller.map(|caller| (until, caller)));
        self.until = until;
        self
    }

    /// Stops waiting if the wait of some caller is over.
    pub(super) fn time_passed(&mut self, now: Instant) {
        self.is_over |= match &self.callers[..] {
            [] => self.until <= now,
            callers => callers.iter().any(|(until, _)| *until <= now),
        };
    }

    /// A caller does not wait any longer.
    pub(super) fn withdrawn(&mut self, caller: RequestId) {
        self.callers.retain(|(_, other)| *other != caller);
    }
}
