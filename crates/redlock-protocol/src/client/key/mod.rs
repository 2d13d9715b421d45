//! `Keys`: what the callers of one process do with each key.
//!
//! For each key it keeps the callers in order, the lease of this process, its place in the queue
//! that processes share, and what it knows about other processes. It decides who requests the key
//! next, who gets a returned lease without a request, and what a release leaves to others. Tokens
//! and connections do not occur here. Consequences for other parts are returned as [`News`], in
//! order.
//!
//! In reading order: `uses` (callers that request or hold a key), `waiters` (callers that wait),
//! `asking` (from the request of a caller to its turn), `watches` (the head's requests to the
//! meeting point), `claim` (one token and its key), `requests` (the requests for it), `entering`
//! and `leaving` (attempts and leases at the meeting point), `meeting` (which master that is),
//! `broken` (queues that do not work).

mod asking;
mod broken;
mod claim;
mod entering;
mod leaving;
mod meeting;
mod requests;
mod uses;
mod waiters;
mod watches;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use redlock_core::{Instant, Op, QueueTicket};

use self::broken::BrokenQueues;
pub use self::claim::{Claim, Exits, Meeting, is_queue_error};
pub use self::entering::Meets;
use self::uses::{Use, Uses};
use self::waiters::Waiters;
pub use self::watches::SILENT;
use super::callers::{Caller, Callers};
use super::derived::Derived;
use super::draws::{Draw, Draws};
use super::ids::{InspectionId, LockId, RequestId, Ticket, UseId, WaitingId};
use super::line::Outgoing;
use super::timers::{Due, Timers};
use super::view::Points;
use crate::waiting::Moment;

/// The keys that one client uses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Keys {
    terms: Terms,
    uses: Uses,
    waiters: Waiters,
    broken: BrokenQueues,
    news: Derived<VecDeque<News>>,
}

/// The settings of a client that concern its keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// The prefix of all keys.
    pub prefix: Vec<u8>,
    /// The number of this client in the queues of all keys.
    pub ticket: QueueTicket,
    /// Whether processes that wait for a key share a queue.
    pub has_queue: bool,
    /// Seeds the indexes. A caller that chooses keys must not know it.
    pub seed: u64,
}

/// Context of an input.
#[derive(Debug)]
pub struct Context<'a> {
    /// The current instant.
    pub now: Instant,
    /// How long a vote takes at present.
    pub fan_out: Duration,
    /// Whether each step is logged.
    pub is_traced: bool,
    /// The random choices.
    pub draws: Draws,
    /// The masters.
    pub points: &'a dyn Points,
    /// The callers without an answer.
    pub callers: &'a mut Callers,
    /// The actions that are due later.
    pub timers: &'a mut Timers,
}

/// One thing that must follow.
#[derive(Clone, Debug)]
pub enum News {
    /// This entry waits for its turn.
    Line(Outgoing),
    /// This caller waits for its turn to make an attempt, for its wait and a moment at most.
    Stands(RequestId),
    /// Send this request to a master.
    Send(usize, Op, Ticket),
    /// The waits of these callers are over. They share the present answers of the masters, in the
    /// question of earlier callers if it has no answer yet.
    Explain(Vec<RequestId>, WaitingId, Option<InspectionId>),
    /// A master was slow and is avoided as a meeting point until then.
    Suspect(usize, Instant),

    // For logs and numbers.
    /// A head requests the key again because of the time.
    Polled,
    /// A head watches the key.
    Watched,
    /// The caller of a request is gone.
    Cancelled(RequestId),
    /// A master has not answered a head in time.
    Silent(usize),
    /// A step of a caller.
    Said(RequestId, &'static str),
    /// A step of the callers that wait, at this master.
    SaidAt(WaitingId, usize, &'static str),
}

/// The least time that a meeting point has to answer. It covers a short pause of a server or a
/// client. A process that leaves the queue because of such a pause is passed by others for about a
/// second.
const ANSWER_MIN: Duration = Duration::from_millis(50);
/// The shortest and the longest reservation.
const RESERVATION: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];
/// How long a slow master is not used as a meeting point. Half of it is random.
const SUSPICION: Duration = Duration::from_secs(1);

impl Keys {
    /// Creates the state without any key.
    pub fn new(terms: Terms) -> Self {
        let seed = terms.seed;
        Self {
            terms,
            uses: Uses::new(seed),
            waiters: Waiters::new(seed),
            broken: BrokenQueues::default(),
            news: Derived(VecDeque::new()),
        }
    }

    /// Removes the oldest consequence. Nothing else may happen before all have been carried out.
    #[inline]
    pub fn next_news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    /// Returns `true` if callers wait under this id, or are remembered.
    pub fn contains(&self, id: WaitingId) -> bool {
        self.waiters.queues.contains(id)
    }

    /// Returns the caller whose turn it is.
    pub fn head(&self, id: WaitingId) -> Option<RequestId> {
        self.waiters.queues.get(id)?.waiting.head()
    }

    /// Returns the lease of this process on `key`.
    pub fn lease(&self, key: &[u8]) -> Option<LockId> {
        self.uses.of(key).and_then(Use::lease)
    }

    /// Records the last question for callers that waited under this id.
    pub fn explained(&mut self, id: WaitingId, explanation: InspectionId) {
        if let Some(queue) = self.waiters.queues.get_mut(id) {
            queue.explanation = Some(explanation);
        }
    }

    /// Forgets all callers. The leases of this process stay.
    pub fn clear(&mut self) {
        self.waiters.clear();
        self.uses.clear_askers();
    }

    fn said(&mut self, id: RequestId, what: &'static str, cx: &Context<'_>) {
        if cx.is_traced {
            self.news.push_back(News::Said(id, what));
        }
    }

    fn said_at(&mut self, id: WaitingId, at: usize, what: &'static str, cx: &Context<'_>) {
        if cx.is_traced {
            self.news.push_back(News::SaidAt(id, at, what));
        }
    }
}

impl Context<'_> {
    /// Returns the parameters of pauses that begin now.
    fn moment(&self, id: WaitingId) -> Moment {
        let random = self.draws.unit(Draw::Wait(id), self.now);
        Moment { now: self.now, fan_out: self.fan_out, random }
    }

    /// Ends the wait of a caller when its time is over.
    fn limit_wait(&mut self, id: RequestId) {
        if let Some(until) = self.callers.get(id).and_then(|caller| caller.until) {
            self.timers.enter(until, Due::Wait(id));
        }
    }

    /// Returns how long M reserves the key for a process that it calls.
    fn reservation(&self) -> Duration {
        let [least, most] = RESERVATION;
        (self.fan_out * 4).clamp(least, most)
    }

    fn reservation_ms(&self) -> u64 {
        u64::try_from(self.reservation().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Returns how long a meeting point may take to answer before it is left alone.
pub fn answer_time(fan_out: Duration) -> Duration {
    (fan_out * 6).max(ANSWER_MIN)
}

/// Returns until when `master` is avoided as a meeting point because it was slow.
pub fn suspected_until(master: usize, draws: Draws, now: Instant) -> Instant {
    let random = draws.unit(Draw::Suspect(master), now);
    now.saturating_add(SUSPICION.mul_f64(0.5 + random))
}
