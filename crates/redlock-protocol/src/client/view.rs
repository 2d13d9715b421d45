//! `View`, `Points` and `Voters`: what questions, keys and locks see of masters.

use std::fmt::Debug;
use std::time::Duration;

use redlock_core::admission::{Millis, RecordedSet};
use redlock_core::{Cause, Facts, Instant, Verdict};

use crate::admission::{Incarnation, InitInputs, InitPlan, MasterView, NoPlan};
use crate::ballot::chooser::Chooser;
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

/// The purpose of a request. A recorded set that does not fit the list refuses only some purposes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A new lock.
    Acquire,
    /// More time for a lease of another process, by its token.
    Resume,
    /// A lease of this process, a release, or a question.
    Other,
}

/// The masters as voters, for a part that does not know how they are kept.
pub trait Voters: Debug {
    /// Returns the masters that vote.
    fn voting(&self) -> MasterSet;

    /// Returns the masters that vote and get requests for new locks.
    fn open(&self) -> MasterSet;

    /// Returns the masters that get no requests for this purpose, because their recorded sets do not
    /// fit the list.
    fn refused(&self, purpose: Purpose) -> MasterSet;

    /// Returns the masters of `asked` that get a copy and do not vote. A master that is being
    /// checked is not one of them, because its answer comes after the probe.
    fn copies_only(&self, asked: MasterSet, purpose: Purpose) -> MasterSet;

    /// Returns why the answer of `master` is not valid. If a required property is missing, that is
    /// reported in place of a quarantine, because waiting does not fix it.
    fn cause(&self, master: usize, now: Instant) -> Cause;

    /// Returns why no request is sent to `master`. `None` if its node answers, which it also does
    /// without a connection.
    fn obstacle(&self, master: usize, purpose: Purpose, now: Instant) -> Option<Cause>;

    /// Returns `true` if there is a connection to `master`.
    fn is_up(&self, master: usize) -> bool;

    /// Returns `true` if a late SET may still arrive over a previous connection to `master`.
    fn lacks_barrier(&self, master: usize) -> bool;

    /// Returns the longest usable TTL.
    fn max_ttl(&self) -> Duration;

    /// Returns the longest TTL that any client may have used, by the records read so far.
    fn longest_ttl(&self) -> Duration;

    /// Records the answer of `master` to an attempt.
    fn answered(&mut self, master: usize, verdict: &Verdict);

    /// Returns the ballots of this client. They know the clocks and floors that masters have shown.
    fn ballots(&mut self) -> &mut Chooser;

    /// Records whether a lease is held. Returns the masters for which the urgency of a new
    /// connection has changed, each with the new one.
    fn set_holding(&mut self, is_holding: bool) -> Vec<(usize, bool)>;
}
