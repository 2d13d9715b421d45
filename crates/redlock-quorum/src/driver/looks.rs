//! Looks: sends the requests of observers, and has the meeting point report the next change.

use std::sync::Arc;

use redlock_core::{Cause, Instant, Op, Verdict};
use redlock_protocol::client::ids::{InspectionId, Ticket};
use redlock_protocol::client::key::suspected_until;
use redlock_protocol::client::questions::About;
use redlock_protocol::client::view::Points;
use redlock_protocol::master_set::MasterSet;

use super::Driver;
use super::inspect::Inspecting;
use super::observing::{Observation, ObservedReply, Observing};
use crate::status::Status;

impl Driver {
    pub(super) fn observe(&mut self, wanted: Observation, reply: ObservedReply, now: Instant) {
        let Observation { key, node_timeout, is_look } = wanted;
        let meets = self.meeting_point(&key, now).filter(|_| is_look);
        let asked = meets.map_or_else(|| self.masters.all(), |at| MasterSet::from_iter([at]));
        self.observer.counters.observations.add(1);
        let asker = Inspecting::Observer(Observing { reply, at: None, changed: None });
        self.inspect(About::Status(key.into()), asked, node_timeout, asker);
    }

    /// Sends the request of an observer to the meeting point, which also reports the next change.
    /// Returns the other masters of `asked`.
    pub(super) fn track(
        &mut self,
        id: InspectionId,
        op: &Op,
        asked: MasterSet,
        now: Instant,
    ) -> MasterSet {
        if !matches!(self.askers.inspecting.get(&id), Some(Inspecting::Observer(_))) {
            return asked;
        }
        let key: Arc<[u8]> = op.key().into();
        let meets = self.meeting_point(&key, now).filter(|at| asked.contains(*at));
        let Some(at) = meets else { return asked };
        if let Some(Inspecting::Observer(observing)) = self.askers.inspecting.get_mut(&id) {
            observing.at = Some(at);
            observing.changed = Some(self.observers.enter(&key, at));
        }
        let one = MasterSet::from_iter([at]);
        self.send(&Op::watch(key), one, Ticket::Inspection(id), now);
        asked.without(one)
    }

    /// Answers an observer. A meeting point that did not answer in time is avoided for a moment.
    pub(super) fn observed(&mut self, observing: Observing, status: Status, now: Instant) {
        let is_silent = |at: &usize| {
            let verdict = status.nodes.get(*at).map(|node| &node.verdict);
            verdict == Some(&Verdict::Unknown(Cause::TimedOut))
        };
        if let Some(at) = observing.at.filter(is_silent) {
            self.masters.suspect(at, suspected_until(at, self.draws, now));
        }
        observing.answer(status);
    }

    /// Returns the master that reports changes of the key. It needs no working queue.
    fn meeting_point(&self, key: &[u8], now: Instant) -> Option<usize> {
        self.masters.meeting_point(key, MasterSet::default(), now)
    }
}
