//! Fires: each is completed once, and none after a later one.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use redlock_core::Instant;

use crate::{Event, Record};

/// A completed run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Completed {
    /// Under which name.
    pub resource: Arc<str>,
    /// By whom.
    pub contender: usize,
    /// For which fire.
    pub fire: u64,
    /// When its contender learned that it was completed.
    pub at: Instant,
}

/// A fire that was completed again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repeat {
    /// The earlier run: of this fire, or of a later one.
    pub first: Completed,
    /// The later run, which should have been skipped.
    pub second: Completed,
}

/// Judges whether a fire was completed that was done before: itself or a later one, under the same
/// name. Masters must have kept their marks. Returns how many were completed: a history without
/// any proves nothing.
///
/// # Errors
/// The first fire that was completed again.
pub fn check_fires(history: &[Record]) -> Result<usize, Box<Repeat>> {
    let (mut latest, mut count): (HashMap<&str, Completed>, usize) = (HashMap::new(), 0);
    for record in history {
        let Event::Completed { fire } = record.event else { continue };
        let Record { at, contender, .. } = *record;
        let second = Completed { resource: record.resource.clone(), contender, fire, at };
        if let Some(first) = latest.insert(&record.resource, second.clone())
            && first.fire >= fire
        {
            return Err(Box::new(Repeat { first, second }));
        }
        count += 1;
    }
    Ok(count)
}

impl fmt::Display for Completed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { contender, fire, at, .. } = self;
        write!(f, "fire {fire} by contender {contender} at {at:?}")
    }
}

impl fmt::Display for Repeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, second } = self;
        write!(f, "{:?} was completed again: {first}, and {second}", first.resource)
    }
}

impl Error for Repeat {}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(millis: u64, contender: usize, fire: u64) -> Record {
        let (at, event) = (Instant::from_nanos(millis * 1_000_000), Event::Completed { fire });
        Record { at, contender, resource: "r".into(), token: "".into(), event }
    }

    #[test]
    fn growing_fires_are_valid_per_name() {
        let other = Record { resource: "other".into(), ..completed(2, 1, 3) };
        let history = [completed(1, 1, 3), other, completed(3, 2, 4), completed(4, 1, 9)];
        assert_eq!(check_fires(&history), Ok(4));
        assert_eq!(check_fires(&[]), Ok(0));
    }

    #[test]
    fn repeated_or_decreasing_fires_are_found() {
        let again = check_fires(&[completed(1, 1, 3), completed(2, 2, 3)]).unwrap_err();
        assert_eq!(
            again.to_string(),
            "\"r\" was completed again: fire 3 by contender 1 at 1ms, and fire 3 by contender 2 at \
             2ms"
        );
        assert!(check_fires(&[completed(1, 1, 3), completed(2, 2, 2)]).is_err());
    }
}
