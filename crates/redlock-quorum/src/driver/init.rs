//! `init`: a person states that no lock of a former incarnation is alive, and masters are admitted.
//!
//! 1. All masters are waited for, for some seconds. Where fewer than q are there nothing is
//!    written.
//! 2. The scores and facts of all are read, and the plan is made of them (`protocol/admission`).
//! 3. Where a record was not read that is needed, it is read again: for some seconds, and as long
//!    as a master reads its data from disk. Where the plan is refused, another `init` may be at
//!    work: it is read again for some seconds, and for some more while a master is being checked,
//!    because its record has just changed.
//! 4. If a recorded set of masters differs from the list by more than one master, nothing is written
//!    without `again`. If all masters have answered, the plan writes one set on each of them.
//! 5. The scripts compare what was read. All masters are read again behind their answers: only what
//!    they hold then is claimed. Where something else is there it is written again, or given up
//!    (`protocol/admission/settled.rs`), a few times at most.

use std::collections::VecDeque;
use std::time::Duration;

use redlock_core::admission::{AdmissionOp, AdmissionReply, Millis, Names, Nonce, Score, SetId};
use redlock_core::{Cause, FencingToken, Instant, Lists};
use redlock_protocol::admission::{
    Incarnation, InitOptions, InitPlan, Listed, NoPlan, Scored, Settled, WritePass,
};
use redlock_protocol::master_set::MasterSet;
use redlock_protocol::quorum::quorum;

use super::Driver;
use super::command::InitReply;
use super::timers::Due;
use crate::init::{Init, InitError, InitNode, InitReport, is_checked};
use crate::report::Standing;
use redlock_protocol::client::ids::Asker;
use redlock_protocol::client::masters::to_millis;

/// How long masters that do not answer are waited for, and another `init` that may be at work.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long the pause is before everything is read again.
const AGAIN: Duration = Duration::from_millis(100);
/// How often scripts may find something else than was read; and once more for each master, because
/// the scripts of another `init` may come to one after the other.
const TRIES_MAX: u32 = 3;

/// The calls of `init`. One is carried out after the other.
#[derive(Default)]
pub(super) struct Inits {
    waiting: VecDeque<(Init, InitReply)>,
    current: Option<Call>,
    /// The number of the latest orders: answers to earlier ones are late.
    number: u32,
}

struct Call {
    options: Init,
    reply: InitReply,
    /// Until when something is waited for that others do.
    patience: Instant,
    /// When the phase is over at the latest.
    due: Instant,
    phase: Phase,
    tries: u32,
    /// The standing of each master, and its `max_ttl`, before anything was written.
    was: Option<Vec<(Standing, Option<Millis>)>>,
    /// The largest floor that was written.
    floor: Option<Score>,
    /// The nonces of all scripts that were sent: a record with one of these is of this very call.
    ours: Vec<Nonce>,
    /// The latest scripts, until a read shows whether all masters hold their writes.
    pass: Option<WritePass>,
    /// The `max_ttl` that was asked for, where the larger one of another call stays: masters that
    /// were given this one get that one, and the call fails.
    gave_up: Option<Millis>,
}

enum Phase {
    /// Masters are waited for.
    Connecting,
    /// Scores and facts are being read.
    Reading(Vec<(usize, Incarnation)>, Vec<Scored>),
    /// Scripts are under way.
    Writing(MasterSet),
    /// Everything is read again after a pause.
    Pausing,
}

impl Inits {
    /// No task works on the driver any more: callers ask again.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.current = None;
        self.number = self.number.wrapping_add(1);
    }
}

impl Driver {
    pub(super) fn init(&mut self, options: Init, reply: InitReply, now: Instant) {
        self.inits.waiting.push_back((options, reply));
        self.next_init(now);
    }

