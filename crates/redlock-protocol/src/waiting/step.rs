//! `Step`: what is to be done for the head; `Ask` and `Refusal`: what it asks for, and how it
//! fails; `QueueAnswer` and `Moment`: what it hears, and when.

use std::time::Duration;

use redlock_core::{Answer, Instant, QueueTicket, Verdict};

/// The masters that an attempt asks. If M keeps a queue, the attempt also enters the queue, unless
/// its head asks all masters and has no place yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    /// All at once.
    All,
    /// M, and the others when it has granted.
    First,
    /// All at once, and the others even where the key is reserved.
    Called,
}

/// The step to carry out for the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<Id> {
    /// No step before the next event or the time of [`Waiting::due`](super::Waiting::due).
    Wait,
    /// An attempt is to be made for this caller.
    Attempt(Id, Ask),
    /// M is to be asked who holds the key, and to report its next change.
    Watch,
    /// M is to be asked for a place, and not for the key.
    Queue,
    /// The place at this master, or a reservation for us there, is to be given up.
    Leave(usize),
}

/// How an attempt was lost, as far as waiting is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another holds the key.
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
    /// How many stand before it; `None` if it has no place.
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

    /// The answer of master `at` to a head that enters with `ticket`; `None` if it has let the head
    /// in, or reports no queue.
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
        // The head is one of those that wait if it has a place.
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

/// When something happens, and what a random pause is made of then.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// When.
    pub now: Instant,
    /// How long a vote takes at present.
    pub fan_out: Duration,
    /// A draw from 0 to 1.
    pub random: f64,
}
