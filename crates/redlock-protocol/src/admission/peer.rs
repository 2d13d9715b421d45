//! The state of one master for one client.

use redlock_core::admission::{Millis, Nonce, Outcome, Quarantine, Record, RecordedSet, Reply};

use super::past::Past;
use super::view::{Incarnation, MasterKind, MasterTime, MasterView};

/// The state of one master, as far as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Peer {
    /// The latest facts of the present connection.
    pub(super) facts: Option<MasterView>,
    /// When they arrived, by our own clock.
    read: Millis,
    /// The start of the pause before the next probe. Reads for other purposes do not move it,
    /// because only a probe of this master ends its doubt.
    pub(super) paced: Millis,
    /// The latest nonce, and when the first reply with it arrived. It outlives connections, because
    /// the nonce belongs to the data and not to a process.
    pub(super) nonce_since: Option<(Nonce, Millis)>,
    /// The largest `max_ttl` in the records read since the last admitted one, including that one.
    /// It outlives connections and records: a lock of a former incarnation may be as long.
    pub(super) max_ttl: Option<Millis>,
    /// The earlier nonces, which show that a record is older than another one.
    past: Past,
    /// The first record that has shown a use of this prefix. It outlives connections, processes and
    /// records. When all of these are gone, it still shows that the prefix is not new.
    pub(super) used: Option<Used>,
    /// The set of masters in its latest record. It outlives connections, because a wrong list stays
    /// wrong while a master is away.
    pub(super) set: Option<RecordedSet>,
    /// When this client first saw it read its data from disk, also across connections.
    pub(super) loading: Option<Loading>,
    /// The records of the others were read after these facts.
    pub(super) has_read_others: bool,
    pub(super) doubt: Doubt,
    /// A step was returned, and its answer has not arrived.
    pub(super) under_way: bool,
    /// The TIMEs of other masters, requested since the latest probe, under this nonce.
    pub(super) times: Option<Vec<MasterTime>>,
    /// The floor for this nonce, read after the quarantine was over.
    pub(super) floor: Option<super::Floor>,
    /// Why the latest script did nothing. Cleared by the next probe.
    pub(super) stuck: Option<Stuck>,
    /// A request to show that a client without a quarantine uses the prefix was sent on this
    /// connection.
    pub(super) shows_use: bool,
    /// For a client without a quarantine: the latest record showed that clients with one use the
    /// prefix. It outlives connections, because it concerns all masters.
    pub(super) in_use: bool,
}

/// A master was admitted when its record was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Used {
    nonce: Option<Nonce>,
}

impl Used {
    /// Returns `true` if one of these scripts has admitted it.
    pub(super) fn is_by(self, scripts: &[Nonce]) -> bool {
        self.nonce.is_some_and(|nonce| scripts.contains(&nonce))
    }
}

/// A master that reads its data from disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Loading {
    /// When this client first saw it, by our own clock.
    seen: Millis,
    /// How long it had been loading before that.
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
    /// A null push came, or a script found a changed record. A probe must be sent.
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
    /// Returns the facts if this is a master that we may judge.
    pub(super) fn master(&self) -> Option<&MasterView> {
        self.facts.as_ref().filter(|facts| facts.role == MasterKind::Master)
    }

    /// Returns the facts of a master that cannot have lost its data since they were read.
    pub(super) fn undoubted(&self) -> Option<&MasterView> {
        self.master().filter(|_| self.doubt == Doubt::None)
    }

    /// Returns the facts of a master whose record belongs to its present data, as far as this
    /// client knows.
    pub(super) fn present(&self) -> Option<&MasterView> {
        self.master().filter(|_| !self.is_outdated())
    }

    /// Returns `true` if its record is older than another record that this client has read from the
    /// same process. That is a loss of data, even if the record shows the master as admitted.
    pub(super) fn is_outdated(&self) -> bool {
        self.master().is_some_and(|facts| self.past.is_over(&facts.record))
    }

    /// Returns `true` if `record` is that old, whatever was read last.
    pub(super) fn is_over(&self, record: &Record) -> bool {
        self.past.is_over(record)
    }

    pub(super) fn quarantine(&self) -> Option<&Quarantine> {
        self.present()?.quarantine()
    }

    /// Returns `true` if a quarantine must begin there.
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

    /// Records facts that were read for any purpose. If an answer has left the master in doubt,
    /// these facts may be older than that answer, and only the later probe ends the doubt. If the
    /// members were not counted, the former number stays, in the same incarnation.
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

    /// Updates [`max_ttl`](Self::max_ttl). An admitted record replaces it, even with a smaller
    /// value, which an operator has set. Any other record can only raise it, because it may be old
    /// or written by a client that knew less. A record without a `max_ttl` changes nothing.
    pub(super) fn remember(&mut self, facts: &MasterView) {
        let record = &facts.record;
        let is_present = record.admits(facts.identity) && !self.past.is_over(record);
        self.max_ttl = match is_present {
            true => record.max_ttl.or(self.max_ttl),
            false => record.max_ttl.max(self.max_ttl),
        };
    }

    /// Records the reply of a script, which shows the record and TIME but not the identity.
    fn learn_reply(&mut self, reply: Reply, now: Millis) {
        if let Some(facts) = &self.facts {
            let Reply { time, record, members, .. } = reply;
            let members = Some(members);
            self.learn(MasterView { time, record, members, ..facts.clone() }, now);
        }
    }

    /// Returns TIME of the master at `now`, or slightly less, because it was read before its answer
    /// arrived.
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

    /// Records a probe. A probe sent before the push proves nothing about the data after the push.
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

    /// Records the reply of a script. Probes again if it found another record or TIME than
    /// expected, or was late.
    pub(super) fn replied(&mut self, reply: Reply, now: Millis) {
        self.under_way = false;
        let outcome = reply.outcome;
        self.learn_reply(reply, now);
        match outcome {
            Outcome::Done => {}
            Outcome::Moved | Outcome::Early | Outcome::Late => {
                // A floor that was read before the quarantine was over is not valid.
                self.floor = None;
                self.doubt = Doubt::Unasked;
            }
            Outcome::Mixed => self.rest(Stuck::Mixed, now),
            Outcome::TooLarge => self.rest(Stuck::TooLarge, now),
        }
    }

    /// Records TIMEs. TIMEs requested for another quarantine may be older than the loss before this
    /// one.
    pub(super) fn learn_times(&mut self, nonce: Nonce, times: Vec<MasterTime>) {
        self.under_way = false;
        if self.nonce_since.is_some_and(|(known, _)| known == nonce) {
            self.times = Some(times);
        }
    }

    /// Records a failure. A failed probe does not end the doubt, so the next probe queries again.
    pub(super) fn fail(&mut self, now: Millis) {
        self.under_way = false;
        if self.doubt == Doubt::Asked {
            self.doubt = Doubt::Unasked;
        }
        self.rest(Stuck::Failed, now);
    }

    /// Sends nothing to the master before the next probe is due.
    pub(super) fn rest(&mut self, stuck: Stuck, now: Millis) {
        self.paced = now;
        self.stuck = Some(stuck);
    }
}