    fn next_init(&mut self, now: Instant) {
        if self.inits.current.is_some() {
            return;
        }
        let Some((options, reply)) = self.inits.waiting.pop_front() else { return };
        let patience = now.saturating_add(PATIENCE);
        let phase = Phase::Connecting;
        let call = Call {
            options,
            reply,
            patience,
            due: patience,
            phase,
            tries: 0,
            was: None,
            floor: None,
            ours: Vec::new(),
            pass: None,
            gave_up: None,
        };
        self.inits.current = Some(call);
        self.timers.enter(patience, Due::Init);
        self.consider_init(now);
    }

    /// Masters were reached, or were not, or time has passed.
    pub(super) fn consider_init(&mut self, now: Instant) {
        let Some(call) = &self.inits.current else { return };
        let (is_due, masters) = (call.due <= now, self.masters.len());
        let reached = (0..masters).filter(|master| self.masters.is_up(*master)).count();
        match call.phase {
            Phase::Connecting if reached == masters || is_due && reached >= quorum(masters) => {
                self.read_scores(now);
            }
            Phase::Connecting if is_due => self.end_init(no_quorum, now),
            Phase::Reading(..) if is_due => self.init_read(now),
            Phase::Writing(_) if is_due => self.written(now),
            Phase::Pausing if is_due => self.read_scores(now),
            _ => {}
        }
    }

    fn read_scores(&mut self, now: Instant) {
        let reachable = self.masters.admission().reachable();
        let number = self.init_phase(Phase::Reading(reachable.clone(), vec![]), now);
        for (master, incarnation) in &reachable {
            self.nodes.ask(
                *master,
                AdmissionOp::ReadScores(incarnation.run),
                Asker::Init(number),
                now,
            );
        }
        if reachable.is_empty() {
            self.init_read(now);
        }
    }

    /// Answers to the phase before are late from now on.
    fn init_phase(&mut self, phase: Phase, now: Instant) -> u32 {
        let pause = match phase {
            Phase::Pausing => AGAIN,
            // None of them acts later.
            Phase::Writing(_) => self.settings.act_within(),
            Phase::Connecting | Phase::Reading(..) => self.settings.connect_timeout,
        };
        let due = now.saturating_add(pause);
        self.inits.number = self.inits.number.wrapping_add(1);
        if let Some(call) = &mut self.inits.current {
            (call.phase, call.due) = (phase, due);
        }
        self.timers.enter(due, Due::Init);
        self.inits.number
    }

    pub(super) fn init_answered(
        &mut self,
        number: u32,
        master: usize,
        said: Result<AdmissionReply, Cause>,
        now: Instant,
    ) {
        if self.inits.number != number {
            return;
        }
        let Some(call) = &mut self.inits.current else { return };
        match (&mut call.phase, said) {
            (Phase::Reading(pending, answers), said) => {
                let place = pending.iter().position(|(other, _)| *other == master);
                let asked = place.map(|place| pending.swap_remove(place).1);
                match (asked, said) {
                    (Some(asked), Ok(AdmissionReply::Scores { highest, facts })) => {
                        let facts = self.masters.view(master, &facts, None, now);
                        answers.push(Scored { master, asked, highest, facts });
                    }
                    (Some(_), Err(cause)) => self.masters.step_failed(master, &cause, now),
                    _ => {}
                }
                if pending.is_empty() {
                    self.init_read(now);
                }
            }
            (Phase::Writing(pending), said) => {
                pending.remove(master);
                let is_last = pending.is_empty();
                if let (Ok(AdmissionReply::Script(reply)), Some(pass)) = (&said, &mut call.pass) {
                    pass.answered(master, reply.outcome);
                }
                match said {
                    Ok(AdmissionReply::Script(reply)) => {
                        self.with_masters(now, |masters, cx| masters.ordered(master, reply, cx));
                    }
                    Ok(_) => {}
                    Err(cause) => self.masters.step_failed(master, &cause, now),
                }
                if is_last {
                    self.written(now);
                }
            }
            _ => {}
        }
    }

