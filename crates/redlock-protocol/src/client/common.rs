//! `Common`: the plain data below the parts: callers, the line, alarms, random choices, and facts
//! derived without a request.

use std::collections::VecDeque;
use std::time::Duration;

use redlock_core::{Instant, Op, Vote};

use super::At;
use super::callers::Callers;
use super::derived::Derived;
use super::draws::{Draw, Draws};
use super::effects::{Effect, Effects, Trace, Traced, What};
use super::ids::{RequestId, Ticket};
use super::key::Context as KeyContext;
use super::line::Line;
use super::locks::Context as LockContext;
use super::sending::send;
use super::table::Id as _;
use super::timers::Timers;
use super::view::{Points, Voters};
use crate::master_set::MasterSet;
use crate::terms::Limits;

/// The data that several parts use.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Common {
    pub(super) limits: Limits,
    pub(super) draws: Draws,
    pub(super) callers: Callers,
    pub(super) line: Line,
    pub(super) timers: Timers,
    pub(super) fan_out: FanOut,
    /// Votes that are known without a request, until the present input is handled.
    pub(super) known: Derived<VecDeque<Vote>>,
}

/// How long votes take: what waiters pause for is measured by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FanOut(Duration);

impl Common {
    pub(super) fn new(limits: Limits, draws: Draws) -> Self {
        Self {
            limits,
            draws,
            callers: Callers::default(),
            line: Line::default(),
            timers: Timers::default(),
            fan_out: FanOut(FanOut::ASSUMED),
            known: Derived::default(),
        }
    }

    /// Returns the context of an input of `Keys`.
    #[inline]
    pub(super) fn for_keys<'a>(
        &'a mut self,
        points: &'a dyn Points,
        at: &At<'_>,
    ) -> KeyContext<'a> {
        KeyContext {
            now: at.now,
            fan_out: self.fan_out.0,
            is_traced: at.effects.is_traced,
            draws: self.draws,
            points,
            callers: &mut self.callers,
            timers: &mut self.timers,
        }
    }

    /// Returns the context of an input of `Locks`.
    #[inline]
    pub(super) fn for_locks<'a>(
        &'a mut self,
        voters: &'a mut dyn Voters,
        is_closing: bool,
        at: &'a mut At<'_>,
    ) -> LockContext<'a> {
        LockContext {
            now: at.now,
            fan_out: self.fan_out.0,
            is_closing,
            draws: self.draws,
            voters,
            line: &mut self.line,
            timers: &mut self.timers,
            known: &mut self.known,
            moment: at.moment,
            effects: at.effects,
        }
    }

    /// Sends a request to these masters, together with all others of this turn.
    pub(super) fn send(
        &mut self,
        op: Op,
        masters: MasterSet,
        ticket: Ticket,
        voters: &dyn Voters,
        at: &mut At<'_>,
    ) {
        send(op, masters, ticket, at.now, voters, (&mut *self.known, &mut *at.effects));
    }

    /// Traces a step of a caller.
    pub(super) fn trace(&self, id: RequestId, what: What, effects: &mut Effects) {
        if effects.is_traced
            && let Some(caller) = self.callers.get(id)
        {
            let (resource, of) = (caller.resource.clone(), Traced::Request(id.number()));
            effects.push(Effect::Traced(Trace { resource, of, what }.into()));
        }
    }

    /// Returns until when a master that was slow now is avoided as a meeting point.
    pub(super) fn suspected_until(&self, master: usize, now: Instant) -> Instant {
        super::key::suspected_until(master, self.draws, now)
    }

    /// Draws how long to wait before connected masters are probed again.
    pub(super) fn draw_fresh(&self, now: Instant) -> f64 {
        self.draws.unit(Draw::Fresh, now)
    }
}

impl FanOut {
    /// The assumed duration of a vote before one was measured.
    const ASSUMED: Duration = Duration::from_micros(500);

    /// A vote took so long. Never nothing: a pause of a few times nothing would be none.
    pub(super) fn measure(&mut self, fan_out: Duration) {
        /// No network is quicker.
        const FAN_OUT_MIN: Duration = Duration::from_micros(50);
        self.0 = (self.0 * 4 + fan_out.max(FAN_OUT_MIN)) / 5;
    }
}
