//! `init`: an operator asserts that no lock of a former incarnation is valid, and masters are
//! admitted.
//!
//! 1. Wait up to three seconds for all masters. If fewer than q are connected, write nothing.
//! 2. Read the scores and facts of all masters, and make the plan (`admission/init.rs`).
//! 3. If a required record was not read, read again for up to three seconds, and longer while a
//!    master loads its data from disk. If the plan is refused, another `init` may be running, so read
//!    again for up to three seconds, and for three more while a master is being checked because its
//!    record has just changed.
//! 4. If a recorded set differs from the list by more than one master, write nothing without `again`.
//!    If all masters have answered, the plan writes one set on each of them.
//! 5. The scripts compare the record with the one that was read. After their answers, read all masters
//!    again and report only their present records. If a record differs, write again or give up
//!    (`admission/settled.rs`). The number of attempts is limited.

use std::collections::VecDeque;
use std::time::Duration;

use redlock_core::admission::{AdmissionOp, AdmissionReply, Millis, Nonce, Score, SetId};
use redlock_core::{Cause, Instant, WhyNot};

use super::outcome::{Before, Failure, InitOutcome, InitRow, Order};
use super::{Asker, Context, Terms, Told, View};
use crate::admission::{
    Incarnation, InitInputs, InitOptions, InitPlan, Listed, NoPlan, Scored, Settled, WritePass,
};
use crate::master_set::MasterSet;
use crate::quorum::quorum;

/// Limit of the wait for masters that do not answer, and for another `init`.
const PATIENCE: Duration = Duration::from_secs(3);
/// The pause before everything is read again.
const AGAIN: Duration = Duration::from_millis(100);
/// How often scripts may find something else than was read; and once more for each master, because
/// the scripts of another `init` may come to one after the other.
const TRIES_MAX: u32 = 3;

/// The orders of operators, one of which is carried out after the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Inits {
    terms: Terms,
    waiting: VecDeque<Order>,
    current: Option<Call>,
    /// The number of the latest requests. Answers to earlier ones are late.
    number: u32,
    /// The present alarm.
    alarm: Option<Instant>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Call {
    order: Order,
    /// End of the wait for other masters and other `init` calls.
    patience: Instant,
    /// When the phase is over at the latest.
    due: Instant,
    phase: Phase,
    tries: u32,
    /// Each master, before anything was written.
    was: Option<Vec<Before>>,
    /// The largest floor that any script wrote.
    floor: Option<Score>,
    /// Nonces of all scripts of this call. They show which records this call has written.
    ours: Vec<Nonce>,
    /// The latest scripts, until a read shows whether all masters hold their writes.
    pass: Option<WritePass>,
    /// The masters for which the latest scripts have written no set.
    unanswered: Vec<usize>,
    /// Our `max_ttl`, if another call keeps a larger one. Masters that received ours get the larger
    /// one, and this call fails.
    gave_up: Option<Millis>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Connections are being made.
    Connecting,
    /// Scores and facts are being read.
    Reading(Vec<(usize, Incarnation)>, Vec<Scored>),
    /// Scripts are under way.
    Writing(MasterSet),
    /// Everything is read again after a pause.
    Pausing,
}

/// Returns `true` if a master that does not vote, for this cause, is being checked.
pub fn is_checked(cause: Option<&Cause>) -> bool {
    matches!(cause, Some(Cause::NotAdmitted(not)) if not.why == WhyNot::Checked)
}

impl Inits {
    pub(super) fn new(terms: Terms) -> Self {
        Self { terms, waiting: VecDeque::new(), current: None, number: 0, alarm: None }
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        (self.current, self.alarm) = (None, None);
        self.number = self.number.wrapping_add(1);
    }

    pub(super) fn alarm(&mut self) -> Option<Instant> {
        let due = self.current.as_ref()?.due;
        let is_earlier = self.alarm.is_none_or(|alarm| due < alarm);
        is_earlier.then(|| *self.alarm.insert(due))
    }

    pub(super) fn rang(&mut self, seen: Instant) {
        self.alarm.take_if(|alarm| *alarm <= seen);
    }

    pub(super) fn is_current(&self, number: u32) -> bool {
        self.number == number && self.current.is_some()
    }

    pub(super) fn begin(&mut self, order: Order, view: &mut impl View, cx: &mut Context<'_>) {
        self.waiting.push_back(order);
        self.next(view, cx);
    }

    fn next(&mut self, view: &mut impl View, cx: &mut Context<'_>) {
        if self.current.is_some() {
            return;
        }
        let Some(order) = self.waiting.pop_front() else { return };
        let patience = cx.now.saturating_add(PATIENCE);
        self.current = Some(Call {
            order,
            patience,
            due: patience,
            phase: Phase::Connecting,
            tries: 0,
            was: None,
            floor: None,
            ours: Vec::new(),
            pass: None,
            unanswered: Vec::new(),
            gave_up: None,
        });
        self.consider(view, cx);
    }

