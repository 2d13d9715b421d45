//! The keys of admission under one prefix, and the ballot set of one master. See rules D1 and D5 of
//! `docs/PROTOCOL.md`.

use redis::{Cmd, cmd};

use super::resp;
use crate::admission::Identity;

/// How the names of these keys continue after the prefix. Other clients know these names, so they
/// never change.
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

    /// Returns the name of the ballot set of a master admitted as `run`.
    pub(super) fn ballots(&self, run: Identity) -> Vec<u8> {
        [&self.off, &b":"[..], run.set_name().as_bytes()].concat()
    }

    /// Builds a ballot that changes nothing, in a set that never exists. The answer shows whether
    /// the server knows and allows the commands that ballots need.
    pub(super) fn probe(&self) -> Cmd {
        let set = [&self.off, &b":0"[..]].concat();
        cmd("ZADD").arg(set).arg("XX").arg("GT").arg("CH").arg(0).arg(0).clone()
    }

    /// `HGETALL` of the record.
    pub(super) fn read_record(&self) -> Cmd {
        cmd("HGETALL").arg(&self.record).clone()
    }
}

/// The ballot set of one master, in the words that begin each command to it.
pub(super) struct Set {
    pub(super) name: Vec<u8>,
    /// The words between the name and the ballot.
    pub(super) options: &'static [&'static [u8]],
    /// `ZADD` with the name and the options.
    pub(super) raise: Vec<u8>,
    /// `ZSCORE` with the name.
    pub(super) score: Vec<u8>,
}

/// Missing members are not created, because only admission creates them.
const ADMITTED: &[&[u8]] = &[b"XX", b"GT", b"CH"];
/// Missing members are created, because nothing admits the master.
const OFF: &[&[u8]] = &[b"GT", b"CH"];

impl Set {
    /// Returns the set of a master admitted as `run`. Clients without quarantine use a different
    /// one.
    pub(super) fn of(namespace: &Namespace, run: Option<Identity>) -> Option<Self> {
        if !namespace.quarantine {
            return Some(Self::new(namespace.off.to_vec(), OFF));
        }
        Some(Self::new(namespace.ballots(run?), ADMITTED))
    }

    fn new(name: Vec<u8>, options: &'static [&'static [u8]]) -> Self {
        let words = [&[b"ZADD", &name[..]], options].concat();
        // The ballot and the member follow.
        let raise = resp::head(words.len() + 2, &words).to_vec();
        Self { score: resp::head(3, &[b"ZSCORE", &name]).to_vec(), raise, name, options }
    }
}
