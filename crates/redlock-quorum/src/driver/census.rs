//! `Census`: who holds a resource, asked of every master.

use std::sync::{Arc, Mutex, PoisonError};

use redlock_core::{Answer, Ballot, Vote};
use tokio::sync::oneshot;

use super::{Defeat, Message, Request};
use crate::claim::{Claim, Context};
use crate::status::{NodeStatus, Status};

pub(crate) type StatusReply = oneshot::Sender<Status>;

/// Counts the answers to one question, for whoever has asked.
pub(crate) struct Census {
    context: Arc<Context>,
    board: Mutex<Board>,
}

struct Board {
    answers: Vec<Option<(Answer, std::time::Duration)>>,
    asker: Option<Asker>,
}

/// Who wants to know.
pub(super) enum Asker {
    /// A caller, about every master.
    Status(StatusReply),
    /// A request that has failed for good: its error shall say who holds the resource.
    Defeated { claim: Arc<Claim>, request: Box<Request>, defeat: Defeat },
}

impl Census {
    pub(super) fn new(context: Arc<Context>, asker: Asker) -> Arc<Self> {
        let answers = vec![None; context.names.len()];
        Arc::new(Self { context, board: Mutex::new(Board { answers, asker: Some(asker) }) })
    }

    /// The node timeout has passed: what there is must do.
    pub(super) fn time_out(&self) {
        let mut board = self.board();
        let asker = board.asker.take();
        let answers = board.answers.clone();
        drop(board);
        self.tell(asker, &answers);
    }

    fn tell(&self, asker: Option<Asker>, answers: &[Option<(Answer, std::time::Duration)>]) {
        match asker {
            None => {}
            Some(Asker::Status(reply)) => {
                // Whoever has stopped waiting does not need to know.
                let _ = reply.send(self.status(answers));
            }
            Some(Asker::Defeated { claim, request, defeat }) => {
                self.context.mailbox.post(Message::Final { claim, request, defeat });
            }
        }
    }

    fn status(&self, answers: &[Option<(Answer, std::time::Duration)>]) -> Status {
        let node = |(name, answer): (&Arc<str>, &Option<(Answer, _)>)| {
            NodeStatus::new(name.clone(), answer.as_ref())
        };
        Status::new(self.context.names.iter().zip(answers).map(node).collect())
    }

    fn board(&self) -> std::sync::MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ballot for Census {
    fn cast(self: Arc<Self>, vote: Vote) {
        let latency = self.context.clock.now().saturating_since(vote.sent_at);
        let mut board = self.board();
        if let Some(Asker::Defeated { claim, .. }) = &board.asker {
            claim.tell_holder(&vote);
        }
        board.answers[vote.master] = Some((vote.answer, latency));
        if board.answers.iter().all(Option::is_some) {
            let asker = board.asker.take();
            let answers = board.answers.clone();
            drop(board);
            self.tell(asker, &answers);
        }
    }
}
