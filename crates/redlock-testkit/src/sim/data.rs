//! The data that one master keeps for a prefix, and the effect of each script on it. A test on real
//! servers checks that Lua does exactly the same.
//!
//! A script runs alone. It reads and compares first, and writes nothing if a comparison fails.
//! `time` is the TIME of the master that runs it. A script that runs after its time limit does
//! nothing. Every reply contains that TIME and the record as the script left it, so the client
//! learns as much as from a probe. No reply contains the identity, so a probe follows each script
//! that did nothing.
//!
//! Redis rolls nothing back. The Lua therefore first tests whether its user has the rights for all
//! its commands, and then writes in this order: *begin* HSET, then HDEL and DEL; *admit* and *init*
//! ZADD, then `run`, then HDEL; *remove* ZADD, then DEL. An interrupted script leaves a master in
//! quarantine, and never a voting master without its members.

use redlock_core::Member;
use redlock_core::admission::{
    Admit, Begin, Identity, Init, MEMBERS, Millis, Note, Outcome, Quarantine, Record, RecordedSet,
    Remove, Reply, RunId, SCORE_END, Score, SetChange, Way, quarantine_length,
};

use super::ballot_set::Ballots;

/// The data that one master keeps for the prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Data {
    /// The hash.
    pub record: Record,
    /// The ballot sets, by the identity in their name.
    pub sets: Vec<(Identity, Ballots)>,
    /// The set of the clients without quarantine. The two do not mix.
    pub off: Option<Ballots>,
}

impl Data {
    /// Begins a quarantine, unless `run` equals the identity and the set is complete. The same
    /// applies during a quarantine of this identity whose end is not too far ahead, but the
    /// quarantine becomes longer if it began with a shorter `max_ttl` than the order has. If the
    /// order marks the record as outdated, a quarantine always begins.
    pub fn begin(&mut self, time: Millis, order: &Begin) -> Reply {
        let outcome = if time > order.until {
            Outcome::Late
        } else if self.off.is_some() {
            Outcome::Mixed
        } else if self.is_admitted(order.identity) && !order.is_outdated {
            Outcome::Done
        } else if self.record.seen() != order.expect {
            Outcome::Moved
        } else {
            match self.is_waiting(time, order.identity) && !order.is_outdated {
                true => self.lengthen(order.max_ttl),
                false => self.write_quarantine(time, order),
            }
            Outcome::Done
        };
        self.reply(outcome, time)
    }

    /// Writes a note for a process without one, or with a note later than its TIME.
    pub fn note(&mut self, time: Millis, order: &Note) -> Reply {
        let same = self.record.nonce == Some(order.nonce);
        let outcome = match self.record.quarantine.as_mut().filter(|_| same) {
            _ if time > order.until => Outcome::Late,
            None => Outcome::Moved,
            Some(quarantine) => {
                for &(process, told) in &order.times {
                    write_note(quarantine, process, told);
                }
                Outcome::Done
            }
        };
        self.reply(outcome, time)
    }

    /// Only this script tests the nonce, the identity, and the TIME of the chosen path.
    pub fn admit(&mut self, time: Millis, order: &Admit) -> Reply {
        let outcome = self.may_admit(time, order);
        if outcome == Outcome::Done
            && let Some(quarantine) = self.record.quarantine.take()
        {
            self.write_set(quarantine.id, order.floor);
            self.record.floor = Some(order.floor);
            self.record.run = Some(quarantine.id);
            if order.set.is_some() {
                self.record.set.clone_from(&order.set);
            }
        }
        self.reply(outcome, time)
    }

    /// Raises `max_ttl` and low members if `run` equals the identity. Otherwise admits the master.
    pub fn init(&mut self, time: Millis, order: &Init) -> Reply {
        let outcome = if time > order.until {
            Outcome::Late
        } else if self.off.is_some() && !order.converts {
            Outcome::Mixed
        } else if self.record.seen() != order.expect || !self.has_set_of(order) {
            Outcome::Moved
        } else if order.floor.max(order.level) >= SCORE_END {
            Outcome::TooLarge
        } else {
            self.write_init(order);
            Outcome::Done
        };
        self.reply(outcome, time)
    }

