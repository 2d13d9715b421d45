//! `HandOver`: passes a lease from one caller of a process to the next without a request.
//!
//! The masters keep one key under one token and notice nothing. The next caller gets its own
//! fencing token, one of the 31 numbers after the ballot that a quorum has accepted for the lease.
//! It is larger than the previous token and smaller than the tokens of all later ballots. It may be
//! handed out under the same condition as the first token: a quorum of the masters that accepted
//! the ballot are known to hold the key since the write that carried it.

use std::time::Duration;

use redlock_core::{FencingToken, Instant};

use super::{HeldLease, State};
use crate::LostReason;
use crate::ballot::proposals::Proof;
use crate::terms::HoldOptions;

/// How often one lease can be passed on. Its ballot reserves this many numbers after its token.
pub const HAND_OVERS_MAX: u8 = 31;
/// How long after its grant a lease can be passed on. A holder that queries no master cannot know
/// whether other processes wait, and they must not wait for all callers of this process.
pub const HANDED_ON_FOR: Duration = Duration::from_millis(100);

/// A lease that was passed to the next caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandOver {
    /// How often it was passed on, including this time: 1 to [`HAND_OVERS_MAX`].
    pub number: u8,
    /// The ballot of its fencing token, and until when the token may be handed out.
    pub proof: Option<Proof>,
}

impl HandOver {
    /// Returns the fencing token of the next caller, or `None` without ballots.
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

    /// Returns the next hand-over, if one is possible now.
    fn next(&self, now: Instant) -> Option<HandOver> {
        let is_in_time = now.saturating_since(self.granted_at) < HANDED_ON_FOR;
        let is_proven = self.proof.is_none_or(|proof| now < proof.until);
        let next = HandOver { number: self.number + 1, proof: self.proof };
        (is_in_time && is_proven && self.number < HAND_OVERS_MAX).then_some(next)
    }
}

impl HeldLease {
    /// Passes the lease to the next caller, which wants the key on these terms. Returns `None` if
    /// that caller has to query the masters: the lease is over, has less than half of its time
    /// left, has too few copies, or was passed on for long enough.
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

    /// Makes the next caller the holder.
    fn begin(&mut self, options: HoldOptions, until: Instant, now: Instant) {
        (self.options, self.started, self.state) = (options, now, State::Valid(until));
        (self.lapse, self.evidence) = (LostReason::NotExtended, LostReason::NotOurs);
        self.start_keeper();
    }
}
