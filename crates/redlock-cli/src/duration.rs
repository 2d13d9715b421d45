//! Durations as people write them.

use std::time::Duration;

pub(crate) use redlock_quorum::environment::duration::parse;

/// How long to keep trying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    For(Duration),
    Forever,
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
        assert!(parse_wait("never").unwrap_err().contains("`forever` has no end"));
    }
}
