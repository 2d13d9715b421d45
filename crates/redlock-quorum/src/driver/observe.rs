//! Observability: the numbers of the driver, and its lines in the log.
//!
//! No line is written while a mutex is locked, because a subscriber is foreign code and may use the
//! handle. It may also panic, which costs only the line. `docs/OBSERVABILITY.md` has the words and
//! the fields.

mod steps;

use std::mem::{Discriminant, discriminant};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use redlock_core::{Cause, Instant, ListWarning, Token, Verdict};
use redlock_protocol::client::key::Claim;
use redlock_protocol::client::masters::Weakness;
use redlock_protocol::client::table::Id;
use redlock_protocol::master_set::MasterSet;
use redlock_protocol::throttle::Throttle;
use redlock_protocol::token::attempt::Defeat;
use redlock_protocol::token::lease::HeldLease;
use tracing::{Level, debug, info, trace, warn};

use super::Driver;
use super::command::Request;
use super::lock::{Caller, Lock};
use crate::counters::Counters;
use crate::lost::{Lost, LostReason};
use redlock_protocol::client::ids::LockId;
use redlock_protocol::client::timers::Due;

/// The numbers, and which warnings were reported a moment ago.
pub(super) struct Observer {
    pub(super) counters: Arc<Counters>,
    names: Arc<[Arc<str>]>,
    warnings: Throttle<Warning>,
    /// When suppressed warnings are reported.
    scheduled: Option<Instant>,
    /// Whether each step is traced. Checked once per turn, because a lock has about 15 steps.
    is_traced: bool,
}

/// A cause that is logged once a second, for each master or reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Warning {
    Down(usize, Discriminant<Cause>),
    NotCounting(usize),
    Weakness(usize, &'static str),
    NoQueue(usize),
    Abandoned(usize),
    List,
    Lost(LostReason),
}

/// A key has a longer expiry than this namespace allows: some client has another `max_ttl`, and a
/// quarantine may end before its lock does.
pub(super) const LIVES_TOO_LONG: &str =
    "found a lock that outlives max_ttl; its client uses a different max_ttl";

/// Returns the text about a weakness of a server.
pub(super) fn weakness(weakness: Weakness) -> &'static str {
    match weakness {
        Weakness::FloorByClock => {
            "could not read ballots from enough admitted masters; this master's fencing tokens \
                continue from the masters' clocks"
        }
        Weakness::NoBarrier => {
            "CLIENT KILL ID is denied: a request sent on a broken connection may run late and \
                leave a key until it expires"
        }
        Weakness::NoPushes => {
            "the server does not report key changes (older than 6.0, behind a proxy, or no \
                permission for CLIENT TRACKING): it cannot wake waiting clients"
        }
    }
}

/// A name of an entry for the log.
pub(super) fn number(id: impl Id) -> u64 {
    id.number()
}

/// Writes a line. A subscriber that panics ends no lease.
fn log(write: impl FnOnce()) {
    // The closure only reads what it borrows.
    let _ = catch_unwind(AssertUnwindSafe(write));
}

/// Whether anyone wants to see each step.
fn is_traced() -> bool {
    catch_unwind(|| tracing::enabled!(Level::TRACE)).unwrap_or(false)
}

impl Observer {
    pub(super) fn new(counters: Arc<Counters>, names: Arc<[Arc<str>]>) -> Self {
        Self { counters, names, warnings: Throttle::default(), scheduled: None, is_traced: false }
    }

    /// Returns `true` if each step is shown.
    #[inline]
    pub(super) fn is_traced(&self) -> bool {
        self.is_traced
    }

    /// A turn begins.
    pub(super) fn begin(&mut self) {
        self.is_traced = is_traced();
    }

    /// There is a connection to `master`.
    pub(super) fn up(&self, master: usize) {
        self.counters.up(master);
        log(|| info!(node = %self.names[master], "master up"));
    }

