//! `init`: an operator asserts that no lock of a former incarnation is valid on any of these
//! masters. From everything read so far, this file decides what is written to which master. See
//! rule A15 of `docs/PROTOCOL.md`.
//!
//! A client with a quarantine admits. With `again`, it takes over the ballots of clients without
//! one. A client without a quarantine must pass `again`. It removes records and moves their ballots
//! to its own set. Afterwards, all clients of the prefix either use quarantines or do not, and no
//! token is handed out twice.
//!
//! Without `again`, every record must have been read: the record of an unreachable master may show
//! that the prefix was in use, and that masters without a record have lost their data.
//!
//! The assertion must hold until the call returns. A master that is flushed during `init` is not
//! covered. No script acts after the call is over: a write that has not happened by then never
//! happens.

use redlock_core::Lists;
use redlock_core::admission::{AdmissionOp, Init, Millis, Nonce, RecordedSet, Remove, Score};

use super::begin::Reading;
use super::floor::{by_clock, rounded};
use super::peer::Stuck;
use super::view::MasterKind;
use super::{Admission, Listed, MasterView, Scored};
use crate::ballot::clock::LEAD_MAX_US;
use crate::quorum::{lower_median, quorum};

/// The options of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InitOptions {
    /// `--again`: admit although a record has a floor, or clients without a quarantine were here.
    pub again: bool,
    /// `--floor`: a lower limit of the floor.
    pub floor: Score,
    /// `--far-floor`: allow a floor far ahead of the clocks.
    pub far_floor: bool,
    /// Our own `max_ttl`.
    pub max_ttl: Millis,
    /// `--again` with a `--max-ttl`, which may be smaller than the values in the records.
    pub lower: bool,
}

/// Everything on which a plan of `init` depends.
#[derive(Clone, Copy, Debug)]
pub struct InitInputs<'a> {
    /// The options of the operator.
    pub options: InitOptions,
    /// The list of this client.
    pub listed: &'a Listed,
    /// The facts of the masters, and their answers to *read the floor*.
    pub answers: &'a [Scored],
    /// A new nonce for each answer.
    pub nonces: &'a [Nonce],
    /// The nonces of scripts that this call has already sent.
    pub ours: &'a [Nonce],
}

/// The plan of `init`: its writes to the masters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InitPlan {
    /// The scripts, by master.
    pub orders: Vec<(usize, AdmissionOp)>,
    /// A master is not admitted, a record has a floor or there are ballots of clients without a
    /// quarantine, and `again` was not given. The orders only raise `max_ttl` of the admitted
    /// masters.
    pub refused: bool,
    /// The score for masters that are not admitted yet. `None` if all are.
    pub floor: Option<Score>,
    /// The `max_ttl` for all masters.
    pub max_ttl: Millis,
    /// An operator requested exactly this value.
    pub lower: bool,
    /// The set for every master. `None` if the sets stay as they are, because not every master has
    /// answered.
    pub set: Option<RecordedSet>,
    /// The masters that have not answered, for which no set is written.
    pub unanswered: Vec<usize>,
}

/// Why nothing is written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NoPlan {
    /// The records of these masters were not read, and `again` was not given. One of them may show
    /// that the prefix was in use.
    Unread {
        /// The masters that prevent the write.
        masters: Vec<usize>,
        /// Another record may become readable soon.
        may_come: bool,
    },
    /// Fewer than q masters have answered.
    NoQuorum,
    /// This set is recorded on a master of the list and differs from the list by more than one
    /// master, and `again` was not given. The list may be wrong.
    OtherSet(Box<Lists>),
    /// The floor would reach 2^53.
    TooLarge,
    /// The floor is above this one, the largest allowed floor. It would permanently use up almost
    /// all tokens.
    TooFar(Score),
    /// The floor is so far ahead of the clocks that they do not pass it soon, and `--far-floor` was
    /// not given. If all masters come back empty, only the operator knows about it.
    FarAhead(Score),
}

/// The clocks pass a floor that is at most this far ahead of them, in microseconds, within a
/// minute.
const NEAR_US: Score = 60_000_000;

