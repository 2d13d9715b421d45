//! The masters as locks see them.

use std::time::Duration;

use redlock_core::{Cause, Instant, NotAdmitted, Verdict, WhyNot};

use super::Masters;
use super::link::State;
use super::millis::floor_millis;
use crate::admission::Why;
use crate::ballot::chooser::Chooser;
use crate::client::view::{Purpose, Voters};
use crate::inspection::is_incurable;
use crate::master_set::MasterSet;

impl Voters for Masters {
    #[inline]
    fn voting(&self) -> MasterSet {
        self.voting
    }

    #[inline]
    fn open(&self) -> MasterSet {
        self.voting.without(self.misfits)
    }

    #[inline]
    fn refused(&self, purpose: Purpose) -> MasterSet {
        match purpose {
            Purpose::Acquire => self.misfits,
            Purpose::Resume if self.misfits.is_empty() => MasterSet::EMPTY,
            Purpose::Resume => {
                let is_refused = |master: &usize| self.admission.is_too_short_for(*master);
                self.misfits.iter().filter(is_refused).collect()
            }
            Purpose::Other => MasterSet::EMPTY,
        }
    }

    #[inline]
    fn copies_only(&self, asked: MasterSet, purpose: Purpose) -> MasterSet {
        let silent = asked.without(self.voting).without(self.refused(purpose));
        if silent.is_empty() {
            return silent;
        }
        let is_copy = |master: &usize| {
            !self.admission.is_open(*master) && !self.admission.is_foreign(*master)
        };
        silent.iter().filter(is_copy).collect()
    }

    #[inline]
    fn cause(&self, master: usize, now: Instant) -> Cause {
        let link = &self.links.0[master];
        let why = match (self.admission.why(master, floor_millis(now)), &link.unfit) {
            (Some(Why::TwinOf(other)), _) => {
                let name = self.terms.names.iter().nth(other).unwrap_or_default();
                return Cause::TwinOf(name.to_owned());
            }
            (Some(Why::Away), _) => {
                let away = || Cause::NotConnected("".into());
                return link.state.cause().cloned().unwrap_or_else(away);
            }
            (Some(Why::NotAdmitted(why)), Some(unfit)) if why.why.is_ended_by_quarantine() => {
                let mut unfit = unfit.clone();
                unfit.in_quarantine = why.in_quarantine;
                unfit
            }
            (Some(Why::NotAdmitted(mut why)), _) => {
                why.step_error = link.step_failure.as_ref().map(|failure| failure.error.clone());
                why
            }
            (None, Some(unfit)) => unfit.clone(),
            (None, None) => NotAdmitted::new(WhyNot::AskedTooEarly),
        };
        Cause::NotAdmitted(why.into())
    }

    #[inline]
    fn max_ttl(&self) -> Duration {
        self.max_ttl
    }

    #[inline]
    fn answered(&mut self, master: usize, verdict: &Verdict) {
        self.links.0[master].is_incurable = is_incurable(verdict);
    }

    #[inline]
    fn obstacle(&self, master: usize, purpose: Purpose, now: Instant) -> Option<Cause> {
        if self.refused(purpose).contains(master) {
            return self.misfit(master);
        }
        if self.admission.is_foreign(master) {
            return Some(self.cause(master, now));
        }
        // A first connection that is not made in time has timed out, whether or not its node has
        // reported that yet.
        let is_connecting = self.links.0[master].state == State::Connecting;
        (is_connecting && now >= self.connecting_until).then_some(Cause::TimedOut)
    }

    #[inline]
    fn set_holding(&mut self, is_holding: bool) -> Vec<(usize, bool)> {
        if std::mem::replace(&mut self.is_holding, is_holding) == is_holding {
            return Vec::new();
        }
        let changed = (0..)
            .zip(&mut self.links.0)
            .filter_map(|(master, link)| link.urge(is_holding).then_some((master, link.is_urgent)));
        changed.collect()
    }

    #[inline]
    fn ballots(&mut self) -> &mut Chooser {
        &mut self.ballots
    }

    fn is_up(&self, master: usize) -> bool {
        self.links.is_up(master)
    }

    fn lacks_barrier(&self, master: usize) -> bool {
        self.links.lacks_barrier(master)
    }

    fn longest_ttl(&self) -> Duration {
        Duration::from_millis(self.admission.longest_ttl())
    }
}
