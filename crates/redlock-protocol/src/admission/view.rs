//! The facts that a connection reads about its master.

use redlock_core::admission::{Identity, MEMBERS, Millis, Nonce, Quarantine, Record, RunId};
use redlock_core::{Facts, Role, Unread};

/// The kind of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MasterKind {
    /// The server accepts writes.
    Master,
    /// The server follows another one.
    Replica,
    /// Another kind of server.
    NotMaster,
    /// The server reads its data from disk. A process only does so when it starts, so it has been
    /// loading for its `uptime`.
    Loading {
        /// How long the process has been running.
        uptime: Millis,
    },
    /// The server is a node of a Redis Cluster.
    Cluster,
    /// The server's identity or record cannot be read.
    Denied,
    /// The key of its record has the wrong type or a malformed field.
    BadRecord,
}

/// The answer to a handshake or to a probe, read in one batch on one connection, INFO before the
/// record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MasterView {
    /// Whether it takes writes.
    pub role: MasterKind,
    /// The server process that answered, with the history of its data.
    pub identity: Identity,
    /// TIME of the master, in ms.
    pub time: Millis,
    /// Its record of admission.
    pub record: Record,
    /// `ZCARD` of the set of `run`, requested after the rest. No step waits for it. Without a
    /// `run`, a client with a quarantine counts the set of clients without one.
    pub members: Option<u32>,
}

/// One incarnation of a master's data. If two answers agree on it, no *begin* and no `init` lies
/// between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Incarnation {
    /// The server process that answered.
    pub process: RunId,
    /// The identity with which it was admitted. Its ballot set is named after it.
    pub run: Option<Identity>,
    /// The nonce of the record, which changes with every write. `None` without a record.
    pub nonce: Option<Nonce>,
}

/// TIME of a master, by the process that answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MasterTime {
    /// The index of the master.
    pub master: usize,
    /// The server process that answered.
    pub process: RunId,
    /// The clock of the server, in milliseconds since 1970.
    pub time: Millis,
}

impl Incarnation {
    /// Returns the part of `facts` that later answers are compared with.
    pub fn of(facts: &MasterView) -> Self {
        let MasterView { identity, record, .. } = facts;
        Self { process: identity.run, run: record.run, nonce: record.nonce }
    }

    pub(super) fn without_record(self) -> Self {
        Self { run: None, nonce: None, ..self }
    }
}

impl MasterKind {
    fn of(facts: &Facts) -> Self {
        match (&facts.record, facts.role) {
            _ if facts.is_cluster => Self::Cluster,
            (_, Role::Replica) => Self::Replica,
            (Err(Unread::Loading), _) => {
                let uptime = facts.uptime.map_or(0, |uptime| uptime.as_millis());
                Self::Loading { uptime: u64::try_from(uptime).unwrap_or(u64::MAX) }
            }
            (_, Role::Master) if facts.identity.is_none() => Self::Denied,
            // Without a prefix, no record is read.
            (Err(Unread::NotAsked) | Ok(_), Role::Master) => Self::Master,
            (Err(Unread::WrongType | Unread::Malformed(_)), Role::Master) => Self::BadRecord,
            (Err(_), Role::Master) => Self::Denied,
            _ => Self::NotMaster,
        }
    }
}

impl MasterView {
    /// Views the facts that a connection read. A server that does not report its TIME is taken to
    /// show `time`.
    pub fn of(facts: &Facts, members: Option<u32>, time: Millis) -> Self {
        let identity = facts.identity.unwrap_or(Identity::of(RunId::new([0; 20])));
        let record = facts.record.as_deref().cloned().unwrap_or_default();
        let time = facts.time_us.map_or(time, |micros| micros / 1_000);
        Self { role: MasterKind::of(facts), identity, time, record, members }
    }

    pub(super) fn is_admitted(&self) -> bool {
        self.record.admits(self.identity) && self.is_complete()
    }

    /// Returns the present quarantine.
    pub(super) fn quarantine(&self) -> Option<&Quarantine> {
        self.record.quarantine_of(self.identity)
    }

    /// Returns `true` if the set is complete, or its members have not been counted yet.
    pub(super) fn is_complete(&self) -> bool {
        self.members.is_none_or(|members| members == MEMBERS)
    }

    /// Returns `true` if clients without a quarantine have left ballots there. The scripts check it
    /// again.
    pub(super) fn shows_no_quarantine(&self) -> bool {
        self.record.run.is_none() && self.members.is_some_and(|members| members > 0)
    }

    /// Returns `true` if a quarantine must begin: the master is not admitted, and it has no
    /// quarantine of this identity, or one whose end is so far ahead that the clock must have been
    /// wrong. The script checks the latter again.
    pub(super) fn wants_quarantine(&self) -> bool {
        let ahead = self.time + self.record.length();
        !self.is_admitted() && self.quarantine().is_none_or(|quarantine| quarantine.until > ahead)
    }
}
