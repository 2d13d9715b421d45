//! `View` and `Points`: what questions and keys see of masters.

use std::fmt::Debug;

use redlock_core::admission::{Millis, RecordedSet};
use redlock_core::{Cause, Facts, Instant};

use crate::admission::{Incarnation, InitInputs, InitPlan, MasterView, NoPlan};
use crate::master_set::MasterSet;

/// One master, at one instant.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    /// The facts of the server on the present connection. `None` without a connection.
    pub facts: Option<&'a Facts>,
    /// The `max_ttl` in its record.
    pub max_ttl: Option<Millis>,
    /// The set of masters in its record.
    pub set: Option<&'a RecordedSet>,
    /// Why it does not vote. `None` if it votes.
    pub why_not: Option<Cause>,
    /// Why it gets no requests for new locks although it may vote.
    pub why_no_locks: Option<Cause>,
}

/// The masters, for a part that does not know how they are kept.
pub trait View {
    /// Returns the number of masters.
    fn count(&self) -> usize;

    /// Returns the connected masters.
    fn connected(&self) -> MasterSet;

    /// Returns the state of `master`.
    fn seen(&self, master: usize, now: Instant) -> Seen<'_>;

    /// Returns the masters whose floor can be read, with their incarnations.
    fn reachable(&self) -> Vec<(usize, Incarnation)>;

    /// Interprets facts of a server.
    fn view(&self, master: usize, facts: &Facts, now: Instant) -> MasterView;

    /// Returns the recorded set that a quorum of masters agrees on, if any.
    fn agreed_set(&self) -> Option<RecordedSet>;

    /// Plans the writes of an operator's order.
    ///
    /// # Errors
    /// Returns [`NoPlan`] if nothing may be written.
    fn plan_init(&mut self, inputs: InitInputs<'_>, now: Instant) -> Result<InitPlan, NoPlan>;
}

/// The masters as meeting points, for a part that does not know how they are kept.
pub trait Points: Debug {
    /// Returns the number of masters.
    fn count(&self) -> usize;

    /// Returns the meeting point of a key. `avoided` masters are chosen only if there are no others.
    fn meeting_point(&self, key: &[u8], avoided: MasterSet, now: Instant) -> Option<usize>;

    /// Returns `true` if contenders may meet at `master`.
    fn may_meet(&self, master: usize, now: Instant) -> bool;

    /// Returns `true` if waiters at `master` use a queue.
    fn has_queue(&self, master: usize) -> bool;

    /// Returns `true` if fewer masters vote than a quorum because connected masters do not vote.
    fn lacks_votes(&self) -> bool;
}
