//! `HoldCell`: what the holder of a lock and the driver share.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redlock_core::{Clock, FencingToken, Instant, Resource, Token};
use redlock_protocol::ballot::proposals::Proof;
use redlock_protocol::token::lease::HeldLease;
use redlock_protocol::token::lease::hand_over::HandOver;
use redlock_protocol::votes::ledger::{LastAnswer, Ledger};
use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use crate::lost::{Ended, Lost, LostReason};
use crate::votes::{NodeVote, Votes};

/// While a lock is held no sleep is longer: the timers of a runtime stand still while the machine
/// is suspended, and the lease does not. Every wake-up checks the clock.
pub(crate) const NAP_MAX: Duration = Duration::from_secs(1);

/// One held lock: its deadline, how it ended, and a wake-up for those that wait for either.
///
/// The driver moves the deadline; the holder reads it by its own clock, on any thread, and asks
/// nothing. The one lock in here is held for a few instructions, and nothing is woken under it.
pub(crate) struct HoldCell {
    pub(crate) resource: Resource,
    pub(crate) token: Token,
    fence: Fence,
    clock: Clock,
    names: Arc<[Arc<str>]>,
    /// The instant, in nanoseconds, at which the holder must have stopped. Zero once the lease is
    /// over, and nothing leaves zero: no guard is revived.
    deadline: AtomicU64,
    /// Every master has answered the attempt, or its time is up.
    is_settled: AtomicBool,
    /// The program has read the value of the key.
    is_token_known: AtomicBool,
    /// Taken off the end of the lease, for work that needs time to stop.
    pub(crate) stop_margin: Duration,
    state: Mutex<State>,
}

/// Whether the caller that a lock was won for has taken it. It does so when its future is polled,
/// which may never be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acceptance {
    /// The caller was informed, and has not taken the lock.
    Offered,
    /// The keeper has seen that the lock is not taken, and waits for a wake-up when it is.
    Awaited,
    /// It has: from here on the lock is its own.
    Accepted,
    /// It did not while it could: it gets nothing any more.
    Withdrawn,
}

/// The state that the driver writes for the holder.
struct State {
    rows: SmallVec<[Row; 5]>,
    /// How long an extension makes the lease last.
    ttl: Duration,
    /// Why the lease is lost if its deadline passes.
    lapse: LostReason,
    ended: Option<Ended>,
    acceptance: Acceptance,
    /// Wakes those that wait; made by the first of them, which most locks never have.
    changed: Option<Arc<Notify>>,
}

/// The fencing token of a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fence {
    /// The fencing token; `None` without fencing.
    pub(crate) token: Option<FencingToken>,
    /// Until then it may be handed out; `None` if it was before.
    pub(crate) until: Option<Instant>,
}

impl Fence {
    /// The token that a quorum of masters has accepted.
    pub(crate) fn of(proof: Option<Proof>) -> Self {
        Self {
            token: proof.map(|proof| proof.ballot.token()),
            until: proof.map(|proof| proof.until),
        }
    }

    /// The token of a caller that the lease was handed on to.
    pub(crate) fn handed_on(hand_over: HandOver) -> Self {
        Self { token: hand_over.token(), ..Self::of(hand_over.proof) }
    }
}

/// The state of the lock on one master.
struct Row {
    hold_until: Instant,
    answer: LastAnswer,
}

impl HoldCell {
    /// A lease that was won now.
    pub(crate) fn new(
        resource: Resource,
        token: Token,
        clock: Clock,
        names: Arc<[Arc<str>]>,
        lease: &HeldLease,
        fence: Fence,
    ) -> Arc<Self> {
        let ledger = lease.ledger();
        let rows = (0..ledger.masters()).map(|master| Row::of(ledger, master)).collect();
        let ttl = lease.timing().ttl.get();
        let lapse = LostReason::NotExtended;
        let acceptance = Acceptance::Offered;
        let state = State { rows, ttl, lapse, ended: None, acceptance, changed: None };
        Arc::new(Self {
            resource,
            token,
            fence,
            clock,
            names,
            deadline: AtomicU64::new(lease.deadline().map_or(0, Instant::as_nanos)),
            is_settled: AtomicBool::new(ledger.pending().is_empty()),
            is_token_known: AtomicBool::new(false),
            stop_margin: lease.stop_margin(),
            state: Mutex::new(state),
        })
    }