    /// All readable records were read: before the first scripts, or behind the latest.
    fn init_read(&mut self, now: Instant) {
        let Some(call) = &mut self.inits.current else { return };
        let Phase::Reading(_, answers) = &call.phase else { return };
        let Some(pass) = call.pass.as_ref().filter(|pass| !pass.is_refused()) else {
            return self.plan_init(now);
        };
        let masters = self.masters.len();
        if call.patience > now && answers.len() < masters {
            return self.pause_init(now);
        }
        let has_tries = call.tries as usize <= TRIES_MAX as usize + masters;
        let differs = |max_ttl| {
            let wanted = Duration::from_millis(max_ttl);
            move |nodes| Err(InitError::MaxTtl { wanted, nodes })
        };
        match (pass.settled(answers), call.gave_up) {
            (Settled::GivesUp, _) => {
                (call.gave_up, call.tries) = (Some(pass.max_ttl()), 0);
                self.plan_init(now);
            }
            (Settled::Moved | Settled::Differs, _) if has_tries => self.plan_init(now),
            (_, Some(max_ttl)) => self.end_init(differs(max_ttl), now),
            (Settled::Yes, None) => self.end_init(Ok, now),
            (Settled::Moved, None) => self.end_init(|nodes| Err(InitError::Moved { nodes }), now),
            (Settled::Differs, None) => {
                let max_ttl = pass.max_ttl();
                self.end_init(differs(max_ttl), now);
            }
        }
    }

    /// Plans the writes from all records that were read.
    fn plan_init(&mut self, now: Instant) {
        let (masters, own) = (self.masters.len(), self.settings.max_ttl);
        let max_ttl_of = |master| self.masters.admission().max_ttl_of(master);
        let was = (0..masters).map(|one| (self.standing(one, now).0, max_ttl_of(one))).collect();
        let nonces: Vec<Nonce> = (0..masters).map(|_| Nonce(rand::random())).collect();
        // The default counts only where no record has one.
        let has_record = (0..masters).any(|one| max_ttl_of(one).is_some());
        let default = if has_record { Duration::ZERO } else { self.settings.max_ttl() };
        let max_ttl = to_millis(own.unwrap_or(default));
        let is_checked = (0..masters).any(|one| is_checked(self.standing(one, now).1.as_ref()));
        let Some(call) = &mut self.inits.current else { return };
        let Phase::Reading(_, answers) = &call.phase else { return };
        let (max_ttl, own) = match call.gave_up {
            Some(_) => (0, None),
            None => (max_ttl, own),
        };
        let lower = call.options.again && own.is_some() && answers.len() == masters;
        let floor = call.options.floor.map_or(0, FencingToken::get);
        let (again, far_floor) = (call.options.again, call.options.far_floor);
        let options = InitOptions { again, floor, far_floor, max_ttl, lower };
        let is_whole = answers.len() == masters;
        let listed = Listed {
            names: Names::new(self.nodes.names.iter().cloned()),
            fresh: SetId(rand::random()),
        };
        let plan = self.masters.plan_init(options, &listed, answers, &nonces, &call.ours, now);
        call.was.get_or_insert(was);
        let waits = call.patience > now;
        let checks = is_checked && call.patience.saturating_add(PATIENCE) > now;
        match plan {
            _ if waits && !is_whole => self.pause_init(now),
            Err(NoPlan::Unread { may_come, .. }) if may_come || checks => self.pause_init(now),
            Err(NoPlan::Unread { .. }) if is_checked => self.end_init(refused, now),
            Err(NoPlan::Unread { masters, .. }) => {
                let name = |master: usize| self.nodes.names[master].clone();
                let unread = masters.into_iter().map(name).collect();
                self.end_init(|nodes| Err(InitError::Unread { unread, nodes }), now);
            }
            Err(NoPlan::NoQuorum) => self.end_init(no_quorum, now),
            Err(NoPlan::OtherSet(set)) => {
                let lists = Lists { set: Some(set), list: listed.names };
                self.end_init(|nodes| Err(InitError::OtherSet { lists, nodes }), now);
            }
            Err(NoPlan::TooLarge) => self.end_init(|_| Err(InitError::TooLarge), now),
            Err(NoPlan::FarAhead(limit)) => {
                self.end_init(|_| Err(InitError::FarFloor { limit: token(limit) }), now);
            }
            Err(NoPlan::TooFar(limit)) => {
                self.end_init(|_| Err(InitError::FloorTooFar { limit: token(limit) }), now);
            }
            Ok(plan) if plan.refused && (waits || checks) => self.pause_init(now),
            Ok(plan) => self.write_init(plan, now),
        }
    }

