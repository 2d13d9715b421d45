//! The same recipe of the shortest kind, right or with one flaw: what the checker is tested with.

use std::sync::Arc;

use redlock_core::{Answer, Instant, Mark, Marked, Node, Op, VoteSlot};
use redlock_quorum::Redlock;
use redlock_testkit::lab::Report;
use redlock_testkit::{Contender, SimNodes};
use tokio::time::timeout;

use super::*;
use crate::arena::NODE_TIMEOUT;

/// The flaw of a recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// It reads the mark before it has the lock.
    ReadsBeforeTheLock,
    /// It queries one master instead of all, and takes silence for a no.
    AsksOne,
    /// It tells one master, and not a quorum.
    TellsOne,
    /// It releases the lock before it writes the marks, which takes a while.
    ReleasesFirst,
    /// It does not write back what a master has lost.
    LosesDataWithTheMasters,
}

pub(super) struct Recipe {
    redlock: Redlock,
    nodes: Vec<Arc<dyn Node>>,
    flaw: Option<Flaw>,
}

impl Recipe {
    pub(super) fn new(redlock: Redlock, client: &SimNodes, flaw: Option<Flaw>) -> Self {
        Self { redlock, nodes: client.nodes(), flaw }
    }

    /// Does the work of a fire, which takes so long, unless it was done.
    pub(super) async fn once(&self, fire: u64, work: Duration, log: &Contender) {
        let done_before = self.has(Flaw::ReadsBeforeTheLock) && self.is_done(fire).await;
        let Ok(guard) = self.redlock.lock(NAME).wait(2 * HOUR).await else { return };
        let is_done =
            if self.has(Flaw::ReadsBeforeTheLock) { done_before } else { self.is_done(fire).await };
        if is_done {
            return drop(guard.release().await);
        }
        sleep(work).await;
        if guard.check().is_err() {
            return;
        }
        if self.has(Flaw::ReleasesFirst) {
            let _ = guard.release().await;
            sleep(work).await;
            if self.raise(fire).await {
                log.completed(fire);
            }
        } else if self.raise(fire).await {
            log.completed(fire);
            let _ = guard.release().await;
        } else {
            guard.forget();
        }
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    async fn is_done(&self, fire: u64) -> bool {
        let asked = if self.has(Flaw::AsksOne) { &self.nodes[..1] } else { &self.nodes[..] };
        let answers = ask(asked, &Op::read_mark(key())).await;
        let marked = |answer: &Answer| answer.marked.as_deref().cloned();
        let marked: Vec<Marked> = answers.iter().filter_map(marked).collect();
        let largest = marked.iter().filter_map(|marked| Some(marked.mark.as_ref()?.fire)).max();
        if let Some(fire) = largest.filter(|_| !self.has(Flaw::LosesDataWithTheMasters)) {
            self.raise(fire).await;
        }
        // If too few masters answer, another master may know of a run.
        let is_unknown = marked.len() <= asked.len() / 2 && !self.has(Flaw::AsksOne);
        is_unknown || largest.is_some_and(|largest| largest >= fire)
    }

    /// Whether enough masters have taken it.
    async fn raise(&self, fire: u64) -> bool {
        let told = if self.has(Flaw::TellsOne) { &self.nodes[..1] } else { &self.nodes[..] };
        let mark = Mark { fire, ..Mark::default() };
        let answers = ask(told, &Op::raise_mark(key(), mark, 1 << 40)).await;
        let granted = answers.iter().filter(|answer| **answer == Answer::granted());
        granted.count() > told.len() / 2
    }
}

/// Returns the masters' answers within the time limit.
async fn ask(nodes: &[Arc<dyn Node>], op: &Op) -> Vec<Answer> {
    let (report, mut votes, _events) = Report::new();
    for (master, node) in nodes.iter().enumerate() {
        let slot = VoteSlot::new(report.clone(), master, 0, Instant::ORIGIN);
        node.submit(op.clone(), slot);
    }
    drop(report);
    let mut answers = Vec::new();
    let all = async {
        while let Some(vote) = votes.recv().await {
            answers.push(vote.answer);
            if answers.len() == nodes.len() {
                break;
            }
        }
    };
    let _ = timeout(NODE_TIMEOUT, all).await;
    answers
}
