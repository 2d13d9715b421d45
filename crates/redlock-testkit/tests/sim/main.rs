//! The simulated master and its switches, in virtual time. Needs nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so what it expects")]

mod connections;
mod pushes;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redlock_core::{
    Answer, Cause, Events, Facts, Instant, Node, NodeEvent, Op, Sink, Token, Verb, Verdict, Vote,
    VoteSlot,
};
use redlock_testkit::{SimNode, SimNodes};
use tokio::time::sleep;

const KEY: &[u8] = b"orders:42";

/// The votes and events in order. Each ticket is one request.
#[derive(Default)]
struct Seen {
    votes: Mutex<Vec<Vote>>,
    events: Mutex<Vec<NodeEvent>>,
    /// A node that the test uses while it casts or reports, when it must not be locked.
    watched: Mutex<Option<Arc<SimNode>>>,
}

impl Sink for Seen {
    fn vote(&self, vote: Vote) {
        self.votes.lock().unwrap().push(vote);
    }

    fn event(&self, _master: usize, event: NodeEvent) {
        if let Some(node) = &*self.watched.lock().unwrap() {
            node.keys();
        }
        self.events.lock().unwrap().push(event);
    }
}

impl Seen {
    fn submit(self: &Arc<Self>, node: &SimNode, ticket: u128, op: Op) {
        node.submit(op, VoteSlot::new(self.clone(), 0, ticket, Instant::ORIGIN));
    }

    fn drive(self: &Arc<Self>, node: &Arc<SimNode>) -> impl Sized + use<> {
        node.clone().drive(Events::new(self.clone(), 0)).expect("it is driven")
    }

    fn tickets(&self) -> Vec<u128> {
        self.votes.lock().unwrap().iter().map(|vote| vote.ticket).collect()
    }

    fn answers(&self) -> Vec<Answer> {
        self.votes.lock().unwrap().iter().map(|vote| vote.answer.clone()).collect()
    }

    /// The events since the last look.
    fn events(&self) -> Vec<NodeEvent> {
        std::mem::take(&mut self.events.lock().unwrap())
    }

    /// The last event, which must be a new connection.
    fn last_up(&self) -> Facts {
        match self.events().pop() {
            Some(NodeEvent::Up(facts)) => facts,
            event => panic!("{event:?}"),
        }
    }

    /// The one event since the last look, which must be a new connection.
    fn up(&self) -> Facts {
        match self.events().as_slice() {
            [NodeEvent::Up(facts)] => facts.clone(),
            events => panic!("{events:?}"),
        }
    }
}

fn down(cause: Cause, retries_now: bool) -> NodeEvent {
    NodeEvent::Down { cause, retries_now }
}

fn token(text: &str) -> Token {
    Token::parse(text).unwrap()
}

fn acquire(px: u64) -> Op {
    Op::acquire(KEY, token("t"), px)
}