    /// A connection is down. `is_news` is false if it was already down for this reason.
    pub(super) fn down(&mut self, master: usize, cause: &Cause, is_news: bool, now: Instant) {
        self.counters.down(master);
        let node = &self.names[master];
        if !is_news {
            return log(|| trace!(%node, %cause, "master still down"));
        }
        match self.warnings.admit(Warning::Down(master, discriminant(cause)), now) {
            Some(suppressed) => log(|| warn!(%node, %cause, suppressed, "master down")),
            None => log(|| debug!(%node, %cause, "master down")),
        }
    }

    /// Logs that `master` does not vote.
    pub(super) fn not_counting(&mut self, master: usize, cause: &Cause, now: Instant) {
        if let Some(suppressed) = self.warnings.admit(Warning::NotCounting(master), now) {
            log(|| warn!(node = %self.names[master], %cause, suppressed, "master does not vote"));
        }
    }

    /// Logs that the answers of `master` count from now on.
    pub(super) fn counting(&self, master: usize) {
        log(|| debug!(node = %self.names[master], "master votes"));
    }

    /// Logs a weakness of `master` that its users should know.
    pub(super) fn weakness(&mut self, master: usize, text: &'static str, now: Instant) {
        if let Some(suppressed) = self.warnings.admit(Warning::Weakness(master, text), now) {
            log(|| warn!(node = %self.names[master], suppressed, "{text}"));
        }
    }

    /// Logs that the list of this client works and may be wrong.
    pub(super) fn list_may_be_wrong(&mut self, warning: &ListWarning, now: Instant) {
        if let Some(suppressed) = self.warnings.admit(Warning::List, now) {
            let ListWarning { doubt, node, lists, .. } = warning;
            log(|| {
                warn!(
                    %node,
                    %lists,
                    suppressed,
                    "the list of masters may be wrong, or a change is under way: {doubt}"
                )
            });
        }
    }

    /// Callers that wait at `master` have no shared queue, for this reason.
    pub(super) fn no_queue(&mut self, master: usize, why: &str, now: Instant) {
        if let Some(suppressed) = self.warnings.admit(Warning::NoQueue(master), now) {
            log(|| {
                warn!(
                    node = %self.names[master],
                    why,
                    suppressed,
                    "this server does not support the wait queue: clients waiting here rarely \
                        win against clients that can queue"
                )
            });
        }
    }

    /// Logs that releases that `master` has not acknowledged were abandoned.
    pub(super) fn abandoned(&mut self, master: usize, forgotten: u64, now: Instant) {
        if let Some(suppressed) = self.warnings.admit(Warning::Abandoned(master), now) {
            log(|| {
                warn!(
                    node = %self.names[master],
                    forgotten,
                    suppressed,
                    "too many unacknowledged releases: the oldest keys are left to expire"
                )
            });
        }
    }

    fn lost(&mut self, lost: &Lost, token: &Token, now: Instant) {
        self.counters.loss(lost.reason);
        let Lost { resource, reason, votes } = lost;
        match self.warnings.admit(Warning::Lost(*reason), now) {
            Some(suppressed) => {
                log(|| warn!(%resource, %token, %reason, %votes, suppressed, "lost"))
            }
            None => log(|| debug!(%resource, %token, %reason, %votes, "lost")),
        }
    }

    /// Masters have not answered within the node timeout.
    pub(super) fn timed_out(&self, lock: Option<&Lock>, silent: MasterSet) {
        let Some(lock) = lock else { return };
        for master in silent.iter() {
            self.counters.vote(master, &Verdict::Unknown(Cause::TimedOut));
            let Claim { resource, token, .. } = &lock.claim;
            log(|| trace!(%resource, %token, node = %self.names[master], "no answer in time"));
        }
    }

    /// A request is answered with a lock.
    pub(super) fn won(&self, request: &Request, lock: &Lock, now: Instant) {
        let wait = now.saturating_since(request.asked_at);
        self.counters.acquired.add(1);
        self.counters.waits.add(wait);
        let Claim { resource, token, .. } = &lock.claim;
        log(|| debug!(%resource, %token, ?wait, "acquired"));
    }