    // Methods for the holder.

    /// Whether the lease is valid, by the clock and at this moment. Once this has been answered
    /// with no it is never answered with yes again.
    pub(crate) fn is_held(&self) -> bool {
        self.remaining() > Duration::ZERO
    }

    /// Whether the lock may be handed to its caller at this moment. What was accepted with the key
    /// may be gone before the lease is over, where the lease rests on other masters by then.
    pub(crate) fn may_be_handed_out(&self) -> bool {
        let now = self.clock.now();
        let is_proven = self.fence.until.is_none_or(|until| now < until);
        // The clock is read once: this is on the way of each lock.
        let is_ahead = Instant::from_nanos(self.deadline.load(Ordering::Acquire)) > now;
        is_proven && (is_ahead || self.is_held())
    }

    /// Until when the caller can take the lock, as things are.
    pub(crate) fn acceptable_until(&self) -> Instant {
        let deadline = Instant::from_nanos(self.deadline.load(Ordering::Acquire));
        self.fence.until.map_or(deadline, |until| until.min(deadline))
    }

    /// The caller takes the lock, if it still can. Returns what it was to that before.
    pub(crate) fn accept(&self) -> Acceptance {
        if !self.may_be_handed_out() {
            return Acceptance::Withdrawn;
        }
        self.change_acceptance(Acceptance::Accepted)
    }

    pub(crate) fn acceptance(&self) -> Acceptance {
        self.state().acceptance
    }

    /// An accepted or withdrawn lock stays so. Returns the former state.
    pub(crate) fn change_acceptance(&self, to: Acceptance) -> Acceptance {
        let now = &mut self.state().acceptance;
        let before = *now;
        if matches!(before, Acceptance::Offered | Acceptance::Awaited) {
            *now = to;
        }
        before
    }

    pub(crate) fn fencing_token(&self) -> Option<FencingToken> {
        self.fence.token
    }

    /// How long the holder may still count on the lease.
    pub(crate) fn remaining(&self) -> Duration {
        loop {
            let deadline = self.deadline.load(Ordering::Acquire);
            if deadline == 0 {
                return Duration::ZERO;
            }
            let left = Instant::from_nanos(deadline).saturating_since(self.clock.now());
            if left > Duration::ZERO {
                return left;
            }
            if self.swap_deadline(deadline, 0) {
                self.write_end();
                self.wake();
                return Duration::ZERO;
            }
        }
    }

    /// # Errors
    /// [`Lost`] once the lease is over.
    pub(crate) fn check(&self) -> Result<(), Lost> {
        match self.ended() {
            None => Ok(()),
            Some(Ended::Lost(lost)) => Err(lost),
            Some(Ended::Released) => Err(self.lost(LostReason::Released)),
        }
    }

    /// How the lease ended; `None` while it is valid.
    pub(crate) fn ended(&self) -> Option<Ended> {
        if self.is_held() {
            return None;
        }
        // Another thread may have found the deadline passed and not have written it down yet.
        self.write_end();
        self.state().ended.clone()
    }

    /// Writes down that the lease has lapsed, where it has not ended otherwise.
    fn write_end(&self) {
        let mut state = self.state();
        if state.ended.is_none() {
            let lost = self.lost_by(&state, state.lapse);
            state.ended = Some(Ended::Lost(lost));
        }
    }

    /// How many masters are known to hold the key.
    pub(crate) fn copies(&self) -> usize {
        let now = self.clock.now();
        self.state().rows.iter().filter(|row| row.hold_until > now).count()
    }

    /// Whether `master` is known to hold the key.
    pub(crate) fn has_copy_at(&self, master: usize) -> bool {
        self.state().rows[master].hold_until > self.clock.now()
    }

    pub(crate) fn votes(&self) -> Votes {
        self.votes_of(&self.state())
    }

    /// The loss for `reason`, with the masters' last answers.
    pub(crate) fn lost(&self, reason: LostReason) -> Lost {
        self.lost_by(&self.state(), reason)
    }

    /// The value of the key, for the program: it may hand it to another one, which extends or
    /// releases the lock by it. So the lease is not handed on after that.
    pub(crate) fn show_token(&self) -> &Token {
        self.is_token_known.store(true, Ordering::Release);
        &self.token
    }

