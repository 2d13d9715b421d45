//! Admission: the steps by which a master that lost its data comes to vote again.
//!
//! The machine decides (`protocol/admission`), this file carries out. It gives the machine the
//! events of connections (up, down, a null push, members) and the answers to its orders, asks it
//! for the next step of each master, sends that, and bounds its time.
//!
//! # When a step is asked for
//!
//! After every event of a connection, after every answer to an order, and when the time has come
//! that the machine named. A step that goes to several masters (their TIME, their scores) ends when
//! all have answered or its time is over; what has come by then is what the machine gets.
//!
//! # What waits for it
//!
//! - *Attempts* wait where a handle begins or goes on to be used (`gate.rs`), as long as fewer than
//!   q masters vote and steps are under way, and no longer than the connect timeout.
//! - *The end of the handle* waits for steps that are under way, no longer than the connect
//!   timeout.
//! - *Nothing else does.*
//!
//! # What a failure does
//!
//! - *No answer in time, or an error*: the machine rests until the next probe. An error is kept and
//!   reported together with why the master does not vote. An answer that comes later has an
//!   outdated number and is dropped: the next probe shows its effect.
//! - *The connection breaks*: the machine rests, too, and the next connection reads everything
//!   again.
//! - *The runtime goes away*: nothing is under way any more; what was sent may still be carried
//!   out, so each script compares.
//! - *A null push*: no answer of that master counts until a probe behind the push is answered.
//!   Leases with a copy there are extended at once. If the probe does not show the same incarnation
//!   in time, the copies there are disowned.

mod gate;

use redlock_core::admission::{AdmissionOp, AdmissionReply, Millis, Nonce};
use redlock_core::{Cause, Instant, Vote};
use redlock_protocol::admission::{Event, Incarnation, MasterTime, MasterView, Scored, Step};
use redlock_protocol::master_set::MasterSet;

use self::gate::Gate;
use super::Driver;
use super::convert::{floor_millis, instant, view_of};
use super::hold::Doubt;
use super::masters::Changed;
use super::observe::FLOOR_BY_CLOCK;
use super::timers::Due;
use redlock_protocol::client::ids::Asker;

/// The steps that are under way, one for each master at most.
pub(super) struct Steps {
    masters: Vec<Master>,
    pub(super) doubts: Vec<Doubt>,
    /// The handle was asked for a lock.
    is_asked: bool,
    gate: Gate,
}

#[derive(Default)]
struct Master {
    /// The number of its latest step: answers to an earlier one are late.
    number: u32,
    task: Option<Task>,
    /// When it is probed next.
    scheduled: Option<Instant>,
}

/// The requests that are under way.
enum Task {
    /// One order, to the master itself.
    Single,
    /// One order, to the master itself, whose outcome does not matter.
    Show,
    Records(MasterSet, Vec<(usize, MasterView)>),
    Times(Nonce, MasterSet, Vec<MasterTime>),
    Floors(Nonce, Vec<(usize, Incarnation)>, Vec<Scored>),
}

impl Steps {
    pub(super) fn new(masters: usize) -> Self {
        Self {
            masters: (0..masters).map(|_| Master::default()).collect(),
            doubts: (0..masters).map(|_| Doubt::default()).collect(),
            is_asked: false,
            gate: Gate::default(),
        }
    }

    /// No task works on the driver any more.
    pub(super) fn park(&mut self) {
        for master in &mut self.masters {
            master.number = master.number.wrapping_add(1);
            (master.task, master.scheduled) = (None, None);
        }
        self.doubts.iter_mut().for_each(|doubt| *doubt = Doubt::default());
        self.gate = Gate::default();
    }
}

impl Driver {
    /// A caller wants a lock, or more time for one: from now on quarantines are begun and ended.
    pub(super) fn ask(&mut self, now: Instant) {
        if !std::mem::replace(&mut self.steps.is_asked, true) {
            self.masters.admission.ask();
            self.advance_admission(now);
        }
    }

    /// Whether a step is under way that the end of the handle waits for.
    pub(super) fn finishes_steps(&self) -> bool {
        let is_under_way = self.steps.masters.iter().any(|master| master.task.is_some());
        self.steps.is_asked && (is_under_way || self.masters.admission.awaits_connections())
    }

    /// Asks the machine what to do about each master, and does it.
    pub(super) fn advance_admission(&mut self, now: Instant) {
        for master in 0..self.masters.len() {
            self.advance_master(master, now);
        }
    }

