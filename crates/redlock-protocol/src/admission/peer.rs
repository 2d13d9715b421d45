//! The state of one master for one client.

use redlock_core::admission::{Millis, Nonce, Outcome, Quarantine, Record, RecordedSet, Reply};

use super::past::Past;
use super::view::{Incarnation, MasterKind, MasterTime, MasterView};

/// The state of one master, as far as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Peer {
    /// The latest facts of the connection that is up.
    pub(super) facts: Option<MasterView>,
    /// When they arrived, by our own clock.
    read: Millis,
    /// The start of the pause before the next probe. Reads for other purposes do not move it: only
    /// a probe of this master ends its doubt.
    pub(super) paced: Millis,
    /// The latest nonce, and when the first reply that held it arrived. It outlives connections:
    /// the nonce belongs to the data and not to a process.
    pub(super) nonce_since: Option<(Nonce, Millis)>,
    /// The largest `max_ttl` of its records that were read since the last admitted one, that one
    /// included. It outlives connections and records: a lock of a former incarnation may be as long.
    pub(super) max_ttl: Option<Millis>,
    /// The earlier nonces, by which a record is found to be older than another one that was read.
    past: Past,
    /// The first record that has shown a use of this namespace. It outlives connections, processes
    /// and records: when all of these are gone, it still shows that the namespace is not new.
    pub(super) used: Option<Used>,
    /// The set of masters that its latest record named. It outlives connections, because a list is
    /// as wrong while a master is away.
    pub(super) set: Option<RecordedSet>,
    /// Since when this client sees it read its data from disk, also over several connections.
    pub(super) loading: Option<Loading>,
    /// The records of the others were read behind these facts.
    pub(super) has_read_others: bool,
    pub(super) doubt: Doubt,
    /// A step was given out and its answer has not come.
    pub(super) under_way: bool,
    /// The TIMEs of other masters, asked for since the latest probe, under this nonce.
    pub(super) times: Option<Vec<MasterTime>>,
    /// The floor for this nonce, read after the quarantine was over.
    pub(super) floor: Option<super::Floor>,
    /// Why the latest script did nothing, until the next probe.
    pub(super) stuck: Option<Stuck>,
    /// A request to show that a client without quarantine uses the namespace was sent on this
    /// connection.
    pub(super) shows_use: bool,
    /// For a client without quarantine: the record showed last that clients with one use the
    /// namespace. It outlives connections, because it is about all masters.
    pub(super) in_use: bool,
}

/// A master was admitted when its record was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Used {
    nonce: Option<Nonce>,
}

impl Used {
    /// Whether one of these scripts has admitted it.
    pub(super) fn is_by(self, scripts: &[Nonce]) -> bool {
        self.nonce.is_some_and(|nonce| scripts.contains(&nonce))
    }
}

/// A master that reads its data from disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Loading {
    /// When this client saw it first, by our own clock.
    seen: Millis,
    /// For how long it had done so before.
    before: Millis,
}

impl Loading {
    pub(super) fn has_lasted(self, now: Millis) -> Millis {
        self.before.saturating_add(now.saturating_sub(self.seen))
    }
}

/// Whether the facts may be older than a loss of data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Doubt {
    #[default]
    None,
    /// A null push came, or a script did not find the record that was read. A probe must be sent.
    Unasked,
    /// A probe that was sent after the doubt began is under way.
    Asked,
}

/// Why the steps of this master rest until the next probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stuck {
    /// The request failed: no answer, or an error.
    Failed,
    Mixed,
    TooLarge,
}

impl Peer {
    /// The facts, where this is a master that we may judge.
    pub(super) fn master(&self) -> Option<&MasterView> {
        self.facts.as_ref().filter(|facts| facts.role == MasterKind::Master)
    }

    /// The facts of a master that may not have lost its data since they were read.
    pub(super) fn undoubted(&self) -> Option<&MasterView> {
        self.master().filter(|_| self.doubt == Doubt::None)
    }

    /// The facts of a master whose record is of its present data, as far as this client knows.
    pub(super) fn present(&self) -> Option<&MasterView> {
        self.master().filter(|_| !self.is_outdated())
    }

    /// Whether its record is older than another one that this client has read of the same process.
    /// That is a loss of data, even if the record shows the master as admitted.
    pub(super) fn is_outdated(&self) -> bool {
        self.master().is_some_and(|facts| self.past.is_over(&facts.record))
    }

    /// Whether `record` is as old, whatever was read last.
    pub(super) fn is_over(&self, record: &Record) -> bool {
        self.past.is_over(record)
    }

    /// The quarantine that is under way.
    pub(super) fn quarantine(&self) -> Option<&Quarantine> {
        self.present()?.quarantine()
    }

    /// Whether a quarantine must be begun there.
    pub(super) fn wants_quarantine(&self) -> bool {
        self.master().is_some_and(|facts| self.is_outdated() || facts.wants_quarantine())
    }

