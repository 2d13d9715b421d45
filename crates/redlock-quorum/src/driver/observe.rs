//! Observability: the numbers of the driver, and its lines in the log.
//!
//! No line is written while a mutex is locked, because a subscriber is foreign code and may use the
//! handle. It may also panic, which costs only the line. `docs/OBSERVABILITY.md` has the words and
//! the fields.

use std::mem::{Discriminant, discriminant};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use redlock_core::{Cause, Instant, Resource};
use redlock_protocol::client::Client;
use redlock_protocol::client::counts::Count;
use redlock_protocol::client::effects::{Said, Trace, Traced, What};
use redlock_protocol::client::masters::Weakness;
use redlock_protocol::throttle::Throttle;
use redlock_protocol::token::attempt::Defeat;
use tracing::{Level, debug, info, trace, warn};

use crate::counters::Counters;
use crate::hold::HoldCell;
use crate::lost::{Ended, LostReason};

/// The numbers, and which warnings were reported a moment ago.
pub(super) struct Observer {
    pub(super) counters: Arc<Counters>,
    names: Arc<[Arc<str>]>,
    warnings: Throttle<Warning>,
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

/// A key has a longer expiry than this prefix allows: some client has another `max_ttl`, and a
/// quarantine may end before its lock does.
const LIVES_TOO_LONG: &str =
    "found a lock that outlives max_ttl; its client uses a different max_ttl";

/// Returns the text about a weakness of a server.
fn weakness(weakness: Weakness) -> &'static str {
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

/// Writes a line. A subscriber that panics ends no lease.
fn log(write: impl FnOnce()) {
    // The closure only reads what it borrows.
    let _ = catch_unwind(AssertUnwindSafe(write));
}

/// Returns `true` if anyone wants to see each step. Checked once per turn, because a lock has about
/// 15 steps.
pub(super) fn is_traced() -> bool {
    catch_unwind(|| tracing::enabled!(Level::TRACE)).unwrap_or(false)
}

impl Observer {
    pub(super) fn new(counters: Arc<Counters>, names: Arc<[Arc<str>]>) -> Self {
        Self { counters, names, warnings: Throttle::default() }
    }

    /// Publishes counted events.
    #[inline]
    pub(super) fn count(&self, counts: &mut Vec<Count>) {
        counts.drain(..).for_each(|count| self.counters.count(count));
    }

    /// Publishes the gauges at the end of a turn.
    pub(super) fn publish(&self, client: &Client) {
        let locks = client.locks();
        self.counters.held.set(locks.valid_leases());
        self.counters.waiting.set(client.waiting());
        for (master, unacknowledged) in locks.unacknowledged().iter().enumerate() {
            self.counters.unacknowledged(master, unacknowledged.len());
        }
    }

    /// All connections are closed for good.
    pub(super) fn all_down(&self) {
        (0..self.names.len()).for_each(|master| self.counters.down(master));
    }

