//! How votes turn into a lease, where they are cast.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use redlock_core::{Ballot, Instant, Verdict, Vote};

use super::board::{Board, Phase, Told};
use super::{Claim, Defeat};
use crate::driver::{Message, Request};
use crate::guard::{Ended, Guard, Why};
use crate::tally::Decision;

/// What is left to do once the lock on the board is free.
pub(super) enum Then {
    Nothing,
    Deliver(Box<Request>),
    Post(Message),
}

impl Claim {
    /// Moves the deadline to where the votes put it, unless the lease is over. A lease that has
    /// lapsed in the meantime stays lapsed: no guard is ever revived.
    pub(super) fn move_deadline(&self, board: &Board, now: Instant) {
        let Phase::Held = board.phase else { return };
        let until = board.holds.valid_until().saturating_sub(self.terms.stop_margin).as_nanos();
        if self.deadline.load(Ordering::Acquire) == until {
            return;
        }
        loop {
            let deadline = self.deadline.load(Ordering::Acquire);
            if deadline == 0 {
                return;
            }
            if Instant::from_nanos(deadline) <= now {
                self.lapse(deadline);
            } else if Instant::from_nanos(until) <= now {
                return self.end(Ended::Lost(self.lost(Why::NotOurs)));
            } else if self.swap_deadline(deadline, until) {
                return;
            }
        }
    }

    /// Ends the lease at `deadline`, unless it has been moved.
    pub(super) fn lapse(&self, deadline: u64) -> bool {
        let lapsed = self.swap_deadline(deadline, 0);
        if lapsed {
            self.end(Ended::Lost(self.lost(Why::Lapsed)));
        }
        lapsed
    }

    pub(super) fn swap_deadline(&self, from: u64, to: u64) -> bool {
        self.deadline.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Looks at an open vote after it has changed.
    pub(super) fn judge(self: &Arc<Self>, board: &mut Board, now: Instant) -> Then {
        match board.tally.decision() {
            Decision::Open => Then::Nothing,
            Decision::Lost => self.defeat(board, Defeat::Outvoted, now),
            Decision::Won => {
                board.decided = now;
                let enough =
                    self.terms.min_copies.is_none_or(|copies| board.tally.granted() >= copies);
                if enough || board.tally.pending() == 0 {
                    self.settle_for_what_there_is(board, now)
                } else {
                    self.gather(board)
                }
            }
        }
    }

    /// A quorum is there, and the caller wants more copies than that.
    pub(super) fn gather(self: &Arc<Self>, board: &mut Board) -> Then {
        match std::mem::replace(&mut board.phase, Phase::Over) {
            Phase::Voting(request) => {
                board.phase = Phase::Gathering(request);
                Then::Post(Message::Grace(self.clone()))
            }
            phase => {
                board.phase = phase;
                Then::Nothing
            }
        }
    }

    /// Hands the lease over, if anything of it is left.
    pub(super) fn settle_for_what_there_is(
        self: &Arc<Self>,
        board: &mut Board,
        now: Instant,
    ) -> Then {
        let until = board.holds.valid_until().saturating_sub(self.terms.stop_margin);
        if until <= now {
            return self.defeat(board, Defeat::TooLate, now);
        }
        match self.close_vote(board, Phase::Held) {
            None => Then::Nothing,
            Some(request) => {
                self.deadline.store(until.as_nanos(), Ordering::Release);
                Then::Deliver(request)
            }
        }
    }

    pub(super) fn defeat(
        self: &Arc<Self>,
        board: &mut Board,
        defeat: Defeat,
        now: Instant,
    ) -> Then {
        board.decided = now;
        match self.close_vote(board, Phase::Over) {
            None => Then::Nothing,
            Some(request) => Then::Post(Message::Defeated { claim: self.clone(), request, defeat }),
        }
    }

    /// Ends an open vote, and hands its request over; none when it was ended before.
    pub(super) fn close_vote(&self, board: &mut Board, phase: Phase) -> Option<Box<Request>> {
        match std::mem::replace(&mut board.phase, phase) {
            Phase::Voting(request) | Phase::Gathering(request) => {
                self.context.voting.fetch_sub(1, Ordering::Relaxed);
                Some(request)
            }
            ended => {
                board.phase = ended;
                None
            }
        }
    }

    /// The caller is woken from here, where the deciding reply was read. If it has gone away, the
    /// guard comes back and its drop releases the lock.
    pub(super) fn then(self: &Arc<Self>, then: Then) {
        match then {
            Then::Nothing => {}
            Then::Post(message) => self.context.mailbox.post(message),
            Then::Deliver(request) => {
                let Request { handle, reply, .. } = *request;
                drop(reply.send(Ok(Guard::new(self.clone(), handle))));
            }
        }
    }
}

/// The votes of the attempt itself. They count when they come in time; when they come late, a
/// grant is one more copy of a lease that is held, and nothing at all otherwise: the release that
/// was sent behind it frees it.
impl Ballot for Claim {
    fn cast(self: Arc<Self>, vote: Vote) {
        let now = vote.read_at.unwrap_or_else(|| self.now());
        let mut board = self.board();
        // A lease that is taken over may have its key where it could not be asked for it.
        if !vote.answer.sent && !self.is_resumed {
            board.touched &= !(1 << vote.master);
        }
        if vote.answer.verdict == Verdict::Granted {
            board.holds.confirm(vote.master, vote.sent_at, self.validity);
        }
        board.told[vote.master] = Told::new(&vote, now, self.is_resumed);
        if board.tally.pending() > 0 {
            board.tally.count(&vote.answer.verdict);
        }
        let then = match board.phase {
            Phase::Voting(_) | Phase::Gathering(_) => self.judge(&mut board, now),
            Phase::Held => {
                self.move_deadline(&board, now);
                Then::Nothing
            }
            Phase::Over => Then::Nothing,
        };
        drop(board);
        self.then(then);
    }
}
