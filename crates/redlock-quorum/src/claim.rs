//! `Claim`: one attempt at a lock and, once it is won, the lease that it has become.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use redlock_core::{Answer, Ballot, Cause, Clock, Instant, Op, Resource, Token, Verdict, Vote};
use tokio::sync::Notify;

use crate::driver::{Message, Request};
use crate::guard::{Ended, Guard, Lost, Why};
use crate::mailbox::Mailbox;
use crate::settings::Timing;
use crate::tally::{Decision, Tally, quorum};
use crate::validity::HoldUntil;
use crate::votes::{NodeVote, Said, Votes};

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

/// The votes and what follows from them.
struct Board {
    timing: Timing,
    /// The longest life, in milliseconds, that any master was told to give the key.
    px_max: u64,
    tally: Tally,
    told: Vec<Told>,
    holds: HoldUntil,
    /// The masters on which our key may be, a bit each: these must be told to release it.
    touched: u32,
    phase: Phase,
    decided: Instant,
}

/// What one master has told, and when.
#[derive(Clone, Default)]
struct Told {
    answer: Option<Answer>,
    latency: Option<Duration>,
    is_holder: bool,
}

enum Phase {
    /// The vote is open; the caller waits.
    Voting(Box<Request>),
    /// Won, and for a short grace more copies are waited for.
    Gathering(Box<Request>),
    /// Won, and handed to the caller.
    Held,
    /// Lost or released.
    Over,
}

/// Why an attempt was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defeat {
    /// Too few granted.
    Outvoted,
    /// Enough granted, too late.
    TooLate,
}

/// What is left to do once the lock on the board is free.
enum Then {
    Nothing,
    Deliver(Box<Request>),
    Post(Message),
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

    // How votes turn into a lease.

    /// Moves the deadline to where the votes put it, unless the lease is over. A lease that has
    /// lapsed in the meantime stays lapsed: no guard is ever revived.
    fn move_deadline(&self, board: &Board, now: Instant) {
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
    fn lapse(&self, deadline: u64) -> bool {
        let lapsed = self.swap_deadline(deadline, 0);
        if lapsed {
            self.end(Ended::Lost(self.lost(Why::Lapsed)));
        }
        lapsed
    }

    fn swap_deadline(&self, from: u64, to: u64) -> bool {
        self.deadline.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Looks at an open vote after it has changed.
    fn judge(self: &Arc<Self>, board: &mut Board, now: Instant) -> Then {
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
    fn gather(self: &Arc<Self>, board: &mut Board) -> Then {
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
    fn settle_for_what_there_is(self: &Arc<Self>, board: &mut Board, now: Instant) -> Then {
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

    fn defeat(self: &Arc<Self>, board: &mut Board, defeat: Defeat, now: Instant) -> Then {
        board.decided = now;
        match self.close_vote(board, Phase::Over) {
            None => Then::Nothing,
            Some(request) => Then::Post(Message::Defeated { claim: self.clone(), request, defeat }),
        }
    }

    /// Ends an open vote, and hands its request over; none when it was ended before.
    fn close_vote(&self, board: &mut Board, phase: Phase) -> Option<Box<Request>> {
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
    fn then(self: &Arc<Self>, then: Then) {
        match then {
            Then::Nothing => {}
            Then::Post(message) => self.context.mailbox.post(message),
            Then::Deliver(request) => {
                let Request { handle, reply, .. } = *request;
                drop(reply.send(Ok(Guard::new(self.clone(), handle))));
            }
        }
    }

    /// No code that holds this lock can panic half-way through a change.
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
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

impl Board {
    /// Writes down that those who have not answered were not waited for any longer.
    fn time_out(&mut self) {
        for told in self.told.iter_mut().filter(|told| told.answer.is_none()) {
            told.answer = Some(Answer::unknown(Cause::TimedOut));
        }
    }
}

impl Told {
    fn new(vote: &Vote, now: Instant, is_holder: bool) -> Self {
        let latency = Some(now.saturating_since(vote.sent_at));
        Self { answer: Some(vote.answer.clone()), latency, is_holder }
    }

    /// Whether the master has said yes or no.
    fn is_clear(&self) -> bool {
        let answer = self.answer.as_ref();
        answer.is_some_and(|answer| !matches!(answer.verdict, Verdict::Unknown(_)))
    }

    fn vote(&self, node: Arc<str>) -> NodeVote {
        let said = match &self.answer {
            None => Said::Pending,
            Some(answer) if self.is_holder => Said::to_holder(answer),
            Some(answer) => Said::to_acquire(answer),
        };
        NodeVote { node, said, latency: self.latency }
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