    /// Masters were reached, or were not, or time has passed.
    pub(super) fn consider(&mut self, view: &mut impl View, cx: &mut Context<'_>) {
        let Some(call) = &self.current else { return };
        let (is_due, masters) = (call.due <= cx.now, view.count());
        let reached = view.connected().len();
        match call.phase {
            Phase::Connecting if reached == masters || is_due && reached >= quorum(masters) => {
                self.read_scores(view, cx);
            }
            Phase::Connecting if is_due => self.end(Some(Failure::NoQuorum), view, cx),
            Phase::Reading(..) if is_due => self.read(view, cx),
            Phase::Writing(_) if is_due => self.written(view, cx),
            Phase::Pausing if is_due => self.read_scores(view, cx),
            _ => {}
        }
    }

    fn read_scores(&mut self, view: &mut impl View, cx: &mut Context<'_>) {
        let reachable = view.reachable();
        let number = self.begin_phase(Phase::Reading(reachable.clone(), vec![]), cx.now);
        let ask = |(master, incarnation): &(usize, Incarnation)| {
            let op = AdmissionOp::ReadScores(incarnation.run);
            Told::Ask(*master, op.into(), Asker::Init(number))
        };
        cx.news.extend(reachable.iter().map(ask));
        if reachable.is_empty() {
            self.read(view, cx);
        }
    }

    /// Begins a phase. Answers to the previous one are late from now on.
    fn begin_phase(&mut self, phase: Phase, now: Instant) -> u32 {
        let time = match phase {
            Phase::Pausing => AGAIN,
            // None of them acts later.
            Phase::Writing(_) => self.terms.act_within,
            Phase::Connecting | Phase::Reading(..) => self.terms.connect_timeout,
        };
        self.number = self.number.wrapping_add(1);
        if let Some(call) = &mut self.current {
            (call.phase, call.due) = (phase, now.saturating_add(time));
        }
        self.number
    }

    pub(super) fn answered(
        &mut self,
        master: usize,
        said: Result<AdmissionReply, Cause>,
        view: &mut impl View,
        cx: &mut Context<'_>,
    ) {
        let Some(call) = &mut self.current else { return };
        match &mut call.phase {
            Phase::Reading(pending, answers) => {
                let place = pending.iter().position(|(other, _)| *other == master);
                let asked = place.map(|place| pending.swap_remove(place).1);
                if let (Some(asked), Ok(AdmissionReply::Scores { highest, facts })) = (asked, said)
                {
                    let facts = view.view(master, &facts, cx.now);
                    answers.push(Scored { master, asked, highest, facts });
                }
                if pending.is_empty() {
                    self.read(view, cx);
                }
            }
            Phase::Writing(pending) => {
                pending.remove(master);
                let is_last = pending.is_empty();
                if let (Ok(AdmissionReply::Script(reply)), Some(pass)) = (&said, &mut call.pass) {
                    pass.answered(master, reply.outcome);
                }
                if is_last {
                    self.written(view, cx);
                }
            }
            Phase::Connecting | Phase::Pausing => {}
        }
    }

    /// All readable records were read: before the first scripts, or after the latest.
    fn read(&mut self, view: &mut impl View, cx: &mut Context<'_>) {
        let Some(call) = &mut self.current else { return };
        let Phase::Reading(_, answers) = &call.phase else { return };
        let Some(pass) = call.pass.as_ref().filter(|pass| !pass.is_refused()) else {
            return self.plan(view, cx);
        };
        let masters = view.count();
        if call.patience > cx.now && answers.len() < masters {
            return self.pause(cx.now);
        }
        let has_tries = call.tries as usize <= TRIES_MAX as usize + masters;
        let failure = match (pass.settled(answers), call.gave_up) {
            (Settled::GivesUp, _) => {
                (call.gave_up, call.tries) = (Some(pass.max_ttl()), 0);
                return self.plan(view, cx);
            }
            (Settled::Moved | Settled::Differs, _) if has_tries => return self.plan(view, cx),
            (_, Some(max_ttl)) => Some(Failure::MaxTtl(max_ttl)),
            (Settled::Yes, None) => None,
            (Settled::Moved, None) => Some(Failure::Moved),
            (Settled::Differs, None) => Some(Failure::MaxTtl(pass.max_ttl())),
        };
        self.end(failure, view, cx);
    }

