//! `LostReason`: why a lock is no longer held.

use std::fmt;

/// Why a lock is no longer held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// Not extended in time: masters were silent, this process did not get to run, or the keeper
    /// was switched off.
    NotExtended,
    /// Too many masters answered that the key is gone or belongs to another client. No quorum is
    /// left.
    NotOurs,
    /// Too many masters were restarted or emptied. No quorum is left.
    DataLost,
    /// The lock was held for as long as `max_hold` allows.
    MaxHold,
    /// The handle was shut down.
    Shutdown,
    /// The background task of the handle has panicked.
    Panicked,
    /// The guard was released, dropped or turned into a lease.
    Released,
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotExtended => "it was not extended in time",
            Self::NotOurs => "too few masters still have the key",
            Self::DataLost => "too many masters were restarted or emptied",
            Self::MaxHold => "max_hold was reached",
            Self::Shutdown => "the handle was shut down",
            Self::Panicked => "the background task of the handle panicked",
            Self::Released => "it was released",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_reasons_have_a_text() {
        let words = [LostReason::NotExtended, LostReason::Shutdown, LostReason::Released]
            .map(|reason| reason.to_string());
        let wanted = ["it was not extended in time", "the handle was shut down", "it was released"];
        assert_eq!(words, wanted);
    }
}