impl Admission {
    /// Plans the writes of an operator's order.
    ///
    /// # Errors
    /// Returns [`NoPlan`] if nothing may be written.
    pub fn plan_init(&mut self, inputs: InitInputs<'_>, now: Millis) -> Result<InitPlan, NoPlan> {
        let InitInputs { options, listed, answers, nonces, ours } = inputs;
        if !options.again {
            self.has_read_all(answers, now)?;
        }
        let masters: Vec<_> = answers.iter().map(|answer| answer.master).collect();
        if masters.len() < quorum(self.peers.len()) {
            return Err(NoPlan::NoQuorum);
        }
        check_floor(options, answers)?;
        let set = self.set_for_all(listed, options.again)?;
        let floor = rounded(by_clock(answers).max(options.floor)).ok_or(NoPlan::TooLarge)?;
        let is_mixed = answers.iter().any(Scored::shows_no_quarantine);
        self.notice_no_quarantine(answers);
        let refused = !options.again && (is_mixed || self.has_lost_data(&masters, ours));
        let has_sets = self.has_quarantine && !refused;
        let unanswered = if has_sets { self.unanswered(answers) } else { Vec::new() };
        let set = Some(set).filter(|_| has_sets && unanswered.is_empty());
        let level = if refused { 0 } else { self.level(answers) };
        let (max_ttl, lower) = (self.max_ttl_for_all(options), options.lower);
        let due = answers.iter().zip(nonces).filter(|(Scored { master, .. }, _)| {
            self.twins.twin_of(*master).is_none() && (!refused || self.votes(*master))
        });
        let orders = due.filter_map(|(answer, &nonce)| {
            let master = answer.master;
            let facts = self.peers[master].master()?;
            // The operator's assertion covers only the state that this `init` has read.
            let until = answer.facts.time.saturating_add(self.act_within);
            let set = || set.as_ref().and_then(|set| self.set_change(master, set));
            let init = || Init {
                floor,
                level,
                until,
                set: set(),
                ..init_order(facts, options, max_ttl, nonce)
            };
            let remove = || Remove { expect: facts.record.seen(), start: Some(floor), until };
            Some((
                master,
                match self.has_quarantine {
                    true => AdmissionOp::Init(init()),
                    false => AdmissionOp::Remove(remove()),
                },
            ))
        });
        let orders: Vec<_> = orders.collect();
        let writes =
            |(master, _): &(usize, AdmissionOp)| !self.has_quarantine || !self.votes(*master);
        let floor = orders.iter().any(writes).then_some(floor);
        Ok(InitPlan { orders, refused, floor, max_ttl, lower, set, unanswered })
    }

    /// Checks that every record was read. If the third master is unreachable, two masters that
    /// restarted empty look new. A list with duplicate addresses stays refused, whichever of its
    /// masters can be read.
    fn has_read_all(&self, answers: &[Scored], now: Millis) -> Result<(), NoPlan> {
        let is_read = |answer: &Scored| answer.facts.role == MasterKind::Master;
        let read: Vec<_> = answers.iter().filter(|answer| is_read(answer)).collect();
        let reading = self.reading(|master| read.iter().any(|found| found.master == master), now);
        let has_duplicates = reading.unread.iter().any(|master| self.is_duplicate(*master));
        match reading {
            Reading { unread, .. } if unread.is_empty() => Ok(()),
            Reading { may_come: false, .. } if !reading.has_quorum() && !has_duplicates => {
                Err(NoPlan::NoQuorum)
            }
            Reading { unread: masters, may_come, .. } => Err(NoPlan::Unread { masters, may_come }),
        }
    }

    /// Marks the masters that show clients without a quarantine, so that a report names them even
    /// if nothing is written.
    fn notice_no_quarantine(&mut self, answers: &[Scored]) {
        for answer in answers.iter().filter(|answer| answer.shows_no_quarantine()) {
            self.peers[answer.master].stuck = Some(Stuck::Mixed);
        }
    }

    /// Returns `true` if a master would be admitted although the prefix was in use, so that it may
    /// have lost its data. Records that this call has written show no earlier use.
    fn has_lost_data(&self, masters: &[usize], ours: &[Nonce]) -> bool {
        self.was_used_before(ours) && !masters.iter().all(|&master| self.votes(master))
    }

    /// Returns the largest score of the admitted masters. Members are raised to it only if all
    /// masters have answered.
    fn level(&self, answers: &[Scored]) -> Score {
        if answers.len() < self.peers.len() {
            return 0;
        }
        let proven = answers.iter().filter(|answer| self.is_proven(answer));
        proven.filter_map(|answer| answer.highest).max().unwrap_or(0)
    }

    fn max_ttl_for_all(&self, options: InitOptions) -> Millis {
        let held = self.records().filter_map(|record| record.max_ttl).max().unwrap_or(0);
        if options.lower { options.max_ttl } else { held.max(options.max_ttl) }
    }
}

fn init_order(facts: &MasterView, options: InitOptions, max_ttl: Millis, nonce: Nonce) -> Init {
    let (expect, identity) = (facts.record.seen(), facts.identity);
    let (lower, converts) = (options.lower, options.again);
    let (floor, level, until, set) = (0, 0, 0, None);
    Init { expect, identity, nonce, max_ttl, lower, floor, level, converts, set, until }
}

/// Checks the operator's floor. It may be as far ahead of the masters' clocks as ballots follow,
/// and, unless the operator allows more, only as far as the clocks get soon. The lower median of
/// the clocks is used, so that one wrong clock does not move the limit.
fn check_floor(options: InitOptions, answers: &[Scored]) -> Result<(), NoPlan> {
    let mut times: Vec<Millis> = answers.iter().map(|answer| answer.facts.time).collect();
    let clock = lower_median(&mut times).unwrap_or(0).saturating_mul(1_000);
    let (near, far) = (clock.saturating_add(NEAR_US), clock.saturating_add(LEAD_MAX_US));
    match options.floor {
        floor if floor > far => Err(NoPlan::TooFar(far)),
        floor if floor > near && !options.far_floor => Err(NoPlan::FarAhead(near)),
        _ => Ok(()),
    }
}
