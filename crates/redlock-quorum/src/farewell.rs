//! `Farewell`: one release, until every master that may hold the key has acknowledged it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redlock_core::{Ballot, Cause, Instant, Op, Resource, Verdict, Vote};
use tokio::sync::oneshot;

use crate::ReleaseError;
use crate::claim::Context;
use crate::driver::Message;
use crate::tally::quorum;
use crate::votes::{NodeVote, Said, Votes};

pub(crate) type ReleaseReply = oneshot::Sender<Result<(), ReleaseError>>;

/// One release. It goes to every master on which the key may be, the silent ones included, and is
/// owed by each until that master has acknowledged it.
pub(crate) struct Farewell {
    pub(crate) resource: Resource,
    pub(crate) op: Op,
    /// When the key has expired on every master that has received it by now.
    pub(crate) expires: Instant,
    /// It is known from before that a quorum does not hold the key any more.
    was_lost: bool,
    context: Arc<Context>,
    board: Mutex<Board>,
}

struct Board {
    said: Vec<Said>,
    /// The masters that may still hold the key, a bit each.
    owed: u32,
    /// Acknowledgements, and how many of them had to delete a key.
    acknowledged: usize,
    deleted: usize,
    /// How many acknowledgements make the resource free for others.
    needed: usize,
    reply: Option<ReleaseReply>,
}

impl Farewell {
    pub(crate) fn new(
        resource: Resource,
        op: Op,
        expires: Instant,
        touched: u32,
        was_lost: bool,
        context: Arc<Context>,
        reply: Option<ReleaseReply>,
    ) -> Arc<Self> {
        let masters = context.names.len();
        let needed = quorum(masters).min(touched.count_ones() as usize);
        let said = (0..masters)
            .map(|master| if touched & 1 << master == 0 { Said::NotOurs } else { Said::Pending })
            .collect();
        let board = Board { said, owed: touched, acknowledged: 0, deleted: 0, needed, reply };
        Arc::new(Self { resource, op, expires, was_lost, context, board: Mutex::new(board) })
    }

    /// The masters that have not acknowledged yet, a bit each.
    pub(crate) fn owed(&self) -> u32 {
        self.board().owed
    }

    /// The node timeout has passed: whoever waits gets an answer now. The debt stays.
    pub(crate) fn time_out(&self) {
        let mut board = self.board();
        for said in board.said.iter_mut().filter(|said| **said == Said::Pending) {
            *said = Said::Unknown(Cause::TimedOut);
        }
        self.conclude(&mut board);
    }

    /// Answers whoever waits: at once where a quorum had our key and is free of it; otherwise when
    /// everybody has told, because whoever hears "no" wants to know who said what.
    fn conclude(&self, board: &mut Board) {
        let is_open = board.said.contains(&Said::Pending);
        let is_sure = board.deleted >= board.needed && !self.was_lost;
        if is_open && !is_sure {
            return;
        }
        if let Some(reply) = board.reply.take() {
            // Whoever has stopped waiting does not need to know.
            let _ = reply.send(self.outcome(board));
        }
    }

    fn outcome(&self, board: &Board) -> Result<(), ReleaseError> {
        let (resource, votes) = (self.resource.clone(), self.votes(board));
        let absent = board.acknowledged - board.deleted;
        if board.acknowledged < board.needed {
            Err(ReleaseError::Unconfirmed { resource, votes })
        } else if self.was_lost || absent >= board.needed {
            Err(ReleaseError::NotOurs { resource, votes })
        } else {
            Ok(())
        }
    }

    fn votes(&self, board: &Board) -> Votes {
        let vote = |(node, said): (&Arc<str>, &Said)| NodeVote {
            node: node.clone(),
            said: said.clone(),
            latency: None,
        };
        Votes::new(self.context.names.iter().zip(&board.said).map(vote).collect())
    }

    /// No code that holds this lock can panic half-way through a change.
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ballot for Farewell {
    fn cast(self: Arc<Self>, vote: Vote) {
        let mut board = self.board();
        let bit = 1 << vote.master;
        board.said[vote.master] = Said::to_holder(&vote.answer);
        let known = match &vote.answer.verdict {
            Verdict::Granted | Verdict::Refused => true,
            // A master that answers has carried out all that came before: what it was given then
            // has expired by now, whether or not it lets us release anything.
            Verdict::Unknown(Cause::ErrorReply(_)) => self.context.clock.now() > self.expires,
            Verdict::Unknown(_) => false,
        };
        if known && board.owed & bit != 0 {
            board.owed &= !bit;
            board.acknowledged += 1;
            board.deleted += usize::from(vote.answer.verdict == Verdict::Granted);
        }
        self.conclude(&mut board);
        drop(board);
        if !known {
            let mailbox = self.context.mailbox.clone();
            mailbox.post(Message::Debt { farewell: self, master: vote.master });
        }
    }
}