    /// Logs a request that received the lock of the previous caller.
    pub(super) fn handed_over(&self, request: &Request, lock: &Lock, now: Instant) {
        let wait = now.saturating_since(request.asked_at);
        self.counters.acquired.add(1);
        self.counters.handed_over.add(1);
        self.counters.waits.add(wait);
        let Claim { resource, token, hand_overs, .. } = &lock.claim;
        log(|| debug!(%resource, %token, hand_overs, ?wait, "handed over"));
    }

    /// A request is answered with an error.
    pub(super) fn failed(&self, request: &Request, defeat: Defeat, now: Instant) {
        let wait = self.refused(request, now);
        log(|| debug!(resource = %request.resource, ?wait, ?defeat, "not acquired"));
    }

    /// A request is answered with an error. Returns how long it has waited.
    pub(super) fn refused(&self, request: &Request, now: Instant) -> Duration {
        let wait = now.saturating_since(request.asked_at);
        self.counters.failed.add(1);
        self.counters.waits.add(wait);
        wait
    }

    /// Reports the warnings suppressed for a second.
    pub(super) fn report_suppressed(&mut self, now: Instant) {
        self.scheduled = None;
        while let Some((warning, suppressed)) = self.warnings.overdue(now) {
            match warning {
                Warning::Lost(reason) => log(|| warn!(%reason, suppressed, "lost")),
                Warning::List => log(|| warn!(suppressed, "the list of masters still differs")),
                Warning::Down(master, _) => {
                    log(|| warn!(node = %self.names[master], suppressed, "master down"));
                }
                Warning::NotCounting(master)
                | Warning::Weakness(master, _)
                | Warning::NoQueue(master)
                | Warning::Abandoned(master) => {
                    log(|| warn!(node = %self.names[master], suppressed, "the same as before"));
                }
            }
        }
    }

    /// Returns when suppressed warnings are due, unless an alarm is already set for that.
    fn alarm(&mut self) -> Option<Instant> {
        let due = self.warnings.due().filter(|_| self.scheduled.is_none());
        self.scheduled = self.scheduled.or(due);
        due
    }

    /// The timers are gone, and the alarm with them.
    pub(super) fn reset(&mut self) {
        self.scheduled = None;
    }
}

impl Driver {
    /// Publishes the gauges at the end of a turn.
    pub(super) fn publish_numbers(&mut self) {
        let counters = &self.observer.counters;
        counters.held.set(self.locks.valid_leases());
        counters.waiting.set(self.requests.len());
        for (master, unacknowledged) in self.unacknowledged.iter().enumerate() {
            counters.unacknowledged(master, unacknowledged.len());
        }
        if let Some(at) = self.observer.alarm() {
            self.timers.enter(at, Due::Warnings);
        }
    }

    /// A lease may be over. Its loss is counted once, and a release is none.
    pub(super) fn note_loss(&mut self, id: LockId, now: Instant) {
        if let Some(lost) = self.locks.note_loss(id)
            && let Some(Lock { claim, .. }) = self.locks.get(id)
        {
            self.observer.lost(&lost, &claim.token, now);
        }
    }

    /// The lease of an extension lasts longer now: by how much it would have been too late is
    /// counted once for each extension.
    pub(super) fn note_margin(&mut self, id: LockId, number: u32, before: Instant, now: Instant) {
        let Some(Lock { claim, machine, caller: Caller::Holds(holder), .. }) =
            self.locks.get_mut(id)
        else {
            return;
        };
        let deadline = machine.lease().and_then(HeldLease::deadline);
        if deadline > Some(before) && holder.measured != number {
            holder.measured = number;
            let (Claim { resource, token, .. }, margin) = (claim, before.saturating_since(now));
            self.observer.counters.margins.add(margin);
            log(|| debug!(%resource, %token, ?margin, "extended"));
        }
    }
}
