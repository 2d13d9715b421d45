//! What each script does to the data of one master. Lua must do exactly this.
//!
//! A script runs alone. It reads and compares first, and writes nothing when a comparison fails.
//! `time` is the TIME of the master that runs it. Every reply holds that TIME and the record as
//! the script left it, so the client learns as much as from a look. None holds the identity: a
//! script that did nothing is followed by a look.
//!
//! Redis rolls nothing back, so the Lua writes in this order: *begin* HSET, then HDEL and DEL;
//! *admit* and *init* ZADD, then `run`, then HDEL. A script that is cut in the middle leaves a
//! master in quarantine and never one that votes without its members.

use super::identity::{Identity, RunId};
use super::record::{
    Data, MEMBERS, Millis, Nonce, Quarantine, Record, SCORE_END, Score, Seen, quarantine_length,
};

/// *Begin*: puts a master into quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Begin {
    pub(crate) expect: Seen,
    /// The identity that this connection read.
    pub(crate) identity: Identity,
    /// The name of the new quarantine.
    pub(crate) nonce: Nonce,
    /// The largest `max_ttl` that the masters hold; the client's own where none holds one.
    pub(crate) max_ttl: Millis,
}

/// *Note*: writes down the TIME of other masters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Note {
    pub(crate) nonce: Nonce,
    pub(crate) times: Vec<(RunId, Millis)>,
}

/// How a client knows that a quarantine is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Way {
    /// It has known the nonce for the whole length, by its own clock.
    Known,
    /// The clock of another master has gone on by twice the length since its note.
    Noted,
}

/// *Admit*: ends a quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Admit {
    pub(crate) nonce: Nonce,
    /// The identity that this connection read.
    pub(crate) identity: Identity,
    pub(crate) way: Way,
    pub(crate) floor: Score,
}

/// *Init*: a person states that no lock of a former life is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Init {
    pub(crate) expect: Seen,
    pub(crate) identity: Identity,
    pub(crate) nonce: Nonce,
    pub(crate) max_ttl: Millis,
    /// Whether `max_ttl` may become smaller: `--again` with a `--max-ttl`.
    pub(crate) lower: bool,
    /// What all members get where the master is not admitted.
    pub(crate) floor: Score,
    /// What lower members are lifted to where it is.
    pub(crate) level: Score,
}

/// What a script answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reply {
    pub(crate) outcome: Outcome,
    /// TIME of the master, in ms.
    pub(crate) time: Millis,
    /// The record as the script left it.
    pub(crate) record: Record,
    /// `ZCARD` of the set of `run`.
    pub(crate) members: u32,
}

/// What a script did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    /// It wrote, or there was nothing to write.
    Done,
    /// The record is another than the one that was read. Nothing was written.
    Moved,
    /// The TIME of this master says that the quarantine is not over. Nothing was written.
    Early,
    /// Clients without quarantine use this namespace. Nothing was written.
    Mixed,
    /// The floor is not below 2^53. Nothing was written.
    TooLarge,
}

impl Data {
    /// Where `run` equals the identity and the set is complete, and where a quarantine of this
    /// identity is under way whose end is not too far ahead, there is nothing to begin.
    pub(crate) fn begin(&mut self, time: Millis, order: &Begin) -> Reply {
        let outcome = if self.off {
            Outcome::Mixed
        } else if self.is_admitted(order.identity) {
            Outcome::Done
        } else if self.record.seen() != order.expect {
            Outcome::Moved
        } else {
            if !self.is_waiting(time, order.identity) {
                self.write_quarantine(time, order);
            }
            Outcome::Done
        };
        self.reply(outcome, time)
    }

    /// A note is written for a process that has none, or whose note lies ahead of its TIME.
    pub(crate) fn note(&mut self, time: Millis, order: &Note) -> Reply {
        let same = self.record.nonce == Some(order.nonce);
        let outcome = match self.record.quarantine.as_mut().filter(|_| same) {
            None => Outcome::Moved,
            Some(quarantine) => {
                for &(process, told) in &order.times {
                    quarantine.write_note(process, told);
                }
                Outcome::Done
            }
        };
        self.reply(outcome, time)
    }

    /// The nonce, the identity, and the TIME of the way that was taken, are tested here and
    /// nowhere else.
    pub(crate) fn admit(&mut self, time: Millis, order: &Admit) -> Reply {
        let outcome = self.may_admit(time, order);
        if outcome == Outcome::Done
            && let Some(quarantine) = self.record.quarantine.take()
        {
            self.write_set(quarantine.id, order.floor);
            self.record.floor = Some(order.floor);
            self.record.run = Some(quarantine.id);
        }
        self.reply(outcome, time)
    }

    /// Where `run` equals the identity: raises `max_ttl` and low members. Elsewhere: admits.
    pub(crate) fn init(&mut self, time: Millis, order: &Init) -> Reply {
        let outcome = if self.off {
            Outcome::Mixed
        } else if self.record.seen() != order.expect {
            Outcome::Moved
        } else if order.floor.max(order.level) >= SCORE_END {
            Outcome::TooLarge
        } else {
            self.write_init(order);
            Outcome::Done
        };
        self.reply(outcome, time)
    }

    fn is_admitted(&self, identity: Identity) -> bool {
        self.record.admits(identity) && self.members() == MEMBERS
    }

    /// Whether a quarantine of this identity is under way. A clock that was ahead when it began
    /// has left an end that would never come: that one does not stand. Only the script can judge
    /// this, because a client's reading of TIME is older than the end that it is compared with.
    fn is_waiting(&self, time: Millis, identity: Identity) -> bool {
        let length = self.record.length();
        let found = self.record.quarantine_of(identity);
        found.is_some_and(|quarantine| quarantine.until <= time + length)
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
        let Some(quarantine) = self.record.quarantine_of(order.identity) else {
            return Outcome::Moved;
        };
        let extra = match order.way {
            Way::Known => 0,
            Way::Noted => self.record.length(),
        };
        if self.off {
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

    fn write_init(&mut self, order: &Init) {
        let former = self.record.max_ttl.filter(|_| !order.lower).unwrap_or(0);
        self.record.max_ttl = Some(former.max(order.max_ttl));
        if self.is_admitted(order.identity) {
            self.lift(order.level);
            return;
        }
        let former = self.record.quarantine.take().map(|quarantine| quarantine.id);
        for name in [self.record.run, former].into_iter().flatten() {
            self.remove_set(name);
        }
        self.write_set(order.identity, order.floor);
        self.record.floor = Some(order.floor);
        self.record.nonce = Some(order.nonce);
        self.record.run = Some(order.identity);
    }

    /// `ZADD XX GT` of every member: none is ever lowered.
    fn lift(&mut self, level: Score) {
        let run = self.record.run;
        for (_, ballots) in self.sets.iter_mut().filter(|(name, _)| Some(*name) == run) {
            ballots.highest = ballots.highest.max(level);
        }
    }

    fn reply(&self, outcome: Outcome, time: Millis) -> Reply {
        let record = self.record.clone();
        Reply { outcome, time, record, members: self.members() }
    }
}

impl Quarantine {
    fn write_note(&mut self, process: RunId, time: Millis) {
        if self.wants(process, time) {
            self.notes.retain(|(noted, _)| *noted != process);
            self.notes.push((process, time));
            self.notes.sort_unstable();
        }
    }
}
