//! `Claim`: one attempt at a lock and, once it is won, the lease that it has become.

mod board;
mod vote;

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use redlock_core::{Answer, Cause, Clock, Instant, Op, Resource, Token, Verdict, Vote};
use tokio::sync::Notify;

use self::board::{Board, Phase, Told};
use self::vote::Then;
use crate::driver::Request;
use crate::guard::{Ended, Lost, Why};
use crate::mailbox::Mailbox;
use crate::settings::Timing;
use crate::tally::{Tally, quorum};
use crate::validity::HoldUntil;
use crate::votes::Votes;

/// What all claims of one handle share.
pub(crate) struct Context {
    pub(crate) clock: Clock,
    pub(crate) names: Vec<Arc<str>>,
    pub(crate) mailbox: Arc<Mailbox>,
    /// How many votes are open.
    pub(crate) voting: AtomicUsize,
}

/// What the holder asked for beside the TTL.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) auto_extend: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) min_copies: Option<usize>,
    pub(crate) stop_margin: Duration,
}

/// One attempt, then one lease. Votes are counted in place, in [`Ballot::cast`], wherever a reply
/// is read; the driver only sends, keeps time and cleans up.
pub(crate) struct Claim {
    pub(crate) resource: Resource,
    pub(crate) key: Arc<[u8]>,
    pub(crate) token: Token,
    pub(crate) terms: Terms,
    pub(crate) context: Arc<Context>,
    pub(crate) started: Instant,
    /// Not acquired anew, but taken over from a [`Lease`](crate::Lease).
    is_resumed: bool,
    /// How long a grant of the attempt itself counts, whatever was asked for since.
    validity: Duration,
    /// The instant, in nanoseconds, at which the holder must have stopped: `valid_until` less the
    /// stop margin. Zero while nothing is held yet, and for ever once the lease is over.
    deadline: AtomicU64,
    ended: OnceLock<Ended>,
    notify: Notify,
    board: Mutex<Board>,
}

/// Why an attempt was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defeat {
    /// Too few granted.
    Outvoted,
    /// Enough granted, too late.
    TooLate,
}

