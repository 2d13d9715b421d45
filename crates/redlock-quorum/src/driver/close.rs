//! The end: nothing new is begun, and what is owed is waited for.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::{Driver, Due, Start};
use crate::claim::Claim;
use crate::guard::{Ended, Why};
use crate::{AcquireError, Unreleased};

pub(crate) type CloseReply = oneshot::Sender<Result<(), Unreleased>>;

/// A handle that is being closed.
pub(super) struct Closing {
    reply: Option<CloseReply>,
    /// Leases that somebody still held: their keys stay until they expire, because whoever works
    /// under them may not have noticed yet.
    held: Vec<Arc<Claim>>,
    /// Whoever waits does not wait any longer.
    is_over: bool,
}

impl Driver {
    pub(super) fn close(&mut self, within: Duration, reply: Option<CloseReply>) {
        let due = self.now().saturating_add(within);
        let held = self.dismiss();
        self.closing = Some(Closing { reply, held, is_over: false });
        self.timers.enter(due, Due::Close);
    }

    pub(super) fn give_up_closing(&mut self) {
        if let Some(closing) = &mut self.closing {
            closing.is_over = true;
        }
    }

    /// Whether the driver is done: closed, and either nothing is owed or nobody waits for it.
    pub(super) fn is_closed(&mut self) -> bool {
        let Some(closing) = &self.closing else { return false };
        let mut left = Vec::new();
        for claim in closing.held.iter().filter(|claim| claim.touched() != 0) {
            let within = claim.life_max();
            left.extend(self.keys(&claim.resource, claim.touched(), within));
        }
        let is_over = closing.is_over;
        let owed = self.owed();
        if !owed.is_empty() && !is_over {
            return false;
        }
        left.extend(owed);
        let outcome = if left.is_empty() { Ok(()) } else { Err(Unreleased { owed: left }) };
        if let Some(reply) = self.closing.as_mut().and_then(|closing| closing.reply.take()) {
            let _ = reply.send(outcome);
        }
        self.context.mailbox.close();
        true
    }

    /// A guard that is dropped while the handle is being closed frees its key after all.
    pub(super) fn part_while_closing(&mut self, claim: &Arc<Claim>) {
        if let Some(closing) = &mut self.closing {
            closing.held.retain(|held| !Arc::ptr_eq(held, claim));
        }
    }

    /// Sends everybody away who waits, and ends every lease. Returns those that were held.
    fn dismiss(&mut self) -> Vec<Arc<Claim>> {
        for request in std::mem::take(&mut self.line) {
            let _ = request.reply.send(Err(AcquireError::Shutdown));
        }
        let mut held = Vec::new();
        let due: Vec<Due> = self.timers.drain().collect();
        for due in due {
            match due {
                Due::Retry(request) => {
                    let _ = request.reply.send(Err(AcquireError::Shutdown));
                }
                Due::Attempt(claim) => {
                    if let Some(claim) = claim.upgrade() {
                        self.dismiss_claim(claim, &mut held);
                    }
                }
                Due::Keep(claim) => self.dismiss_claim(claim, &mut held),
                Due::Round(round) => {
                    self.dismiss_claim(round.claim.clone(), &mut held);
                    round.time_out();
                }
                Due::Census(census) => census.time_out(),
                due @ (Due::Farewell(_) | Due::Debts) => {
                    self.timers.enter(self.context.clock.now(), due);
                }
                // Nobody waits for connections any more: what was left for them goes out.
                Due::Start => self.start = Start::Done,
                Due::Grace(_) | Due::Close => {}
            }
        }
        held
    }

    fn dismiss_claim(&mut self, claim: Arc<Claim>, held: &mut Vec<Arc<Claim>>) {
        if let Some(request) = claim.abandon() {
            let _ = request.reply.send(Err(AcquireError::Shutdown));
            self.release(&claim, None);
        } else if claim.is_held() {
            claim.end(Ended::Lost(claim.lost(Why::Shutdown)));
            held.push(claim);
        }
    }
}