    /// Makes the plan from all records.
    fn plan(&mut self, view: &mut impl View, cx: &mut Context<'_>) {
        let (masters, now) = (view.count(), cx.now);
        let Some(call) = &mut self.current else { return };
        let Phase::Reading(_, answers) = &call.phase else { return };
        let was: Vec<_> = (0..masters).map(|one| Before::of(view.seen(one, now))).collect();
        let is_checked = was.iter().any(|before| is_checked(before.why_not.as_ref()));
        let has_record = was.iter().any(|before| before.max_ttl.is_some());
        call.was.get_or_insert(was);
        let is_whole = answers.len() == masters;
        let options = options(&self.terms, call, is_whole, has_record);
        let nonces: Vec<Nonce> = (0..masters).map(|_| Nonce(cx.moment.nonce())).collect();
        let fresh = SetId(cx.moment.nonce());
        let listed = Listed { names: self.terms.names.clone(), fresh };
        let (listed, nonces, ours) = (&listed, &nonces[..], &call.ours[..]);
        let inputs = InitInputs { options, listed, answers, nonces, ours };
        let plan = view.plan_init(inputs, now);
        let waits = call.patience > now;
        let checks = is_checked && call.patience.saturating_add(PATIENCE) > now;
        let failure = match plan {
            _ if waits && !is_whole => return self.pause(now),
            Err(NoPlan::Unread { may_come, .. }) if may_come || checks => return self.pause(now),
            Err(NoPlan::Unread { .. }) if is_checked => Failure::Refused,
            Err(NoPlan::Unread { masters, .. }) => Failure::Unread(masters),
            Err(NoPlan::NoQuorum) => Failure::NoQuorum,
            Err(NoPlan::OtherSet(lists)) => Failure::OtherSet(lists),
            Err(NoPlan::TooLarge) => Failure::TooLarge,
            Err(NoPlan::FarAhead(limit)) => Failure::FarFloor(limit),
            Err(NoPlan::TooFar(limit)) => Failure::FloorTooFar(limit),
            Ok(plan) if plan.refused && (waits || checks) => return self.pause(now),
            Ok(plan) => return self.write(plan, view, cx),
        };
        self.end(Some(failure), view, cx);
    }

    fn pause(&mut self, now: Instant) {
        self.begin_phase(Phase::Pausing, now);
    }

    fn write(&mut self, plan: InitPlan, view: &mut impl View, cx: &mut Context<'_>) {
        let pass = Some(WritePass::new(&plan));
        let InitPlan { orders, floor, unanswered, .. } = plan;
        let pending: MasterSet = orders.iter().map(|(master, _)| *master).collect();
        let number = self.begin_phase(Phase::Writing(pending), cx.now);
        if let Some(call) = &mut self.current {
            call.floor = call.floor.max(floor);
            (call.pass, call.unanswered) = (pass, unanswered);
            // It may never be known whether a sent script was executed.
            call.ours.extend(orders.iter().filter_map(|(_, order)| match order {
                AdmissionOp::Init(init) => Some(init.nonce),
                _ => None,
            }));
        }
        let ask =
            |(master, op): (usize, AdmissionOp)| Told::Ask(master, op.into(), Asker::Init(number));
        cx.news.extend(orders.into_iter().map(ask));
        if pending.is_empty() {
            self.written(view, cx);
        }
    }

    fn written(&mut self, view: &mut impl View, cx: &mut Context<'_>) {
        let Some(call) = &mut self.current else { return };
        let Some(pass) = &call.pass else { return };
        call.tries += 1;
        match (pass.is_refused(), pass.has_moved()) {
            (true, has_moved) if !has_moved || call.tries >= TRIES_MAX => {
                self.end(Some(Failure::Refused), view, cx);
            }
            // Another `init` may be at work, which needs some time.
            (_, true) => self.pause(cx.now),
            (_, false) => self.read_scores(view, cx),
        }
    }

    /// Ends the call with this outcome, and begins the next.
    fn end(&mut self, failure: Option<Failure>, view: &mut impl View, cx: &mut Context<'_>) {
        let Some(call) = self.current.take() else { return };
        let row = |master| row(&call, master, view, cx.now);
        let rows = (0..view.count()).map(row).collect();
        let Call { floor, unanswered, .. } = call;
        let outcome = InitOutcome { failure, rows, floor, set: view.agreed_set(), unanswered };
        cx.news.push(Told::Init(outcome.into()));
        self.next(view, cx);
    }
}

/// Returns the options of the plan. The default `max_ttl` applies only if no record has one.
fn options(terms: &Terms, call: &Call, is_whole: bool, has_record: bool) -> InitOptions {
    let Order { again, floor, far_floor } = call.order;
    let own = terms.own_max_ttl.filter(|_| call.gave_up.is_none());
    let default = if has_record { Duration::ZERO } else { terms.max_ttl };
    let max_ttl = match call.gave_up {
        Some(_) => Duration::ZERO,
        None => own.unwrap_or(default),
    };
    let max_ttl = u64::try_from(max_ttl.as_millis()).unwrap_or(u64::MAX);
    InitOptions { again, floor, far_floor, max_ttl, lower: again && own.is_some() && is_whole }
}

fn row(call: &Call, master: usize, view: &impl View, now: Instant) -> InitRow {
    let seen = view.seen(master, now);
    let facts = seen.facts;
    let present = Before::of(seen);
    let former = call.was.as_ref().map_or_else(|| present.clone(), |was| was[master].clone());
    InitRow {
        was: former.why_not,
        now: present.why_not,
        run_id: facts.map(|facts| facts.run_id.clone()),
        uptime: facts.and_then(|facts| facts.uptime),
        max_ttl: present.max_ttl,
        former_max_ttl: former.max_ttl,
        set: present.set,
        former_set: former.set,
    }
}
