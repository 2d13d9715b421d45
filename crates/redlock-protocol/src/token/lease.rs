//! `HeldLease`: a token that a quorum of masters holds, until it is over. See rules H1 to H6 of
//! `docs/PROTOCOL.md`.

use std::time::Duration;

use redlock_core::{Instant, Verdict};

pub use self::extending::Extend;
use self::extension::{Extended, Extension};
use self::hand_over::Handing;
use self::keeper::Keeper;
use crate::LostReason;
use crate::ballot::proposals::Proof;
use crate::master_set::MasterSet;
use crate::terms::{HoldOptions, Timing};
use crate::votes::answer::{Judged, Shown};
use crate::votes::ledger::Ledger;

mod copies;
mod extending;
pub mod extension;
pub mod hand_over;
mod keeper;
mod scores;

/// A lease that was won: its extensions, and the instant at which its holder must have stopped.
///
/// The keeper extends the lease one third of the TTL after the quorum was confirmed, and retries
/// until the deadline. A failed extension releases nothing and shortens nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HeldLease {
    ledger: Ledger,
    timing: Timing,
    options: HoldOptions,
    started: Instant,
    /// Validity of a grant from the original attempt, regardless of later extensions.
    acquired_validity: Duration,
    /// The shortest validity that any request for this lease confers.
    validity_min: Duration,
    /// The longest expiry in milliseconds that any request gave the key.
    px_max: u64,
    /// When a master last answered. Keys that masters set earlier expire within one expiry after
    /// that.
    answered_at: Instant,
    state: State,
    /// Why the lease is lost if its deadline passes.
    lapse: LostReason,
    /// Why the lease is lost if masters deny the key and no quorum is left.
    evidence: LostReason,
    extensions: Vec<Extension>,
    /// Masters that have been sent the key again and have not answered.
    readding: MasterSet,
    /// Masters that may have lost the key, unless they confirm it.
    suspected: MasterSet,
    last_number: u32,
    keeper: Keeper,
    handing: Handing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    /// Valid until this instant, which is `valid_until` minus the stop margin.
    Valid(Instant),
    /// Final: a lease is never revived.
    Over(LostReason),
}

/// The consequence of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The extension to send, if any.
    pub extend: Option<Extend>,
    /// Masters without a key, which receive ours again.
    pub readd: MasterSet,
    /// The outcome of the extension with this number, for the holder that waits for it.
    pub extended: Option<(u32, Extended)>,
}

impl HeldLease {
    /// Creates the lease of a won attempt.
    #[inline]
    pub fn new(
        ledger: Ledger,
        timing: Timing,
        options: HoldOptions,
        proof: Option<Proof>,
        started: Instant,
        now: Instant,
    ) -> Self {
        let deadline = ledger.valid_until().saturating_sub(options.stop_margin);
        let mut lease = Self {
            ledger,
            timing,
            options,
            started,
            acquired_validity: timing.ttl.validity(),
            validity_min: timing.ttl.validity(),
            px_max: timing.px,
            answered_at: now,
            state: State::Valid(deadline),
            lapse: LostReason::NotExtended,
            evidence: LostReason::NotOurs,
            extensions: Vec::new(),
            readding: MasterSet::EMPTY,
            suspected: MasterSet::EMPTY,
            last_number: 0,
            keeper: Keeper::Off,
            handing: Handing::new(now, proof),
        };
        lease.start_keeper();
        lease
    }

    /// Returns the ballot of the fencing token, and until when the token may be handed out.
    #[inline]
    pub fn proof(&self) -> Option<Proof> {
        self.handing.proof()
    }

    // Methods that the driver calls.

    /// Returns when the holder must have stopped, or `None` once the lease is over.
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Valid(deadline) => Some(deadline),
            State::Over(_) => None,
        }
    }

    /// Returns why the lease is over, or will be if its deadline passes.
    #[inline]
    pub fn reason(&self) -> LostReason {
        match self.state {
            State::Valid(_) => self.lapse,
            State::Over(reason) => reason,
        }
    }

    /// Returns the state of the token on each master, as far as answers show it.
    #[inline]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns the durations of the request, or of the last extension.
    #[inline]
    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// Returns how long before the end the holder has to stop.
    #[inline]
    pub fn stop_margin(&self) -> Duration {
        self.options.stop_margin
    }

    /// Returns how long the key may stay on the master that set or extended it last.
    #[inline]
    pub fn expiry(&self) -> Duration {
        Duration::from_millis(self.px_max)
    }

    /// Returns the masters that have not answered some request for this lease.
    #[inline]
    pub fn unanswered(&self) -> MasterSet {
        let acquiring = self.ledger.unanswered().union(self.readding);
        self.extensions.iter().map(Extension::unanswered).fold(acquiring, MasterSet::union)
    }

    /// Returns how long the key may still stay on `master`. `None` means its whole expiry from the
    /// moment the master resumes, because the master may still have a request buffered.
    pub fn left(&self, master: usize, now: Instant) -> Option<Duration> {
        let expires = self.answered_at.saturating_add(self.expiry());
        let is_open = self.unanswered().union(self.ledger.unsettled()).contains(master);
        (!is_open).then(|| expires.saturating_since(now))
    }

    /// Ends the lease for its holder: it was released, given up or shut down.
    pub fn end(&mut self, reason: LostReason) {
        if self.deadline().is_some() {
            self.state = State::Over(reason);
        }
    }

    /// Returns the ledger, for the release.
    #[inline]
    pub fn into_ledger(self) -> Ledger {
        self.ledger
    }

    // Methods for events of the lease.

    /// Records a late answer to the `SET` of the attempt. A grant adds a copy.
    pub fn acquired<'a>(
        &mut self,
        master: usize,
        judged: impl Into<Judged<'a>>,
        sent_at: Instant,
        now: Instant,
    ) {
        let judged = self.receive(judged, now);
        if self.ledger.is_copy(master) {
            return self.ledger.copy_answered(master, judged.answer);
        }
        self.ledger.write_first(master, judged, now.saturating_since(sent_at));
        self.ledger.acquired(master, judged.answer);
        // A resumed lease receives the score with the refusal.
        let is_shown = Shown::by(judged.answer) == Shown::Ballots;
        match (&judged.answer.verdict, judged.does_count()) {
            (Verdict::BallotRefused, counts) if !(counts && is_shown) => {
                self.ledger.granted_unscored(master, counts.then_some(sent_at));
            }
            (Verdict::Granted | Verdict::BallotRefused, true) => {
                self.ledger.confirm(master, sent_at, self.acquired_validity);
            }
            _ => {}
        }
        self.settle(now);
    }

    /// Checks the deadline before any answer is used, because it may have passed.
    #[inline]
    fn receive<'a>(&mut self, judged: impl Into<Judged<'a>>, now: Instant) -> Judged<'a> {
        self.answered_at = now;
        self.settle(now);
        judged.into()
    }

    /// Records that the node timeout of the attempt has passed.
    pub fn attempt_timed_out(&mut self) {
        self.ledger.time_out(self.ledger.pending());
    }

    /// Moves the deadline to the time that the confirmations allow, unless it has passed.
    fn settle(&mut self, now: Instant) {
        let State::Valid(deadline) = self.state else { return };
        let until = self.ledger.valid_until().saturating_sub(self.options.stop_margin);
        self.state = if deadline <= now {
            State::Over(self.lapse)
        } else if until <= now {
            State::Over(self.evidence)
        } else {
            State::Valid(until)
        };
    }
}

#[cfg(test)]
mod tests;
