//! The behavior of every node, simulated or real: one set of tests, which each suite runs on its
//! own `backend`. They check that the simulation matches real servers.

mod admission;
mod ballots;
mod marks;
mod queue_ballots;
mod queues;
mod reservations;
mod resuming;

use std::sync::Arc;
use std::time::Duration;

use redlock_core::admission::{AdmissionOp, AdmissionReply};
use redlock_core::{
    Answer, Cause, Events, Facts, Instant, Node, NodeEvent, Op, Token, Verdict, Vote, VoteSlot,
};
use redlock_testkit::lab::Report;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::backend::Backend;

const KEY: &[u8] = b"orders:42";
/// Long enough that nothing expires under a test that runs slowly.
const LONG: u64 = 60_000;
/// Longer than any answer takes, in virtual time and in real time.
const PATIENCE: Duration = Duration::from_secs(10);

struct Asker {
    node: Arc<dyn Node>,
    sink: Arc<Report>,
    votes: UnboundedReceiver<Vote>,
    events: UnboundedReceiver<NodeEvent>,
    /// The facts that the server reported when the connection was made.
    facts: Facts,
    driving: Option<JoinHandle<()>>,
}

impl Asker {
    /// Drives the node, and waits until it is connected.
    async fn new(backend: &Backend) -> Self {
        Self::of(backend.node()).await
    }

    /// Creates the same over a separate connection.
    async fn another(backend: &Backend) -> Self {
        Self::of(backend.another_node()).await
    }

    async fn of(node: Arc<dyn Node>) -> Self {
        let (sink, votes, mut events) = Report::new();
        let driving = node.clone().drive(Events::new(sink.clone(), 0)).map(tokio::spawn);
        match timeout(PATIENCE, events.recv()).await.expect("an event in time") {
            Some(NodeEvent::Up(facts)) => Self { node, sink, votes, events, facts, driving },
            event => panic!("{event:?}"),
        }
    }

    async fn admission(&mut self, op: AdmissionOp) -> Result<AdmissionReply, Cause> {
        self.ask(Op::admission(op)).await.into_admission()
    }

    async fn event(&mut self) -> NodeEvent {
        timeout(PATIENCE, self.events.recv()).await.expect("an event in time").expect("an event")
    }

    fn submit(&self, ticket: u128, op: Op) {
        self.node.submit(op, VoteSlot::new(self.sink.clone(), 0, ticket, Instant::ORIGIN));
    }

    async fn vote(&mut self) -> Vote {
        timeout(PATIENCE, self.votes.recv()).await.expect("an answer in time").expect("a vote")
    }

    async fn ask(&mut self, op: Op) -> Answer {
        self.submit(0, op);
        self.vote().await.answer
    }

    async fn acquire(&mut self, token: &Token, px: u64) -> Answer {
        self.ask(Op::acquire(KEY, token.clone(), px)).await
    }

    async fn extend(&mut self, token: &Token, px: u64) -> Answer {
        self.ask(Op::extend(KEY, token.clone(), px)).await
    }

    async fn release(&mut self, token: &Token) -> Answer {
        self.ask(Op::release(KEY, token.clone())).await
    }

    async fn inspect(&mut self) -> Answer {
        self.ask(Op::inspect(KEY)).await
    }

    /// Returns the remaining expiry of the key.
    async fn left(&mut self) -> Duration {
        holder(&self.inspect().await).1.expect("the key expires")
    }

    async fn assert_free(&mut self) {
        assert_eq!(self.inspect().await, Answer::new(Verdict::Free));
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        if let Some(driving) = &self.driving {
            driving.abort();
        }
    }
}

/// Returns the value of a held key, and its remaining expiry.
fn holder(answer: &Answer) -> (Option<&str>, Option<Duration>) {
    match &answer.verdict {
        Verdict::Held { token, ttl } => (token.as_deref(), *ttl),
        verdict => panic!("the key should be held: {verdict:?}"),
    }
}

fn held_by(token: &Token, answer: &Answer) -> bool {
    holder(answer).0 == Some(token.as_str())
}

/// The answer to an acquire that came second.
fn taken() -> Answer {
    Answer::new(Verdict::HELD)
}

fn not_ours() -> Answer {
    Answer::new(Verdict::NotOurs)
}

