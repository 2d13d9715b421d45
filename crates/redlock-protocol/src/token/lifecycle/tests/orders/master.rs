//! A simulated master.

use std::collections::VecDeque;

use redlock_core::{Answer, Instant};

use super::super::Asked;
use crate::lab::*;

/// One master, and the connection to it.
#[derive(Clone, Debug, Default)]
pub(super) struct Master {
    /// Until when it keeps our key.
    pub(super) key: Option<Instant>,
    pub(super) has_strangers_key: bool,
    /// Requests that it has not read.
    pub(super) requests: VecDeque<Request>,
    pub(super) replies: VecDeque<(Request, Answer)>,
    /// Requests of a broken connection. The master may still carry them out, but no answer arrives.
    pub(super) ghosts: VecDeque<Request>,
    pub(super) is_down: bool,
    pub(super) has_ended: bool,
    pub(super) is_busy: bool,
    /// It has lost our key without saying so.
    pub(super) has_lost: bool,
    /// Until when it confirmed to keep the key, by the validity of each request.
    pub(super) confirmed: Option<Instant>,
}

#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) kind: Asked,
    pub(super) sent_at: Instant,
    pub(super) ttl: u64,
}

impl Master {
    pub(super) fn execute(&mut self, request: &Request, now: Instant) -> Answer {
        let until = now.saturating_add(ms(timing(request.ttl).px));
        let key = self.key.filter(|until| *until > now);
        let (answer, key) = match (request.kind, key) {
            _ if self.is_busy => (busy(), key),
            (Asked::First | Asked::Readd, None) if !self.has_strangers_key => {
                (Answer::granted(), Some(until))
            }
            (Asked::First | Asked::Readd, _) => (held(), key),
            (Asked::Extension(_), Some(key)) => (Answer::granted(), Some(key.max(until))),
            (Asked::Extension(_), None) if self.has_strangers_key => (held(), None),
            (Asked::Extension(_) | Asked::Release, None) => (not_ours(), None),
            (Asked::Release, Some(_)) => (Answer::granted(), None),
            (Asked::Ballot(_) | Asked::Score, _) => panic!("there is no ballot"),
        };
        self.key = key;
        answer
    }

    /// Returns `true` if our key is on the master, or a request on its way may set it.
    pub(super) fn may_hold(&self, now: Instant) -> bool {
        let sets = |one: &Request| matches!(one.kind, Asked::First | Asked::Readd);
        self.holds(now) || self.requests.iter().chain(&self.ghosts).any(sets)
    }

    pub(super) fn holds(&self, now: Instant) -> bool {
        self.key.is_some_and(|until| until > now)
    }

    pub(super) fn owes_an_answer(&self) -> bool {
        !self.requests.is_empty() || !self.replies.is_empty()
    }
}
