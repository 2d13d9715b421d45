//! `HandOver`: a lease passes from one caller of a process to the next, and nothing is sent.
//!
//! The masters go on holding one key under one token: for them nothing happens. The next caller
//! gets a fencing token of its own, one of the 31 numbers behind the ballot that a quorum has
//! accepted for the lease: so it is larger than the one before it, and smaller than that of every
//! later ballot. It may be handed out on the same terms as the first one: while a quorum of those
//! that accepted the ballot are known to hold the key from the write that carried it.

use std::time::Duration;

use redlock_core::{FencingToken, Instant};

use super::{HeldLease, State};
use crate::LostReason;
use crate::ballot::proposals::Proof;
use crate::terms::HoldOptions;

/// How often one lease is handed on: its ballot has so many numbers behind its token.
pub const HAND_OVERS_MAX: u8 = 31;
/// For how long after its grant a lease is handed on. A holder that asks no master cannot know
/// whether other processes wait, and they are not to wait for all callers of this one.
pub const HANDED_ON_FOR: Duration = Duration::from_millis(100);

/// A lease that has passed to the next caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandOver {
    /// How often it was handed on, this time included: 1 to [`HAND_OVERS_MAX`].
    pub number: u8,
    /// The ballot behind its fencing token, and until when that may be handed out.
    pub proof: Option<Proof>,
}

impl HandOver {
    /// The fencing token of the next caller; `None` without ballots.
    pub fn token(&self) -> Option<FencingToken> {
        self.proof.and_then(|proof| proof.ballot.token_behind(self.number))
    }
}

/// The hand-overs of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Handing {
    granted_at: Instant,
    proof: Option<Proof>,
    number: u8,
}

impl Handing {
    pub(super) fn new(granted_at: Instant, proof: Option<Proof>) -> Self {
        Self { granted_at, proof, number: 0 }
    }

    pub(super) fn proof(&self) -> Option<Proof> {
        self.proof
    }

    /// The next hand-over, where there may be one at this moment.
    fn next(&self, now: Instant) -> Option<HandOver> {
        let is_in_time = now.saturating_since(self.granted_at) < HANDED_ON_FOR;
        let is_proven = self.proof.is_none_or(|proof| now < proof.until);
        let next = HandOver { number: self.number + 1, proof: self.proof };
        (is_in_time && is_proven && self.number < HAND_OVERS_MAX).then_some(next)
    }
}

impl HeldLease {
    /// The holder is done, and the next caller wants the key on these terms. `None` if it has to
    /// ask masters for it: the lease is over, or has less than half of its time left, or too few
    /// copies, or it was handed on for long enough.
    pub fn hand_on(&mut self, options: HoldOptions, now: Instant) -> Option<HandOver> {
        self.settle(now);
        self.deadline()?;
        let next = self.handing.next(now)?;
        let until = self.ledger.valid_until().saturating_sub(options.stop_margin);
        let lasts = until.saturating_since(now) >= self.timing.ttl.get() / 2;
        let has_copies = options.min_copies.is_none_or(|least| self.ledger.copies(now) >= least);
        if !lasts || !has_copies {
            return None;
        }
        self.handing.number = next.number;
        self.begin(options, until, now);
        Some(next)
    }

    /// The next caller holds it from now on.
    fn begin(&mut self, options: HoldOptions, until: Instant, now: Instant) {
        (self.options, self.started, self.state) = (options, now, State::Valid(until));
        (self.lapse, self.evidence) = (LostReason::NotExtended, LostReason::NotOurs);
        self.start_keeper();
    }
}
