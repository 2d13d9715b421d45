//! The settings of a handle, and the checks of one request.

mod invalid;

use std::sync::Arc;
use std::time::Duration;

use redlock_core::admission::MAX_TTL_MAX;
use redlock_core::{InvalidLabel, Label};
use redlock_protocol::terms::{Limits, Timing};

pub use self::invalid::{BuildError, InvalidRequest};
pub(crate) use self::invalid::{MAX_HOLD_MIN, PERIOD_DAYS};

/// The treatment of a master that may have lost its keys.
///
/// A master loses its locks if it restarts without its data, is flushed, or was a replica for a
/// while. All earlier locks have expired after 1.1 × `max_ttl`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Quarantine {
    /// Such a master does not vote until every lock it may have granted has expired. Each master
    /// stores a record for this under the prefix.
    ///
    /// A new master looks the same as a master that lost its data, so it waits as well, unless an
    /// operator confirms that it is new: `redlock init`, or
    /// [`Redlock::init`](crate::Redlock::init).
    #[default]
    On,
    /// Such a master votes immediately, and may grant a lock that another client still holds. Use
    /// it only if masters persist every write (`appendfsync always`) or duplicate holders are
    /// harmless.
    ///
    /// All clients of a prefix must use the same value. A client with `Off` does not work if a
    /// record shows that other clients use a quarantine.
    Off,
}

/// The checked settings of a handle.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) prefix: Arc<[u8]>,
    pub(crate) limits: Limits,
    pub(crate) quarantine: Quarantine,
    /// Locks have fencing tokens.
    pub(crate) fencing: bool,
    /// Processes that wait for a key share one queue.
    pub(crate) queue: bool,
    /// A released lock passes to the next caller of this process.
    pub(crate) hand_over: bool,
    pub(crate) wait: Duration,
    /// The label of requests without their own.
    pub(crate) label: Option<Label>,
}

/// The label that was set on a builder or a request.
#[derive(Clone, Debug, Default)]
pub(crate) enum GivenLabel {
    #[default]
    Default,
    Text(String),
    None,
}

impl GivenLabel {
    /// # Errors
    /// Returns [`InvalidLabel`] if the text cannot be a label.
    pub(crate) fn check(
        &self,
        default: impl FnOnce() -> Option<Label>,
    ) -> Result<Option<Label>, InvalidLabel> {
        match self {
            Self::Default => Ok(default()),
            Self::Text(text) => Label::parse(text).map(Some),
            Self::None => Ok(None),
        }
    }
}

impl Settings {
    /// Returns the longest usable TTL before a record was read. With a quarantine the records
    /// decide, and our own value applies only if there are none.
    pub(crate) fn unread_max_ttl(&self) -> Duration {
        match self.quarantine {
            Quarantine::On => MAX_TTL_MAX,
            Quarantine::Off => self.limits.max_ttl(),
        }
    }

    /// Returns the durations of a request before the longest TTL is known.
    pub(crate) fn timing(&self, ttl: Option<Duration>) -> Result<Timing, InvalidRequest> {
        Ok(self.limits.timing_unlimited(ttl)?)
    }
}