fn release() -> Op {
    Op::release(KEY, token("t"))
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn one(seed: u64) -> Arc<SimNode> {
    SimNodes::new(1, seed)[0].clone()
}

fn lost() -> Answer {
    Answer::unknown(Cause::ConnectionClosed)
}

#[test]
fn without_delays_masters_answer_immediately_without_a_runtime() {
    let (node, seen) = (one(0), Arc::<Seen>::default());
    seen.submit(&node, 0, acquire(60_000));
    assert_eq!(seen.answers(), [Answer::granted()]);
    assert_eq!(node.holder(KEY).as_deref(), Some("t"));
    seen.submit(&node, 1, release());
    assert_eq!(seen.answers().last(), Some(&Answer::granted()));
    assert_eq!(node.keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn delayed_requests_keep_their_order() {
    let (node, seen) = (one(1), Arc::<Seen>::default());
    node.delay(ms(10)..=ms(90), ms(10)..=ms(90));
    for ticket in 0..50 {
        seen.submit(&node, ticket, if ticket % 2 == 0 { acquire(1_000) } else { release() });
    }
    assert_eq!(seen.tickets(), [0_u128; 0], "no answer can have arrived yet");
    sleep(ms(19)).await;
    assert_eq!(seen.tickets(), [0_u128; 0], "no answer can have arrived yet");
    sleep(ms(200)).await;
    assert_eq!(seen.tickets(), (0..50).collect::<Vec<_>>());
    assert!(seen.answers().iter().all(|answer| *answer == Answer::granted()));
}

#[tokio::test(start_paused = true)]
async fn one_seed_is_one_run() {
    async fn log(seed: u64) -> Vec<Instant> {
        let (node, seen) = (one(seed), Arc::<Seen>::default());
        node.delay(ms(0)..=ms(500), ms(0)..=ms(10));
        (0..20).for_each(|ticket| seen.submit(&node, ticket, acquire(10)));
        sleep(ms(1_000)).await;
        node.log().iter().map(|executed| executed.at).collect()
    }
    assert_eq!(log(5).await, log(5).await);
    assert_ne!(log(5).await, log(6).await);
}

#[tokio::test(start_paused = true)]
async fn held_master_executes_its_requests_later() {
    let (node, seen) = (one(0), Arc::<Seen>::default());
    let _driving = seen.drive(&node);
    seen.up();
    node.hold();
    seen.submit(&node, 0, acquire(100));
    sleep(ms(5_000)).await;
    assert_eq!(seen.tickets(), [0_u128; 0]);
    assert_eq!(seen.events(), [], "it only seems to be slow");
    node.release();
    assert_eq!(seen.answers(), [Answer::granted()]);
    assert_eq!(node.holder(KEY).as_deref(), Some("t"), "its expiry starts when it is set");
}

#[test]
fn lost_requests_are_not_executed_and_lost_replies_are() {
    for lost_requests in [true, false] {
        let (node, seen) = (one(0), Arc::<Seen>::default());
        let lose = |yes| match lost_requests {
            true => node.lose_requests(yes),
            false => node.lose_replies(yes),
        };
        lose(true);
        seen.submit(&node, 0, acquire(60_000));
        assert_eq!(seen.tickets(), [0_u128; 0]);
        assert_eq!(node.keys(), usize::from(!lost_requests));
        lose(false);
        assert_eq!(seen.answers(), [lost()], "the silent connection is replaced");
        seen.submit(&node, 1, release());
        assert_eq!(seen.tickets(), [0, 1]);
        assert_eq!(node.keys(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn broken_connection_leaves_no_request_after_the_next() {
    let (mut arrived, mut before_due) = ([0; 2], 0);
    for seed in 0..100 {
        let (node, seen) = (one(seed), Arc::<Seen>::default());
        let _driving = seen.drive(&node);
        seen.up();
        node.delay(ms(20)..=ms(40), ms(0)..=ms(0));
        seen.submit(&node, 0, acquire(60_000));
        node.partition();
        assert_eq!(seen.answers(), [lost()]);
        assert_eq!(seen.events(), [down(Cause::ConnectionClosed, false)]);
        seen.submit(&node, 1, release());
        assert_eq!(seen.answers()[1], Answer::unsent(Cause::ConnectionClosed));
        sleep(ms(seed % 60)).await;
        node.heal();
        arrived[node.keys()] += 1;
        before_due += if seed % 60 < 20 { node.keys() } else { 0 };
        seen.submit(&node, 2, release());
        sleep(ms(1_000)).await;
        assert_eq!(seen.tickets(), [0, 1, 2]);
        assert_eq!(node.keys(), 0, "seed {seed}: the acquire came after its release");
    }
    assert!(arrived.iter().all(|runs| *runs > 10), "both ends are possible: {arrived:?}");
    assert!(before_due > 0, "a heal may bring what is on its way just before the new connection");
}

#[tokio::test(start_paused = true)]
async fn in_flight_requests_arrive_in_order_or_not_at_all() {
    for seed in 0..50 {
        let (node, seen) = (one(seed), Arc::<Seen>::default());
        node.delay(ms(0)..=ms(80), ms(0)..=ms(0));
        for ticket in 0..10 {
            seen.submit(&node, ticket, Op::inspect([ticket as u8]));
        }
        sleep(ms(20)).await;
        node.partition();
        sleep(ms(30)).await;
        node.heal();
        let arrived = node.log().len();
        sleep(ms(1_000)).await;
        assert_eq!(
            node.log().len(),
            arrived,
            "seed {seed}: it must arrive before the next or never"
        );
        let keys: Vec<_> = node.log().iter().map(|executed| executed.key[0]).collect();
        assert_eq!(keys, (0..keys.len() as u8).collect::<Vec<_>>(), "seed {seed}");
        assert_eq!(seen.tickets().len(), 10, "every slot was cast");
    }
}

#[test]
fn stopped_master_refuses_and_returns_with_its_keys() {
    let (node, seen) = (one(0), Arc::<Seen>::default());
    let _driving = seen.drive(&node);
    let before = seen.up();
    seen.submit(&node, 0, acquire(60_000));
    node.down();
    assert_eq!(seen.events(), [down(Cause::ConnectionRefused, false)]);
    seen.submit(&node, 1, release());
    assert_eq!(seen.answers()[1], Answer::unsent(Cause::ConnectionRefused));
    node.up();
    assert_eq!(seen.up().identity, before.identity, "it is the same process");
    assert_eq!(node.holder(KEY).as_deref(), Some("t"));
}

#[test]
fn restart_is_reported_as_another_process() {
    for keep in [true, false] {
        let (node, seen) = (one(0), Arc::<Seen>::default());
        let _driving = seen.drive(&node);
        let before = seen.up();
        seen.submit(&node, 0, acquire(60_000));
        node.hold();
        seen.submit(&node, 1, release());
        node.crash_and_restart(keep);
        assert_eq!(seen.answers()[1], lost());
        let events = seen.events();
        let [NodeEvent::Down { retries_now: true, .. }, NodeEvent::Up(after)] = &events[..] else {
            panic!("{events:?}");
        };
        assert_ne!(after.run_id, before.run_id);
        assert_eq!(node.keys(), usize::from(keep), "the dead process read nothing more");
    }
}

#[tokio::test(start_paused = true)]
async fn keys_expire_by_the_clock_of_their_master() {
    let (node, seen) = (one(0), Arc::<Seen>::default());
    seen.submit(&node, 0, acquire(1_000));
    sleep(ms(1_000)).await;
    assert_eq!(node.keys(), 1, "Redis keeps a key through its last millisecond");
    sleep(ms(1)).await;
    assert_eq!(node.keys(), 0);

    seen.submit(&node, 1, acquire(1_000));
    node.step_clock(900);
    sleep(ms(101)).await;
    assert_eq!(node.keys(), 0, "a step forward shortens the key's time");

    node.set_clock_rate(0.5);
    seen.submit(&node, 2, acquire(1_000));
    sleep(ms(2_000)).await;
    assert_eq!(node.keys(), 1, "a slow clock keeps it longer");
    assert_eq!(seen.answers(), vec![Answer::granted(); 3]);
}

#[test]
fn error_replies_are_unknown_and_have_no_effect() {
    let (node, seen) = (one(0), Arc::<Seen>::default());
    node.error_replies(Some("OOM command not allowed"));
    seen.submit(&node, 0, acquire(1_000));
    let oom = Answer::unknown(Cause::ErrorReply("OOM command not allowed".into()));
    assert_eq!(seen.answers(), [oom]);
    assert_eq!(node.keys(), 0);
    node.error_replies(None);
    seen.submit(&node, 1, acquire(1_000));
    assert_eq!(seen.answers()[1], Answer::granted());
}

#[test]
fn two_clients_share_masters_over_separate_networks() {
    let first = SimNodes::new(1, 0);
    let second = first.another_client();
    let seen = Arc::<Seen>::default();
    first[0].partition();
    seen.submit(&second[0], 0, acquire(60_000));
    assert_eq!(seen.answers(), [Answer::granted()]);
    assert_eq!(first[0].holder(KEY).as_deref(), Some("t"));
    second[0].down();
    let _driving = seen.drive(&first[0]);
    assert_eq!(seen.events(), [down(Cause::ConnectionRefused, false)]);
}

#[test]
fn log_records_executed_requests() {
    let (node, seen) = (one(0), Arc::<Seen>::default());
    node.put(KEY, "stranger", 1_000);
    seen.submit(&node, 0, acquire(500));
    node.flush();
    seen.submit(&node, 1, acquire(500));
    let log = node.log();
    let verdicts: Vec<_> = log.iter().map(|executed| executed.verdict.clone()).collect();
    assert_eq!(verdicts, [Verdict::HELD, Verdict::Granted]);
    assert_eq!((log[0].verb, log[0].token.as_str()), (Verb::Acquire { px: 500 }, "t"));
}
