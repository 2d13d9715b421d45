//! The earlier records of a master, and the conclusions from them. See rule A13 of
//! `docs/PROTOCOL.md`.

use redlock_core::admission::{Nonce, Record, RunId};

use super::view::MasterView;

/// The records that one process has shown to this client, by their nonces.
///
/// A running server may receive an old copy of its data, by `RESTORE` after `FLUSHALL`, or by
/// `DEBUG RELOAD NOSAVE`. The old record returns with the data and shows the master as admitted,
/// although later locks are gone. Each *begin* and each admission by `init` makes a new nonce, so a
/// nonce that was followed by another record, or by no record, never becomes valid again.
///
/// This state outlives connections and ends with the process. Another process has another identity,
/// and an admission of the former identity does not apply to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Past {
    process: Option<RunId>,
    /// The nonce of the latest record.
    nonce: Option<Nonce>,
    /// Whether it was admitted under that nonce, so that its quarantine cannot return.
    is_admitted: bool,
    /// The nonces of past quarantines, the latest last.
    over: Vec<Nonce>,
}

/// How many nonces are kept per process. It gets a new one with each loss of its data and each
/// `init` that admits it.
const KEPT: usize = 32;

impl Past {
    /// Records the facts of a server. Only the record of a master proves anything about the data,
    /// not the record of a replica or of another kind of server.
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

    /// Returns `true` if a record is older than another record of the same process.
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