    pub(super) fn advance_master(&mut self, master: usize, now: Instant) {
        let may_connect = self.masters.may_connect(now);
        self.masters.admission.set_connecting(may_connect);
        // The name of a quarantine must not follow from a seed: two clients may have the same.
        let fresh = Nonce(rand::random());
        match self.masters.admission.step(master, floor_millis(now), fresh) {
            Step::Nothing => {}
            Step::Wait(at) => self.schedule_step(master, at),
            Step::Probe => self.single(master, AdmissionOp::ReadFacts, now),
            Step::Begin(begin) => self.single(master, AdmissionOp::Begin(begin), now),
            Step::Note(note) => self.single(master, AdmissionOp::Note(note), now),
            Step::Remove(remove) => self.single(master, AdmissionOp::Remove(remove), now),
            Step::ShowUse => {
                self.take_step(master, Task::Show, [(master, AdmissionOp::ShowUse)], now)
            }
            Step::Admit(admit) => {
                if self.masters.admission.is_floor_by_clock(master) {
                    self.observer.weakness(master, FLOOR_BY_CLOCK, now);
                }
                self.single(master, AdmissionOp::Admit(admit), now);
            }
            Step::ReadRecords(asked) => {
                let task = Task::Records(asked.iter().copied().collect(), vec![]);
                let orders = asked.into_iter().map(|other| (other, AdmissionOp::ReadFacts));
                self.take_step(master, task, orders, now);
            }
            Step::AskTimes(nonce, asked) => {
                let task = Task::Times(nonce, asked.iter().copied().collect(), vec![]);
                let orders = asked.into_iter().map(|other| (other, AdmissionOp::ReadTime));
                self.take_step(master, task, orders, now);
            }
            Step::ReadFloor(nonce, asked) => {
                let task = Task::Floors(nonce, asked.clone(), vec![]);
                let scores = |(other, incarnation): (usize, Incarnation)| {
                    (other, AdmissionOp::ReadScores(incarnation.run))
                };
                self.take_step(master, task, asked.into_iter().map(scores), now);
            }
        }
    }

    fn schedule_step(&mut self, master: usize, at: Millis) {
        let (at, scheduled) = (instant(at), &mut self.steps.masters[master].scheduled);
        if scheduled.is_none_or(|scheduled| at < scheduled) {
            *scheduled = Some(at);
            self.timers.enter(at, Due::Admission(master));
        }
    }

    pub(super) fn admission_due(&mut self, master: usize, now: Instant) {
        let scheduled = &mut self.steps.masters[master].scheduled;
        if scheduled.is_some_and(|at| at <= now) {
            *scheduled = None;
            self.advance_master(master, now);
        }
    }

    fn single(&mut self, master: usize, order: AdmissionOp, now: Instant) {
        self.take_step(master, Task::Single, [(master, order)], now);
    }

    /// A step towards the admission of `master` is under way from now on.
    fn take_step(
        &mut self,
        master: usize,
        task: Task,
        ops: impl IntoIterator<Item = (usize, AdmissionOp)>,
        now: Instant,
    ) {
        let entry = &mut self.steps.masters[master];
        entry.number = entry.number.wrapping_add(1);
        entry.task = Some(task);
        let number = entry.number;
        let until = now.saturating_add(self.settings.order_timeout());
        self.timers.enter(until, Due::Step(master, number));
        for (to, op) in ops {
            self.masters.ask(to, op, Asker::Step(master, number), now);
        }
    }

    /// Every answer about a master goes to the machine first, for any asker, and also when the
    /// answer is late.
    pub(super) fn admission_vote(&mut self, asker: Asker, vote: &Vote, now: Instant) {
        let (master, said) = (vote.master, vote.answer.clone().into_admission());
        self.read(master, &said, now);
        match asker {
            Asker::Step(of, number) => {
                if self.steps.masters[of].number == number {
                    self.step_answered(of, master, said, now);
                }
            }
            Asker::Init(number) => self.init_answered(number, master, said, now),
            Asker::Report(number) => self.report_answered(number, master, said, now),
            Asker::Fresh => {}
        }
        self.advance_admission(now);
    }

    /// Whatever follows for its vote, ballots go by the TIME and the floor of a master.
    fn read(&mut self, master: usize, said: &Result<AdmissionReply, Cause>, now: Instant) {
        let (facts, members) = match said {
            Ok(AdmissionReply::Facts { facts, members }) => (facts, *members),
            Ok(AdmissionReply::Scores { facts, .. }) => (facts, None),
            _ => return,
        };
        let read = self.view_now(master, facts, members, now);
        self.masters.probed(master, facts.clone(), now);
        self.learn_facts(master, now);
        self.learn(master, Event::Read(read), now);
    }

    /// A server that does not report its TIME is taken to go on as it did.
    fn view_now(
        &self,
        master: usize,
        facts: &redlock_core::Facts,
        members: Option<u32>,
        now: Instant,
    ) -> MasterView {
        view_of(facts, members, self.masters.admission.time(master, floor_millis(now)))
    }