    fn pause_init(&mut self, now: Instant) {
        self.init_phase(Phase::Pausing, now);
    }

    fn write_init(&mut self, plan: InitPlan, now: Instant) {
        let pass = Some(WritePass::new(&plan));
        let InitPlan { orders, floor, .. } = plan;
        let pending = orders.iter().map(|(master, _)| *master).collect();
        let number = self.init_phase(Phase::Writing(pending), now);
        if let Some(call) = &mut self.inits.current {
            call.floor = call.floor.max(floor);
            call.pass = pass;
            // It may never be known whether a sent script has been carried out.
            call.ours.extend(orders.iter().filter_map(|(_, order)| match order {
                AdmissionOp::Init(init) => Some(init.nonce),
                _ => None,
            }));
        }
        for (master, order) in orders {
            self.nodes.ask(master, order, Asker::Init(number), now);
        }
        if pending.is_empty() {
            self.written(now);
        }
    }

    fn written(&mut self, now: Instant) {
        let Some(call) = &mut self.inits.current else { return };
        let Some(pass) = &call.pass else { return };
        call.tries += 1;
        match (pass.is_refused(), pass.has_moved()) {
            (true, has_moved) if !has_moved || call.tries >= TRIES_MAX => {
                self.end_init(refused, now);
            }
            // Another `init` may be at work, which needs some time.
            (_, true) => self.pause_init(now),
            (_, false) => self.read_scores(now),
        }
    }

    /// The call is over, with this outcome for the masters as they are now.
    fn end_init(
        &mut self,
        outcome: impl FnOnce(Vec<InitNode>) -> Result<Vec<InitNode>, InitError>,
        now: Instant,
    ) {
        let Some(call) = self.inits.current.take() else { return };
        let nodes = (0..self.masters.len()).map(|master| self.init_node(&call, master, now));
        let floor = call.floor.and_then(FencingToken::new);
        let nodes = nodes.collect();
        let set = self.masters.common_set().cloned();
        let outcome = outcome(nodes).map(|nodes| InitReport { nodes, floor, set });
        // A caller that has stopped waiting does not need to know.
        let _ = call.reply.send(outcome);
        self.next_init(now);
    }

    fn init_node(&self, call: &Call, master: usize, now: Instant) -> InitNode {
        let (now_is, cause) = self.standing(master, now);
        let facts = self.masters.facts(master);
        let max_ttl = self.masters.admission().max_ttl_of(master);
        let (was, former) = call.was.as_ref().map_or((now_is, max_ttl), |was| was[master]);
        InitNode {
            node: self.nodes.names[master].clone(),
            was,
            now: now_is,
            cause,
            run_id: facts.map(|facts| facts.run_id.clone()),
            uptime: facts.and_then(|facts| facts.uptime),
            max_ttl: max_ttl.map(Duration::from_millis),
            former_max_ttl: former.map(Duration::from_millis),
        }
    }
}

fn no_quorum(nodes: Vec<InitNode>) -> Result<Vec<InitNode>, InitError> {
    Err(InitError::NoQuorum { nodes })
}

fn refused(nodes: Vec<InitNode>) -> Result<Vec<InitNode>, InitError> {
    Err(InitError::Refused { nodes })
}

fn token(limit: Score) -> FencingToken {
    FencingToken::new(limit).unwrap_or(FencingToken::MAX)
}
