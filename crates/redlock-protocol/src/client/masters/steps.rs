//! The steps by which a master that lost its data comes to vote again.
//!
//! `Admission` decides, and this file executes the decisions. It passes the events of connections
//! (up, down, a null push, members) and the answers to requests to `Admission`, gets the next step
//! of each master from it, sends the requests of that step, and limits its time.
//!
//! # When the next step is decided
//!
//! After every event of a connection, after every answer to a request about admission, and at the
//! time that `Admission` named. A step that goes to several masters (their TIME, their scores) ends
//! when all have answered or its time is over. `Admission` gets the answers so far.
//!
//! # Who waits for the steps
//!
//! - *Attempts* wait when a handle starts or resumes use (`gate.rs`), while fewer than q masters
//!   vote and steps are under way, and no longer than the connect timeout.
//! - *The end of the handle* waits for steps under way, no longer than the connect timeout.
//! - *Nothing else does.*
//!
//! # What a failure does
//!
//! - *No answer in time, or an error*: the master rests until the next probe. The error is reported
//!   together with the reason why the master does not vote. A later answer has an outdated number and
//!   is dropped. The next probe shows its effect.
//! - *The connection breaks*: the master rests as well, and the next connection reads everything
//!   again.
//! - *The runtime ends*: no step continues. Servers may still execute earlier requests, so each script
//!   compares.
//! - *A null push*: no answer of that master is valid until a later probe is answered. Leases with a
//!   copy there are extended immediately. If the probe does not show the same incarnation in time,
//!   the copies there are disowned.

use redlock_core::admission::{AdmissionOp, AdmissionReply, Nonce, Reply};
use redlock_core::{Cause, Facts, Instant};

use super::doubt::Doubt;
use super::millis::{floor_millis, instant};
use super::{Context, Masters, News, Weakness};
use crate::admission::{Event, Incarnation, MasterTime, MasterView, Scored, Step};
use crate::client::ids::Asker;
use crate::master_set::MasterSet;

/// The steps of one master.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Steps {
    /// The number of its latest step. Answers to an earlier one are late.
    number: u32,
    task: Option<Task>,
    /// When the time of the task is over.
    until: Option<Instant>,
    /// When it is probed next.
    scheduled: Option<Instant>,
    pub(super) doubt: Doubt,
    /// The alarm that is set for it.
    alarm: Option<Instant>,
}

/// The requests that are under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Task {
    /// One request, to the master itself.
    Single,
    /// One request, to the master itself, whose outcome does not matter.
    Show,
    Records(MasterSet, Vec<(usize, MasterView)>),
    Times(Nonce, MasterSet, Vec<MasterTime>),
    Floors(Nonce, Vec<(usize, Incarnation)>, Vec<Scored>),
}

impl Steps {
    /// Forgets all unfinished steps.
    pub(super) fn park(&mut self) {
        self.drop_step();
        (self.scheduled, self.alarm) = (None, None);
        self.doubt = Doubt::default();
    }

    /// Ends the step. Either a new connection answers the question, or there is no connection.
    pub(super) fn drop_step(&mut self) {
        self.number = self.number.wrapping_add(1);
        self.task = None;
    }

    /// Returns when something is due.
    fn due(&self) -> Option<Instant> {
        let until = self.task.as_ref().and(self.until);
        [until, self.scheduled, self.doubt.due()].into_iter().flatten().min()
    }

    fn schedule(&mut self, at: Instant) {
        self.scheduled = Some(self.scheduled.map_or(at, |scheduled| scheduled.min(at)));
    }
}

impl Masters {
    /// Records that a caller wants a lock, or more time for one: from now on quarantines are begun
    /// and ended. Returns `true` the first time, when [`advance`](Self::advance) must follow.
    #[inline]
    pub fn ask(&mut self) -> bool {
        let is_first = !std::mem::replace(&mut self.is_asked, true);
        if is_first {
            self.admission.ask();
        }
        is_first
    }

    /// Returns `true` if a step is under way that the end of the handle waits for.
    pub fn finishes_steps(&self) -> bool {
        let is_under_way = self.steps.iter().any(|steps| steps.task.is_some());
        self.is_asked && (is_under_way || self.admission.awaits_connections())
    }

