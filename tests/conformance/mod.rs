//! What every node does, simulated or real: one body of tests, run by each suite on its own
//! `backend`. They keep the simulation honest.

use std::sync::Arc;
use std::time::Duration;

use redlock_core::{Answer, Ballot, Instant, Node, Op, Token, Verdict, Vote, VoteSlot};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use crate::backend::Backend;

const KEY: &[u8] = b"orders:42";
/// Long enough that nothing expires under a test that runs slowly.
const LONG: u64 = 60_000;
/// Longer than any answer takes, in virtual time and in real time.
const PATIENCE: Duration = Duration::from_secs(10);

struct Urn(UnboundedSender<Vote>);

impl Ballot for Urn {
    fn cast(self: Arc<Self>, vote: Vote) {
        // A test that has failed does not listen any more.
        let _ = self.0.send(vote);
    }
}

struct Asker {
    node: Arc<dyn Node>,
    urn: Arc<Urn>,
    votes: UnboundedReceiver<Vote>,
}

impl Asker {
    fn new(backend: &Backend) -> Self {
        let (urn, votes) = unbounded_channel();
        Self { node: backend.node(), urn: Arc::new(Urn(urn)), votes }
    }

    fn submit(&self, attempt: u32, op: Op) {
        self.node.submit(op, VoteSlot::new(self.urn.clone(), 0, attempt, Instant::ORIGIN));
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

    /// What is left of the key's life.
    async fn left(&mut self) -> Duration {
        self.inspect().await.ttl.expect("the key is there and expires")
    }
}

fn held_by(token: &Token, answer: &Answer) -> bool {
    answer.holder.as_deref() == Some(token.as_str().as_bytes())
}

fn tokens() -> (Token, Token) {
    (Token::random(None), Token::random(None))
}

#[tokio::test]
async fn acquire_grants_a_key_once_whoever_asks_again() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend);
    let (ours, theirs) = tokens();
    assert_eq!(node.acquire(&ours, LONG).await, Answer::granted());
    assert_eq!(node.acquire(&theirs, LONG).await, Answer::refused());
    assert_eq!(node.acquire(&ours, LONG).await, Answer::refused(), "the same token is no key");
    assert!(held_by(&ours, &node.inspect().await));
}

#[tokio::test]
async fn acquire_refuses_a_key_that_a_stranger_has_set() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend);
    let (ours, theirs) = tokens();
    backend.put(KEY, theirs.as_str().as_bytes(), LONG).await;
    assert_eq!(node.acquire(&ours, LONG).await, Answer::refused());
    assert!(held_by(&theirs, &node.inspect().await));
}

#[tokio::test]
async fn extend_gives_a_key_of_ours_more_time() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend);
    let (ours, _) = tokens();
    node.acquire(&ours, LONG).await;
    assert_eq!(node.extend(&ours, 2 * LONG).await, Answer::granted());
    assert!(node.left().await > Duration::from_millis(LONG));
}

#[tokio::test]
async fn extend_never_shortens() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend);
    let (ours, _) = tokens();
    node.acquire(&ours, 2 * LONG).await;
    assert_eq!(node.extend(&ours, LONG).await, Answer::granted());
    assert!(node.left().await > Duration::from_millis(LONG));
}

#[tokio::test]
async fn extend_refuses_a_missing_key_and_makes_none() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend);
    let (ours, _) = tokens();
    assert_eq!(node.extend(&ours, LONG).await, Answer::refused());
    assert_eq!(node.inspect().await, Answer::granted());
}

#[tokio::test]
async fn extend_refuses_another_s_key_and_tells_holder_and_ttl() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend);
    let (ours, theirs) = tokens();
    node.acquire(&theirs, LONG).await;
    let answer = node.extend(&ours, 2 * LONG).await;
    assert_eq!(answer.verdict, Verdict::Refused);
    assert!(held_by(&theirs, &answer), "{answer:?}");
    let left = answer.ttl.expect("the key expires");
    assert!(left <= Duration::from_millis(LONG) && left > Duration::ZERO, "{left:?}");
    assert!(node.left().await <= Duration::from_millis(LONG), "it gave the other more time");
}

#[tokio::test]
async fn release_deletes_a_key_of_ours() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend);
    let (ours, theirs) = tokens();
    node.acquire(&ours, LONG).await;
    assert_eq!(node.release(&ours).await, Answer::granted());
    assert_eq!(node.release(&ours).await, Answer::refused());
    assert_eq!(node.acquire(&theirs, LONG).await, Answer::granted());
}

#[tokio::test]
async fn release_leaves_what_is_not_ours() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend);
    let (ours, theirs) = tokens();
    assert_eq!(node.release(&ours).await, Answer::refused());
    node.acquire(&theirs, LONG).await;
    assert_eq!(node.release(&ours).await, Answer::refused());
    assert!(held_by(&theirs, &node.inspect().await));
}

#[tokio::test]
async fn inspect_tells_a_free_key_from_a_held_one() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend);
    let (ours, _) = tokens();
    assert_eq!(node.inspect().await, Answer::granted());
    node.acquire(&ours, LONG).await;
    let answer = node.inspect().await;
    assert_eq!(answer.verdict, Verdict::Refused);
    assert!(held_by(&ours, &answer), "{answer:?}");
    let left = answer.ttl.expect("the key expires");
    assert!(left <= Duration::from_millis(LONG) && left > Duration::ZERO, "{left:?}");
}

#[tokio::test]
async fn a_long_value_is_told_cut_at_512_bytes() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend);
    backend.put(KEY, &[b'x'; 600], LONG).await;
    assert_eq!(node.inspect().await.holder, Some(vec![b'x'; 512]));
    assert_eq!(node.extend(&Token::random(None), LONG).await.holder, Some(vec![b'x'; 512]));
}

#[tokio::test]
async fn a_key_is_there_for_its_life_and_gone_after_it() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend);
    let (ours, theirs) = tokens();
    node.acquire(&ours, 400).await;
    backend.pass(Duration::from_millis(100)).await;
    assert!(held_by(&ours, &node.inspect().await));
    backend.pass(Duration::from_millis(310)).await;
    assert_eq!(node.inspect().await, Answer::granted());
    assert_eq!(node.extend(&ours, LONG).await, Answer::refused());
    assert_eq!(node.release(&ours).await, Answer::refused());
    assert_eq!(node.acquire(&theirs, LONG).await, Answer::granted());
}

#[tokio::test]
async fn a_life_of_nothing_is_an_error_and_sets_no_key() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend);
    let answer = node.acquire(&Token::random(None), 0).await;
    assert!(matches!(answer.verdict, Verdict::Unknown(_)), "{answer:?}");
    assert_eq!(node.inspect().await, Answer::granted());
}

#[tokio::test]
async fn any_bytes_up_to_512_make_a_key() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend);
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
async fn requests_are_carried_out_and_answered_in_the_order_of_submission() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend);
    for round in 0..100 {
        let (ours, _) = tokens();
        node.submit(2 * round, Op::acquire(KEY, ours.clone(), LONG));
        node.submit(2 * round + 1, Op::release(KEY, ours));
    }
    for attempt in 0..200 {
        let vote = node.vote().await;
        assert_eq!((vote.attempt, vote.answer), (attempt, Answer::granted()));
    }
    assert_eq!(node.inspect().await, Answer::granted(), "nothing is left");
}
