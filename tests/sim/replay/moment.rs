//! The present moment, recorded and repeated.

use std::slice;

use redlock_core::{Instant, Label, Token};
use redlock_protocol::LostReason;
use redlock_protocol::client::ids::RequestId;
use redlock_protocol::client::moment::{Acceptance, Moment};
use redlock_protocol::votes::ledger::Ledger;

/// A question of a client, and the answer of its moment.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Said {
    Now(Instant),
    Token(Option<Label>, Token),
    Nonce(u64),
    Moved([Instant; 2], RequestId, bool),
    Held(RequestId, bool),
    Lost(RequestId, LostReason, Ledger, Option<LostReason>),
    Ended(RequestId),
    Acceptance(RequestId, Acceptance),
    Changed(RequestId, Acceptance, Acceptance),
}

impl Said {
    /// Changes the answer, if it is a random one.
    pub(super) fn forge(&mut self) {
        if let Self::Token(_, token) = self {
            *token = Token::random(None);
        }
    }
}

/// Records what a moment says.
#[derive(Debug)]
pub(super) struct Listening<'a> {
    pub(super) moment: &'a mut dyn Moment,
    pub(super) said: &'a mut Vec<Said>,
}

impl Moment for Listening<'_> {
    fn now(&mut self) -> Instant {
        let now = self.moment.now();
        self.said.push(Said::Now(now));
        now
    }

    fn token(&mut self, label: Option<&Label>) -> Token {
        let token = self.moment.token(label);
        self.said.push(Said::Token(label.cloned(), token.clone()));
        token
    }

    fn nonce(&mut self) -> u64 {
        let nonce = self.moment.nonce();
        self.said.push(Said::Nonce(nonce));
        nonce
    }

    fn move_deadline(&mut self, holder: RequestId, to: Instant, now: Instant) -> bool {
        let is_moved = self.moment.move_deadline(holder, to, now);
        self.said.push(Said::Moved([to, now], holder, is_moved));
        is_moved
    }

    fn is_held(&mut self, holder: RequestId) -> bool {
        let is_held = self.moment.is_held(holder);
        self.said.push(Said::Held(holder, is_held));
        is_held
    }

    fn lose(
        &mut self,
        holder: RequestId,
        reason: LostReason,
        ledger: &Ledger,
    ) -> Option<LostReason> {
        let lost = self.moment.lose(holder, reason, ledger);
        self.said.push(Said::Lost(holder, reason, ledger.clone(), lost));
        lost
    }

    fn end(&mut self, holder: RequestId) {
        self.moment.end(holder);
        self.said.push(Said::Ended(holder));
    }

    fn acceptance(&mut self, holder: RequestId) -> Acceptance {
        let acceptance = self.moment.acceptance(holder);
        self.said.push(Said::Acceptance(holder, acceptance));
        acceptance
    }

    fn change_acceptance(&mut self, holder: RequestId, to: Acceptance) -> Acceptance {
        let before = self.moment.change_acceptance(holder, to);
        self.said.push(Said::Changed(holder, to, before));
        before
    }
}

/// Says the same to a client that asks the same.
#[derive(Debug)]
pub(super) struct Repeating<'a> {
    left: slice::Iter<'a, Said>,
    differs: Option<String>,
}

impl<'a> Repeating<'a> {
    pub(super) fn new(said: &'a [Said]) -> Self {
        Self { left: said.iter(), differs: None }
    }

    /// Returns the first question that was another one, or was not asked.
    pub(super) fn differs(mut self) -> Option<String> {
        let unasked = self.left.next().map(|said| format!("not asked: {said:?}"));
        self.differs.or(unasked)
    }

    /// Returns the recorded answer to this question. `answer` returns it, if the question is this
    /// one. After another question, the answer does not matter.
    fn next<T>(&mut self, answer: impl FnOnce(&'a Said) -> Option<T>, or: T) -> T {
        let said = self.left.next();
        said.and_then(answer).unwrap_or_else(|| {
            self.differs.get_or_insert_with(|| format!("asked for something else than {said:?}"));
            or
        })
    }
}

impl Moment for Repeating<'_> {
    fn now(&mut self) -> Instant {
        let answer = |said: &Said| if let Said::Now(now) = said { Some(*now) } else { None };
        self.next(answer, Instant::ORIGIN)
    }

    fn token(&mut self, label: Option<&Label>) -> Token {
        let answer = |said: &Said| match said {
            Said::Token(of, token) if of.as_ref() == label => Some(token.clone()),
            _ => None,
        };
        self.next(answer, Token::random(None))
    }

    fn nonce(&mut self) -> u64 {
        let answer = |said: &Said| if let Said::Nonce(nonce) = said { Some(*nonce) } else { None };
        self.next(answer, 0)
    }

    fn move_deadline(&mut self, holder: RequestId, to: Instant, now: Instant) -> bool {
        let answer = |said: &Said| match said {
            Said::Moved(of, by, is_moved) if (*of, *by) == ([to, now], holder) => Some(*is_moved),
            _ => None,
        };
        self.next(answer, false)
    }

    fn is_held(&mut self, holder: RequestId) -> bool {
        let answer = |said: &Said| match said {
            Said::Held(of, is_held) if *of == holder => Some(*is_held),
            _ => None,
        };
        self.next(answer, false)
    }

    fn lose(
        &mut self,
        holder: RequestId,
        reason: LostReason,
        ledger: &Ledger,
    ) -> Option<LostReason> {
        let answer = |said: &Said| match said {
            Said::Lost(of, why, shown, lost) if (*of, *why, shown) == (holder, reason, ledger) => {
                Some(*lost)
            }
            _ => None,
        };
        self.next(answer, None)
    }

    fn end(&mut self, holder: RequestId) {
        self.next(|said| (*said == Said::Ended(holder)).then_some(()), ());
    }

    fn acceptance(&mut self, holder: RequestId) -> Acceptance {
        let answer = |said: &Said| match said {
            Said::Acceptance(of, acceptance) if *of == holder => Some(*acceptance),
            _ => None,
        };
        self.next(answer, Acceptance::Offered)
    }

    fn change_acceptance(&mut self, holder: RequestId, to: Acceptance) -> Acceptance {
        let answer = |said: &Said| match said {
            Said::Changed(of, wanted, before) if (*of, *wanted) == (holder, to) => Some(*before),
            _ => None,
        };
        self.next(answer, Acceptance::Offered)
    }
}
