//! Passes inputs to `Questions`, and executes the results.

use std::collections::{BTreeMap, VecDeque};

use redlock_core::admission::{AdmissionReply, Names};
use redlock_core::{Cause, Instant};
use redlock_protocol::client::ids::InspectionId;
use redlock_protocol::client::masters::Masters;
use redlock_protocol::client::questions::{
    Context, InitOutcome, Questions, ReportRow, Terms, Told,
};

use super::Driver;
use super::command::{InitReply, ReportReply};
use super::inspect::Inspecting;
use crate::init::{Init, InitReport};
use crate::report::NodeReport;
use crate::settings::Settings;
use redlock_protocol::client::timers::Due;

/// The callers that wait for a result.
#[derive(Default)]
pub(super) struct Askers {
    /// In the order of their calls, which is the order of the results.
    inits: VecDeque<InitReply>,
    reports: Vec<(u32, ReportReply)>,
    pub(super) inspecting: BTreeMap<InspectionId, Inspecting>,
}

impl Askers {
    /// Closes the replies, so that callers repeat their questions.
    pub(super) fn clear(&mut self) {
        self.inits.clear();
        self.reports.clear();
        self.inspecting.clear();
    }
}

/// The settings that concern questions.
pub(super) fn terms(settings: &Settings, names: Names) -> Terms {
    Terms {
        names,
        own_max_ttl: settings.max_ttl,
        max_ttl: settings.max_ttl(),
        act_within: settings.act_within(),
        connect_timeout: settings.connect_timeout,
    }
}

impl Driver {
    /// Passes an input to `Questions`, and executes its results.
    pub(super) fn with_questions<T>(
        &mut self,
        now: Instant,
        input: impl FnOnce(&mut Questions, &mut Masters, &mut Askers, &mut Context<'_>) -> T,
    ) -> T {
        let mut news = Vec::new();
        let mut cx = Context { now, news: &mut news, random: rand::random };
        let output = input(&mut self.questions, &mut self.masters, &mut self.askers, &mut cx);
        if let Some(at) = self.questions.alarm() {
            self.timers.enter(at, Due::Init);
        }
        for told in news {
            match told {
                Told::Ask(master, op, asker) => self.nodes.ask(master, *op, asker, now),
                Told::Init(outcome) => self.answer_init(*outcome),
                Told::Report(number, rows) => self.answer_report(number, rows),
                Told::Inspected(id, about, answers) => self.inspected(id, *about, &answers, now),
                Told::Closed(opened, node_timeout) => {
                    self.line.close(&mut Some(opened), now, node_timeout);
                }
            }
        }
        output
    }

    pub(super) fn init(&mut self, options: Init, reply: InitReply, now: Instant) {
        self.with_questions(now, |questions, masters, askers, cx| {
            askers.inits.push_back(reply);
            questions.init(options.order(), masters, cx);
        });
    }

    pub(super) fn init_answered(
        &mut self,
        number: u32,
        master: usize,
        said: Result<AdmissionReply, Cause>,
        now: Instant,
    ) {
        if !self.questions.is_current(number) {
            return;
        }
        match &said {
            Ok(AdmissionReply::Script(reply)) => {
                let reply = reply.clone();
                self.with_masters(now, |masters, cx| masters.ordered(master, reply, cx));
            }
            Ok(_) => {}
            Err(cause) => self.masters.step_failed(master, cause, now),
        }
        self.with_questions(now, |questions, masters, _, cx| {
            questions.init_answered(master, said, masters, cx);
        });
    }

    pub(super) fn report(&mut self, reply: ReportReply, now: Instant) {
        let number = self.with_questions(now, |questions, masters, askers, cx| {
            let number = questions.report(masters, cx);
            askers.reports.push((number, reply));
            number
        });
        let until = now.saturating_add(self.settings.order_timeout());
        self.timers.enter(until, Due::Report(number));
    }

    fn answer_init(&mut self, outcome: InitOutcome) {
        if let Some(reply) = self.askers.inits.pop_front() {
            // A caller that has stopped waiting does not need to know.
            let _ = reply.send(InitReport::of(outcome, &self.nodes.names));
        }
    }

    fn answer_report(&mut self, number: u32, rows: Vec<ReportRow>) {
        let reports = &mut self.askers.reports;
        let place = reports.iter().position(|(other, _)| *other == number);
        let Some(place) = place else { return };
        let (_, reply) = reports.swap_remove(place);
        let nodes = rows.into_iter().zip(self.nodes.names.iter());
        let _ = reply.send(nodes.map(|(row, name)| NodeReport::of(name.clone(), row)).collect());
    }
}
