//! `Start`: whether requests go out yet.

use std::time::Duration;

use redlock_core::Instant;

use super::At;
use super::common::Common;
use super::ids::{HoldId, RequestId};
use super::line::Outgoing;
use super::masters::Masters;
use super::timers::Due;

/// How long requests wait for connections that broke and are being made again.
const REVIVAL: Duration = Duration::from_millis(50);

/// Whether requests go out yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Start {
    /// No runtime drives the masters.
    Parked,
    /// The first connections are being made, since then.
    Connecting(Instant),
    /// A quorum is connected, and the others have a little longer.
    Lingering,
    /// Masters that are not connected now answer *unknown*.
    Done,
}

/// The consequence of the state of the first connections.
pub(super) enum Begun {
    /// Nothing.
    Nothing,
    /// The other masters have until then.
    Lingers(Instant),
    /// Requests go out.
    Now,
}

/// A request that waits for the first connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Early {
    Extend(HoldId, Duration, RequestId),
    Report(RequestId),
}

impl Start {
    /// A caller waits for its turn to make an attempt, for its own wait, and at least for a moment.
    pub(super) fn stand_in_line(self, id: RequestId, common: &mut Common) {
        let Some(caller) = common.callers.get(id) else { return };
        common.line.push(Outgoing::Attempt(id));
        if self == Self::Done && !common.line.is_long() {
            return;
        }
        if let Some(until) = caller.until {
            // Time for the first connections, and for the last attempt at the end of the wait.
            let grace = common.limits.connect_timeout.saturating_mul(2);
            common.timers.enter(until.saturating_add(grace), Due::Unsent(id));
        }
    }

    /// Returns `true` if entries of the line can be sent. Nothing is sent before the first
    /// connections exist, nor for a moment after a quorum of connections broke and is being remade.
    /// Attempts wait for masters that may vote soon.
    pub(super) fn lets_pass(
        self,
        common: &mut Common,
        masters: &mut Masters,
        at: &mut At<'_>,
    ) -> bool {
        if self != Self::Done || common.line.is_empty() {
            return false;
        }
        common.line.hold(masters.awaits_admission(|| at.moment.now()));
        if !common.line.can_advance() {
            return false;
        }
        let Some(since) = masters.links().reviving_since() else { return true };
        let until = since.saturating_add(REVIVAL);
        let is_over = at.moment.now() >= until;
        if !is_over {
            common.timers.enter(until, Due::Wake);
        }
        is_over
    }

    /// The time for the others, or for all first connections, is over.
    pub(super) fn due(&mut self, masters: &Masters, now: Instant) -> Begun {
        if *self == Self::Lingering && masters.awaits_duplicates(now) {
            // A master that was connected in the meantime has shown its set.
            *self = Self::Connecting(now);
            return Begun::Nothing;
        }
        Begun::Now
    }

    /// Requests go out once every master is connected or has failed to connect. They do not wait
    /// for the last one, though: once a quorum is connected, the others have as long again as that
    /// took. They have longer if the list is too long for the recorded set, because addresses that
    /// are still being connected may be duplicates.
    pub(super) fn consider(&mut self, masters: &Masters, now: impl FnOnce() -> Instant) -> Begun {
        /// The least time for the others: connections made at the same time end at the same time.
        const LINGER_MIN: Duration = Duration::from_millis(10);
        if matches!(self, Self::Done | Self::Parked) {
            return Begun::Nothing;
        }
        if !masters.links().is_connecting() {
            return Begun::Now;
        }
        if let Self::Connecting(since) = *self
            && masters.links().has_quorum()
        {
            let now = now();
            if masters.awaits_duplicates(now) {
                return Begun::Nothing;
            }
            *self = Self::Lingering;
            return Begun::Lingers(now.saturating_add(now.saturating_since(since).max(LINGER_MIN)));
        }
        Begun::Nothing
    }
}
