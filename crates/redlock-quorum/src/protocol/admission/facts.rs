//! What a connection tells about its master.

use redlock_core::admission::{Identity, MEMBERS, Millis, Nonce, Record, Reply, RunId};

/// What a server is for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Role {
    Master,
    Replica,
    /// Something else, such as a sentinel.
    NotMaster,
    /// It reads its data from disk.
    Loading,
    Cluster,
    /// What tells who it is, or its record, cannot be read.
    Denied,
}

/// The answer to a handshake or to a look: all of it read in one batch, on one connection, INFO
/// before the record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Facts {
    pub(crate) role: Role,
    pub(crate) identity: Identity,
    /// TIME of the master, in ms.
    pub(crate) time: Millis,
    pub(crate) record: Record,
    /// `ZCARD` of the set of `run`: asked for behind the rest, and waited for by nobody. Where there
    /// is no `run`, a client with a quarantine counts the set of those without.
    pub(crate) members: Option<u32>,
}

/// One life of a master's data: no *begin* and no `init` lies between two answers that agree on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Life {
    pub(crate) process: RunId,
    /// What it was admitted as, which names its ballot set.
    pub(crate) run: Option<Identity>,
    pub(crate) nonce: Option<Nonce>,
}

/// What is known of one master.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Peer {
    /// The latest facts of the connection that is up.
    pub(super) facts: Option<Facts>,
    /// When they arrived, by our own clock.
    pub(super) read: Millis,
    /// The latest nonce, and when the first reply that held it arrived. It outlives connections:
    /// it says something about the data and not about a process.
    pub(super) known: Option<(Nonce, Millis)>,
    pub(super) doubt: Doubt,
    /// A step was given out and its answer has not come.
    pub(super) under_way: bool,
    /// The TIMEs of other masters, asked for since the latest look, under this nonce.
    pub(super) told: Option<Vec<Told>>,
    /// The floor for this nonce, read after the quarantine was over.
    pub(super) floor: Option<super::Floor>,
    /// What the latest script did not do, until the next look.
    pub(super) stuck: Option<Stuck>,
    /// For a client without quarantine: the record showed last that clients with one use the
    /// namespace. It outlives connections, because it is about all masters.
    pub(super) in_use: bool,
}

/// Whether the facts may be older than a loss of data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Doubt {
    #[default]
    None,
    /// A null push came, or a script did not find what was read. A look must be sent.
    Unasked,
    /// A look that was sent after that is under way.
    Asked,
}

/// Why the steps of this master rest until the next look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stuck {
    /// What was asked failed: no answer, or an error.
    Failed,
    Mixed,
    TooLarge,
}

/// TIME of a master, by the process that answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Told {
    pub(crate) master: usize,
    pub(crate) process: RunId,
    pub(crate) time: Millis,
}

impl Peer {
    /// The facts, where this is a master that we may judge.
    pub(super) fn master(&self) -> Option<&Facts> {
        self.facts.as_ref().filter(|facts| facts.role == Role::Master)
    }

    /// The facts of a master that may not have lost its data since they were read.
    pub(super) fn undoubted(&self) -> Option<&Facts> {
        self.master().filter(|_| self.doubt == Doubt::None)
    }

    pub(super) fn learn(&mut self, facts: Facts, now: Millis) {
        match facts.record.nonce {
            Some(nonce) if self.known.is_some_and(|(known, _)| known == nonce) => {}
            nonce => {
                self.known = nonce.map(|nonce| (nonce, now));
                self.told = None;
                self.floor = None;
            }
        }
        self.facts = Some(facts);
        self.read = now;
    }

    /// A script tells the record and TIME, and nothing about the identity.
    pub(super) fn learn_reply(&mut self, reply: Reply, now: Millis) {
        if let Some(facts) = &self.facts {
            let Reply { time, record, members, .. } = reply;
            let members = Some(members);
            self.learn(Facts { time, record, members, ..facts.clone() }, now);
        }
    }

    /// TIME of the master at `now`, or a little less: it was read before its answer arrived.
    pub(super) fn time(&self, now: Millis) -> Millis {
        let read = self.facts.as_ref().map_or(0, |facts| facts.time);
        read + now.saturating_sub(self.read)
    }
}

impl Life {
    pub(crate) fn of(facts: &Facts) -> Self {
        let Facts { identity, record, .. } = facts;
        Self { process: identity.run, run: record.run, nonce: record.nonce }
    }

    pub(super) fn without_record(self) -> Self {
        Self { run: None, nonce: None, ..self }
    }
}

impl Facts {
    pub(super) fn is_admitted(&self) -> bool {
        self.record.admits(self.identity) && self.is_complete()
    }

    /// Before its number of members is known, a set counts as complete.
    pub(super) fn is_complete(&self) -> bool {
        self.members.is_none_or(|members| members == MEMBERS)
    }

    /// Whether clients without quarantine have left ballots there. The scripts judge it again.
    pub(super) fn shows_no_quarantine(&self) -> bool {
        self.record.run.is_none() && self.members.is_some_and(|members| members > 0)
    }

    /// Whether a quarantine must be begun: there is none of this identity, or its end lies so far
    /// ahead that the clock must have been wrong. The script judges the latter again.
    pub(super) fn wants_quarantine(&self) -> bool {
        let ahead = self.time + self.record.length();
        let under_way = self.record.quarantine_of(self.identity);
        under_way.is_none_or(|quarantine| quarantine.until > ahead)
    }
}
