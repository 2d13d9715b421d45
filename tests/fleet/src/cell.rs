//! `Cell`: what a holder knows of its lock. The client asks for it through its `Moment`.

use redlock_core::{Instant, Label, Token};
use redlock_protocol::LostReason;
use redlock_protocol::client::ids::RequestId;
use redlock_protocol::client::moment::{Acceptance, Moment};
use redlock_protocol::client::table::Table;
use redlock_protocol::votes::ledger::Ledger;

use crate::flaws::Broken;
use crate::streams::Stream;

/// A caller, from its request to its return, or one that waits for an answer about its lock.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    /// The caller, by its number in the fleet.
    pub(crate) caller: usize,
    pub(crate) cell: Option<Cell>,
    /// The caller has stopped waiting.
    pub(crate) is_gone: bool,
    /// The client does not use the cell any longer.
    pub(crate) is_over: bool,
}

/// One held lock.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) deadline: Instant,
    /// Until when its fencing token may be handed out.
    pub(crate) proven_until: Option<Instant>,
    pub(crate) ended: Option<Ended>,
    /// Why it is lost if its deadline passes.
    pub(crate) lapse: LostReason,
    pub(crate) acceptance: Acceptance,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Released,
    Lost(LostReason),
}

impl Cell {
    /// What the holder sees. After `false` it is never `true` again.
    pub(crate) fn is_held(&mut self, now: Instant) -> bool {
        if self.ended.is_none() && self.deadline <= now {
            self.ended = Some(Ended::Lost(self.lapse));
        }
        self.ended.is_none()
    }

    /// Takes the lock for its caller. Returns the former state.
    pub(crate) fn accept(&mut self, now: Instant) -> Acceptance {
        if self.proven_until.is_some_and(|until| until <= now) || !self.is_held(now) {
            return Acceptance::Withdrawn;
        }
        self.change(Acceptance::Accepted)
    }

    fn change(&mut self, to: Acceptance) -> Acceptance {
        let before = self.acceptance;
        if matches!(before, Acceptance::Offered | Acceptance::Awaited) {
            self.acceptance = to;
        }
        before
    }
}

/// The present moment of one client.
#[derive(Debug)]
pub(crate) struct Present<'a> {
    pub(crate) now: Instant,
    pub(crate) entries: &'a mut Table<RequestId, Entry>,
    pub(crate) tokens: &'a mut Stream,
    pub(crate) nonces: &'a mut Stream,
    pub(crate) broken: Option<&'a Broken>,
}

impl Present<'_> {
    fn cell(&mut self, holder: RequestId) -> Option<&mut Cell> {
        self.entries.get_mut(holder)?.cell.as_mut()
    }
}

impl Moment for Present<'_> {
    fn now(&mut self) -> Instant {
        self.now
    }

    #[expect(clippy::expect_used, reason = "32 hex digits are a token")]
    fn token(&mut self, _: Option<&Label>) -> Token {
        let drawn = (self.tokens.number(), self.tokens.number());
        let (high, low) = self.broken.and_then(Broken::only_token).unwrap_or(drawn);
        Token::parse(&format!("{high:016x}{low:016x}")).expect("32 hex digits are a token")
    }

    fn nonce(&mut self) -> u64 {
        self.nonces.number()
    }

    fn move_deadline(&mut self, holder: RequestId, to: Instant, now: Instant) -> bool {
        let to = self.broken.map_or(to, |broken| broken.deadline(to));
        match self.cell(holder) {
            None => true,
            Some(cell) if cell.ended.is_some() || cell.deadline <= now => false,
            Some(cell) => {
                cell.deadline = to;
                true
            }
        }
    }

    fn is_held(&mut self, holder: RequestId) -> bool {
        let now = self.now;
        self.cell(holder).is_none_or(|cell| cell.is_held(now))
    }

    fn lose(&mut self, holder: RequestId, reason: LostReason, _: &Ledger) -> Option<LostReason> {
        let Some(cell) = self.cell(holder) else { return Some(reason) };
        match *cell.ended.get_or_insert(Ended::Lost(reason)) {
            Ended::Lost(reason) => Some(reason),
            Ended::Released => None,
        }
    }

    fn end(&mut self, holder: RequestId) {
        if let Some(cell) = self.cell(holder) {
            cell.ended.get_or_insert(Ended::Released);
        }
    }

    fn acceptance(&mut self, holder: RequestId) -> Acceptance {
        self.cell(holder).map_or(Acceptance::Offered, |cell| cell.acceptance)
    }

    fn change_acceptance(&mut self, holder: RequestId, to: Acceptance) -> Acceptance {
        self.cell(holder).map_or(Acceptance::Offered, |cell| cell.change(to))
    }
}
