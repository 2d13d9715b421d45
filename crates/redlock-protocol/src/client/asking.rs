//! `Asking`: the questions, and the callers that wait for their results.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use redlock_core::{Cause, Instant, Key, Op, Verdict};

use super::At;
use super::common::Common;
use super::effects::{Effect, Inspected, Standing};
use super::ids::{InspectionId, RequestId, Ticket};
use super::input::Inspect;
use super::line::Outgoing;
use super::questions::{About, Asked, Context, Questions};
use super::timers::Due;
use super::view::{Points, View, Voters};
use crate::master_set::MasterSet;
use crate::token::attempt::Defeat;
use crate::votes::last_answer::LastAnswer;

/// The questions, and the callers that wait for a result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Asking {
    pub(super) all: Questions,
    /// In the order of their calls, which is the order of the results.
    inits: VecDeque<RequestId>,
    reports: Vec<(u32, RequestId)>,
    inspecting: BTreeMap<InspectionId, Asker>,
}

/// A caller that waits for answers about a key or a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Asker {
    pub(super) reply: RequestId,
    observes: bool,
    /// The master that informs the observer of the next change.
    at: Option<usize>,
}

impl Asking {
    pub(super) fn new(all: Questions) -> Self {
        let (inits, reports, inspecting) = Default::default();
        Self { all, inits, reports, inspecting }
    }

    /// Forgets all questions, which their callers repeat.
    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.inits.clear();
        self.reports.clear();
        self.inspecting.clear();
    }

    /// A caller gives an order.
    pub(super) fn await_init(&mut self, reply: RequestId) {
        self.inits.push_back(reply);
    }

    /// Removes the caller of the oldest order.
    pub(super) fn take_init(&mut self) -> Option<RequestId> {
        self.inits.pop_front()
    }

    /// Begins a report for a caller. Returns its number.
    pub(super) fn report(
        &mut self,
        reply: RequestId,
        view: &impl View,
        cx: &mut Context<'_>,
    ) -> u32 {
        let number = self.all.report(view, cx);
        self.reports.push((number, reply));
        number
    }

    /// Removes the caller of a report.
    pub(super) fn take_report(&mut self, number: u32) -> Option<RequestId> {
        let place = self.reports.iter().position(|(other, _)| *other == number)?;
        Some(self.reports.swap_remove(place).1)
    }

    /// Removes the caller of a question about a key or a mark.
    pub(super) fn take(&mut self, id: InspectionId) -> Option<Asker> {
        self.inspecting.remove(&id)
    }

    /// Queries these masters when it is the turn of the question. Contenders can meet at different
    /// masters, so all of them are queried for the number of waiters.
    pub(super) fn inspect(
        &mut self,
        inspect: Inspect,
        reply: RequestId,
        view: &impl View,
        common: &mut Common,
    ) {
        self.question(inspect, Asker { reply, observes: false, at: None }, view, common);
    }

    fn question(&mut self, inspect: Inspect, asker: Asker, view: &impl View, common: &mut Common) {
        let Inspect { about, node_timeout, masters } = inspect;
        let asked = masters.unwrap_or_else(|| MasterSet::all(view.count()));
        let is_mark = matches!(about, About::Mark(..));
        let id = self.all.inspect(about, asked, node_timeout, view);
        self.inspecting.insert(id, asker);
        common.line.push(if is_mark { Outgoing::Mark(id) } else { Outgoing::Inspection(id) });
    }

    /// Reads who holds a key for an observer. A look reads only its meeting point.
    pub(super) fn observe(
        &mut self,
        (key, node_timeout, is_look): (Key, Duration, bool),
        reply: RequestId,
        masters: &(impl View + Points),
        common: &mut Common,
        now: Instant,
    ) {
        let meets = observed_at(&key, masters, now).filter(|_| is_look);
        let masters_asked = meets.map(|master| MasterSet::from_iter([master]));
        let inspect = Inspect { about: About::Status(key), node_timeout, masters: masters_asked };
        self.question(inspect, Asker { reply, observes: true, at: None }, masters, common);
    }

    /// Queries who holds the lock that a caller did not get. `answers` are the votes on its last
    /// attempt, if there was one.
    pub(super) fn explain(
        &mut self,
        caller: RequestId,
        defeat: Defeat,
        answers: Vec<LastAnswer>,
        view: &impl View,
        common: &mut Common,
    ) -> Option<InspectionId> {
        let entry = common.callers.get_mut(caller)?;
        entry.set_failed();
        let about = About::Failure(entry.key.clone(), vec![caller], defeat);
        let id = self.all.explain(about, answers, entry.timing.node_timeout, view);
        common.line.push(Outgoing::Inspection(id));
        Some(id)
    }

    /// Lets these callers, whose waits end within the time of one question, share the question.
    /// Returns the last one.
    pub(super) fn explain_together(
        &mut self,
        callers: Vec<RequestId>,
        mut shared: Option<InspectionId>,
        view: &impl View,
        common: &mut Common,
    ) -> Option<InspectionId> {
        for caller in callers {
            let is_shared = shared.is_some_and(|id| self.all.share(id, caller));
            if !is_shared {
                let defeat = Defeat::Outvoted;
                shared = self.explain(caller, defeat, Vec::new(), view, common).or(shared);
            } else if let Some(entry) = common.callers.get_mut(caller) {
                entry.set_failed();
            }
        }
        shared
    }

    /// Sends a question whose turn has come. That of an observer goes to the meeting point in
    /// another form, which also has it report the next change.
    pub(super) fn send(
        &mut self,
        id: InspectionId,
        masters: &(impl Points + Voters),
        common: &mut Common,
        at: &mut At<'_>,
    ) {
        let Some(Asked { op, masters: mut asked, until }) = self.all.turn(id, at.now) else {
            return;
        };
        common.line.open();
        common.timers.enter(until, Due::Inspection(id));
        let ticket = Ticket::Inspection(id);
        if let Some(asker) = self.inspecting.get_mut(&id).filter(|asker| asker.observes)
            && let Some(master) = observed_at(op.key(), masters, at.now)
            && asked.contains(master)
        {
            asker.at = Some(master);
            at.effects.push(Effect::Tracked(asker.reply, master));
            let one = MasterSet::from_iter([master]);
            common.send(Op::watch(Key::from(op.key())), one, ticket, masters, at);
            asked = asked.without(one);
        }
        common.send(op, asked, ticket, masters, at);
    }
}

