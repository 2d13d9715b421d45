//! `Head`: what the first of the callers that wait does.

use std::time::Duration;

use redlock_core::Instant;

use super::step::Ask;

/// The longest sleep between two requests about a held key, without its random part.
pub(super) const WATCH_AGAIN: Duration = Duration::from_secs(1);

/// The state of the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Head {
    /// There is none.
    Idle,
    /// A caller of this process holds the key. The head queries M at this instant.
    AwaitingRelease { ask_at: Instant },
    /// An attempt is under way. In the meantime, the head may have been called.
    Attempting { ask: Ask, is_called: bool },
    /// The head has requested a place, but not the key.
    Queueing { at: usize },
    /// The head makes an attempt at this instant.
    Pausing { until: Instant, ask: Ask },
    /// The head watches the key at this instant. Until then other processes go first, or a holder
    /// without knowledge of waiters may acquire the key again.
    Aside { until: Instant },
    /// The head has queried the meeting point for the holder, and requests the key immediately if
    /// there is none.
    Watching { at: usize, enters: bool },
    /// The head sleeps until this instant. The first in the queue watches the key during its sleep.
    Asleep { at: usize, until: Instant, ask: Ask },
}

impl Head {
    pub(super) fn attempting(ask: Ask) -> Self {
        Self::Attempting { ask, is_called: false }
    }

    /// Returns when it has something to do.
    pub(super) fn due(self) -> Option<Instant> {
        match self {
            Self::Pausing { until, .. }
            | Self::Aside { until }
            | Self::Asleep { until, .. }
            | Self::AwaitingRelease { ask_at: until } => Some(until),
            Self::Idle
            | Self::Attempting { .. }
            | Self::Queueing { .. }
            | Self::Watching { .. } => None,
        }
    }

    /// Returns `true` if it watches at this master, or sleeps after watching. A head that has
    /// requested a place does not.
    pub(super) fn is_watching(self, master: usize) -> bool {
        matches!(self, Self::Watching { at, .. } | Self::Asleep { at, .. } if at == master)
    }

    /// Returns `true` if it waits for something from this master.
    pub(super) fn is_at(self, master: usize) -> bool {
        self.is_watching(master) || self == (Self::Queueing { at: master })
    }
}