    pub(super) fn learn(&mut self, facts: MasterView, now: Millis) {
        if facts.role == MasterKind::Master {
            self.past.show(&facts);
            self.set.clone_from(&facts.record.set);
            let is_used = facts.record.was_admitted() && self.used.is_none();
            self.used = if is_used { Some(Used { nonce: facts.record.nonce }) } else { self.used };
        }
        match facts.record.nonce {
            Some(nonce) if self.nonce_since.is_some_and(|(known, _)| known == nonce) => {}
            nonce => {
                self.nonce_since = nonce.map(|nonce| (nonce, now));
                self.times = None;
                self.floor = None;
            }
        }
        self.loading = match facts.role {
            MasterKind::Loading { uptime } => {
                Some(self.loading.unwrap_or(Loading { seen: now, before: uptime }))
            }
            _ => None,
        };
        self.remember(&facts);
        self.has_read_others = false;
        self.facts = Some(facts);
        (self.read, self.paced) = (now, now);
    }

    /// Takes in facts that were read for any purpose. If an answer has left the master in doubt,
    /// these facts may be older than that answer, and only the probe behind it ends the doubt. If
    /// the members were not counted, the former number stays, in the same incarnation.
    pub(super) fn read(&mut self, facts: MasterView, now: Millis) {
        let Some(before) = self.facts.as_ref().filter(|_| self.doubt == Doubt::None) else {
            return;
        };
        let is_same = Incarnation::of(before) == Incarnation::of(&facts);
        let members = facts.members.or_else(|| before.members.filter(|_| is_same));
        let paced = self.paced;
        self.learn(MasterView { members, ..facts }, now);
        self.paced = paced;
    }

    /// Keeps [`max_ttl`](Self::max_ttl) up to date. An admitted record replaces it, even by a
    /// smaller one, which a person has set. Any other record can only raise it: that one may be
    /// old, or begun by a client that knew less. A record without a `max_ttl` changes nothing.
    pub(super) fn remember(&mut self, facts: &MasterView) {
        let record = &facts.record;
        let is_present = record.admits(facts.identity) && !self.past.is_over(record);
        self.max_ttl = match is_present {
            true => record.max_ttl.or(self.max_ttl),
            false => record.max_ttl.max(self.max_ttl),
        };
    }

    /// The reply of a script shows the record and TIME, but not the identity.
    fn learn_reply(&mut self, reply: Reply, now: Millis) {
        if let Some(facts) = &self.facts {
            let Reply { time, record, members, .. } = reply;
            let members = Some(members);
            self.learn(MasterView { time, record, members, ..facts.clone() }, now);
        }
    }

    /// TIME of the master at `now`, or a little less: it was read before its answer arrived.
    pub(super) fn time(&self, now: Millis) -> Millis {
        let read = self.facts.as_ref().map_or(0, |facts| facts.time);
        read + now.saturating_sub(self.read)
    }

    /// Resets the state that does not outlive a connection.
    pub(super) fn reset(&mut self) {
        let Self { nonce_since, max_ttl, past, used, set, loading, in_use, .. } =
            std::mem::take(self);
        *self = Self { nonce_since, max_ttl, past, used, set, loading, in_use, ..Self::default() };
    }

    /// A probe that was sent before the push proves nothing about the data after the push.
    pub(super) fn probed(&mut self, facts: MasterView, now: Millis) {
        self.under_way = false;
        self.stuck = None;
        self.times = None;
        if self.doubt == Doubt::Asked {
            self.doubt = Doubt::None;
        }
        self.learn(facts, now);
    }

    pub(super) fn notice_use(&mut self) {
        if let Some(facts) = &self.facts {
            self.in_use = facts.record.was_admitted();
        }
    }

    pub(super) fn count(&mut self, members: u32) {
        if let Some(facts) = &mut self.facts {
            facts.members = Some(members);
        }
    }

    /// A script found another record or another TIME than expected, or came late: probe again.
    pub(super) fn replied(&mut self, reply: Reply, now: Millis) {
        self.under_way = false;
        let outcome = reply.outcome;
        self.learn_reply(reply, now);
        match outcome {
            Outcome::Done => {}
            Outcome::Moved | Outcome::Early | Outcome::Late => {
                // A floor that was read before the quarantine was over is worth nothing.
                self.floor = None;
                self.doubt = Doubt::Unasked;
            }
            Outcome::Mixed => self.rest(Stuck::Mixed, now),
            Outcome::TooLarge => self.rest(Stuck::TooLarge, now),
        }
    }

    /// TIMEs that were asked for another quarantine may be older than the loss before this one.
    pub(super) fn learn_times(&mut self, nonce: Nonce, times: Vec<MasterTime>) {
        self.under_way = false;
        if self.nonce_since.is_some_and(|(known, _)| known == nonce) {
            self.times = Some(times);
        }
    }

    /// A failed probe does not end the doubt, so the next probe asks again.
    pub(super) fn fail(&mut self, now: Millis) {
        self.under_way = false;
        if self.doubt == Doubt::Asked {
            self.doubt = Doubt::Unasked;
        }
        self.rest(Stuck::Failed, now);
    }

    /// Nothing is sent to the master before the next probe is due.
    pub(super) fn rest(&mut self, stuck: Stuck, now: Millis) {
        self.paced = now;
        self.stuck = Some(stuck);
    }
}
