//! `init`: a person states that no lock of a former incarnation is alive on any of these masters. What
//! is written where, decided from all that was read.
//!
//! A client with quarantine admits; with `again` it takes over the ballots of clients without. A
//! client without quarantine, which must pass `again`, removes records and moves their ballots to
//! its own set. Therefore the namespace has either quarantines or none afterwards, and no token is
//! handed out twice.
//!
//! Without `again` every record must have been read: the record of a master that is away may show
//! that the namespace was in use, and that masters without a record have lost their data.
//!
//! The statement must hold until the call has returned: a master that is flushed while `init` is
//! under way is outside of it. No script acts when the call is over: what it does not find done by
//! then is never done.

use redlock_core::admission::{AdmissionOp, Init, Millis, Nonce, RecordedSet, Remove, Score};

use super::begin::Reading;
use super::floor::{by_clock, rounded};
use super::peer::Stuck;
use super::view::MasterKind;
use super::{Admission, Listed, MasterView, Scored};
use crate::ballot::clock::LEAD_MAX_US;
use crate::quorum::{lower_median, quorum};

/// The options that the person gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InitOptions {
    /// `--again`: admit although a record has a floor, or clients without quarantine were here.
    pub again: bool,
    /// `--floor`: joins the maximum.
    pub floor: Score,
    /// `--far-floor`: it may be far ahead of the clocks.
    pub far_floor: bool,
    /// Our own `max_ttl`.
    pub max_ttl: Millis,
    /// `--again` with a `--max-ttl`, which may be smaller than what records hold.
    pub lower: bool,
}

/// The plan of `init`: its writes to the masters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InitPlan {
    /// The scripts, by master.
    pub orders: Vec<(usize, AdmissionOp)>,
    /// A master is not admitted, a record has a floor or there are ballots of clients without
    /// quarantine, and `again` was not given: the orders raise `max_ttl` of the admitted masters
    /// and do nothing else.
    pub refused: bool,
    /// The score that masters get which are not admitted; `None` if all are.
    pub floor: Option<Score>,
    /// The `max_ttl` that all masters get.
    pub max_ttl: Millis,
    /// A person asked for just that one.
    pub lower: bool,
    /// The set that every master gets; `None` if the sets are left as they are, because not every
    /// master has answered.
    pub set: Option<RecordedSet>,
}

/// Why nothing is written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NoPlan {
    /// The records of these masters were not read, and `again` was not given: one of them may show
    /// that the namespace was in use.
    Unread {
        /// The masters that stand in the way.
        masters: Vec<usize>,
        /// Another one may be read in a while.
        may_come: bool,
    },
    /// Fewer than q masters have answered.
    NoQuorum,
    /// This set is recorded on a master of the list, differs from the list by more than one master,
    /// and `again` was not given: the list may be a wrong one.
    OtherSet(RecordedSet),
    /// The floor would reach 2^53.
    TooLarge,
    /// The floor that the person gave is above this one, the largest that may be given: few tokens
    /// would be left, for ever.
    TooFar(Score),
    /// It is so far ahead of the clocks that they do not pass it soon, and `--far-floor` was not
    /// given: where all masters come back empty nobody knows of it but people.
    FarAhead(Score),
}

/// A floor that is no further ahead of the clocks, in microseconds, is passed by them in a minute.
const NEAR_US: Score = 60_000_000;

impl Admission {
    /// The plan, from the facts of the masters and their answers to *read the floor*. `ours` are the
    /// nonces of scripts that this call has sent before.
    pub fn plan_init(
        &mut self,
        options: InitOptions,
        listed: &Listed,
        answers: &[Scored],
        nonces: &[Nonce],
        ours: &[Nonce],
        now: Millis,
    ) -> Result<InitPlan, NoPlan> {
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
        let writes_set = self.has_quarantine && !refused && self.is_answered_by_all(answers);
        let set = Some(set).filter(|_| writes_set);
        let level = if refused { 0 } else { self.level(answers) };
        let (max_ttl, lower) = (self.max_ttl_for_all(options), options.lower);
        let due = answers.iter().zip(nonces).filter(|(Scored { master, .. }, _)| {
            self.twins.twin_of(*master).is_none() && (!refused || self.votes(*master))
        });
        let orders = due.filter_map(|(answer, &nonce)| {
            let master = answer.master;
            let facts = self.peers[master].master()?;
            // The statement was made of what was read.
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
        Ok(InitPlan { orders, refused, floor, max_ttl, lower, set })
    }

    /// If the third master is away, two masters that restarted empty appear brand-new.
    fn has_read_all(&self, answers: &[Scored], now: Millis) -> Result<(), NoPlan> {
        let is_read = |answer: &Scored| answer.facts.role == MasterKind::Master;
        let read: Vec<_> = answers.iter().filter(|answer| is_read(answer)).collect();
        let reading = self.reading(|master| read.iter().any(|found| found.master == master), now);
        match reading {
            Reading { unread, .. } if unread.is_empty() => Ok(()),
            Reading { may_come: false, .. } if !reading.has_quorum() => Err(NoPlan::NoQuorum),
            Reading { unread: masters, may_come, .. } => Err(NoPlan::Unread { masters, may_come }),
        }
    }

    /// Marks the masters that show clients without quarantine, so that a report names them although
    /// nothing is written.
    fn notice_no_quarantine(&mut self, answers: &[Scored]) {
        for answer in answers.iter().filter(|answer| answer.shows_no_quarantine()) {
            self.peers[answer.master].stuck = Some(Stuck::Mixed);
        }
    }

    /// Whether a master is to be admitted although the namespace was in use: the master may have
    /// lost its data. Records that this call itself has written show no earlier use.
    fn has_lost_data(&self, masters: &[usize], ours: &[Nonce]) -> bool {
        self.was_used_before(ours) && !masters.iter().all(|&master| self.votes(master))
    }

    /// The largest score of the admitted masters. Members are lifted to it only where all masters
    /// have answered.
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

/// The largest floor that a person may give: as far ahead of the masters' clocks as ballots follow,
/// and, unless the person allows more, no further than the clocks get soon. The lower median is
/// taken, so that one clock that is wrong does not move it.
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
