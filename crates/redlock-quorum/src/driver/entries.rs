//! `Entries`: the callers of the driver, from their requests to their answers, and holders until
//! they have returned their locks.

use std::sync::Arc;

use redlock_core::Instant;
use redlock_protocol::client::ids::RequestId;
use redlock_protocol::client::table::Table;

use super::command::{
    AcquireReply, CloseReply, ExtendReply, InitReply, MarkReply, ReleaseReply, ReportReply,
    StatusReply, WaitersReply,
};
use super::observing::Observing;
use crate::error::Unreleased;
use crate::hold::HoldCell;
use crate::lost::{Ended, LostReason};

/// The callers, under the ids that the client knows.
#[derive(Default)]
pub(super) struct Entries(Table<RequestId, Entry>);

/// One caller.
pub(super) enum Entry {
    /// The caller has wanted a lock since this instant.
    Asks(AcquireReply, Instant),
    /// The caller holds a lock.
    Holds(Arc<HoldCell>),
    Extends(ExtendReply),
    Releases(ReleaseReply),
    Status(StatusReply),
    Waiters(WaitersReply),
    Mark(MarkReply),
    Observes(Box<Observing>),
    Inits(InitReply),
    Reports(ReportReply),
    Closes(CloseReply),
}

impl Entries {
    pub(super) fn enter(&mut self, entry: Entry) -> RequestId {
        self.0.insert(entry)
    }

    /// Enters a caller that knows its id.
    pub(super) fn enter_with(&mut self, make: impl FnOnce(RequestId) -> Entry) -> RequestId {
        self.0.insert_with_id(make)
    }

    /// Enters a caller that waits for the end, which may stop waiting.
    pub(super) fn enter_closing(&mut self, reply: Option<CloseReply>) -> Option<RequestId> {
        let reply = reply?;
        Some(self.enter_with(|id| {
            reply.enter(id);
            Entry::Closes(reply)
        }))
    }

    #[inline]
    pub(super) fn cell(&self, holder: RequestId) -> Option<&Arc<HoldCell>> {
        match self.0.get(holder) {
            Some(Entry::Holds(cell)) => Some(cell),
            _ => None,
        }
    }

    /// Records that a caller has its lock. Returns its previous entry.
    pub(super) fn hold(&mut self, caller: RequestId, cell: Arc<HoldCell>) -> Option<Entry> {
        Some(std::mem::replace(self.0.get_mut(caller)?, Entry::Holds(cell)))
    }

    pub(super) fn get_mut(&mut self, id: RequestId) -> Option<&mut Entry> {
        self.0.get_mut(id)
    }

    pub(super) fn remove(&mut self, id: RequestId) -> Option<Entry> {
        self.0.remove(id)
    }

    /// A caller that waits for the end has gone away.
    pub(super) fn withdrawn(&mut self, id: RequestId) {
        if let Some(Entry::Closes(_)) = self.0.get(id) {
            self.0.remove(id);
        }
    }

    /// Drops all replies, which makes callers retry, and wakes callers that wait for the end of a
    /// lease, because one of them may continue the driver.
    pub(super) fn dismiss(&mut self) {
        for id in self.ids(|entry| !matches!(entry, Entry::Holds(_))) {
            self.0.remove(id);
        }
        for entry in self.0.values() {
            if let Entry::Holds(cell) = entry {
                cell.wake();
            }
        }
    }

    /// Answers the callers that wait for the end.
    pub(super) fn closed(&mut self, outcome: &Result<(), Unreleased>) {
        for id in self.ids(|entry| matches!(entry, Entry::Closes(_))) {
            if let Some(Entry::Closes(reply)) = self.0.remove(id) {
                let _ = reply.send(outcome.clone());
            }
        }
    }

    fn ids(&self, is_so: fn(&Entry) -> bool) -> Vec<RequestId> {
        self.0.iter().filter(|(_, entry)| is_so(entry)).map(|(id, _)| id).collect()
    }

    /// Ends every lease. Returns the valid ones.
    pub(super) fn panicked(&self) -> Vec<Arc<HoldCell>> {
        let cells = self.0.ids().filter_map(|id| self.cell(id));
        let valid = cells.filter(|cell| cell.ended().is_none()).cloned();
        let end = |cell: &Arc<HoldCell>| {
            cell.end(Ended::Lost(cell.lost(LostReason::Panicked)));
        };
        valid.inspect(end).collect()
    }
}
