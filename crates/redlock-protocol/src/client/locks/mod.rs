//! `Locks`: the tokens of one client, from their attempts to their last releases.
//!
//! Each token has one machine, which decides the next step. This part carries the step out: it
//! sends, sets alarms, and answers callers. Keys and questions do not occur here. Consequences for
//! other parts are returned as [`Outcome`]s, in order.
//!
//! In reading order: `lock` (one token), `steps` (carries out what a machine decides), `attempts`
//! (from the first request to the end of the vote), `ballots`, `holding` (a lease and its holder),
//! `extending`, `releasing`, `repeating` (releases that masters did not acknowledge),
//! `unacknowledged` (the masters of these releases), `remains` (keys left on masters).

mod attempts;
mod ballots;
mod extending;
mod holding;
mod lock;
mod releasing;
mod remains;
mod repeating;
mod steps;
mod unacknowledged;

use std::collections::VecDeque;
use std::time::Duration;

use redlock_core::{Instant, Op, Vote};

pub use self::attempts::{Begin, refusal_of};
pub use self::lock::Lock;
use self::lock::{Holder, Owner};
pub use self::remains::{KeyLeft, Remains};
pub use self::unacknowledged::Unacknowledged;
use super::counts::Count;
use super::derived::Derived;
use super::draws::Draws;
use super::effects::{Effect, Effects, What};
use super::ids::{HoldId, InspectionId, LockId, RequestId, Ticket};
use super::line::Line;
use super::moment::{Acceptance, Moment};
use super::sending::send;
use super::table::Table;
use super::timers::{Due, Timers};
use super::view::Voters;
use crate::master_set::MasterSet;
use crate::terms::Limits;
use crate::token::lease::HeldLease;
use crate::token::lifecycle::{Loss, Stage, Won};

/// The entries of all tokens, and how many are in which stage.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Locks {
    terms: Terms,
    table: Table<LockId, Lock>,
    leases: usize,
    releases: usize,
    /// Leases that are over while their guards are not returned.
    lost_leases: usize,
    unacknowledged: Vec<Unacknowledged>,
    outcomes: Derived<VecDeque<Outcome>>,
}

/// The settings of a client that concern its locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// The number of masters.
    pub masters: usize,
    /// The durations.
    pub limits: Limits,
    /// Whether locks have fencing tokens.
    pub fencing: bool,
}

/// A consequence for other parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// An attempt was won.
    Won(LockId, Won),
    /// An attempt was lost.
    Lost(LockId, Loss),
    /// A lease ends. [`Locks::begin_release`] must follow.
    Ends(LockId),
    /// A caller of this process no longer holds the key.
    Left(LockId),
}

/// Context of an input.
#[derive(Debug)]
pub struct Context<'a> {
    /// The present instant.
    pub now: Instant,
    /// How long a vote takes at present.
    pub fan_out: Duration,
    /// Whether the client is being closed.
    pub is_closing: bool,
    /// The random choices.
    pub draws: Draws,
    /// The masters.
    pub voters: &'a mut dyn Voters,
    /// The requests that wait for their turn.
    pub line: &'a mut Line,
    /// The actions that are due later.
    pub timers: &'a mut Timers,
    /// Votes that are known without a request.
    pub known: &'a mut VecDeque<Vote>,
    /// The clock, the random source, and the cells of holders.
    pub moment: &'a mut dyn Moment,
    /// The consequences outside of the client.
    pub effects: &'a mut Effects,
}

impl Locks {
    /// Creates the state without any token.
    pub fn new(terms: Terms) -> Self {
        Self {
            terms,
            table: Table::default(),
            leases: 0,
            releases: 0,
            lost_leases: 0,
            unacknowledged: (0..terms.masters).map(Unacknowledged::new).collect(),
            outcomes: Derived(VecDeque::new()),
        }
    }

    /// Removes the oldest consequence.
    #[inline]
    pub fn next_outcome(&mut self) -> Option<Outcome> {
        self.outcomes.pop_front()
    }

    /// Returns a token.
    #[inline]
    pub fn get(&self, id: LockId) -> Option<&Lock> {
        self.table.get(id)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: LockId) -> Option<&mut Lock> {
        self.table.get_mut(id)
    }

    /// Returns the tokens for which this is true.
    pub fn ids(&self, is_so: fn(&Lock) -> bool) -> Vec<LockId> {
        self.table.iter().filter(|(_, lock)| is_so(lock)).map(|(id, _)| id).collect()
    }

    /// Returns the number of valid leases, by the latest answers.
    pub fn valid_leases(&self) -> usize {
        self.leases - self.lost_leases
    }

    /// Returns the number of unfinished releases.
    pub fn releases(&self) -> usize {
        self.releases
    }

    /// Returns the releases that masters did not acknowledge, by master.
    pub fn unacknowledged(&self) -> &[Unacknowledged] {
        &self.unacknowledged
    }

    /// Returns the lock of this holder. `None` if it was passed on since.
    pub fn held_by(&self, hold: HoldId) -> Option<LockId> {
        let lock = self.table.get(hold.lock)?;
        (lock.claim.hand_overs == hold.hand_overs).then_some(hold.lock)
    }

    /// Returns the lease of a token and its holder.
    fn held(&mut self, id: LockId) -> Option<(&HeldLease, &mut Holder)> {
        self.table.get_mut(id)?.held()
    }

    /// Returns `true` if an alarm of a token means nothing any longer.
    pub fn is_stale(&self, due: Due) -> bool {
        let awaits = |lock, is_so: fn(&Lock) -> bool| self.table.get(lock).is_some_and(is_so);
        match due {
            Due::Attempt(lock, _) | Due::Release(lock) => !awaits(lock, Lock::awaits_votes),
            Due::Grace(lock) | Due::Ballots(lock) | Due::TakeAgain(lock) => {
                !awaits(lock, Lock::is_attempt)
            }
            Due::Keep(lock, _) | Due::Extension(lock, _) => !awaits(lock, Lock::is_lease),
            _ => false,
        }
    }

    /// Drops all callers, because their runtime goes away. They repeat their requests. When the
    /// releases are sent, a place may already belong to a later wait, so they only delete keys.
    pub fn dismiss(&mut self) {
        for lock in self.table.values_mut() {
            lock.claim.leave_nothing();
            lock.opened = None;
            match &mut lock.owner {
                Owner::Holds(holder) => holder.extending.clear(),
                returned @ Owner::Returned { .. } => *returned = Owner::NOBODY,
                Owner::Asks { .. } => {}
            }
        }
    }

    /// Forgets which releases are repeated when. The releases themselves are continued otherwise.
    pub fn park(&mut self) {
        self.unacknowledged.iter_mut().for_each(Unacknowledged::clear);
    }
}

impl Context<'_> {
    #[inline]
    fn send(&mut self, op: Op, masters: MasterSet, ticket: Ticket) {
        let out = (&mut *self.known, &mut *self.effects);
        send(op, masters, ticket, self.now, self.voters, out);
    }

    /// Records whether some lease is held from now on.
    fn set_holding(&mut self, is_holding: bool) {
        for (master, is_urgent) in self.voters.set_holding(is_holding) {
            self.effects.push(Effect::Urgent(master, is_urgent));
        }
    }
}
