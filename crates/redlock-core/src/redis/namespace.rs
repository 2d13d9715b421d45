//! The keys of admission behind one prefix.

use crate::admission::Identity;

/// How the names of these keys go on behind the prefix. Fixed for ever: they are on the wire.
const RECORD: &[u8] = b"redlock-quorum:1";
const BALLOTS: &[u8] = b":ballots";

#[derive(Debug)]
pub(super) struct Namespace {
    pub(super) record: Vec<u8>,
    /// The ballot set of clients without quarantine. The names of the others begin with it.
    pub(super) off: Vec<u8>,
    /// A server that pushes nothing is looked at behind each acquire.
    pub(super) looks_behind: bool,
}

impl Namespace {
    pub(super) fn new(prefix: &[u8], looks_behind: bool) -> Self {
        let record = [prefix, RECORD].concat();
        let off = [&record[..], BALLOTS].concat();
        Self { record, off, looks_behind }
    }

    /// The ballot set of a master that was admitted as `run`.
    pub(super) fn ballots(&self, run: Identity) -> Vec<u8> {
        [&self.off, &b":"[..], run.set_name().as_bytes()].concat()
    }
}
