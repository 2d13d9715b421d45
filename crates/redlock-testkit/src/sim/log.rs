//! `Log`: what a master has carried out.

use std::collections::VecDeque;

use redlock_core::{Instant, Verb, Verdict};

/// The number of requests that a log keeps.
const MAX: usize = 1 << 20;

/// One request that a simulated master has carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Executed {
    /// When, on the simulation's clock.
    pub at: Instant,
    /// The verb of the request.
    pub verb: Verb,
    /// Of which key.
    pub key: Vec<u8>,
    /// Signed with which token; empty for requests that have none.
    pub token: String,
    /// The master's verdict, whether or not its reply ever arrived.
    pub verdict: Verdict,
}

/// The latest requests.
#[derive(Debug, Default)]
pub(super) struct Log(VecDeque<Executed>);

impl Log {
    pub(super) fn push(&mut self, executed: Executed) {
        if self.0.len() == MAX {
            self.0.pop_front();
        }
        self.0.push_back(executed);
    }

    pub(super) fn all(&self) -> Vec<Executed> {
        self.0.iter().cloned().collect()
    }
}
