//! A Redlock of the shortest kind, right or with one flaw: what the checker is tested with.

use std::sync::Arc;
use std::time::Duration;

use redlock_core::{
    Answer, Clock, Instant, Node, NodeEvent, Op, Sink, Token, Ttl, Verdict, Vote, VoteSlot,
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::{sleep, timeout};

pub(crate) const TTL: Duration = Duration::from_millis(1_000);
/// How far the masters' clocks may be set.
pub(crate) const GUARD: Duration = Duration::from_millis(100);
pub(crate) const NODE_TIMEOUT: Duration = Duration::from_millis(250);

/// The flaw of a locker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Half of the masters, rounded down, is enough for it.
    HalfIsEnough,
    /// It takes silence for consent.
    CountsUnknown,
    /// It deletes whatever key is there.
    ReleasesWithoutCompare,
    /// Its validity starts with the replies.
    ValidityFromReplies,
    /// Its validity is the full TTL plus the extra time that only the masters should add.
    ValidityWithGuard,
    /// It extends an expired lease, and sets missing keys again.
    RevivesWhatIsGone,
    /// It uses one token forever, takes its own earlier keys as grants, and never cleans up.
    ReusesItsToken,
}

pub(crate) struct Lease {
    pub(crate) token: Token,
    pub(crate) until: Instant,
}

pub(crate) struct Locker {
    nodes: Vec<Arc<dyn Node>>,
    clock: Clock,
    flaw: Option<Flaw>,
    own: Token,
}

struct Votes(UnboundedSender<Vote>);

impl Sink for Votes {
    fn vote(&self, vote: Vote) {
        // The receiver may be gone.
        let _ = self.0.send(vote);
    }

    fn event(&self, _: usize, _: NodeEvent) {}
}

impl Locker {
    pub(crate) fn new(nodes: Vec<Arc<dyn Node>>, clock: Clock, flaw: Option<Flaw>) -> Self {
        Self { nodes, clock, flaw, own: Token::random(None) }
    }

    pub(crate) async fn acquire(&self, key: &str) -> Option<Lease> {
        let token =
            if self.has(Flaw::ReusesItsToken) { self.own.clone() } else { Token::random(None) };
        let sent_at = self.clock.now();
        let mut votes = self.ask(&Op::acquire(key.as_bytes(), token.clone(), self.px())).await;
        if self.has(Flaw::ReusesItsToken) {
            votes.extend(self.own_keys(key, &token).await);
        }
        let until = self.valid_until(sent_at);
        if self.quorum(&votes) && self.clock.now() < until {
            return Some(Lease { token, until });
        }
        self.release(key, &token).await;
        None
    }

    pub(crate) async fn extend(&self, key: &str, lease: &mut Lease) -> bool {
        let sent_at = self.clock.now();
        let mut votes = self.ask(&Op::extend(key.as_bytes(), lease.token.clone(), self.px())).await;
        let revives = self.has(Flaw::RevivesWhatIsGone);
        if revives && !self.quorum(&votes) {
            let again = Op::acquire(key.as_bytes(), lease.token.clone(), self.px());
            votes.extend(self.ask(&again).await);
        }
        let done = self.quorum(&votes) && (revives || self.clock.now() < lease.until);
        if done {
            lease.until = lease.until.max(self.valid_until(sent_at));
        }
        done && self.clock.now() < lease.until
    }

    pub(crate) async fn release(&self, key: &str, token: &Token) {
        match self.flaw {
            Some(Flaw::ReusesItsToken) => {}
            Some(Flaw::ReleasesWithoutCompare) => {
                for answer in self.ask(&Op::inspect(key.as_bytes())).await {
                    let holder = holder(&answer).and_then(|holder| Token::parse(holder).ok());
                    if let Some(holder) = holder {
                        self.ask(&Op::release(key.as_bytes(), holder)).await;
                    }
                }
            }
            _ => drop(self.ask(&Op::release(key.as_bytes(), token.clone())).await),
        }
    }

    /// Sends a request to all masters, and returns the answers within the node timeout.
    async fn ask(&self, op: &Op) -> Vec<Answer> {
        let (sender, mut votes) = unbounded_channel();
        let sink: Arc<dyn Sink> = Arc::new(Votes(sender));
        let sent_at = self.clock.now();
        for (master, node) in self.nodes.iter().enumerate() {
            node.submit(op.clone(), VoteSlot::new(sink.clone(), master, 0, sent_at));
        }
        drop(sink);
        let mut answers = Vec::new();
        let all = async {
            while let Some(vote) = votes.recv().await {
                answers.push(vote.answer);
            }
        };
        let silent = timeout(NODE_TIMEOUT, all).await.is_err();
        if silent && self.has(Flaw::CountsUnknown) {
            answers.resize(self.nodes.len(), Answer::granted());
        }
        answers
    }

    async fn own_keys(&self, key: &str, token: &Token) -> Vec<Answer> {
        let held = self.ask(&Op::inspect(key.as_bytes())).await;
        let ours = |answer: &Answer| holder(answer) == Some(token.as_str());
        held.into_iter().filter(ours).map(|_| Answer::granted()).collect()
    }

    fn quorum(&self, votes: &[Answer]) -> bool {
        let granted = votes.iter().filter(|vote| vote.verdict == Verdict::Granted).count();
        let half = self.nodes.len() / 2;
        granted >= if self.has(Flaw::HalfIsEnough) { half } else { half + 1 }
    }

    fn valid_until(&self, sent_at: Instant) -> Instant {
        match self.flaw {
            Some(Flaw::ValidityFromReplies) => self.clock.now().saturating_add(ttl().validity()),
            Some(Flaw::ValidityWithGuard) => sent_at.saturating_add(TTL + GUARD),
            _ => sent_at.saturating_add(ttl().validity()),
        }
    }

    fn px(&self) -> u64 {
        ttl().px(GUARD)
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// Waits until `at`.
    pub(crate) async fn sleep_until(&self, at: Instant) {
        sleep(at.saturating_since(self.clock.now())).await;
    }
}

fn holder(answer: &Answer) -> Option<&str> {
    match &answer.verdict {
        Verdict::Held { token, .. } => token.as_deref(),
        _ => None,
    }
}

fn ttl() -> Ttl {
    Ttl::new(TTL, TTL).unwrap()
}
