//! The keys of admission behind one prefix.

use redis::{Cmd, cmd};

use crate::admission::Identity;

/// How the names of these keys go on behind the prefix. Fixed for ever: they are on the wire.
const RECORD: &[u8] = b"redlock-quorum:1";
const BALLOTS: &[u8] = b":ballots";

#[derive(Debug)]
pub(super) struct Namespace {
    /// The prefix of all keys.
    pub(super) prefix: Vec<u8>,
    pub(super) record: Vec<u8>,
    /// The ballot set of clients without quarantine. The names of the others begin with it.
    pub(super) off: Vec<u8>,
    /// The client has a quarantine: each master has a ballot set that is named after what it was
    /// admitted as.
    pub(super) quarantine: bool,
    /// The client sends ballots.
    pub(super) fenced: bool,
    /// The client uses shared queues.
    pub(super) queues: bool,
}

impl Namespace {
    pub(super) fn new(prefix: &[u8], quarantine: bool, fenced: bool, queues: bool) -> Self {
        let record = [prefix, RECORD].concat();
        let off = [&record[..], BALLOTS].concat();
        Self { prefix: prefix.to_vec(), record, off, quarantine, fenced, queues }
    }

    /// The ballot set of a master that was admitted as `run`.
    pub(super) fn ballots(&self, run: Identity) -> Vec<u8> {
        [&self.off, &b":"[..], run.set_name().as_bytes()].concat()
    }

    /// A ballot that changes nothing, in a set that never exists: the answer shows whether the
    /// server knows and allows the commands that ballots need.
    pub(super) fn probe(&self) -> Cmd {
        let set = [&self.off, &b":0"[..]].concat();
        cmd("ZADD").arg(set).arg("XX").arg("GT").arg("CH").arg(0).arg(0).clone()
    }
}
