//! A simulated master without a runtime: late requests, old data, and what follows from a delay.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so what it expects")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redlock_core::{Answer, Events, Instant, NodeEvent, Op, Sink, Token, Verdict, Vote, VoteSlot};
use redlock_testkit::{InFlight, Outbox, Restart, World};

const KEY: &[u8] = b"orders:42";
const MS: Duration = Duration::from_millis(1);

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

#[derive(Default)]
struct Seen {
    answers: Mutex<Vec<Answer>>,
    events: Mutex<Vec<NodeEvent>>,
}

impl Sink for Seen {
    fn vote(&self, vote: Vote) {
        self.answers.lock().unwrap().push(vote.answer);
    }

    fn event(&self, _: usize, event: NodeEvent) {
        self.events.lock().unwrap().push(event);
    }
}

/// A master with one connection, whose messages take a millisecond each way.
struct Lab {
    world: World,
    link: usize,
    seen: Arc<Seen>,
}

impl Lab {
    fn new() -> Self {
        let mut world = World::new(1, at(0));
        world.keep_log();
        let link = world.connect(Some(1));
        world.delay(link, MS..=MS, MS..=MS);
        Self { world, link, seen: Arc::default() }
    }

    /// Does something, and then all that is due.
    fn at<R>(&mut self, millis: u64, act: impl FnOnce(&mut World, usize, &mut Outbox) -> R) -> R {
        let mut outbox = Outbox::default();
        let done = act(&mut self.world, self.link, &mut outbox);
        self.world.settle(at(millis), &mut outbox);
        outbox.deliver();
        done
    }

    fn submit(&mut self, millis: u64, op: Op) {
        let slot = VoteSlot::new(self.seen.clone(), 0, 0, at(millis));
        self.at(millis, |world, link, outbox| world.submit(link, (op, slot), at(millis), outbox));
    }

    fn verdicts(&self) -> Vec<Verdict> {
        self.seen.answers.lock().unwrap().iter().map(|answer| answer.verdict.clone()).collect()
    }

    fn holder(&self, millis: u64) -> Option<String> {
        self.world.holder(KEY, at(millis))
    }
}

fn acquire(token: &Token) -> Op {
    Op::acquire(KEY, token.clone(), 1_000)
}

#[test]
fn request_is_answered_after_both_delays() {
    let mut lab = Lab::new();
    lab.submit(0, acquire(&Token::random(None)));
    assert_eq!((lab.world.next_due(), lab.verdicts()), (Some(at(1)), vec![]));
    lab.at(1, |_, _, _| ());
    assert_eq!((lab.world.next_due(), lab.verdicts()), (Some(at(2)), vec![]));
    lab.at(2, |_, _, _| ());
    assert_eq!((lab.world.next_due(), lab.verdicts()), (None, vec![Verdict::Granted]));
}

/// The server could not be told to close the former connection, and reports that on the next one.
#[test]
fn late_requests_follow_the_next_connections_requests() {
    let (first, second) = (Token::random(None), Token::random(None));
    let mut lab = Lab::new();
    let seen: Arc<dyn Sink> = lab.seen.clone();
    lab.at(0, |world, link, outbox| world.listen(link, Events::new(seen, 0), at(0), outbox));
    lab.submit(0, acquire(&first));
    lab.submit(0, Op::release(KEY, first.clone()));
    let late = InFlight::Late(1, MS * 100);
    lab.at(0, |world, link, outbox| world.cut_with(link, late, at(0), outbox));
    assert_eq!(lab.verdicts().len(), 2, "both are unknown");
    let barriers = |event: &NodeEvent| match event {
        NodeEvent::Up(facts) => Some(facts.has_barrier),
        _ => None,
    };
    let seen: Vec<_> = lab.seen.events.lock().unwrap().iter().filter_map(barriers).collect();
    assert_eq!(seen, [true, false], "it is connected again");
    lab.submit(1, acquire(&second));
    lab.at(2, |_, _, _| ());
    assert_eq!(lab.holder(2).as_deref(), Some(second.as_str()));
    lab.submit(3, Op::release(KEY, second));
    lab.at(4, |_, _, _| ());
    assert_eq!((lab.holder(4), lab.world.next_due()), (None, Some(at(5))));
    lab.at(100, |_, _, _| ());
    assert_eq!(lab.holder(100).as_deref(), Some(first.as_str()), "and its release is lost");
}

#[test]
fn late_requests_end_with_their_process() {
    let mut lab = Lab::new();
    lab.submit(0, acquire(&Token::random(None)));
    let late = InFlight::Late(1, MS * 100);
    lab.at(0, |world, link, outbox| world.cut_with(link, late, at(0), outbox));
    lab.at(50, |world, _, outbox| world.restart(Restart::Keeping, at(50), outbox));
    lab.at(200, |_, _, _| ());
    assert_eq!((lab.holder(200), lab.world.log().len()), (None, 0));
}

#[test]
fn master_can_restart_with_old_data() {
    let (old, new) = (Token::random(None), Token::random(None));
    let mut lab = Lab::new();
    lab.world.delay(lab.link, Duration::ZERO..=Duration::ZERO, Duration::ZERO..=Duration::ZERO);
    lab.submit(0, acquire(&old));
    let copy = lab.world.snapshot();
    lab.submit(1, Op::release(KEY, old.clone()));
    lab.submit(1, acquire(&new));
    assert_eq!(lab.holder(1).as_deref(), Some(new.as_str()));
    lab.at(2, |world, _, outbox| world.restart(Restart::From(copy.into()), at(2), outbox));
    assert_eq!(lab.holder(2).as_deref(), Some(old.as_str()));
    assert_eq!(lab.holder(1_001), None, "its keys expire at the same time as before");
    lab.at(3, |world, _, outbox| world.restart(Restart::Empty, at(3), outbox));
    assert_eq!(lab.world.keys(at(3)), 0);
}
