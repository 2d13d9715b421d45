//! Executes the results of questions about all masters, and converts them to public types.

use std::collections::VecDeque;
use std::time::Duration;

use redlock_core::admission::{AdmissionReply, Millis, Names, Score};
use redlock_core::{Cause, FencingToken, Instant};
use redlock_protocol::client::masters::Masters;
use redlock_protocol::client::questions::{
    Context, Failure, InitOutcome, InitRow, Order, Questions, ReportRow, Server, Terms, Told,
};

use super::Driver;
use super::command::{InitReply, ReportReply};
use crate::init::{Init, InitError, InitNode, InitReport};
use crate::report::{NodeReport, ServerReport, Standing};
use crate::settings::Settings;
use redlock_protocol::client::timers::Due;

/// The callers that wait for a result.
#[derive(Default)]
pub(super) struct Askers {
    /// In the order of their calls, which is the order of the results.
    inits: VecDeque<InitReply>,
    reports: Vec<(u32, ReportReply)>,
}

impl Askers {
    /// Closes the replies, so that callers repeat their questions.
    pub(super) fn clear(&mut self) {
        self.inits.clear();
        self.reports.clear();
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
    fn with_questions<T>(
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
            }
        }
        output
    }

    pub(super) fn init(&mut self, options: Init, reply: InitReply, now: Instant) {
        let order = Order {
            again: options.again,
            floor: options.floor.map_or(0, FencingToken::get),
            far_floor: options.far_floor,
        };
        self.with_questions(now, |questions, masters, askers, cx| {
            askers.inits.push_back(reply);
            questions.init(order, masters, cx);
        });
    }

    /// Masters were reached, or were not.
    pub(super) fn consider_init(&mut self, now: Instant) {
        self.with_questions(now, |questions, masters, _, cx| questions.consider(masters, cx));
    }

    pub(super) fn init_due(&mut self, seen: Instant, now: Instant) {
        self.with_questions(now, |questions, masters, _, cx| questions.tick(seen, masters, cx));
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

    pub(super) fn report_answered(
        &mut self,
        number: u32,
        master: usize,
        said: Result<AdmissionReply, Cause>,
        now: Instant,
    ) {
        self.with_questions(now, |questions, masters, _, cx| {
            questions.report_answered(number, master, said, masters, cx);
        });
    }

    pub(super) fn report_due(&mut self, number: u32, now: Instant) {
        self.with_questions(now, |questions, masters, _, cx| {
            questions.report_due(number, masters, cx);
        });
    }

    fn answer_init(&mut self, outcome: InitOutcome) {
        let Some(reply) = self.askers.inits.pop_front() else { return };
        let InitOutcome { failure, rows, floor, set } = outcome;
        let node = |(master, row)| self.init_node(master, row);
        let nodes: Vec<InitNode> = rows.into_iter().enumerate().map(node).collect();
        let floor = floor.and_then(FencingToken::new);
        let result = match failure {
            None => Ok(InitReport { nodes, floor, set }),
            Some(failure) => Err(self.init_error(failure, nodes)),
        };
        // A caller that has stopped waiting does not need to know.
        let _ = reply.send(result);
    }

    fn init_node(&self, master: usize, row: InitRow) -> InitNode {
        InitNode {
            node: self.nodes.names[master].clone(),
            was: standing(row.was.as_ref()),
            now: standing(row.now.as_ref()),
            cause: row.now,
            run_id: row.run_id,
            uptime: row.uptime,
            max_ttl: row.max_ttl.map(Duration::from_millis),
            former_max_ttl: row.former_max_ttl.map(Duration::from_millis),
            set: row.set,
            former_set: row.former_set,
        }
    }

    fn init_error(&self, failure: Failure, nodes: Vec<InitNode>) -> InitError {
        match failure {
            Failure::NoQuorum => InitError::NoQuorum { nodes },
            Failure::Unread(masters) => {
                let name = |master: usize| self.nodes.names[master].clone();
                InitError::Unread { unread: masters.into_iter().map(name).collect(), nodes }
            }
            Failure::Refused => InitError::Refused { nodes },
            Failure::OtherSet(lists) => InitError::OtherSet { lists: *lists, nodes },
            Failure::MaxTtl(max_ttl) => {
                InitError::MaxTtl { wanted: Duration::from_millis(max_ttl), nodes }
            }
            Failure::Moved => InitError::Moved { nodes },
            Failure::TooLarge => InitError::TooLarge,
            Failure::FarFloor(limit) => InitError::FarFloor { limit: token(limit) },
            Failure::FloorTooFar(limit) => InitError::FloorTooFar { limit: token(limit) },
        }
    }

    fn answer_report(&mut self, number: u32, rows: Vec<ReportRow>) {
        let reports = &mut self.askers.reports;
        let place = reports.iter().position(|(other, _)| *other == number);
        let Some(place) = place else { return };
        let (_, reply) = reports.swap_remove(place);
        let node = |(master, row): (usize, ReportRow)| NodeReport {
            node: self.nodes.names[master].clone(),
            standing: standing(row.why_not.as_ref()),
            cause: row.why_not.or(row.why_no_locks),
            server: row.server.map(server),
        };
        // A caller that has stopped waiting does not need to know.
        let _ = reply.send(rows.into_iter().enumerate().map(node).collect());
    }
}

/// Returns the standing of a master that does not vote for this cause, if any.
fn standing(why_not: Option<&Cause>) -> Standing {
    why_not.map_or(Standing::Admitted, Standing::of)
}

fn token(limit: Score) -> FencingToken {
    FencingToken::new(limit).unwrap_or(FencingToken::MAX)
}

fn server(server: Server) -> ServerReport {
    let Server { facts, members, clock_offset_ms } = server;
    let record = facts.record.as_deref().cloned().unwrap_or_default();
    let time = facts.time_us.map_or(0, |micros| micros / 1_000);
    let quarantine = facts.identity.and_then(|identity| record.quarantine_of(identity));
    let left = |until: Millis| Duration::from_millis(until.saturating_sub(time));
    let replid = facts.identity.and_then(|identity| identity.replid);
    ServerReport {
        role: facts.role.to_string(),
        is_cluster: facts.is_cluster,
        is_loading: facts.is_loading(),
        uptime: facts.uptime,
        replid: replid.map(|replid| replid.to_string()),
        max_ttl: record.max_ttl.map(Duration::from_millis),
        admitted_as: record.run.map(|run| run.to_string()),
        set: record.set.clone(),
        floor: record.floor,
        ballots: members.filter(|_| record.run.is_some()),
        quarantine_left: quarantine.map(|quarantine| left(quarantine.until)),
        tracks: facts.tracks,
        has_barrier: facts.has_barrier,
        clock_offset_ms,
        run_id: facts.run_id,
    }
}