impl Asker {
    /// Returns the meeting point of an observer, if it did not answer in time.
    pub(super) fn silent(&self, answers: &[LastAnswer]) -> Option<usize> {
        self.at.filter(|master| answers[*master].verdict == Verdict::Unknown(Cause::TimedOut))
    }
}

impl Inspected {
    /// Returns the result of a question about a key or a mark.
    pub(super) fn of(
        about: About,
        answers: Vec<LastAnswer>,
        view: &impl View,
        now: Instant,
    ) -> Self {
        let mut inspected = Self { about, answers, standing: Vec::new(), set: None };
        if let About::Status(_) = inspected.about {
            let standing = inspected.answers.iter().enumerate();
            inspected.standing =
                standing.map(|(master, answer)| standing_of(master, answer, view, now)).collect();
            inspected.set = view.agreed_set();
        }
        inspected
    }
}

/// Returns what a status shows about a master in addition to its answer.
fn standing_of(master: usize, answer: &LastAnswer, view: &impl View, now: Instant) -> Standing {
    let seen = view.seen(master, now);
    let why_not = seen.why_no_locks.or(seen.why_not).filter(|_| answer.verdict.is_clear());
    let facts = seen.facts.filter(|_| view.connected().contains(master));
    Standing { tracks: facts.map(|facts| facts.tracks), why_not }
}

/// Returns the master that reports changes of the key. It needs no working queue.
fn observed_at(key: &[u8], points: &impl Points, now: Instant) -> Option<usize> {
    points.meeting_point(key, MasterSet::EMPTY, now)
}