impl Claim {
    pub(crate) fn new(
        request: Box<Request>,
        token: Token,
        context: Arc<Context>,
        started: Instant,
    ) -> Arc<Self> {
        let masters = context.names.len();
        context.voting.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self {
            resource: request.resource.clone(),
            key: request.key.clone(),
            token,
            terms: request.terms.clone(),
            context,
            started,
            is_resumed: request.lease.is_some(),
            validity: request.timing.ttl.validity(),
            deadline: AtomicU64::new(0),
            ended: OnceLock::new(),
            notify: Notify::new(),
            board: Mutex::new(Board {
                timing: request.timing,
                px_max: request.timing.px,
                tally: Tally::new(masters),
                told: vec![Told::default(); masters],
                holds: HoldUntil::new(masters),
                touched: (1 << masters) - 1,
                phase: Phase::Voting(request),
                decided: started,
            }),
        })
    }

    // What the holder asks.

    /// Whether the lease is valid, by the clock and at this moment. Once this has been answered
    /// with no it is never answered with yes again.
    pub(crate) fn is_held(&self) -> bool {
        self.remaining() > Duration::ZERO
    }

    /// How long the holder may still count on the lease.
    pub(crate) fn remaining(&self) -> Duration {
        loop {
            let deadline = self.deadline.load(Ordering::Acquire);
            let left = Instant::from_nanos(deadline).saturating_since(self.now());
            if deadline == 0 || left > Duration::ZERO {
                return left;
            }
            if self.lapse(deadline) {
                return Duration::ZERO;
            }
        }
    }

    /// How the lease ended; none while it is valid.
    pub(crate) fn ended(&self) -> Option<Ended> {
        // Whoever finds that the lease has lapsed writes it down; who comes in between does too.
        let lapsed = || Ended::Lost(self.lost(Why::Lapsed));
        (!self.is_held()).then(|| self.ended.get_or_init(lapsed).clone())
    }

    /// Whether masters have told that the lease is gone, before anybody ended it.
    pub(crate) fn was_lost(&self) -> bool {
        matches!(self.ended.get(), Some(Ended::Lost(lost)) if lost.why == Why::NotOurs)
    }

    pub(crate) fn check(&self) -> Result<(), Lost> {
        match self.ended() {
            None => Ok(()),
            Some(Ended::Lost(lost)) => Err(lost),
            Some(Ended::Released) => Err(self.lost(Why::Released)),
        }
    }

    pub(crate) fn notify(&self) -> &Notify {
        &self.notify
    }

    pub(crate) fn copies(&self) -> usize {
        self.board().holds.copies(self.now())
    }

    pub(crate) fn timing(&self) -> Timing {
        self.board().timing
    }

    pub(crate) fn votes(&self) -> Votes {
        let board = self.board();
        let vote = |(name, told): (&Arc<str>, &Told)| told.vote(name.clone());
        Votes::new(self.context.names.iter().zip(&board.told).map(vote).collect())
    }

    // What the driver asks and tells.

    pub(crate) fn now(&self) -> Instant {
        self.context.clock.now()
    }

    pub(crate) fn release_op(&self) -> Op {
        Op::release(self.key.clone(), self.token.clone())
    }

    pub(crate) fn acquire_op(&self, px: u64) -> Op {
        Op::acquire(self.key.clone(), self.token.clone(), px)
    }

    pub(crate) fn extend_op(&self, px: u64) -> Op {
        Op::extend(self.key.clone(), self.token.clone(), px)
    }

    /// The masters that must be told to release the key, a bit each.
    pub(crate) fn touched(&self) -> u32 {
        self.board().touched
    }

    /// A request that may set the key goes to `master` now.
    pub(crate) fn touch(&self, master: usize) {
        self.board().touched |= 1 << master;
    }

    /// How long it took to decide the attempt.
    pub(crate) fn fan_out(&self) -> Duration {
        self.board().decided.saturating_since(self.started)
    }

    /// Whether a quorum has answered, so that a lost vote was lost to other holders.
    pub(crate) fn is_contended(&self) -> bool {
        let board = self.board();
        let answered = board.told.iter().filter(|told| told.is_clear()).count();
        answered >= quorum(board.told.len())
    }

    /// Whether a lost vote is certain to have been lost to masters that did not answer.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.board().tally.is_unanswered()
    }

    /// Whether some masters have neither answered nor been given up.
    pub(crate) fn is_open(&self) -> bool {
        self.board().told.iter().any(|told| told.answer.is_none())
    }

    /// Writes down that a master has not answered the latest extension in time. What it confirmed
    /// before counts as before.
    pub(crate) fn tell_silence(&self, master: usize) {
        let answer = Some(Answer::unknown(Cause::TimedOut));
        self.board().told[master] = Told { answer, latency: None, is_holder: true };
    }

    /// The node timeout has passed: votes that are still out are *unknown*.
    pub(crate) fn time_out(self: &Arc<Self>) {
        let mut board = self.board();
        board.time_out();
        let then = match board.phase {
            Phase::Voting(_) => {
                board.tally.close();
                self.judge(&mut board, self.now())
            }
            Phase::Gathering(_) | Phase::Held | Phase::Over => Then::Nothing,
        };
        drop(board);
        self.then(then);
    }

    /// The grace for more copies is over: what there is must do.
    pub(crate) fn end_grace(self: &Arc<Self>) {
        let mut board = self.board();
        let then = match board.phase {
            Phase::Gathering(_) => self.settle_for_what_there_is(&mut board, self.now()),
            _ => Then::Nothing,
        };
        drop(board);
        self.then(then);
    }

    /// Gives up an attempt that is still open, and hands its request back.
    pub(crate) fn abandon(&self) -> Option<Box<Request>> {
        self.close_vote(&mut self.board(), Phase::Over)
    }

    /// `master` has confirmed that it holds the key, by a request sent no earlier than `sent_at`.
    pub(crate) fn confirm(&self, master: usize, sent_at: Instant, timing: Timing) {
        let mut board = self.board();
        board.holds.confirm(master, sent_at, timing.ttl.validity());
        self.move_deadline(&board, self.now());
    }

    /// There is evidence that `master` does not hold the key any more.
    pub(crate) fn disown(&self, master: usize) {
        let mut board = self.board();
        board.holds.clear(master);
        self.move_deadline(&board, self.now());
    }

    /// Every later extension is for this TTL.
    pub(crate) fn set_timing(&self, timing: Timing) {
        let mut board = self.board();
        board.timing = timing;
        board.px_max = board.px_max.max(timing.px);
    }

    /// How long the key may live where it was set or extended last of all.
    pub(crate) fn life_max(&self) -> Duration {
        Duration::from_millis(self.board().px_max)
    }

    /// Writes down what a master said to the latest extension.
    pub(crate) fn tell(&self, vote: &Vote) {
        let now = self.now();
        self.board().told[vote.master] = Told::new(vote, now, true);
    }

    /// Writes down who holds the resource on a master that has refused it to us.
    pub(crate) fn tell_holder(&self, vote: &Vote) {
        let mut board = self.board();
        let known = board.told[vote.master].answer.as_mut();
        if let Some(known) = known.filter(|known| known.verdict == Verdict::Refused) {
            known.holder.clone_from(&vote.answer.holder);
            known.ttl = vote.answer.ttl;
        }
    }

    /// Ends the lease. The first reason stays.
    pub(crate) fn end(&self, ended: Ended) {
        self.ended.get_or_init(|| ended);
        self.deadline.store(0, Ordering::Release);
        self.notify.notify_waiters();
    }

    pub(crate) fn lost(&self, why: Why) -> Lost {
        Lost { resource: self.resource.clone(), why }
    }

    /// No code that holds this lock can panic half-way through a change.
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("resource", &self.resource)
            .field("token", &self.token)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