    fn step_answered(
        &mut self,
        master: usize,
        from: usize,
        said: Result<AdmissionReply, Cause>,
        now: Instant,
    ) {
        let is_whole = match &mut self.steps.masters[master].task {
            None => return,
            Some(Task::Single) => return self.single_answered(master, said, now),
            Some(Task::Show) => true,
            Some(Task::Records(pending, answers)) => {
                pending.remove(from);
                if let Ok(AdmissionReply::Facts { facts, members }) = said {
                    answers.push((from, view_of(&facts, members, 0)));
                }
                pending.is_empty()
            }
            Some(Task::Times(_, pending, times)) => {
                pending.remove(from);
                if let Ok(AdmissionReply::Time { process, time }) = said {
                    times.push(MasterTime { master: from, process, time });
                }
                pending.is_empty()
            }
            Some(Task::Floors(_, pending, answers)) => {
                let place = pending.iter().position(|(other, _)| *other == from);
                let asked = place.map(|place| pending.swap_remove(place).1);
                if let (Some(asked), Ok(AdmissionReply::Scores { highest, facts })) = (asked, said)
                {
                    let facts = view_of(&facts, None, 0);
                    answers.push(Scored { master: from, asked, highest, facts });
                }
                pending.is_empty()
            }
        };
        if is_whole {
            self.end_step(master, now);
        }
    }

    fn single_answered(
        &mut self,
        master: usize,
        said: Result<AdmissionReply, Cause>,
        now: Instant,
    ) {
        self.steps.masters[master].task = None;
        let event = match said {
            Ok(AdmissionReply::Facts { facts, members }) => {
                Event::Probed(self.view_now(master, &facts, members, now))
            }
            Ok(AdmissionReply::Script(reply)) => {
                self.masters.clear_step_failure(master);
                Event::Script(reply)
            }
            Ok(_) => Event::Failed,
            Err(cause) => {
                self.step_refused(master, &cause, now);
                Event::Failed
            }
        };
        self.learn(master, event, now);
    }

    /// An error that waiting does not cure ends the wait of callers with their next attempt.
    fn step_refused(&mut self, master: usize, cause: &Cause, now: Instant) {
        if cause.is_error_reply() {
            self.masters.step_failed(master, cause, now);
            if !cause.is_curable() {
                self.end_pauses(now);
            }
        }
    }

    /// The time of a step is over.
    pub(super) fn step_due(&mut self, master: usize, number: u32, now: Instant) {
        let entry = &mut self.steps.masters[master];
        if entry.number != number || entry.task.is_none() {
            return;
        }
        entry.number = entry.number.wrapping_add(1);
        self.end_step(master, now);
        self.advance_admission(now);
    }

    /// The machine gets the answers so far.
    fn end_step(&mut self, master: usize, now: Instant) {
        let event = match self.steps.masters[master].task.take() {
            None => return,
            Some(Task::Single) => Event::Failed,
            Some(Task::Show) => Event::Shown,
            Some(Task::Records(_, answers)) => Event::Records(answers),
            Some(Task::Times(nonce, _, times)) => Event::Times(nonce, times),
            Some(Task::Floors(nonce, _, answers)) => Event::Floors(nonce, answers),
        };
        self.learn(master, event, now);
    }

    /// Passes news about a master to the machine, and the consequences to all leases.
    pub(super) fn learn(&mut self, master: usize, event: Event, now: Instant) {
        if let Event::Script(reply) = &event {
            self.learn_floor(reply.record.floor, now);
        }
        let changed = self.masters.admit(master, event, now);
        self.admission_changed(changed, now);
    }

    pub(super) fn admission_changed(&mut self, changed: Changed, now: Instant) {
        for master in changed.lost.iter() {
            if !self.masters.votes(master) {
                let cause = self.masters.cause(master, now);
                self.observer.not_counting(master, &cause, now);
            }
            self.disown(master, now);
        }
        for master in changed.gained.iter() {
            self.observer.counting(master);
            self.proven(master, now);
            self.confirm_copies(master, now);
        }
        for master in changed.refused.iter() {
            if let Some(cause) = self.masters.misfit(master) {
                self.observer.not_counting(master, &cause, now);
            }
        }
        if let Some(master) = changed.changing {
            self.observer.list_differs(master, &self.masters.lists(master), now);
        }
        // The first event shows one master, and later ones may show that another one differs.
        self.observer.counters.set_lists(self.masters.list_warning());
        if (!changed.gained.is_empty() || changed.fits) && self.masters.has_votes() {
            self.end_pauses(now);
        }
    }

    /// The connection is up again, or gone: what was under way there has its answer.
    pub(super) fn drop_step(&mut self, master: usize) {
        let entry = &mut self.steps.masters[master];
        entry.number = entry.number.wrapping_add(1);
        entry.task = None;
    }
}
