//! `Questions`: queries and orders of operators that concern all masters.
//!
//! `init` (an operator asserts that no lock of a former incarnation is valid), `report` (the state
//! of each master) and `inspections` (the state of one key or mark). Results are plain values.

mod init;
mod inspections;
mod outcome;
mod report;

#[cfg(test)]
mod tests;

use std::time::Duration;

use redlock_core::admission::{AdmissionOp, AdmissionReply, Names};
use redlock_core::{Cause, Instant, Vote};

use self::init::Inits;
pub use self::init::is_checked;
use self::inspections::Inspections;
pub use self::inspections::{About, Asked};
pub use self::outcome::{Failure, InitOutcome, InitRow, Order};
use self::report::Reports;
pub use self::report::{ReportRow, Server};
use super::ids::{Asker, InspectionId, RequestId};
use super::view::{Seen, View};
use crate::master_set::MasterSet;
use crate::votes::answer::{Counts, Judged};
use crate::votes::last_answer::LastAnswer;

/// The questions of one client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Questions {
    inits: Inits,
    reports: Reports,
    inspections: Inspections,
}

/// The settings of a client that concern its questions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// The masters, in the order of the list.
    pub names: Names,
    /// The `max_ttl` that an operator set.
    pub own_max_ttl: Option<Duration>,
    /// The largest TTL while no master records another one.
    pub max_ttl: Duration,
    /// How long after sending a script of admission may act.
    pub act_within: Duration,
    /// How long records may take to be read.
    pub connect_timeout: Duration,
}

/// A consequence of a question.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Told {
    /// Send this request about admission to a master.
    Ask(usize, Box<AdmissionOp>, Asker),
    /// The oldest order of an operator is over.
    Init(Box<InitOutcome>),
    /// The report with this number is complete, with one row for each master.
    Report(u32, Vec<ReportRow>),
    /// The masters have answered this question, or its time is over.
    Inspected(InspectionId, Box<About>, Vec<LastAnswer>),
    /// A question that was sent at this instant leaves the window of the line. Its node timeout.
    Closed(Instant, Duration),
}

/// Context of an input.
pub type Context<'a> = super::context::Context<'a, Told>;

impl Questions {
    /// Creates the state without any question.
    pub fn new(terms: Terms) -> Self {
        Self {
            inits: Inits::new(terms),
            reports: Reports::default(),
            inspections: Inspections::default(),
        }
    }

    /// Forgets all questions. Callers repeat them.
    pub fn clear(&mut self) {
        self.inits.clear();
        self.reports.clear();
        self.inspections.clear();
    }

    /// Begins an order of an operator, after those before it.
    pub fn init(&mut self, order: Order, view: &mut impl View, cx: &mut Context<'_>) {
        self.inits.begin(order, view, cx);
    }

    /// Continues the order under way, after an event of a connection or at its alarm.
    pub fn consider(&mut self, view: &mut impl View, cx: &mut Context<'_>) {
        self.inits.consider(view, cx);
    }

    /// Returns the alarm to set for the order under way, if the one that is set is too late.
    pub fn alarm(&mut self) -> Option<Instant> {
        self.inits.alarm()
    }

    /// Handles the alarm of the order under way.
    pub fn tick(&mut self, seen: Instant, view: &mut impl View, cx: &mut Context<'_>) {
        self.inits.rang(seen);
        self.inits.consider(view, cx);
    }

    /// Returns `true` if an answer with this number belongs to the order under way. Then masters
    /// must learn from it before [`init_answered`](Self::init_answered).
    pub fn is_current(&self, number: u32) -> bool {
        self.inits.is_current(number)
    }

    /// Handles the answer of a master to the order under way.
    pub fn init_answered(
        &mut self,
        master: usize,
        said: Result<AdmissionReply, Cause>,
        view: &mut impl View,
        cx: &mut Context<'_>,
    ) {
        self.inits.answered(master, said, view, cx);
    }

    /// Begins a report, and returns its number.
    pub fn report(&mut self, view: &impl View, cx: &mut Context<'_>) -> u32 {
        self.reports.begin(view, cx)
    }

    /// Handles the answer of a master to a report.
    pub fn report_answered(
        &mut self,
        number: u32,
        master: usize,
        said: Result<AdmissionReply, Cause>,
        view: &impl View,
        cx: &mut Context<'_>,
    ) {
        self.reports.answered(number, master, said, view, cx);
    }

    /// Completes a report with the answers so far, because its time is over.
    pub fn report_due(&mut self, number: u32, view: &impl View, cx: &mut Context<'_>) {
        self.reports.end(number, view, cx);
    }

    /// Begins a question to these masters. It is sent at its [`turn`](Self::turn).
    pub fn inspect(
        &mut self,
        about: About,
        asked: MasterSet,
        node_timeout: Duration,
        view: &impl View,
    ) -> InspectionId {
        self.inspections.begin(about, asked, node_timeout, view)
    }

    /// Begins the question who holds the key of a lost `attempt`, which is empty if there was none.
    pub fn explain(
        &mut self,
        about: About,
        attempt: Vec<LastAnswer>,
        node_timeout: Duration,
        view: &impl View,
    ) -> InspectionId {
        self.inspections.explain(about, attempt, node_timeout, view)
    }

    /// Adds a caller to a question of failed callers. Returns `false` if that question is over.
    pub fn share(&mut self, id: InspectionId, caller: RequestId) -> bool {
        self.inspections.share(id, caller)
    }

    /// Returns `true` if the question has no answer yet.
    pub fn contains(&self, id: InspectionId) -> bool {
        self.inspections.contains(id)
    }

    /// Returns the question to send, whose turn has come.
    pub fn turn(&mut self, id: InspectionId, now: Instant) -> Option<Asked> {
        self.inspections.turn(id, now)
    }

    /// Handles the answer of a master to a question. The answer of a non-voting master does not
    /// explain why a caller has failed, but a status shows it.
    pub fn vote(
        &mut self,
        id: InspectionId,
        vote: &Vote,
        counts: &Counts,
        view: &impl View,
        cx: &mut Context<'_>,
    ) {
        self.inspections.vote(id, vote, counts, view, cx);
    }

    /// Handles the late answer of a master to the attempt that a question explains.
    pub fn late_vote(
        &mut self,
        id: InspectionId,
        master: usize,
        judged: Judged<'_>,
        latency: Duration,
    ) {
        self.inspections.late_vote(id, master, judged, latency);
    }

    /// Ends a question whose node timeout has passed.
    pub fn inspection_due(&mut self, id: InspectionId, cx: &mut Context<'_>) {
        self.inspections.due(id, cx);
    }

    /// Ends all questions of failed callers, because they are answered otherwise.
    pub fn dismiss_failures(&mut self, cx: &mut Context<'_>) {
        self.inspections.dismiss_failures(cx);
    }
}