    /// Removes the record of a master that was never admitted. Removes the record of an admitted
    /// master only if an operator orders it, and keeps its largest score.
    pub fn remove(&mut self, time: Millis, order: &Remove) -> Reply {
        let may_remove = order.start.is_some() || !self.record.was_admitted();
        let outcome = if time > order.until {
            Outcome::Late
        } else if self.record.seen() != order.expect || !may_remove {
            Outcome::Moved
        } else if order.start.is_some_and(|start| start >= SCORE_END) {
            Outcome::TooLarge
        } else {
            self.write_removal(order.start);
            Outcome::Done
        };
        self.reply(outcome, time)
    }

    fn is_admitted(&self, identity: Identity) -> bool {
        self.record.admits(identity) && self.members() == MEMBERS
    }

    /// Returns `true` during a quarantine of this identity. If a clock was ahead when the
    /// quarantine began, its end would never come, so it is not valid. Only the script can judge
    /// this, because a client's reading of TIME is older than the end that it is compared with.
    fn is_waiting(&self, time: Millis, identity: Identity) -> bool {
        let length = self.record.length();
        let found = self.record.quarantine_of(identity);
        found.is_some_and(|quarantine| quarantine.until <= time + length)
    }

    /// Locks may have been longer than the `max_ttl` with which the quarantine began. It is
    /// lengthened once, because the record then has the longer one.
    fn lengthen(&mut self, max_ttl: Millis) {
        let (former, longest) = (self.record.length(), quarantine_length(max_ttl));
        if let Some(quarantine) = self.record.quarantine.as_mut().filter(|_| longest > former) {
            quarantine.until += longest - former;
            self.record.max_ttl = Some(max_ttl);
        }
    }

    fn write_quarantine(&mut self, time: Millis, order: &Begin) {
        let former = self.record.quarantine.take();
        let names =
            [self.record.run, former.as_ref().map(|former| former.id), Some(order.identity)];
        let mut ballot = former.map_or(0, |former| former.ballot);
        for name in names.into_iter().flatten() {
            ballot = ballot.max(self.highest(name));
            self.remove_set(name);
        }
        let max_ttl = self.record.max_ttl.unwrap_or(0).max(order.max_ttl);
        self.record.max_ttl = Some(max_ttl);
        self.record.run = None;
        self.record.nonce = Some(order.nonce);
        let until = time + quarantine_length(max_ttl);
        self.record.quarantine =
            Some(Quarantine { id: order.identity, until, ballot, notes: Vec::new() });
    }

    fn may_admit(&self, time: Millis, order: &Admit) -> Outcome {
        if time > order.until {
            return Outcome::Late;
        }
        let Some(quarantine) = self.record.quarantine_of(order.identity) else {
            return Outcome::Moved;
        };
        let extra = match order.way {
            Way::Known => 0,
            Way::Noted => self.record.length(),
        };
        if self.off.is_some() {
            Outcome::Mixed
        } else if self.record.nonce != Some(order.nonce) {
            Outcome::Moved
        } else if time < quarantine.until + extra {
            Outcome::Early
        } else if order.floor >= SCORE_END {
            Outcome::TooLarge
        } else {
            Outcome::Done
        }
    }

    /// Returns `true` if the set still is the one that the client read, or if the order does not
    /// change it.
    fn has_set_of(&self, order: &Init) -> bool {
        let text = |set: Option<&RecordedSet>| set.map(RecordedSet::text);
        let is_same =
            |change: &SetChange| text(change.from.as_ref()) == text(self.record.set.as_ref());
        order.set.as_ref().is_none_or(is_same)
    }