fn tokens() -> (Token, Token) {
    (Token::random(None), Token::random(None))
}

#[tokio::test]
async fn acquire_grants_a_key_once_for_any_token() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend).await;
    let (ours, theirs) = tokens();
    assert_eq!(node.acquire(&ours, LONG).await, Answer::granted());
    assert_eq!(node.acquire(&theirs, LONG).await, taken());
    assert_eq!(node.acquire(&ours, LONG).await, taken(), "the same token is refused as well");
    assert!(held_by(&ours, &node.inspect().await));
}

#[tokio::test]
async fn acquire_refuses_a_strangers_key() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend).await;
    let (ours, theirs) = tokens();
    backend.put(KEY, theirs.as_str().as_bytes(), LONG).await;
    assert_eq!(node.acquire(&ours, LONG).await, taken());
    assert!(held_by(&theirs, &node.inspect().await));
}

#[tokio::test]
async fn extend_gives_a_key_of_ours_more_time() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend).await;
    let (ours, _) = tokens();
    node.acquire(&ours, LONG).await;
    assert_eq!(node.extend(&ours, 2 * LONG).await, Answer::granted());
    assert!(node.left().await > Duration::from_millis(LONG));
}

#[tokio::test]
async fn extend_never_shortens() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend).await;
    let (ours, _) = tokens();
    node.acquire(&ours, 2 * LONG).await;
    assert_eq!(node.extend(&ours, LONG).await, Answer::granted());
    assert!(node.left().await > Duration::from_millis(LONG));
}

#[tokio::test]
async fn extend_refuses_a_missing_key_and_sets_none() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend).await;
    let (ours, _) = tokens();
    assert_eq!(node.extend(&ours, LONG).await, not_ours());
    node.assert_free().await;
}

#[tokio::test]
async fn extend_refuses_a_foreign_key_and_shows_holder_and_ttl() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend).await;
    let (ours, theirs) = tokens();
    node.acquire(&theirs, LONG).await;
    let answer = node.extend(&ours, 2 * LONG).await;
    assert!(held_by(&theirs, &answer), "{answer:?}");
    let left = holder(&answer).1.expect("the key expires");
    assert!(left <= Duration::from_millis(LONG) && left > Duration::ZERO, "{left:?}");
    assert!(node.left().await <= Duration::from_millis(LONG), "it extended the other client's key");
}

#[tokio::test]
async fn key_of_another_type_is_foreign_and_has_no_value() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend).await;
    let (ours, _) = tokens();
    backend.put_other_type(KEY, LONG).await;
    assert_eq!(node.acquire(&ours, LONG).await, taken());
    assert_eq!(node.release(&ours).await, not_ours());
    for answer in [node.inspect().await, node.extend(&ours, 2 * LONG).await] {
        let (value, left) = holder(&answer);
        assert_eq!(value, None);
        let left = left.expect("the key expires");
        assert!(left <= Duration::from_millis(LONG) && left > Duration::ZERO, "{left:?}");
    }
}

#[tokio::test]
async fn release_deletes_a_key_of_ours() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend).await;
    let (ours, theirs) = tokens();
    node.acquire(&ours, LONG).await;
    assert_eq!(node.release(&ours).await, Answer::granted());
    assert_eq!(node.release(&ours).await, not_ours());
    assert_eq!(node.acquire(&theirs, LONG).await, Answer::granted());
}

#[tokio::test]
async fn release_keeps_foreign_keys() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend).await;
    let (ours, theirs) = tokens();
    assert_eq!(node.release(&ours).await, not_ours());
    node.acquire(&theirs, LONG).await;
    assert_eq!(node.release(&ours).await, not_ours());
    assert!(held_by(&theirs, &node.inspect().await));
}

#[tokio::test]
async fn inspect_distinguishes_a_free_key_from_a_held_one() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend).await;
    let (ours, _) = tokens();
    node.assert_free().await;
    node.acquire(&ours, LONG).await;
    let answer = node.inspect().await;
    assert!(held_by(&ours, &answer), "{answer:?}");
    let left = holder(&answer).1.expect("the key expires");
    assert!(left <= Duration::from_millis(LONG) && left > Duration::ZERO, "{left:?}");
}