    pub(crate) fn is_token_known(&self) -> bool {
        self.is_token_known.load(Ordering::Acquire)
    }

    /// Whether every master has answered the attempt, or its time is up.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled.load(Ordering::Acquire)
    }

    /// Resolves at the next change that a waiter must know: an end, an earlier deadline, a driver
    /// that has stopped, or the last answer to the attempt. State that a caller reads behind this
    /// call is either from before the change, and then the caller is woken, or from after it.
    pub(crate) fn changed(&self) -> OwnedNotified {
        let changed = self.state().changed.get_or_insert_default().clone();
        changed.notified_owned()
    }

    /// How long an extension makes the lease last.
    pub(crate) fn ttl(&self) -> Duration {
        self.state().ttl
    }

    // Methods for the driver.

    /// Writes the last answer of `master`, and its confirmation.
    pub(crate) fn write(&self, ledger: &Ledger, master: usize) {
        self.state().rows[master] = Row::of(ledger, master);
    }

    /// Writes the last answers of all masters, and their confirmations.
    pub(crate) fn write_all(&self, ledger: &Ledger) {
        let mut state = self.state();
        for (master, row) in state.rows.iter_mut().enumerate() {
            *row = Row::of(ledger, master);
        }
    }

    /// How long an extension makes the lease last, and why it is lost if its deadline passes.
    pub(crate) fn write_terms(&self, lease: &HeldLease) {
        let mut state = self.state();
        state.ttl = lease.timing().ttl.get();
        state.lapse = lease.reason();
    }

    /// Every master has answered the attempt, or its time is up.
    pub(crate) fn settle(&self) {
        if !self.is_settled.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    /// Moves the deadline, unless it has passed: a lease that has lapsed stays lapsed. Says whether
    /// it has not: a holder may have seen that before.
    pub(crate) fn move_deadline(&self, to: Instant, now: Instant) -> bool {
        let mut from = self.deadline.load(Ordering::Acquire);
        loop {
            if from == 0 || Instant::from_nanos(from) <= now {
                return false;
            }
            if from == to.as_nanos() {
                return true;
            }
            if self.swap_deadline(from, to.as_nanos()) {
                break;
            }
            from = self.deadline.load(Ordering::Acquire);
        }
        // Timers were set for the later one.
        if to.as_nanos() < from {
            self.wake();
        }
        true
    }

    /// Ends the lease, and with it the time of masters to answer the attempt. The first end stays.
    pub(crate) fn end(&self, ended: Ended) {
        let mut state = self.state();
        state.ended.get_or_insert(ended);
        self.deadline.store(0, Ordering::Release);
        self.is_settled.store(true, Ordering::Release);
        drop(state);
        self.wake();
    }

    /// Wakes those that wait: something has changed, which was written before this call; or no task
    /// drives the handle any more, and one of them may.
    pub(crate) fn wake(&self) {
        let changed = self.state().changed.clone();
        if let Some(changed) = changed {
            changed.notify_waiters();
        }
    }

    fn lost_by(&self, state: &State, reason: LostReason) -> Lost {
        Lost { resource: self.resource.clone(), reason, votes: self.votes_of(state) }
    }

    fn votes_of(&self, state: &State) -> Votes {
        votes(&self.names, state.rows.iter().map(|row| &row.answer))
    }

    fn swap_deadline(&self, from: u64, to: u64) -> bool {
        self.deadline.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// No code that holds this lock can panic half-way through a change.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Row {
    fn of(ledger: &Ledger, master: usize) -> Self {
        Self { hold_until: ledger.hold_until(master), answer: ledger.answer(master).clone() }
    }
}

/// The masters' answers, under their names.
pub(crate) fn votes<'a>(
    names: &[Arc<str>],
    answers: impl IntoIterator<Item = &'a LastAnswer>,
) -> Votes {
    let vote = |(name, answer): (&Arc<str>, &LastAnswer)| {
        NodeVote::new(name.clone(), answer.verdict.clone(), answer.latency)
    };
    Votes::new(names.iter().zip(answers).map(vote).collect())
}

impl fmt::Debug for HoldCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldCell")
            .field("resource", &self.resource)
            .field("token", &self.token)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
