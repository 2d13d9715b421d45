//! The queue part of an attempt: masters that refused are queried again after the meeting point has
//! granted.

use redlock_core::{Ballot, Verdict};

use super::{Attempt, Defeat, Step};
use crate::master_set::MasterSet;

/// The entry into the queue at the meeting point.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Enters {
    pub(super) at: usize,
    again: u8,
    /// The masters that refused must be queried again.
    is_due: bool,
}

/// Limits how often masters that refused are queried again after the meeting point has granted. The
/// previous holder's release may still be on its way to them.
const AGAIN_MAX: u8 = 4;

impl Enters {
    /// Ends the queries of masters that refused.
    pub(super) fn stop(&mut self) {
        (self.again, self.is_due) = (0, false);
    }
}

impl Attempt {
    /// Makes this an attempt that enters the queue at the master `at`.
    pub fn entering(self, at: usize) -> Self {
        Self { enters: Some(Enters { at, again: AGAIN_MAX, is_due: false }), ..self }
    }

    /// Returns `true` if the meeting point, whose answer decides where to wait, has not answered.
    pub(super) fn awaits_entry(&self) -> bool {
        self.enters.as_ref().is_some_and(|enters| self.ledger.answer(enters.at).is_pending())
    }

    pub(super) fn take_again_or_lose(&mut self) -> Step {
        let may_win = !self.tally.is_unanswered();
        let granted = self.granted;
        match &mut self.enters {
            Some(enters) if enters.is_due => Step::Wait,
            Some(Enters { at, again, is_due })
                if granted.contains(*at) && *again > 0 && may_win =>
            {
                *again -= 1;
                *is_due = true;
                Step::TakeAgain
            }
            _ => Step::Lost(Defeat::Outvoted),
        }
    }

    /// Returns the masters that refused and are queried again now, with their ballot. `None` if
    /// that is no longer due.
    pub fn take_again(&mut self) -> (MasterSet, Option<Ballot>) {
        let Some(enters) = self.enters.as_mut().filter(|enters| enters.is_due) else {
            return (MasterSet::EMPTY, None);
        };
        enters.is_due = false;
        let has_refused = |master: &usize| {
            self.ledger.answer(*master).verdict.is_refusal() && !self.granted.contains(*master)
        };
        let masters: MasterSet = (0..self.ledger.masters()).filter(has_refused).collect();
        self.ledger.ask(masters);
        self.tally.ask_again(masters.len());
        for master in masters.iter() {
            self.ledger.answered_instead(master, Verdict::Pending);
        }
        (masters, self.join_again(masters))
    }
}