#[tokio::test]
async fn a_long_value_is_shown_cut_at_512_bytes() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend).await;
    backend.put(KEY, &[b'x'; 600], LONG).await;
    let cut = "x".repeat(512);
    assert_eq!(holder(&node.inspect().await).0, Some(&*cut));
    assert_eq!(holder(&node.extend(&Token::random(None), LONG).await).0, Some(&*cut));
}

#[tokio::test]
async fn key_exists_until_it_expires() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend).await;
    let (ours, theirs) = tokens();
    node.acquire(&ours, 1_500).await;
    backend.pass(Duration::from_millis(100)).await;
    assert!(held_by(&ours, &node.inspect().await));
    backend.pass(Duration::from_millis(1_410)).await;
    node.assert_free().await;
    assert_eq!(node.extend(&ours, LONG).await, not_ours());
    assert_eq!(node.release(&ours).await, not_ours());
    assert_eq!(node.acquire(&theirs, LONG).await, Answer::granted());
}

#[tokio::test]
async fn zero_expiry_is_an_error_and_sets_no_key() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend).await;
    let answer = node.acquire(&Token::random(None), 0).await;
    assert!(matches!(answer.verdict, Verdict::Unknown(_)), "{answer:?}");
    node.assert_free().await;
}

#[tokio::test]
async fn any_bytes_up_to_512_make_a_key() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend).await;
    let (ours, _) = tokens();
    let names = [b"\r\n$3\r\n".to_vec(), vec![0], vec![0xff; 512], b"{a} b\tc".to_vec()];
    for name in &names {
        let answer = node.ask(Op::acquire(name.clone(), ours.clone(), LONG)).await;
        assert_eq!(answer, Answer::granted(), "{}", name.escape_ascii());
    }
    for name in &names {
        assert!(held_by(&ours, &node.ask(Op::inspect(name.clone())).await));
        let answer = node.ask(Op::release(name.clone(), ours.clone())).await;
        assert_eq!(answer, Answer::granted(), "{}", name.escape_ascii());
    }
}

#[tokio::test]
async fn requests_run_and_are_answered_in_submission_order() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend).await;
    for round in 0..100 {
        let (ours, _) = tokens();
        node.submit(2 * round, Op::acquire(KEY, ours.clone(), LONG));
        node.submit(2 * round + 1, Op::release(KEY, ours));
    }
    for ticket in 0..200 {
        let vote = node.vote().await;
        assert_eq!((vote.ticket, vote.answer), (ticket, Answer::granted()));
    }
    node.assert_free().await;
}

#[tokio::test]
async fn watch_answers_like_inspect_and_reports_one_change() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend).await;
    let (ours, theirs) = tokens();
    let changed = NodeEvent::KeyChanged(KEY.into());
    // The server also watches a key that does not exist yet, and reports a change by any client.
    assert_eq!(node.ask(Op::watch(KEY)).await, Answer::new(Verdict::Free));
    backend.put(KEY, theirs.as_str().as_bytes(), LONG).await;
    assert_eq!(node.event().await, changed);
    assert!(held_by(&theirs, &node.ask(Op::watch(KEY)).await));
    assert_eq!(node.acquire(&ours, LONG).await, taken(), "a refusal changes nothing");
    assert_eq!(node.extend(&theirs, 2 * LONG).await, Answer::granted());
    assert_eq!(node.event().await, changed);

    // One watch is one report, and an inspection is none.
    node.inspect().await;
    assert_eq!(node.release(&theirs).await, Answer::granted());
    assert_eq!(node.ask(Op::watch(KEY)).await, Answer::new(Verdict::Free));
    assert_eq!(node.acquire(&ours, LONG).await, Answer::granted());
    assert_eq!(node.event().await, changed);
    assert!(held_by(&ours, &node.ask(Op::watch(KEY)).await));
    assert_eq!(node.release(&ours).await, Answer::granted());
    assert_eq!(node.event().await, changed);
    node.inspect().await;
    assert!(node.events.try_recv().is_err(), "more was reported than was watched");
}

#[tokio::test]
async fn loss_of_all_keys_is_reported_without_a_watch() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend).await;
    backend.flush().await;
    assert_eq!(node.event().await, NodeEvent::DataLost);
    node.assert_free().await;
}
