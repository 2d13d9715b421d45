//! The simulated master and its switches, in virtual time. Needs nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so what it expects")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redlock_core::{
    Answer, Ballot, Cause, Instant, Node, NodeState, Op, Token, Verb, Verdict, Vote, VoteSlot,
};
use redlock_testkit::{SimNode, SimNodes};
use tokio::time::sleep;

const KEY: &[u8] = b"orders:42";

/// The votes that were cast, in their order; each attempt number is one request.
#[derive(Default)]
struct Urn(Mutex<Vec<Vote>>);

impl Ballot for Urn {
    fn cast(self: Arc<Self>, vote: Vote) {
        self.0.lock().unwrap().push(vote);
    }
}

impl Urn {
    fn submit(self: &Arc<Self>, node: &SimNode, attempt: u32, op: Op) {
        node.submit(op, VoteSlot::new(self.clone(), 0, attempt, Instant::ORIGIN));
    }

    fn attempts(&self) -> Vec<u32> {
        self.0.lock().unwrap().iter().map(|vote| vote.attempt).collect()
    }

    fn answers(&self) -> Vec<Answer> {
        self.0.lock().unwrap().iter().map(|vote| vote.answer.clone()).collect()
    }
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
fn without_delays_it_answers_at_once_and_needs_no_runtime() {
    let (node, urn) = (one(0), Arc::<Urn>::default());
    urn.submit(&node, 0, acquire(60_000));
    assert_eq!(urn.answers(), [Answer::granted()]);
    assert_eq!(node.holder(KEY).as_deref(), Some("t"));
    urn.submit(&node, 1, release());
    assert_eq!(urn.answers().last(), Some(&Answer::granted()));
    assert_eq!(node.keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn delays_take_their_time_and_nothing_overtakes() {
    let (node, urn) = (one(1), Arc::<Urn>::default());
    node.delay(ms(10)..=ms(90), ms(10)..=ms(90));
    for attempt in 0..50 {
        urn.submit(&node, attempt, if attempt % 2 == 0 { acquire(1_000) } else { release() });
    }
    assert_eq!(urn.attempts(), [0_u32; 0], "nothing can have come back yet");
    sleep(ms(19)).await;
    assert_eq!(urn.attempts(), [0_u32; 0], "nothing can have come back yet");
    sleep(ms(200)).await;
    assert_eq!(urn.attempts(), (0..50).collect::<Vec<_>>());
    assert!(urn.answers().iter().all(|answer| *answer == Answer::granted()));
}

#[tokio::test(start_paused = true)]
async fn one_seed_is_one_run() {
    async fn log(seed: u64) -> Vec<Instant> {
        let (node, urn) = (one(seed), Arc::<Urn>::default());
        node.delay(ms(0)..=ms(500), ms(0)..=ms(10));
        (0..20).for_each(|attempt| urn.submit(&node, attempt, acquire(10)));
        sleep(ms(1_000)).await;
        node.log().iter().map(|executed| executed.at).collect()
    }
    assert_eq!(log(5).await, log(5).await);
    assert_ne!(log(5).await, log(6).await);
}

#[tokio::test(start_paused = true)]
async fn a_held_master_carries_out_later_what_it_was_sent() {
    let (node, urn) = (one(0), Arc::<Urn>::default());
    node.hold();
    urn.submit(&node, 0, acquire(100));
    sleep(ms(5_000)).await;
    assert_eq!(urn.attempts(), [0_u32; 0]);
    assert!(matches!(node.state(), NodeState::Up { .. }), "nobody can tell yet");
    node.release();
    assert_eq!(urn.answers(), [Answer::granted()]);
    assert_eq!(node.holder(KEY).as_deref(), Some("t"), "its life began when it was set");
}

#[test]
fn lost_requests_do_nothing_and_lost_replies_hide_what_was_done() {
    for lost_requests in [true, false] {
        let (node, urn) = (one(0), Arc::<Urn>::default());
        let lose = |yes| match lost_requests {
            true => node.lose_requests(yes),
            false => node.lose_replies(yes),
        };
        lose(true);
        urn.submit(&node, 0, acquire(60_000));
        assert_eq!(urn.attempts(), [0_u32; 0]);
        assert_eq!(node.keys(), usize::from(!lost_requests));
        lose(false);
        assert_eq!(urn.answers(), [lost()], "the silent connection is replaced");
        urn.submit(&node, 1, release());
        assert_eq!(urn.attempts(), [0, 1]);
        assert_eq!(node.keys(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_broken_connection_answers_unknown_and_nothing_of_it_follows_the_next_one() {
    let (mut arrived, mut before_due) = ([0; 2], 0);
    for seed in 0..100 {
        let (node, urn) = (one(seed), Arc::<Urn>::default());
        node.delay(ms(20)..=ms(40), ms(0)..=ms(0));
        urn.submit(&node, 0, acquire(60_000));
        node.partition();
        assert_eq!(urn.answers(), [lost()]);
        assert_eq!(node.state(), NodeState::Down(Cause::ConnectionClosed));
        urn.submit(&node, 1, release());
        assert_eq!(urn.answers()[1], Answer::unsent(Cause::ConnectionClosed));
        sleep(ms(seed % 60)).await;
        node.heal();
        arrived[node.keys()] += 1;
        before_due += if seed % 60 < 20 { node.keys() } else { 0 };
        urn.submit(&node, 2, release());
        sleep(ms(1_000)).await;
        assert_eq!(urn.attempts(), [0, 1, 2]);
        assert_eq!(node.keys(), 0, "seed {seed}: the acquire came after its release");
    }
    assert!(arrived.iter().all(|runs| *runs > 10), "both ends are possible: {arrived:?}");
    assert!(before_due > 0, "a heal may bring what is on its way just before the new connection");
}

#[tokio::test(start_paused = true)]
async fn what_was_on_its_way_arrives_in_order_if_at_all() {
    for seed in 0..50 {
        let (node, urn) = (one(seed), Arc::<Urn>::default());
        node.delay(ms(0)..=ms(80), ms(0)..=ms(0));
        for attempt in 0..10 {
            urn.submit(&node, attempt, Op::inspect([attempt as u8]));
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
        assert_eq!(urn.attempts().len(), 10, "every slot was cast");
    }
}

#[test]
fn a_master_that_is_down_refuses_at_once_and_comes_back_with_its_keys() {
    let (node, urn) = (one(0), Arc::<Urn>::default());
    urn.submit(&node, 0, acquire(60_000));
    node.down();
    assert_eq!(node.state(), NodeState::Down(Cause::ConnectionRefused));
    urn.submit(&node, 1, release());
    assert_eq!(urn.answers()[1], Answer::unsent(Cause::ConnectionRefused));
    node.up();
    assert_eq!(node.state(), NodeState::Up { incarnation: 1 });
    assert_eq!(node.holder(KEY).as_deref(), Some("t"));
}

#[test]
fn a_restart_shows_as_another_incarnation_with_or_without_the_keys() {
    for keep in [true, false] {
        let (node, urn) = (one(0), Arc::<Urn>::default());
        urn.submit(&node, 0, acquire(60_000));
        node.hold();
        urn.submit(&node, 1, release());
        node.crash_and_restart(keep);
        assert_eq!(urn.answers()[1], lost());
        assert_eq!(node.state(), NodeState::Up { incarnation: 2 });
        assert_eq!(node.keys(), usize::from(keep), "the dead process read nothing more");
    }
}

#[tokio::test(start_paused = true)]
async fn keys_expire_by_the_master_s_own_clock() {
    let (node, urn) = (one(0), Arc::<Urn>::default());
    urn.submit(&node, 0, acquire(1_000));
    sleep(ms(1_000)).await;
    assert_eq!(node.keys(), 1, "Redis keeps a key through its last millisecond");
    sleep(ms(1)).await;
    assert_eq!(node.keys(), 0);

    urn.submit(&node, 1, acquire(1_000));
    node.step_clock(900);
    sleep(ms(101)).await;
    assert_eq!(node.keys(), 0, "a step forward takes time from the key");

    node.set_clock_rate(0.5);
    urn.submit(&node, 2, acquire(1_000));
    sleep(ms(2_000)).await;
    assert_eq!(node.keys(), 1, "a slow clock keeps it longer");
    assert_eq!(urn.answers(), vec![Answer::granted(); 3]);
}

#[test]
fn error_replies_are_unknown_with_their_text_and_do_nothing() {
    let (node, urn) = (one(0), Arc::<Urn>::default());
    node.error_replies(Some("OOM command not allowed"));
    urn.submit(&node, 0, acquire(1_000));
    let told = Answer::unknown(Cause::ErrorReply("OOM command not allowed".into()));
    assert_eq!(urn.answers(), [told]);
    assert_eq!(node.keys(), 0);
    node.error_replies(None);
    urn.submit(&node, 1, acquire(1_000));
    assert_eq!(urn.answers()[1], Answer::granted());
}

#[test]
fn two_clients_share_the_master_and_not_the_network() {
    let first = SimNodes::new(1, 0);
    let second = first.another_client();
    let urn = Arc::<Urn>::default();
    first[0].partition();
    urn.submit(&second[0], 0, acquire(60_000));
    assert_eq!(urn.answers(), [Answer::granted()]);
    assert_eq!(first[0].holder(KEY).as_deref(), Some("t"));
    second[0].down();
    assert_eq!(first[0].state(), NodeState::Down(Cause::ConnectionRefused));
}

#[test]
fn the_log_tells_what_was_carried_out() {
    let (node, urn) = (one(0), Arc::<Urn>::default());
    node.put(KEY, "stranger", 1_000);
    urn.submit(&node, 0, acquire(500));
    node.flush();
    urn.submit(&node, 1, acquire(500));
    let log = node.log();
    let verdicts: Vec<_> = log.iter().map(|executed| executed.verdict.clone()).collect();
    assert_eq!(verdicts, [Verdict::Refused, Verdict::Granted]);
    assert_eq!((log[0].verb, log[0].token.as_str()), (Verb::Acquire { px: 500 }, "t"));
}

#[tokio::test(start_paused = true)]
async fn whoever_drives_it_hears_of_changes_until_the_future_is_dropped() {
    let (node, urn) = (one(0), Arc::<Urn>::default());
    let changes = Arc::new(AtomicUsize::new(0));
    let (count, watched) = (changes.clone(), node.clone());
    let driving = node.clone().drive(Arc::new(move || {
        // A listener looks at the node: the node must not be locked then.
        drop(watched.state());
        count.fetch_add(1, Ordering::Relaxed);
    }));
    node.partition();
    node.heal();
    node.step_clock(1);
    node.crash_and_restart(true);
    assert_eq!(changes.load(Ordering::Relaxed), 3);

    node.delay(ms(50)..=ms(50), ms(0)..=ms(0));
    urn.submit(&node, 0, acquire(1_000));
    drop(driving);
    assert_eq!(urn.answers(), [lost()], "nobody is left waiting");
    node.partition();
    assert_eq!(changes.load(Ordering::Relaxed), 3);
}
