//! The faults in force: plain data, changed by the test and watched by the connections.

use std::time::Duration;

/// The direction in which bytes go through the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server: commands.
    ToServer,
    /// From the server to the client: replies.
    ToClient,
    /// Both ways.
    Both,
}

/// All faults of one proxy.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) to_server: Lane,
    pub(super) to_client: Lane,
    /// New connections are reset.
    pub(super) refuse: bool,
    /// New connections are accepted and never forwarded.
    pub(super) blackhole: bool,
    /// How often all open connections were reset. A number and no flag, so that a connection also
    /// sees a reset that happened between two of its checks.
    pub(super) resets: u64,
}

/// The faults of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lane {
    pub(super) delay: Duration,
    pub(super) held: bool,
    /// Bytes that arrive now are lost.
    pub(super) dropping: bool,
    /// How often dropping started. Bytes that arrived before the latest start are lost as well.
    pub(super) drops: u64,
    /// Reports of changed keys are lost.
    pub(super) dropping_pushes: bool,
    /// How many more bytes may pass before a connection is reset.
    pub(super) reset_after: Option<usize>,
}

impl Faults {
    /// Changes the lane or lanes of a direction.
    pub(super) fn each(&mut self, direction: Direction, change: impl Fn(&mut Lane)) {
        if direction != Direction::ToClient {
            change(&mut self.to_server);
        }
        if direction != Direction::ToServer {
            change(&mut self.to_client);
        }
    }

    /// Ends all faults. The counters keep their values, because connections compare them.
    pub(super) fn heal(&mut self) {
        let healed = |lane: Lane| Lane { drops: lane.drops, ..Lane::default() };
        *self = Self {
            to_server: healed(self.to_server),
            to_client: healed(self.to_client),
            resets: self.resets,
            ..Self::default()
        };
    }
}

impl Lane {
    /// Returns how many of `length` bytes may pass, and whether to reset the connection after them.
    pub(super) fn admit(&mut self, length: usize) -> (usize, bool) {
        match self.reset_after {
            Some(left) if left < length => {
                self.reset_after = None;
                (left, true)
            }
            Some(left) => {
                self.reset_after = Some(left - length);
                (length, false)
            }
            None => (length, false),
        }
    }
}