    /// Returns the alarm to set for `master`, if the one that is set is too late.
    pub fn alarm(&mut self, master: usize) -> Option<Instant> {
        let steps = &mut self.steps[master];
        let due = steps.due()?;
        let is_earlier = steps.alarm.is_none_or(|alarm| due < alarm);
        is_earlier.then(|| *steps.alarm.insert(due))
    }

    /// Handles an alarm of `master` that is due at `seen`.
    pub fn tick(&mut self, master: usize, seen: Instant, cx: &mut Context<'_>) {
        let steps = &mut self.steps[master];
        steps.alarm.take_if(|alarm| *alarm <= seen);
        if steps.task.is_some() && steps.until.is_some_and(|until| until <= seen) {
            steps.number = steps.number.wrapping_add(1);
            self.end_step(master, cx);
            self.advance(cx);
        }
        if self.steps[master].scheduled.take_if(|scheduled| *scheduled <= seen).is_some() {
            self.advance_master(master, cx);
        }
        self.tick_doubt(master, seen, cx);
    }

    /// Takes the next step of each master.
    pub fn advance(&mut self, cx: &mut Context<'_>) {
        for master in 0..self.len() {
            self.advance_master(master, cx);
        }
    }

    pub(super) fn advance_master(&mut self, master: usize, cx: &mut Context<'_>) {
        self.note_connecting(cx.now);
        match self.admission.step(master, floor_millis(cx.now), Nonce(cx.moment.nonce())) {
            Step::Nothing => {}
            Step::Wait(at) => self.steps[master].schedule(instant(at)),
            Step::Probe => self.single(master, AdmissionOp::ReadFacts, cx),
            Step::Begin(begin) => self.single(master, AdmissionOp::Begin(begin), cx),
            Step::Note(note) => self.single(master, AdmissionOp::Note(note), cx),
            Step::Remove(remove) => self.single(master, AdmissionOp::Remove(remove), cx),
            Step::ShowUse => {
                self.take_step(master, Task::Show, [(master, AdmissionOp::ShowUse)], cx);
            }
            Step::Admit(admit) => {
                if self.admission.is_floor_by_clock(master) {
                    cx.news.push(News::Weak(master, Weakness::FloorByClock));
                }
                self.single(master, AdmissionOp::Admit(admit), cx);
            }
            Step::ReadRecords(asked) => {
                let task = Task::Records(asked.iter().copied().collect(), vec![]);
                let ops = asked.into_iter().map(|other| (other, AdmissionOp::ReadFacts));
                self.take_step(master, task, ops, cx);
            }
            Step::AskTimes(nonce, asked) => {
                let task = Task::Times(nonce, asked.iter().copied().collect(), vec![]);
                let ops = asked.into_iter().map(|other| (other, AdmissionOp::ReadTime));
                self.take_step(master, task, ops, cx);
            }
            Step::ReadFloor(nonce, asked) => {
                let task = Task::Floors(nonce, asked.clone(), vec![]);
                let scores = |(other, incarnation): (usize, Incarnation)| {
                    (other, AdmissionOp::ReadScores(incarnation.run))
                };
                self.take_step(master, task, asked.into_iter().map(scores), cx);
            }
        }
    }

    fn single(&mut self, master: usize, op: AdmissionOp, cx: &mut Context<'_>) {
        self.take_step(master, Task::Single, [(master, op)], cx);
    }

    /// Begins a step towards the admission of `master`.
    fn take_step(
        &mut self,
        master: usize,
        task: Task,
        ops: impl IntoIterator<Item = (usize, AdmissionOp)>,
        cx: &mut Context<'_>,
    ) {
        let steps = &mut self.steps[master];
        steps.number = steps.number.wrapping_add(1);
        steps.task = Some(task);
        steps.until = Some(cx.now.saturating_add(self.terms.order_timeout));
        let asker = Asker::Step(master, steps.number);
        cx.news.extend(ops.into_iter().map(|(to, op)| News::Ask(to, op.into(), asker)));
    }

    /// Handles an answer about `master` for any asker, in time or late, and continues the step that
    /// it belongs to. Call [`advance`](Self::advance) after the asker has processed the answer.
    pub fn told(
        &mut self,
        asker: Asker,
        master: usize,
        said: &Result<AdmissionReply, Cause>,
        cx: &mut Context<'_>,
    ) {
        self.read(master, said, cx);
        if let Asker::Step(of, number) = asker
            && self.steps[of].number == number
        {
            self.step_answered(of, master, said, cx);
        }
    }

