//! The meeting point of each key.

use redlock_core::Instant;

use super::link::State;
use super::{Context, Masters, News};
use crate::client::view::{Points, Voters as _};
use crate::master_set::MasterSet;

impl Points for Masters {
    fn count(&self) -> usize {
        self.len()
    }

    /// Candidates are connected, vote, report changes, were not slow within about a second, and have
    /// answered since. The candidate with the largest hash wins. If contenders see different masters, they choose
    /// different meeting points, which costs only time.
    #[inline]
    fn meeting_point(&self, key: &[u8], avoided: MasterSet, now: Instant) -> Option<usize> {
        let weight = |master: usize| self.links.0[master].weight.of_key(key);
        let preferred = |master: &usize| (!avoided.contains(*master), weight(*master));
        (0..self.len()).filter(|master| self.may_meet(*master, now)).max_by_key(preferred)
    }

    #[inline]
    fn may_meet(&self, master: usize, now: Instant) -> bool {
        let link = &self.links.0[master];
        link.state == State::Up
            && link.facts.as_ref().is_some_and(|facts| facts.tracks)
            && link.suspect_until <= now
            && !link.is_silent
            && self.open().contains(master)
    }

    #[inline]
    fn has_queue(&self, master: usize) -> bool {
        let facts = self.links.0[master].facts.as_ref();
        self.terms.wants_queue && facts.is_some_and(|facts| facts.no_queue.is_none())
    }

    /// The client learns immediately when a connected master starts to vote. Masters that are
    /// unreachable or being checked may vote at any time, so they do not cause this result.
    fn lacks_votes(&self) -> bool {
        let mut silent = (0..self.len()).filter(|master| !self.open().contains(*master));
        !self.has_votes() && silent.any(|master| !self.admission.is_open(master))
    }
}

impl Masters {
    /// Records that the server denies something that a queue needs: no queue is used there.
    pub(super) fn forbid_queue(&mut self, master: usize, why: String, cx: &mut Context<'_>) {
        if let Some(facts) = &mut self.links.0[master].facts {
            cx.news.push(News::NoQueue(master, why.clone()));
            facts.no_queue = Some(why);
        }
    }

    /// Excludes `master` as a meeting point until this instant, and until it answers any request,
    /// because it was slow to answer. Otherwise a master that answers nothing would cost each waiter
    /// its place at another master about once a second.
    pub fn suspect(&mut self, master: usize, until: Instant) {
        let link = &mut self.links.0[master];
        (link.suspect_until, link.is_silent) = (until, true);
    }

    /// Records an answer of `master` to any request.
    #[inline]
    pub fn heard(&mut self, master: usize) {
        self.links.0[master].is_silent = false;
    }
}
