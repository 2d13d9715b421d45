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
        context: Arc<Context>,
        reply: Option<ReleaseReply>,
    ) -> Arc<Self> {
        let masters = context.names.len();
        let needed = quorum(masters).min(touched.count_ones() as usize);
        let said = (0..masters)
            .map(|master| if touched & 1 << master == 0 { Said::NotOurs } else { Said::Pending })
            .collect();
        let board = Board { said, owed: touched, acknowledged: 0, deleted: 0, needed, reply };
        Arc::new(Self { resource, op, expires, context, board: Mutex::new(board) })
    }

    /// The masters that have not acknowledged yet, a bit each.
    pub(crate) fn owed(&self) -> u32 {
        self.board().owed
    }

    /// The node timeout has passed: whoever waits gets an answer now. The debt stays.
    pub(crate) fn time_out(&self) {
        let mut board = self.board();
        if let Some(reply) = board.reply.take() {
            let outcome = if board.is_free() { Ok(()) } else { Err(self.unconfirmed(&board)) };
            let _ = reply.send(outcome);
        }
    }

    /// Answers whoever waits, once the outcome is certain: a quorum had our key, or a quorum had
    /// not, or too many are silent to tell.
    fn conclude(&self, board: &mut Board) {
        let open = board.said.iter().filter(|said| **said == Said::Pending).count();
        let outcome = if board.deleted >= board.needed {
            Ok(())
        } else if board.acknowledged - board.deleted >= board.needed {
            Err(self.not_ours(board))
        } else if board.is_free() && open == 0 {
            Ok(())
        } else if board.acknowledged + open < board.needed {
            Err(self.unconfirmed(board))
        } else {
            return;
        };
        if let Some(reply) = board.reply.take() {
            // Whoever has stopped waiting does not need to know.
            let _ = reply.send(outcome);
        }
    }

    fn not_ours(&self, board: &Board) -> ReleaseError {
        ReleaseError::NotOurs { resource: self.resource.clone(), votes: self.votes(board) }
    }

    fn unconfirmed(&self, board: &Board) -> ReleaseError {
        ReleaseError::Unconfirmed { resource: self.resource.clone(), votes: self.votes(board) }
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

impl Board {
    /// Whether so many masters are free of the key that others can get a quorum, and some of them
    /// are because of us.
    fn is_free(&self) -> bool {
        self.acknowledged >= self.needed && self.deleted > 0
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
