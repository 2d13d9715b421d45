//! `Questions`: queries and orders of operators that concern all masters.
//!
//! `init` (an operator asserts that no lock of a former incarnation is valid) and `report` (the
//! state of each master). Results are plain values.

mod init;
mod outcome;
mod report;

#[cfg(test)]
mod tests;

use std::time::Duration;

use redlock_core::admission::{AdmissionOp, AdmissionReply, Names};
use redlock_core::{Cause, Instant};

use self::init::Inits;
pub use self::init::is_checked;
pub use self::outcome::{Failure, InitOutcome, InitRow, Order};
use self::report::Reports;
pub use self::report::{ReportRow, Server};
use super::ids::Asker;
use super::view::{Seen, View};

/// The questions of one client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Questions {
    inits: Inits,
    reports: Reports,
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

/// What must follow from a question.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Told {
    /// Send this request about admission to a master.
    Ask(usize, Box<AdmissionOp>, Asker),
    /// The oldest order of an operator is over.
    Init(Box<InitOutcome>),
    /// The report with this number is complete, with one row for each master.
    Report(u32, Vec<ReportRow>),
}

/// Context of an input.
pub type Context<'a> = super::context::Context<'a, Told>;

impl Questions {
    /// Creates the state without any question.
    pub fn new(terms: Terms) -> Self {
        Self { inits: Inits::new(terms), reports: Reports::default() }
    }

    /// Forgets all questions. Callers repeat them.
    pub fn clear(&mut self) {
        self.inits.clear();
        self.reports.clear();
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
}
