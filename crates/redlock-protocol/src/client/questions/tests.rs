//! `Questions` over masters of the tests.

use redlock_core::Facts;
use redlock_core::admission::{Identity, Outcome, Record, Reply, RunId};
use redlock_core::admission::{MEMBERS, RecordedSet};

use super::*;
use crate::admission::{Incarnation, InitInputs, InitOptions, InitPlan, MasterView, NoPlan};
use crate::lab::{Still, at, ms};
use crate::master_set::MasterSet;

/// Masters as questions see them, with the plan that they make.
struct Masters {
    connected: Vec<bool>,
    why_not: Option<Cause>,
    why_no_locks: Option<Cause>,
    plan: Result<InitPlan, NoPlan>,
    /// The options of each plan.
    asked: Vec<InitOptions>,
}

impl Masters {
    fn new(connected: [bool; 3]) -> Self {
        let plan = Err(NoPlan::NoQuorum);
        let why_not = Some(Cause::TimedOut);
        let connected = connected.to_vec();
        Self { connected, why_not, why_no_locks: None, plan, asked: Vec::new() }
    }
}

impl View for Masters {
    fn count(&self) -> usize {
        self.connected.len()
    }

    fn connected(&self) -> MasterSet {
        (0..self.count()).filter(|master| self.connected[*master]).collect()
    }

    fn seen(&self, _: usize, _: Instant) -> Seen<'_> {
        let why_not = self.why_not.clone();
        let why_no_locks = self.why_no_locks.clone();
        Seen { facts: None, max_ttl: None, set: None, why_not, why_no_locks }
    }

    fn reachable(&self) -> Vec<(usize, Incarnation)> {
        self.connected()
            .iter()
            .map(|one| (one, Incarnation::of(&view(one, Record::default()))))
            .collect()
    }

    fn view(&self, master: usize, facts: &Facts, _: Instant) -> MasterView {
        view(master, facts.record.as_deref().cloned().unwrap_or_default())
    }

    fn agreed_set(&self) -> Option<RecordedSet> {
        None
    }

    fn plan_init(&mut self, inputs: InitInputs<'_>, _: Instant) -> Result<InitPlan, NoPlan> {
        self.asked.push(inputs.options);
        self.plan.clone()
    }
}

fn view(master: usize, record: Record) -> MasterView {
    let mut facts = facts(master, 0);
    facts.record = Ok(record.into());
    MasterView::of(&facts, Some(MEMBERS), 0)
}

fn facts(master: usize, micros: u64) -> Facts {
    let mut facts = Facts::master(format!("{master:02x}").repeat(20));
    facts.time_us = Some(micros);
    facts
}

struct Client {
    questions: Questions,
    masters: Masters,
    now: u64,
}

impl Client {
    fn new(connected: [bool; 3]) -> Self {
        let terms = Terms {
            names: Names::new(["a", "b", "c"]),
            own_max_ttl: None,
            max_ttl: ms(60_000),
            act_within: ms(2_000),
            connect_timeout: ms(1_000),
        };
        let (questions, masters) = (Questions::new(terms), Masters::new(connected));
        Self { questions, masters, now: 0 }
    }

