//! `HeldLease`: a token that a quorum of masters holds, until it is over.

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
/// The keeper extends it when a third of the TTL has passed since the quorum was confirmed, and
/// again until the deadline. A failed extension releases nothing and shortens nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HeldLease {
    ledger: Ledger,
    timing: Timing,
    options: HoldOptions,
    started: Instant,
    /// How long a grant of the attempt itself counts, whatever was asked for since.
    acquired_validity: Duration,
    /// The shortest time that any request for this lease confers.
    validity_min: Duration,
    /// The longest expiry that any master was asked to give the key, in milliseconds.
    px_max: u64,
    /// When a master has answered last. Keys that the masters set before have expired one expiry
    /// later.
    answered_at: Instant,
    state: State,
    /// Why the lease is lost if its deadline passes.
    lapse: LostReason,
    /// Why it is lost if masters deny the key and no quorum is left.
    evidence: LostReason,
    extensions: Vec<Extension>,
    /// Masters that are being given the key again, and have not answered.
    readding: MasterSet,
    /// Masters that may have lost the key, unless they confirm it.
    suspected: MasterSet,
    last_number: u32,
    keeper: Keeper,
    handing: Handing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    /// Valid until this instant, which is `valid_until` less the stop margin.
    Valid(Instant),
    /// This state is final: no lease is revived.
    Over(LostReason),
}

/// The consequence of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// An extension is to be sent.
    pub extend: Option<Extend>,
    /// These masters have no key: they are given ours again.
    pub readd: MasterSet,
    /// The holder that waits for the extension of this number gets this answer.
    pub extended: Option<(u32, Extended)>,
}

impl HeldLease {
    /// The lease of an attempt that was won.
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

    /// The ballot behind its fencing token, and until when that may be handed out.
    #[inline]
    pub fn proof(&self) -> Option<Proof> {
        self.handing.proof()
    }

    // Methods that the driver calls.

    /// When the holder must have stopped; `None` once the lease is over.
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Valid(deadline) => Some(deadline),
            State::Over(_) => None,
        }
    }

    /// Why the lease is over, or will be if its deadline passes.
    #[inline]
    pub fn reason(&self) -> LostReason {
        match self.state {
            State::Valid(_) => self.lapse,
            State::Over(reason) => reason,
        }
    }

    /// The state of the token on each master, as far as answers show it.
    #[inline]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The durations of the request, or of the last extension.
    #[inline]
    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// The time before the end at which the holder has to stop.
    #[inline]
    pub fn stop_margin(&self) -> Duration {
        self.options.stop_margin
    }

    /// How long the key may stay where it was set or extended last of all.
    #[inline]
    pub fn expiry(&self) -> Duration {
        Duration::from_millis(self.px_max)
    }

    /// The masters that have not answered some request for this lease.
    #[inline]
    pub fn unanswered(&self) -> MasterSet {
        let acquiring = self.ledger.unanswered().union(self.readding);
        self.extensions.iter().map(Extension::unanswered).fold(acquiring, MasterSet::union)
    }

    /// How long the key may still stay on `master`; `None` for its whole expiry, counted from when
    /// the master runs again: it may still have a request of ours in its buffers.
    pub fn left(&self, master: usize, now: Instant) -> Option<Duration> {
        let expires = self.answered_at.saturating_add(self.expiry());
        let is_open = self.unanswered().union(self.ledger.unsettled()).contains(master);
        (!is_open).then(|| expires.saturating_since(now))
    }

    /// The lease is over for its holder: released, given up or shut down.
    pub fn end(&mut self, reason: LostReason) {
        if self.deadline().is_some() {
            self.state = State::Over(reason);
        }
    }

    /// The ledger, for the release.
    #[inline]
    pub fn into_ledger(self) -> Ledger {
        self.ledger
    }

    // Methods for events of the lease.

    /// The late answer to the `SET` of the attempt: a grant is one more copy.
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
        // A lease that is taken over gets the score with the refusal.
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

    /// Every answer comes in here: before anything is made of it, the deadline may have passed.
    #[inline]
    fn receive<'a>(&mut self, judged: impl Into<Judged<'a>>, now: Instant) -> Judged<'a> {
        self.answered_at = now;
        self.settle(now);
        judged.into()
    }

    /// The node timeout of the attempt has passed.
    pub fn attempt_timed_out(&mut self) {
        self.ledger.time_out(self.ledger.pending());
    }

    /// Moves the deadline to where the confirmations put it, unless it has passed.
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
