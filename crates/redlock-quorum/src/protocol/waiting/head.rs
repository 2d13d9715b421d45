//! `Head`: what the first of the callers that wait does.

use std::time::Duration;

use redlock_core::Instant;

use super::step::Ask;

/// The longest sleep between two looks at a key that stays held; a quarter of it is random.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What the head does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Head {
    /// There is none.
    Idle,
    /// A caller of this process holds the key; the head looks who does at this instant.
    AwaitingRelease { look_at: Instant },
    /// It makes an attempt.
    Attempting,
    /// It makes one at this instant.
    Pausing { until: Instant, ask: Ask },
    /// It was refused, and looks at this instant.
    Resting { until: Instant },
    /// It has asked the meeting point who holds the key.
    Looking { at: usize },
    /// It sleeps until this instant, which is when the key expires or when to look again.
    Watching { at: usize, until: Instant, expires: bool },
}

impl Head {
    /// Until the key expires there, or for about a second: a quarter of that is random, so that
    /// processes do not look in step.
    pub(super) fn watching(at: usize, ttl: Option<Duration>, now: Instant, random: f64) -> Self {
        let again = LOOK_AGAIN.mul_f64(0.75 + random / 4.0);
        // Redis keeps a key through the whole millisecond in which it expires.
        let expires = ttl.map(|ttl| ttl.saturating_add(Duration::from_millis(1)));
        let (sleep, expires) = match expires {
            Some(left) if left <= again => (left, true),
            _ => (again, false),
        };
        Self::Watching { at, until: now.saturating_add(sleep), expires }
    }

    /// When it has something to do.
    pub(super) fn due(self) -> Option<Instant> {
        match self {
            Self::Pausing { until, .. }
            | Self::Resting { until }
            | Self::Watching { until, .. }
            | Self::AwaitingRelease { look_at: until } => Some(until),
            Self::Idle | Self::Attempting | Self::Looking { .. } => None,
        }
    }

    /// Whether it looks or watches at this master.
    pub(super) fn is_at(self, master: usize) -> bool {
        matches!(self, Self::Looking { at } | Self::Watching { at, .. } if at == master)
    }
}