    fn input<T>(
        &mut self,
        input: impl FnOnce(&mut Questions, &mut Masters, &mut Context<'_>) -> T,
    ) -> Vec<Told> {
        let mut news = Vec::new();
        let mut cx =
            Context { now: at(self.now), news: &mut news, moment: &mut Still(at(self.now)) };
        input(&mut self.questions, &mut self.masters, &mut cx);
        news
    }

    fn init(&mut self) -> Vec<Told> {
        let order = Order { again: false, floor: 31, far_floor: false };
        self.input(|questions, masters, cx| questions.init(order, masters, cx))
    }

    /// Waits for the alarm, and returns what it leads to.
    fn alarm(&mut self) -> Vec<Told> {
        let due = self.questions.alarm().expect("an alarm is to be set");
        self.now = due.as_nanos() / 1_000_000;
        self.input(|questions, masters, cx| questions.tick(due, masters, cx))
    }

    fn answered(&mut self, master: usize, said: Result<AdmissionReply, Cause>) -> Vec<Told> {
        self.input(|questions, masters, cx| {
            questions.init_answered(master, said, masters, cx);
        })
    }

    fn scores(&mut self, master: usize) -> Vec<Told> {
        let facts = facts(master, 0);
        self.answered(master, Ok(AdmissionReply::Scores { highest: Some(31), facts }))
    }
}

/// Returns the masters that receive a request, and the number of the request.
fn asked(told: &[Told]) -> (Vec<usize>, u32) {
    let of = |told: &Told| match told {
        Told::Ask(master, _, Asker::Init(number) | Asker::Report(number)) => (*master, *number),
        other => panic!("no request: {other:?}"),
    };
    let asked: Vec<_> = told.iter().map(of).collect();
    (asked.iter().map(|(master, _)| *master).collect(), asked[0].1)
}

fn failure(told: &[Told]) -> Option<Failure> {
    match told {
        [Told::Init(outcome)] => outcome.failure.clone(),
        other => panic!("no outcome: {other:?}"),
    }
}

#[test]
fn init_waits_for_a_quorum_of_connections() {
    let mut client = Client::new([true, false, false]);
    assert_eq!(client.init(), []);
    let told = client.alarm();
    assert_eq!((client.now, failure(&told)), (3_000, Some(Failure::NoQuorum)));
}

#[test]
fn init_queries_a_quorum_after_waiting_for_the_others() {
    let mut client = Client::new([true, true, false]);
    assert_eq!(client.init(), []);
    assert_eq!(asked(&client.alarm()).0, [0, 1]);
    let mut whole = Client::new([true; 3]);
    assert_eq!(asked(&whole.init()).0, [0, 1, 2], "all are there");
}

#[test]
fn init_orders_run_one_after_the_other() {
    let mut client = Client::new([true; 3]);
    let (_, first) = asked(&client.init());
    assert_eq!(client.init(), [], "the first is under way");
    (0..2).for_each(|master| assert_eq!(client.scores(master), []));
    let told = client.scores(2);
    assert_eq!(failure(&told[..1]), Some(Failure::NoQuorum));
    let (masters, second) = asked(&told[1..]);
    assert_eq!(masters, [0, 1, 2]);
    assert!(client.questions.is_current(second) && !client.questions.is_current(first));
}

#[test]
fn init_reads_back_its_writes_before_reporting_success() {
    let mut client = Client::new([true; 3]);
    let op = |master: usize| (master, AdmissionOp::ReadFacts);
    client.masters.plan = Ok(InitPlan {
        orders: vec![op(0), op(1)],
        refused: false,
        floor: Some(31),
        max_ttl: 60_000,
        lower: false,
        set: None,
        unanswered: vec![2],
    });
    client.init();
    (0..2).for_each(|master| assert_eq!(client.scores(master), []));
    assert_eq!(asked(&client.scores(2)).0, [0, 1]);
    let asked_for =
        InitOptions { again: false, floor: 31, far_floor: false, max_ttl: 60_000, lower: false };
    assert_eq!(client.masters.asked, [asked_for]);
    let written = || {
        let run = Some(Identity::of(RunId::new([0; 20])));
        let record = Record { run, ..Record::default() };
        Ok(AdmissionReply::Script(Reply {
            outcome: Outcome::Done,
            record,
            time: 0,
            members: MEMBERS,
        }))
    };
    assert_eq!(client.answered(0, written()), []);
    assert_eq!(asked(&client.answered(1, written())).0, [0, 1, 2], "all are read again");
}

#[test]
fn record_of_a_loading_master_is_read_again_after_a_pause() {
    let mut client = Client::new([true; 3]);
    client.masters.plan = Err(NoPlan::Unread { masters: vec![2], may_come: true });
    client.init();
    (0..3).for_each(|master| assert_eq!(client.scores(master), []));
    assert_eq!(asked(&client.alarm()).0, [0, 1, 2]);
    assert_eq!(client.now, 100);
    client.masters.plan = Err(NoPlan::Unread { masters: vec![2], may_come: false });
    (0..2).for_each(|master| assert_eq!(client.scores(master), []));
    assert_eq!(failure(&client.scores(2)), Some(Failure::Unread(vec![2])));
}

#[test]
fn answers_to_an_earlier_round_are_ignored() {
    let mut client = Client::new([true; 3]);
    let (_, number) = asked(&client.init());
    client.questions.clear();
    assert!(!client.questions.is_current(number));
    assert_eq!(client.questions.alarm(), None);
}

#[test]
fn report_has_clock_offsets_and_lists_silent_masters() {
    let mut client = Client::new([true, true, false]);
    let told = client.input(|questions, masters, cx| questions.report(masters, cx));
    let (masters, number) = asked(&told);
    assert_eq!(masters, [0, 1]);
    let mut answered = |master, micros| {
        let said = AdmissionReply::Facts { facts: facts(master, micros), members: None };
        client.input(|questions, masters, cx| {
            questions.report_answered(number, master, Ok(said), masters, cx);
        })
    };
    assert_eq!(answered(0, 1_000_000), []);
    let told = answered(1, 1_250_000);
    let [Told::Report(same, rows)] = &told[..] else { panic!("{told:?}") };
    assert_eq!(*same, number);
    let offset = |row: &ReportRow| row.server.as_ref().and_then(|server| server.clock_offset_ms);
    assert_eq!(rows.iter().map(offset).collect::<Vec<_>>(), [Some(0), Some(250), None]);
}

/// An address that is connected while others answer may be a duplicate, and shorten the list.
#[test]
fn report_rows_show_the_list_at_the_end() {
    let mut client = Client::new([true, true, false]);
    client.masters.why_no_locks = Some(Cause::TimedOut);
    let (masters, number) = asked(&client.input(|all, masters, cx| all.report(masters, cx)));
    let mut told = Vec::new();
    for master in masters {
        let said = AdmissionReply::Facts { facts: facts(master, 0), members: None };
        told = client.input(|all, masters, cx| {
            all.report_answered(number, master, Ok(said), masters, cx);
        });
        client.masters.why_no_locks = None;
    }
    let [Told::Report(_, rows)] = &told[..] else { panic!("{told:?}") };
    assert!(rows.iter().all(|row| row.why_no_locks.is_none()), "{rows:?}");
}

/// Otherwise a master that is connected too late for its query has neither an answer nor a reason.
#[test]
fn masters_connected_during_a_report_are_queried_as_well() {
    let mut client = Client::new([true, false, false]);
    client.masters.why_not = None;
    let (masters, number) = asked(&client.input(|all, masters, cx| all.report(masters, cx)));
    assert_eq!(masters, [0]);
    client.masters.connected = vec![true, true, true];
    let answer = |client: &mut Client, master, said| {
        client.input(|all, masters, cx| all.report_answered(number, master, said, masters, cx))
    };
    let of = |master| AdmissionReply::Facts { facts: facts(master, 0), members: None };
    assert_eq!(asked(&answer(&mut client, 0, Ok(of(0)))), (vec![1, 2], number));
    assert_eq!(answer(&mut client, 1, Err(Cause::ConnectionClosed)), []);
    let told = client.input(|all, masters, cx| all.report_due(number, masters, cx));
    let [Told::Report(_, rows)] = &told[..] else { panic!("{told:?}") };
    let causes: Vec<_> = rows.iter().map(|row| row.why_not.clone()).collect();
    assert_eq!(causes, [None, Some(Cause::ConnectionClosed), Some(Cause::TimedOut)]);
}

#[test]
fn report_without_connected_masters_completes_immediately() {
    let mut client = Client::new([false; 3]);
    let told = client.input(|questions, masters, cx| questions.report(masters, cx));
    assert!(matches!(&told[..], [Told::Report(_, rows)] if rows.len() == 3));
}
