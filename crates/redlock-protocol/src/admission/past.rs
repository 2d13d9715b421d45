//! The records that a master has shown before, and the conclusions from them.

use redlock_core::admission::{Nonce, Record, RunId};

use super::view::MasterView;

/// The records that one process has shown to this client, by their nonces.
///
/// A running server may get a copy of its data from before: by `RESTORE` behind `FLUSHALL`, or by
/// `DEBUG RELOAD NOSAVE`. The old record comes back with the data and shows the master as admitted,
/// although the locks that were made since are gone. Each *begin* and each admission by `init`
/// makes a new nonce, so a nonce that was followed by another record, or by no record, never
/// becomes valid again.
///
/// It outlives connections and ends with the process: another one has another identity, and what
/// was admitted as the former is not admitted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Past {
    process: Option<RunId>,
    /// The nonce that the record has shown last.
    nonce: Option<Nonce>,
    /// Whether it was admitted under that nonce: its quarantine does not come again.
    is_admitted: bool,
    /// The nonces that are over, the latest last.
    over: Vec<Nonce>,
}

/// How many nonces are kept for one process. It gets another one with each loss of its data and
/// each `init` that admits it.
const KEPT: usize = 32;

impl Past {
    /// Takes in the facts of a server. Only the record of a master proves anything about the data,
    /// not that of a replica or of another kind of server.
    pub(super) fn show(&mut self, facts: &MasterView) {
        let process = Some(facts.identity.run);
        if self.process != process {
            *self = Self { process, ..Self::default() };
        }
        let Record { nonce, run, .. } = facts.record;
        let is_same = nonce == self.nonce;
        if !is_same || (self.is_admitted && run.is_none()) {
            self.end();
        }
        self.nonce = nonce;
        self.is_admitted = run.is_some() || (is_same && self.is_admitted);
    }

    /// Whether a record is older than another one that was seen of the same process.
    pub(super) fn is_over(&self, record: &Record) -> bool {
        record.nonce.is_some_and(|nonce| self.over.contains(&nonce))
    }

    fn end(&mut self) {
        let Some(nonce) = self.nonce.filter(|nonce| !self.over.contains(nonce)) else { return };
        if self.over.len() == KEPT {
            self.over.remove(0);
        }
        self.over.push(nonce);
    }
}
