//! The order of an operator, and its outcome.

use std::time::Duration;

use redlock_core::admission::{Millis, RecordedSet, Score};
use redlock_core::{Cause, Lists};

use super::Seen;

/// The order of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Order {
    /// Admit although a record shows that the prefix was in use.
    pub again: bool,
    /// A lower limit of the floor, or zero.
    pub floor: Score,
    /// Allow a floor far ahead of the clocks.
    pub far_floor: bool,
}

/// The outcome of an order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InitOutcome {
    /// Why it failed. `None` if all masters have the new records.
    pub failure: Option<Failure>,
    /// Each master, as it is now.
    pub rows: Vec<InitRow>,
    /// The largest floor that any script wrote.
    pub floor: Option<Score>,
    /// The set that a quorum of masters agrees on.
    pub set: Option<RecordedSet>,
    /// The masters that did not answer, so that no set was written.
    pub unanswered: Vec<usize>,
}

/// One master, after an order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InitRow {
    /// Why it did not vote before anything was written. `None` if it voted.
    pub was: Option<Cause>,
    /// Why it does not vote now. `None` if it votes.
    pub now: Option<Cause>,
    /// Its process.
    pub run_id: Option<String>,
    /// How long that process has been running.
    pub uptime: Option<Duration>,
    /// Its `max_ttl` now.
    pub max_ttl: Option<Millis>,
    /// Its `max_ttl` before.
    pub former_max_ttl: Option<Millis>,
    /// Its set of masters now.
    pub set: Option<RecordedSet>,
    /// Its set of masters before.
    pub former_set: Option<RecordedSet>,
}

/// A master before anything was written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Before {
    /// Why it did not vote.
    pub(super) why_not: Option<Cause>,
    pub(super) max_ttl: Option<Millis>,
    pub(super) set: Option<RecordedSet>,
}

impl Before {
    pub(super) fn of(seen: Seen<'_>) -> Self {
        Self { why_not: seen.why_not, max_ttl: seen.max_ttl, set: seen.set.cloned() }
    }
}

/// Why an order failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// Fewer than q masters could be read.
    NoQuorum,
    /// The records of these masters were not read.
    Unread(Vec<usize>),
    /// The prefix was in use.
    Refused,
    /// Another set is recorded.
    OtherSet(Box<Lists>),
    /// Some master does not hold this `max_ttl`.
    MaxTtl(Millis),
    /// Records changed during every attempt.
    Moved,
    /// The floor would reach 2^53.
    TooLarge,
    /// The floor is too far ahead of the clocks without permission. This is the limit.
    FarFloor(Score),
    /// The floor is above this limit.
    FloorTooFar(Score),
}