    fn write_init(&mut self, order: &Init) {
        if let Some(SetChange { to, .. }) = &order.set {
            self.record.set = Some(to.clone());
        }
        let former = self.record.max_ttl.filter(|_| !order.lower).unwrap_or(0);
        self.record.max_ttl = Some(former.max(order.max_ttl));
        let off = ours(self.off.take().as_ref());
        if self.is_admitted(order.identity) {
            self.lift(order.level.max(off));
            return;
        }
        let floor = order.floor.max(off);
        let former = self.record.quarantine.take().map(|quarantine| quarantine.id);
        for name in [self.record.run, former].into_iter().flatten() {
            self.remove_set(name);
        }
        self.write_set(order.identity, floor);
        self.record.floor = Some(floor);
        self.record.nonce = Some(order.nonce);
        self.record.run = Some(order.identity);
    }

    fn write_removal(&mut self, start: Option<Score>) {
        let Record { run, floor, quarantine, .. } = std::mem::take(&mut self.record);
        let ballot = quarantine.as_ref().map_or(0, |found| found.ballot);
        let mut highest = ballot.max(floor.unwrap_or(0)).max(ours(self.off.as_ref()));
        for name in [run, quarantine.map(|found| found.id)].into_iter().flatten() {
            highest = highest.max(self.highest(name));
            self.remove_set(name);
        }
        if let Some(start) = start {
            let members = self.off.as_ref().map_or(0, |off| off.members).max(MEMBERS);
            self.off = Some(Ballots::new(members, highest.max(start)));
        }
    }

    /// `ZADD XX GT` of every member: none is ever lowered.
    fn lift(&mut self, level: Score) {
        let run = self.record.run;
        for (_, ballots) in self.sets.iter_mut().filter(|(name, _)| Some(*name) == run) {
            ballots.lift(level);
        }
    }

    fn reply(&self, outcome: Outcome, time: Millis) -> Reply {
        let record = self.record.clone();
        Reply { outcome, time, record, members: self.members() }
    }
}

impl Data {
    /// Returns the ballot set with this identity in its name.
    pub fn ballots(&self, id: Identity) -> Option<&Ballots> {
        let found = self.sets.iter().find(|(name, _)| *name == id);
        found.map(|(_, ballots)| ballots)
    }

    /// `ZCARD` of the set of `run`.
    pub fn members(&self) -> u32 {
        let ballots = self.record.run.and_then(|run| self.ballots(run));
        ballots.map_or(0, |ballots| ballots.members)
    }

    /// Returns the highest score of our set, or 0 if it does not exist.
    pub fn highest(&self, id: Identity) -> Score {
        ours(self.ballots(id))
    }

    /// Carries out [`AdmissionOp::ShowUse`](redlock_core::admission::AdmissionOp::ShowUse). Its
    /// score belongs to no ballot.
    pub fn show_use(&mut self) {
        self.off.get_or_insert_with(|| Ballots::new(1, 0));
    }

    fn remove_set(&mut self, id: Identity) {
        self.sets.retain(|(name, _)| *name != id);
    }

    fn write_set(&mut self, id: Identity, floor: Score) {
        self.remove_set(id);
        self.sets.push((id, Ballots::new(MEMBERS, floor)));
        self.sets.sort_unstable_by_key(|(name, _)| *name);
    }

    /// `ZADD XX GT CH` of one member of the set with this identity in its name: whether the ballot
    /// was accepted.
    pub fn accept(&mut self, id: Identity, member: Member, ballot: Score) -> bool {
        let found = self.sets.iter_mut().find(|(name, _)| *name == id);
        found.is_some_and(|(_, ballots)| ballots.raise(member, ballot))
    }
}

fn ours(ballots: Option<&Ballots>) -> Score {
    ballots.map(Ballots::highest).filter(|score| *score < SCORE_END).unwrap_or(0)
}

fn write_note(quarantine: &mut Quarantine, process: RunId, time: Millis) {
    if quarantine.wants(process, time) {
        quarantine.notes.retain(|(noted, _)| *noted != process);
        quarantine.notes.push((process, time));
        quarantine.notes.sort_unstable();
    }
}
