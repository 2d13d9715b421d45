//! `Step`: the next task for the head; `Ask` and `Refusal`: which masters it queries, and how it
//! fails; `QueueAnswer` and `Moment`: the answer it receives, and when.

use std::time::Duration;

use redlock_core::{Answer, Instant, QueueTicket, Verdict};

/// The masters that an attempt queries. If M keeps a queue, the attempt also enters the queue,
/// unless its head queries all masters and has no place yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    /// All at the same time.
    All,
    /// M, and the others when it has granted.
    First,
    /// All at the same time, and the others even if the key is reserved.
    Called,
}

/// The step to carry out for the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<Id> {
    /// No step before the next event or the time of [`Waiting::due`](super::Waiting::due).
    Wait,
    /// Make an attempt for this caller.
    Attempt(Id, Ask),
    /// Query M for the holder of the key, and have M report its next change.
    Watch,
    /// Request a place from M, but not the key.
    Queue,
    /// Give up the place at this master, or the reservation for us there.
    Leave(usize),
}

/// How an attempt was lost, as far as waiting is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another client holds the key.
    Held,
    /// Contenders have shared the masters among themselves: none has a quorum.
    Split,
    /// M has let it in, and the others have not.
    Alone,
    /// M has not answered, or too few masters have taken the ballot.
    Silent,
    /// So many masters did not answer that no attempt can be won.
    NoQuorum,
}

/// The answer of M to a head that it did not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueueAnswer {
    /// The master that answered.
    pub at: usize,
    /// The number of tickets ahead of it. `None` if it has no place.
    pub rank: Option<u32>,
    /// Others wait for the key at M.
    pub others_wait: bool,
    /// There is no key at M.
    pub is_free: bool,
    /// The key at M is kept for this process.
    pub is_reserved_for_us: bool,
    /// For how long M keeps the key for another process; `None` if it does not.
    pub reserved_for: Option<Duration>,
    /// The script on the queue has failed.
    pub has_failed: bool,
}

impl QueueAnswer {
    /// Creates the answer for a queue of master `at` that has failed.
    pub fn failed(at: usize) -> Self {
        Self {
            at,
            rank: None,
            others_wait: false,
            is_free: false,
            is_reserved_for_us: false,
            reserved_for: None,
            has_failed: true,
        }
    }

    /// Reads the answer of master `at` to a head that enters with `ticket`. `None` if it has let
    /// the head in, or reports no queue.
    pub fn of(at: usize, answer: &Answer, ticket: QueueTicket) -> Option<Self> {
        let (queued, verdict) = (answer.queued?, &answer.verdict);
        let is_free = *verdict == Verdict::Free;
        if !is_free && !verdict.is_refusal() {
            return None;
        }
        let reserved = verdict.reservation().and_then(|reservation| reservation.ticket);
        let is_reserved_for_us = reserved == Some(ticket);
        let reserved_for = match verdict {
            Verdict::Held { ttl, .. } if reserved.is_some() && !is_reserved_for_us => *ttl,
            _ => None,
        };
        // A head with a place is one of the waiters itself.
        let others_wait = queued.waiters > u32::from(queued.rank.is_some());
        let rank = queued.rank;
        Some(Self {
            at,
            rank,
            others_wait,
            is_free,
            is_reserved_for_us,
            reserved_for,
            has_failed: false,
        })
    }
}

/// The time of an event, and the inputs for a random pause after it.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// When.
    pub now: Instant,
    /// How long a vote takes at present.
    pub fan_out: Duration,
    /// A draw from 0 to 1.
    pub random: f64,
}
