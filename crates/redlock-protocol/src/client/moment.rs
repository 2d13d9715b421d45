//! `Moment`: the draws and the holders' cells that a client uses while it handles an input.

use std::fmt::Debug;

use redlock_core::{Instant, Label, Token};

use super::ids::RequestId;
use crate::LostReason;
use crate::votes::ledger::Ledger;

/// The present moment: the clock, the random source, and the cells that holders read by themselves.
///
/// A holder may see the end of its lease at any time, so the operations on its cell are neither
/// inputs nor effects: their results decide. A cell exists once [`Won`](super::effects::Effect::Won)
/// was carried out. Before that, answer as for a lease that is held and offered.
pub trait Moment: Debug {
    /// Returns the present instant, which never goes back.
    fn now(&mut self) -> Instant;

    /// Draws a token that was never used before.
    fn token(&mut self, label: Option<&Label>) -> Token;

    /// Draws a number that no other client draws, for the names of quarantines and sets.
    fn nonce(&mut self) -> u64;

    /// Moves the deadline of a lease. Returns `false` if the former deadline has passed at `now`,
    /// because its holder may have seen that.
    fn move_deadline(&mut self, holder: RequestId, to: Instant, now: Instant) -> bool;

    /// Returns `true` if the lease is valid by the holder's clock.
    fn is_held(&mut self, holder: RequestId) -> bool;

    /// Shows the holder these last answers, and ends its lease as lost if it still runs. Returns how
    /// it was lost. `None` if the holder had returned it before.
    fn lose(
        &mut self,
        holder: RequestId,
        reason: LostReason,
        ledger: &Ledger,
    ) -> Option<LostReason>;

    /// Ends a lease as released if it still runs.
    fn end(&mut self, holder: RequestId);

    /// Returns whether the caller has taken its lock.
    fn acceptance(&mut self, holder: RequestId) -> Acceptance;

    /// Changes that, unless the lock is accepted or withdrawn. Returns the former state.
    fn change_acceptance(&mut self, holder: RequestId, to: Acceptance) -> Acceptance;
}

/// Whether the caller of a won lock has taken it. It does so when its future is polled, which may
/// never happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Acceptance {
    /// The caller was informed and has not taken the lock.
    Offered,
    /// The keeper has seen that the lock is not taken, and waits for a wake-up when it is.
    Awaited,
    /// The caller has taken the lock, which belongs to it from now on.
    Accepted,
    /// The caller did not take the lock in time, and can no longer take it.
    Withdrawn,
}
