//! `Present`: the present moment of a process, and what its holders know of their locks.

use redlock_core::{Instant, Label, Token};
use redlock_protocol::LostReason;
use redlock_protocol::client::ids::RequestId;
use redlock_protocol::client::moment::{Acceptance, Moment};
use redlock_protocol::client::table::Table;
use redlock_protocol::votes::ledger::Ledger;

/// What the shell keeps of a caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    pub(crate) caller: usize,
    pub(crate) cell: Option<Cell>,
    pub(crate) is_gone: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cell {
    pub(crate) deadline: Instant,
    /// How it ended: `None` for a release.
    pub(crate) ended: Option<Option<LostReason>>,
}

/// The present moment of a process.
#[derive(Debug)]
pub(crate) struct Present<'a> {
    pub(crate) now: Instant,
    pub(crate) entries: &'a mut Table<RequestId, Entry>,
    pub(crate) drawn: &'a mut u64,
    pub(crate) number: usize,
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
        *self.drawn += 1;
        let text = format!("{:016x}{:016x}", self.number, self.drawn);
        Token::parse(&text).expect("32 hex digits are a token")
    }

    fn nonce(&mut self) -> u64 {
        *self.drawn += 1;
        *self.drawn
    }

    fn move_deadline(&mut self, holder: RequestId, to: Instant, now: Instant) -> bool {
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
        self.cell(holder).is_none_or(|cell| cell.ended.is_none() && cell.deadline > now)
    }

    fn lose(&mut self, holder: RequestId, reason: LostReason, _: &Ledger) -> Option<LostReason> {
        let Some(cell) = self.cell(holder) else { return Some(reason) };
        *cell.ended.get_or_insert(Some(reason))
    }

    fn end(&mut self, holder: RequestId) {
        if let Some(cell) = self.cell(holder) {
            cell.ended.get_or_insert(None);
        }
    }

    fn acceptance(&mut self, holder: RequestId) -> Acceptance {
        match self.cell(holder) {
            Some(_) => Acceptance::Accepted,
            None => Acceptance::Offered,
        }
    }

    fn change_acceptance(&mut self, holder: RequestId, _: Acceptance) -> Acceptance {
        self.acceptance(holder)
    }
}
