//! `HoldCell`: the state that the holder of a lock and the driver share.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redlock_core::{Clock, FencingToken, Instant, Resource, Token};
use redlock_protocol::client::effects::Fence;
use redlock_protocol::client::moment::Acceptance;
use redlock_protocol::token::lease::HeldLease;
use redlock_protocol::votes::last_answer::LastAnswer;
use redlock_protocol::votes::ledger::Ledger;
use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use crate::lost::{Ended, Lost, LostReason};
use crate::votes::{NodeVote, Votes};

/// The longest sleep while a lock is held. The timers of a runtime stop while the machine is
/// suspended, and the lease does not. Every wake-up checks the clock.
pub(crate) const NAP_MAX: Duration = Duration::from_secs(1);

/// One held lock: its deadline, how it ended, and a wake-up for callers that wait for either.
///
/// The driver moves the deadline. The holder reads it by its own clock, on any thread, without a
/// request. The mutex in here is held for a few instructions, and never while a waiter is woken.
pub(crate) struct HoldCell {
    pub(crate) resource: Resource,
    pub(crate) token: Token,
    fence: Fence,
    clock: Clock,
    names: Arc<[Arc<str>]>,
    /// The instant, in nanoseconds, at which the holder must have stopped. Zero once the lease is
    /// over. It never leaves zero, because no guard is revived.
    deadline: AtomicU64,
    /// Every master has answered the attempt, or its time is up.
    is_settled: AtomicBool,
    /// The program has read the value of the key.
    is_token_known: AtomicBool,
    /// Subtracted from the end of the lease, for work that needs time to stop.
    pub(crate) stop_margin: Duration,
    state: Mutex<State>,
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
    /// Wakes the waiters. Created by the first of them; most locks never have one.
    changed: Option<Arc<Notify>>,
}

/// The state of the lock on one master.
struct Row {
    hold_until: Instant,
    answer: LastAnswer,
}

impl HoldCell {
    /// Creates the cell of a lease that was won now.
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

    /// Returns `true` if the lease is valid by the clock at the time of the call. After `false`, it
    /// never returns `true` again.
    pub(crate) fn is_held(&self) -> bool {
        self.remaining() > Duration::ZERO
    }

    /// Returns `true` if the lock may be handed to its caller now. The acceptances of the ballot
    /// may be gone before the lease is over, if the lease rests on other masters by then.
    pub(crate) fn may_be_handed_out(&self) -> bool {
        let now = self.clock.now();
        let is_proven = self.fence.until.is_none_or(|until| now < until);
        // The clock is read once, because this is on the path of each lock.
        let is_ahead = Instant::from_nanos(self.deadline.load(Ordering::Acquire)) > now;
        is_proven && (is_ahead || self.is_held())
    }

    /// Takes the lock for the caller, if that is still possible. Returns the former state.
    pub(crate) fn accept(&self) -> Acceptance {
        if !self.may_be_handed_out() {
            return Acceptance::Withdrawn;
        }
        self.change_acceptance(Acceptance::Accepted)
    }

    pub(crate) fn acceptance(&self) -> Acceptance {
        self.state().acceptance
    }

    /// Changes the state, unless the lock is accepted or withdrawn. Returns the former state.
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

    /// Returns how long the holder may rely on the lease.
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
    /// Returns [`Lost`] once the lease is over.
    pub(crate) fn check(&self) -> Result<(), Lost> {
        match self.ended() {
            None => Ok(()),
            Some(Ended::Lost(lost)) => Err(lost),
            Some(Ended::Released) => Err(self.lost(LostReason::Released)),
        }
    }

    /// Returns how the lease ended, or `None` while it is valid.
    pub(crate) fn ended(&self) -> Option<Ended> {
        if self.is_held() {
            return None;
        }
        // Another thread may have found that the deadline has passed without having recorded it
        // yet.
        self.write_end();
        self.state().ended.clone()
    }

    /// Records that the lease has lapsed, if it has not ended otherwise.
    fn write_end(&self) {
        let mut state = self.state();
        if state.ended.is_none() {
            let lost = self.lost_by(&state, state.lapse);
            state.ended = Some(Ended::Lost(lost));
        }
    }

    /// Returns how many masters are known to hold the key.
    pub(crate) fn copies(&self) -> usize {
        let now = self.clock.now();
        self.state().rows.iter().filter(|row| row.hold_until > now).count()
    }

    pub(crate) fn votes(&self) -> Votes {
        self.votes_of(&self.state())
    }

    /// Returns the loss for `reason`, with the masters' last answers.
    pub(crate) fn lost(&self, reason: LostReason) -> Lost {
        self.lost_by(&self.state(), reason)
    }

    /// Returns the value of the key to the program, which may pass it to another program that
    /// extends or releases the lock by it. The lease is therefore not passed on after that.
    pub(crate) fn show_token(&self) -> &Token {
        self.is_token_known.store(true, Ordering::Release);
        &self.token
    }

    pub(crate) fn is_token_known(&self) -> bool {
        self.is_token_known.load(Ordering::Acquire)
    }

    /// Returns `true` if every master has answered the attempt, or its time is up.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled.load(Ordering::Acquire)
    }

    /// Resolves at the next change that a waiter must know: an end, an earlier deadline, a stopped
    /// driver, or the last answer to the attempt. State that a caller reads after this call is
    /// either from before the change, and the caller is then woken, or from after it.
    pub(crate) fn changed(&self) -> OwnedNotified {
        let changed = self.state().changed.get_or_insert_default().clone();
        changed.notified_owned()
    }

    /// Returns how long an extension makes the lease last.
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

    /// Writes how long an extension makes the lease last, and why it is lost if its deadline
    /// passes.
    pub(crate) fn write_terms(&self, lease: &HeldLease) {
        let mut state = self.state();
        state.ttl = lease.timing().ttl.get();
        state.lapse = lease.reason();
    }

    /// Records that every master has answered the attempt, or its time is up.
    pub(crate) fn settle(&self) {
        if !self.is_settled.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    /// Moves the deadline, unless it has passed: a lapsed lease stays lapsed. Returns `false` if it
    /// has passed, because a holder may have seen that.
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
        // Timers were set for the later deadline.
        if to.as_nanos() < from {
            self.wake();
        }
        true
    }

    /// Ends the lease, and with it the wait for answers to the attempt. The first end stays.
    pub(crate) fn end(&self, ended: Ended) {
        let mut state = self.state();
        state.ended.get_or_insert(ended);
        self.deadline.store(0, Ordering::Release);
        self.is_settled.store(true, Ordering::Release);
        drop(state);
        self.wake();
    }

    /// Wakes the waiters, because a change was written before this call, or because no task drives
    /// the handle any longer and one of them may.
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

    /// No code that holds this mutex can panic in the middle of a change.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Row {
    fn of(ledger: &Ledger, master: usize) -> Self {
        Self { hold_until: ledger.hold_until(master), answer: ledger.answer(master).clone() }
    }
}

/// Returns the masters' answers, with their names.
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