    /// Whatever follows for its vote, ballots go by the TIME and the floor of a master.
    fn read(&mut self, master: usize, said: &Result<AdmissionReply, Cause>, cx: &mut Context<'_>) {
        let (facts, members) = match said {
            Ok(AdmissionReply::Facts { facts, members }) => (facts, *members),
            Ok(AdmissionReply::Scores { facts, .. }) => (facts, None),
            _ => return,
        };
        let read = self.viewed(master, facts, members, cx.now);
        self.probed(master, facts.clone(), cx.now);
        self.learn_facts(master, cx.now);
        self.learn(master, Event::Read(read), cx);
    }

    /// Views facts of a server. A server that does not report its TIME is taken to continue as
    /// before.
    pub(super) fn viewed(
        &self,
        master: usize,
        facts: &Facts,
        members: Option<u32>,
        now: Instant,
    ) -> MasterView {
        let time = self.admission.time(master, floor_millis(now));
        MasterView::of(facts, members, time)
    }

    fn step_answered(
        &mut self,
        master: usize,
        from: usize,
        said: &Result<AdmissionReply, Cause>,
        cx: &mut Context<'_>,
    ) {
        let is_whole = match &mut self.steps[master].task {
            None => return,
            Some(Task::Single) => return self.single_answered(master, said, cx),
            Some(Task::Show) => true,
            Some(Task::Records(pending, answers)) => {
                pending.remove(from);
                if let Ok(AdmissionReply::Facts { facts, members }) = said {
                    answers.push((from, MasterView::of(facts, *members, 0)));
                }
                pending.is_empty()
            }
            Some(Task::Times(_, pending, times)) => {
                pending.remove(from);
                if let Ok(AdmissionReply::Time { process, time }) = said {
                    times.push(MasterTime { master: from, process: *process, time: *time });
                }
                pending.is_empty()
            }
            Some(Task::Floors(_, pending, answers)) => {
                let place = pending.iter().position(|(other, _)| *other == from);
                let asked = place.map(|place| pending.swap_remove(place).1);
                if let (Some(asked), Ok(AdmissionReply::Scores { highest, facts })) = (asked, said)
                {
                    let (highest, facts) = (*highest, MasterView::of(facts, None, 0));
                    answers.push(Scored { master: from, asked, highest, facts });
                }
                pending.is_empty()
            }
        };
        if is_whole {
            self.end_step(master, cx);
        }
    }

    fn single_answered(
        &mut self,
        master: usize,
        said: &Result<AdmissionReply, Cause>,
        cx: &mut Context<'_>,
    ) {
        self.steps[master].task = None;
        let event = match said {
            Ok(AdmissionReply::Facts { facts, members }) => {
                Event::Probed(self.viewed(master, facts, *members, cx.now))
            }
            Ok(AdmissionReply::Script(reply)) => {
                self.links.0[master].step_failure = None;
                Event::Script(reply.clone())
            }
            Ok(_) => Event::Failed,
            Err(cause) => {
                self.step_refused(master, cause, cx);
                Event::Failed
            }
        };
        self.learn(master, event, cx);
    }

    /// Handles an error reply to a step. If waiting does not fix it, the waits of callers end with
    /// their next attempt.
    fn step_refused(&mut self, master: usize, cause: &Cause, cx: &mut Context<'_>) {
        if cause.is_error_reply() {
            self.step_failed(master, cause, cx.now);
            if !cause.is_curable() {
                cx.news.push(News::PausesOver);
            }
        }
    }

    /// Passes the answers so far to `Admission`.
    fn end_step(&mut self, master: usize, cx: &mut Context<'_>) {
        let event = match self.steps[master].task.take() {
            None => return,
            Some(Task::Single) => Event::Failed,
            Some(Task::Show) => Event::Shown,
            Some(Task::Records(_, answers)) => Event::Records(answers),
            Some(Task::Times(nonce, _, times)) => Event::Times(nonce, times),
            Some(Task::Floors(nonce, _, answers)) => Event::Floors(nonce, answers),
        };
        self.learn(master, event, cx);
    }

    /// Handles the reply of a script that an operator ordered.
    pub fn ordered(&mut self, master: usize, reply: Reply, cx: &mut Context<'_>) {
        self.steps[master].drop_step();
        self.links.0[master].step_failure = None;
        self.learn(master, Event::Script(reply), cx);
    }
}
