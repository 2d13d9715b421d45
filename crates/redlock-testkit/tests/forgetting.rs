//! The admission data of a simulated master, and the effect of each of its switches on it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so what it expects")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redlock_core::admission::{AdmissionOp, AdmissionReply, MEMBERS};
use redlock_core::{
    Answer, Cause, Events, Facts, Instant, Node, NodeEvent, Op, Role, Sink, Token, Vote, VoteSlot,
};
use redlock_testkit::{SimNode, SimNodes};

const MAX_TTL: Duration = Duration::from_secs(60);

/// The votes and the events, each in order.
#[derive(Default)]
struct Seen {
    votes: Mutex<Vec<Answer>>,
    events: Mutex<Vec<NodeEvent>>,
}

impl Sink for Seen {
    fn vote(&self, vote: Vote) {
        self.votes.lock().unwrap().push(vote.answer);
    }

    fn event(&self, _: usize, event: NodeEvent) {
        self.events.lock().unwrap().push(event);
    }
}

/// An admitted master, a client of it, and everything the client has seen.
struct Lab {
    node: Arc<SimNode>,
    seen: Arc<Seen>,
    _driving: Box<dyn Send>,
}

impl Lab {
    fn new() -> Self {
        let masters = SimNodes::new(1, 0);
        masters.init(MAX_TTL);
        let (node, seen) = (masters[0].clone(), Arc::<Seen>::default());
        let driving = node.clone().drive(Events::new(seen.clone(), 0)).unwrap();
        Self { node, seen, _driving: Box::new(driving) }
    }

    /// The facts of the latest connection.
    fn facts(&self) -> Facts {
        let events = self.seen.events.lock().unwrap();
        let up = |event: &NodeEvent| match event {
            NodeEvent::Up(facts) => Some(facts.clone()),
            _ => None,
        };
        events.iter().rev().find_map(up).expect("a connection")
    }

    /// Returns `true` if the latest facts show an admitted master.
    fn is_admitted(&self) -> bool {
        let facts = self.facts();
        facts.record.unwrap().admits(facts.identity.unwrap())
    }

    fn was_reported(&self, event: &NodeEvent) -> bool {
        self.seen.events.lock().unwrap().contains(event)
    }

    fn ask(&self, op: Op) -> Answer {
        self.node.submit(op, VoteSlot::new(self.seen.clone(), 0, 0, Instant::ORIGIN));
        self.seen.votes.lock().unwrap().pop().expect("an answer")
    }

    fn acquire(&self) -> Answer {
        self.ask(Op::acquire(*b"k", Token::random(None), 1_000))
    }

    fn admission(&self, op: AdmissionOp) -> Result<AdmissionReply, Cause> {
        self.ask(Op::admission(op)).into_admission()
    }
}

#[test]
fn admitted_master_reports_its_members() {
    let lab = Lab::new();
    assert!(lab.is_admitted());
    assert!(lab.was_reported(&NodeEvent::Members(MEMBERS)));
}

#[test]
fn restart_changes_the_identity_with_or_without_the_record() {
    let lab = Lab::new();
    lab.node.crash_and_restart(true);
    assert!(lab.facts().record.unwrap().run.is_some() && !lab.is_admitted());
    lab.node.crash_and_restart(false);
    assert_eq!(lab.facts().record.unwrap().run, None);
    assert_eq!(lab.node.data().sets, []);
}

#[test]
fn a_flush_takes_the_record_and_keeps_the_identity() {
    let lab = Lab::new();
    let before = lab.facts().identity;
    lab.node.flush();
    assert!(lab.was_reported(&NodeEvent::DataLost));
    let Ok(AdmissionReply::Facts { facts, members }) = lab.admission(AdmissionOp::ReadFacts) else {
        panic!("the facts")
    };
    assert_eq!((facts.identity, members), (before, Some(0)));
    assert_eq!(facts.record.unwrap().run, None);
}

#[test]
fn failover_and_back_changes_the_identity_of_the_process() {
    let lab = Lab::new();
    let before = lab.facts();
    lab.node.set_role(Role::Replica);
    lab.node.set_role(Role::Master);
    assert_eq!(lab.facts().run_id, before.run_id);
    assert!(!lab.is_admitted());
}

#[test]
fn without_tracking_lost_data_is_not_reported() {
    let lab = Lab::new();
    lab.node.set_tracking(false);
    assert_eq!(lab.acquire(), Answer::granted());
    lab.node.flush();
    assert_eq!(lab.acquire(), Answer::granted());
    assert!(lab.admission(AdmissionOp::ReadFacts).is_ok());
    assert!(!lab.was_reported(&NodeEvent::DataLost), "it pushes nothing");
}

#[test]
fn stepped_clock_changes_the_reported_time() {
    let lab = Lab::new();
    let time = || match lab.admission(AdmissionOp::ReadTime) {
        Ok(AdmissionReply::Time { time, .. }) => time,
        said => panic!("{said:?}"),
    };
    let before = time();
    lab.node.step_clock(3_600_000);
    let ahead = time() - before;
    assert!((3_600_000..3_660_000).contains(&ahead), "{ahead}");
}

#[test]
fn query_of_an_unreachable_master_fails_immediately() {
    let lab = Lab::new();
    lab.node.down();
    assert_eq!(lab.admission(AdmissionOp::ReadFacts), Err(Cause::ConnectionRefused));
    lab.node.up();
    lab.node.error_replies(Some("NOPERM no"));
    assert_eq!(lab.admission(AdmissionOp::ReadFacts), Err(Cause::ErrorReply("NOPERM no".into())));
}
