//! `View`: what questions see of masters.

use redlock_core::admission::{Millis, Nonce, RecordedSet};
use redlock_core::{Cause, Facts, Instant};

use crate::admission::{Incarnation, InitOptions, InitPlan, Listed, MasterView, NoPlan, Scored};

/// The masters, for a part that does not know how they are kept.
pub trait View {
    /// Returns the number of masters.
    fn count(&self) -> usize;

    /// Returns `true` if there is a connection to `master`.
    fn is_connected(&self, master: usize) -> bool;

    /// Returns the masters whose floor can be read, with their incarnations.
    fn reachable(&self) -> Vec<(usize, Incarnation)>;

    /// Views facts of a server.
    fn view(&self, master: usize, facts: &Facts, now: Instant) -> MasterView;

    /// Returns the facts of the server on the present connection.
    fn facts_of(&self, master: usize) -> Option<&Facts>;

    /// Returns the `max_ttl` in the record of a master.
    fn max_ttl_of(&self, master: usize) -> Option<Millis>;

    /// Returns the set of masters in the record of a master.
    fn set_of(&self, master: usize) -> Option<&RecordedSet>;

    /// Returns why a master does not vote. `None` if it votes.
    fn why_not(&self, master: usize, now: Instant) -> Option<Cause>;

    /// Returns why a master that may vote gets no requests for new locks.
    fn why_no_locks(&self, master: usize) -> Option<Cause>;

    /// Returns the recorded set that a quorum of masters agrees on, if any.
    fn agreed_set(&self) -> Option<RecordedSet>;

    /// Plans the writes of an operator's order, from the records that were read.
    ///
    /// # Errors
    /// Returns [`NoPlan`] if nothing may be written.
    fn plan_init(
        &mut self,
        options: InitOptions,
        listed: &Listed,
        answers: &[Scored],
        nonces: &[Nonce],
        ours: &[Nonce],
        now: Instant,
    ) -> Result<InitPlan, NoPlan>;
}
