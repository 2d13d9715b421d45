//! `Present`: the draws and the holders' cells, as the shell implements them.

use std::fmt;

use redlock_core::{Clock, Instant, Label, Token};
use redlock_protocol::client::ids::RequestId;
use redlock_protocol::client::moment::{Acceptance, Moment};
use redlock_protocol::votes::ledger::Ledger;

use super::entries::Entries;
use crate::lost::{Ended, LostReason};

/// The clock, the random source, and the cells of holders.
pub(super) struct Present<'a> {
    pub(super) clock: &'a Clock,
    /// The instant of the input, if the clock was read already.
    pub(super) now: Option<Instant>,
    pub(super) entries: &'a Entries,
}

impl fmt::Debug for Present<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Present").field("now", &self.now).finish_non_exhaustive()
    }
}

impl Moment for Present<'_> {
    #[inline]
    fn now(&mut self) -> Instant {
        self.now.unwrap_or_else(|| self.clock.now())
    }

    fn token(&mut self, label: Option<&Label>) -> Token {
        Token::random(label)
    }

    fn nonce(&mut self) -> u64 {
        // The name of a quarantine must not follow from a seed: two clients may have the same.
        rand::random()
    }

    fn move_deadline(&mut self, holder: RequestId, to: Instant, now: Instant) -> bool {
        self.entries.cell(holder).is_none_or(|cell| cell.move_deadline(to, now))
    }

    fn is_held(&mut self, holder: RequestId) -> bool {
        self.entries.cell(holder).is_none_or(|cell| cell.is_held())
    }

    fn lose(
        &mut self,
        holder: RequestId,
        reason: LostReason,
        ledger: &Ledger,
    ) -> Option<LostReason> {
        let Some(cell) = self.entries.cell(holder) else { return Some(reason) };
        cell.write_all(ledger);
        cell.end(Ended::Lost(cell.lost(reason)));
        match cell.ended() {
            Some(Ended::Lost(lost)) => Some(lost.reason),
            _ => None,
        }
    }

    fn end(&mut self, holder: RequestId) {
        if let Some(cell) = self.entries.cell(holder) {
            cell.end(Ended::Released);
        }
    }

    fn acceptance(&mut self, holder: RequestId) -> Acceptance {
        self.entries.cell(holder).map_or(Acceptance::Offered, |cell| cell.acceptance())
    }

    fn change_acceptance(&mut self, holder: RequestId, to: Acceptance) -> Acceptance {
        let cell = self.entries.cell(holder);
        cell.map_or(Acceptance::Offered, |cell| cell.change_acceptance(to))
    }
}
