//! Durations in the form in which users write them.

use std::time::Duration;

pub(crate) use redlock_quorum::environment::duration::{about, at_most, parse, spelled};

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Rounds up, so that an announced time is never too early.
pub(crate) fn millis_up(duration: Duration) -> u64 {
    millis(duration + Duration::from_nanos(999_999))
}

/// How long to keep trying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    For(Duration),
    Forever,
}

impl Wait {
    /// Returns the rest of the wait after this time.
    pub(crate) fn after(self, passed: Duration) -> Self {
        match self {
            Self::For(wait) => Self::For(wait.saturating_sub(passed)),
            Self::Forever => Self::Forever,
        }
    }
}

/// A duration, or `forever`.
///
/// # Errors
/// As [`parse`].
pub(crate) fn parse_wait(text: &str) -> Result<Wait, String> {
    match text.trim() {
        "forever" => Ok(Wait::Forever),
        text => {
            parse(text).map(Wait::For).map_err(|error| format!("{error}; `forever` has no end"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_may_be_forever() {
        assert_eq!(parse_wait("forever"), Ok(Wait::Forever));
        assert_eq!(parse_wait("0"), Ok(Wait::For(Duration::ZERO)));
        let after = |wait: Wait, seconds| wait.after(Duration::from_secs(seconds));
        assert_eq!(after(Wait::Forever, 9), Wait::Forever);
        let wait = Wait::For(Duration::from_secs(2));
        assert_eq!((after(wait, 2), after(wait, 3)), (Wait::For(Duration::ZERO), after(wait, 2)));
        assert!(parse_wait("never").unwrap_err().contains("`forever` has no end"));
    }
}
