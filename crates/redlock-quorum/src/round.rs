//! `Round`: one extension of a lease, by its keeper or by its holder.

use std::sync::{Arc, Mutex, PoisonError};

use redlock_core::{Ballot, Cause, Instant, Verdict, Vote};
use tokio::sync::oneshot;

use crate::ExtendError;
use crate::claim::Claim;
use crate::driver::Message;
use crate::settings::Timing;
use crate::tally::{Decision, Tally};

/// The number under which a master is asked to extend.
pub(crate) const EXTEND: u32 = 1;
/// The number under which a master that has lost the key is given it again.
pub(crate) const READD: u32 = 2;

pub(crate) type ExtendReply = oneshot::Sender<Result<(), ExtendError>>;

/// Counts the answers to one extension. Every confirmation moves its own master's instant, at
/// once and whatever the others say; the count is only for whoever waits for a quorum.
pub(crate) struct Round {
    pub(crate) claim: Arc<Claim>,
    pub(crate) timing: Timing,
    pub(crate) started: Instant,
    /// Nobody waits for it: the keeper has asked for it.
    pub(crate) is_keepers: bool,
    board: Mutex<Board>,
}

struct Board {
    tally: Tally,
    reply: Option<ExtendReply>,
}

impl Round {
    pub(crate) fn new(
        claim: Arc<Claim>,
        timing: Timing,
        started: Instant,
        reply: Option<ExtendReply>,
    ) -> Arc<Self> {
        let tally = Tally::new(claim.context.names.len());
        let (is_keepers, board) = (reply.is_none(), Mutex::new(Board { tally, reply }));
        Arc::new(Self { claim, timing, started, is_keepers, board })
    }

    /// Whether a quorum has confirmed this round.
    pub(crate) fn is_won(&self) -> bool {
        self.board().tally.decision() == Decision::Won
    }

    /// The node timeout has passed: whoever waits gets an answer now.
    pub(crate) fn time_out(&self) {
        let mut board = self.board();
        if board.reply.is_some() {
            board.tally.close();
        }
        self.conclude(&mut board);
    }

    /// Answers whoever waits: at once where a quorum has confirmed; otherwise when everybody has
    /// told, because whoever hears "no" wants to know who said what.
    fn conclude(&self, board: &mut Board) {
        let outcome = match board.tally.decision() {
            Decision::Won => self.won(),
            Decision::Lost if board.tally.pending() == 0 => Err(self.failed(&board.tally)),
            Decision::Lost | Decision::Open => return,
        };
        if let Some(reply) = board.reply.take() {
            // Whoever has stopped waiting does not need to know.
            let _ = reply.send(outcome);
        }
    }

    fn won(&self) -> Result<(), ExtendError> {
        match self.claim.check() {
            Ok(()) => Ok(()),
            Err(lost) => Err(lost.into()),
        }
    }

    fn failed(&self, tally: &Tally) -> ExtendError {
        if let Err(lost) = self.claim.check() {
            return lost.into();
        }
        let (resource, votes) = (self.claim.resource.clone(), self.claim.votes());
        if tally.is_held() {
            ExtendError::NotOurs { resource, votes }
        } else {
            ExtendError::NoQuorum { resource, votes }
        }
    }

    fn extended(self: Arc<Self>, vote: &Vote) {
        match &vote.answer.verdict {
            Verdict::Granted => {
                self.claim.confirm(vote.master, vote.sent_at, self.timing);
            }
            Verdict::Refused => {
                self.claim.disown(vote.master);
                if vote.answer.holder.is_none() {
                    self.miss(vote.master);
                }
            }
            Verdict::Unknown(cause) if is_demoted(cause) => self.claim.disown(vote.master),
            Verdict::Unknown(_) => {}
        }
        let mut board = self.board();
        if board.tally.pending() > 0 {
            board.tally.count(&vote.answer.verdict);
        }
        self.conclude(&mut board);
    }

    /// The master has lost the key, and nobody else has it: it may be given it again.
    fn miss(self: &Arc<Self>, master: usize) {
        let message = Message::Missing { round: self.clone(), master };
        self.claim.context.mailbox.post(message);
    }

    /// No code that holds this lock can panic half-way through a change.
    fn board(&self) -> std::sync::MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ballot for Round {
    fn cast(self: Arc<Self>, vote: Vote) {
        self.claim.tell(&vote);
        if vote.attempt == EXTEND {
            self.extended(&vote);
        } else if vote.answer.verdict == Verdict::Granted {
            self.claim.confirm(vote.master, vote.sent_at, self.timing);
        }
    }
}

/// A master that has become a replica holds nothing of ours that counts.
fn is_demoted(cause: &Cause) -> bool {
    matches!(cause, Cause::ErrorReply(error) if error.contains("READONLY"))
}