    /// Logs an event of a master.
    pub(super) fn say(&mut self, said: Said, now: Instant) {
        match said {
            Said::Up(master) => {
                self.counters.up(master);
                log(|| info!(node = %self.names[master], "master up"));
            }
            Said::Down(master, cause, is_news) => self.down(master, &cause, is_news, now),
            Said::Counting(master) => {
                log(|| debug!(node = %self.names[master], "master votes"));
            }
            Said::NotCounting(master, cause) => {
                let Some(suppressed) = self.admit(Warning::NotCounting(master), now) else {
                    return;
                };
                let node = &self.names[master];
                log(|| warn!(%node, %cause, suppressed, "master does not vote"));
            }
            Said::Weak(master, weak) => self.weakness(master, weakness(weak), now),
            Said::LivesTooLong(master) => self.weakness(master, LIVES_TOO_LONG, now),
            Said::NoQueue(master, why) => {
                let Some(suppressed) = self.admit(Warning::NoQueue(master), now) else { return };
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
            Said::ListDoubt(warning) => {
                let Some(suppressed) = self.admit(Warning::List, now) else { return };
                let (doubt, node, lists) = (&warning.doubt, &warning.node, &warning.lists);
                log(|| {
                    warn!(
                        %node,
                        %lists,
                        suppressed,
                        "the list of masters may be wrong, or a change is under way: {doubt}"
                    )
                });
            }
            Said::Abandoned(master, forgotten) => {
                let Some(suppressed) = self.admit(Warning::Abandoned(master), now) else { return };
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
    }

    /// Returns how many warnings of this kind were suppressed, if this one must be logged.
    fn admit(&mut self, warning: Warning, now: Instant) -> Option<u64> {
        self.warnings.admit(warning, now)
    }

    fn down(&mut self, master: usize, cause: &Cause, is_news: bool, now: Instant) {
        self.counters.down(master);
        let node = self.names[master].clone();
        if !is_news {
            return log(|| trace!(%node, %cause, "master still down"));
        }
        match self.admit(Warning::Down(master, discriminant(cause)), now) {
            Some(suppressed) => log(|| warn!(%node, %cause, suppressed, "master down")),
            None => log(|| debug!(%node, %cause, "master down")),
        }
    }

    /// Logs a weakness of `master` that its users should know.
    fn weakness(&mut self, master: usize, text: &'static str, now: Instant) {
        if let Some(suppressed) = self.admit(Warning::Weakness(master, text), now) {
            log(|| warn!(node = %self.names[master], suppressed, "{text}"));
        }
    }

    /// A lease was lost.
    pub(super) fn lost(&mut self, cell: &HoldCell, now: Instant) {
        let Some(Ended::Lost(lost)) = cell.ended() else { return };
        self.counters.loss(lost.reason);
        let (resource, token) = (&cell.resource, &cell.token);
        let (reason, votes) = (lost.reason, &lost.votes);
        match self.admit(Warning::Lost(reason), now) {
            Some(suppressed) => {
                log(|| warn!(%resource, %token, %reason, %votes, suppressed, "lost"))
            }
            None => log(|| debug!(%resource, %token, %reason, %votes, "lost")),
        }
    }

    /// A lease lasts longer now. Without this extension it would have ended after `margin`.
    pub(super) fn extended(&self, cell: &HoldCell, margin: Duration) {
        self.counters.margins.add(margin);
        let (resource, token) = (&cell.resource, &cell.token);
        log(|| debug!(%resource, %token, ?margin, "extended"));
    }

    /// Counts a request that is answered with a lock: a new one, or one handed over by a caller of this
    /// process.
    pub(super) fn won(&self, cell: &HoldCell, hand_overs: u8, wait: Duration) {
        self.counters.acquired.add(1);
        self.counters.waits.add(wait);
        let (resource, token) = (&cell.resource, &cell.token);
        if hand_overs == 0 {
            log(|| debug!(%resource, %token, ?wait, "acquired"));
        } else {
            log(|| debug!(%resource, %token, hand_overs, ?wait, "handed over"));
        }
    }

    /// A request is answered with an error that masters have a part in.
    pub(super) fn failed(&self, resource: &Resource, defeat: Defeat, wait: Duration) {
        self.refused(wait);
        log(|| debug!(%resource, ?wait, ?defeat, "not acquired"));
    }

    /// A request is answered with an error.
    pub(super) fn refused(&self, wait: Duration) {
        self.counters.failed.add(1);
        self.counters.waits.add(wait);
    }

    /// Writes a step, for subscribers at the trace level.
    pub(super) fn trace(&self, trace: &Trace) {
        let Trace { resource, of, what } = trace;
        let node = |master: &usize| &*self.names[*master];
        log(|| match (of, what) {
            (Traced::Lock(token), What::Happens(what)) => trace!(%resource, %token, "{what}"),
            (Traced::Lock(token), What::HappensAt(at, what)) => {
                trace!(%resource, %token, node = node(at), "{what}");
            }
            (Traced::Lock(token), What::Attempt(request, masters)) => {
                trace!(%resource, request, %token, masters, "attempt");
            }
            (Traced::Lock(token), What::Decided(step)) => {
                trace!(%resource, %token, ?step, "decided");
            }
            (Traced::Lock(token), What::Vote(at, to, verdict, latency)) => {
                trace!(%resource, %token, node = node(at), to, %verdict, ?latency, "vote");
            }
            (Traced::Request(request), What::HappensAt(at, what)) => {
                trace!(%resource, request, node = node(at), "{what}");
            }
            (Traced::Request(request), What::Happens(what)) => {
                trace!(%resource, request, "{what}");
            }
            (Traced::Request(_), _) => {}
        });
    }

    /// Returns when suppressed warnings are due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.warnings.due()
    }

    /// Reports the warnings suppressed for a second.
    pub(super) fn report_suppressed(&mut self, now: Instant) {
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
}
