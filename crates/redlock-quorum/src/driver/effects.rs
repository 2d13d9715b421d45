//! Carries out the effects of one input, in order.

use std::sync::Arc;

use redlock_core::{Cause, Instant};
use redlock_protocol::client::effects::{
    Effect, Failed, Fence, Inspected, NotExtended, Refused, Unreleased,
};
use redlock_protocol::client::ids::{HoldId, LockId, RequestId};
use redlock_protocol::client::input::Input;
use redlock_protocol::client::questions::About;
use redlock_protocol::inspection::is_contended;
use redlock_protocol::token::attempt::Defeat;
use redlock_protocol::token::release::Released;

use super::Driver;
use super::command::MarkVotes;
use super::entries::Entry;
use super::held_lock::HeldLock;
use crate::error::{AcquireError, ExtendError, ReleaseError};
use crate::hold::{HoldCell, votes};
use crate::init::InitReport;
use crate::lost::LostReason;
use crate::report::NodeReport;
use crate::status::Status;

impl Driver {
    /// Carries out the effects of an input.
    #[inline]
    pub(super) fn carry_out(&mut self) {
        // Before any caller is woken.
        self.observer.count(&mut self.effects.counts);
        if !self.effects.list.is_empty() {
            self.follow_all();
        }
    }

    fn follow_all(&mut self) {
        let mut list = std::mem::take(&mut self.effects.list);
        let mut untaken = Vec::new();
        let now = self.effects.now;
        for effect in list.drain(..) {
            self.follow(effect, &mut untaken, now);
        }
        self.effects.list = list;
        for hold in untaken {
            self.handle(Input::Untaken(hold));
        }
    }

    fn follow(&mut self, effect: Effect, untaken: &mut Vec<HoldId>, now: Instant) {
        match effect {
            Effect::Send { masters, op, ticket, at } => {
                let ticket = ticket.pack();
                masters.iter().for_each(|master| self.nodes.submit(master, &op, ticket, at));
            }
            Effect::First(master) => self.driven_first |= 1 << master,
            Effect::Admitted(master, run) => {
                self.nodes.set_admitted(master, run.map(|run| *run));
            }
            Effect::Urgent(master, is_urgent) => self.nodes.set_urgent(master, is_urgent),
            Effect::Won { caller, hold, fence, is_resumed } => {
                if !self.won(caller, hold, fence, is_resumed, now) {
                    untaken.push(hold);
                }
            }
            Effect::Failed(caller, failed) => self.failed(caller, *failed, now),
            Effect::Refused(caller, refused) => self.refused(caller, refused, now),
            Effect::Forgotten(id) | Effect::Over(id) => drop(self.entries.remove(id)),
            Effect::Show(holder, lock, master) => self.show(holder, lock, master),
            Effect::Extended(holder, margin) => {
                if let Some(cell) = self.entries.cell(holder) {
                    self.observer.extended(cell, margin);
                }
            }
            Effect::Lost(holder, _) => {
                if let Some(cell) = self.entries.cell(holder) {
                    self.observer.lost(cell, now);
                }
            }
            Effect::Prolonged(reply, holder, outcome) => self.prolonged(reply, holder, outcome),
            Effect::Released(reply, why) => self.released(reply, why.map(|why| *why)),
            Effect::Tracked(reply, master) => {
                if let Some(Entry::Observes(observing)) = self.entries.get_mut(reply) {
                    observing.enter(master, &mut self.observers);
                }
            }
            Effect::Inspected(reply, inspected) => self.inspected(reply, *inspected),
            Effect::Initialized(reply, outcome) => {
                if let Some(Entry::Inits(reply)) = self.entries.remove(reply) {
                    let _ = reply.send(InitReport::of(*outcome, &self.nodes.names));
                }
            }
            Effect::Reported(reply, rows) => {
                if let Some(Entry::Reports(reply)) = self.entries.remove(reply) {
                    let nodes = rows.into_iter().zip(self.nodes.names.iter());
                    let report = |(row, name)| NodeReport::of(Clone::clone(name), row);
                    let _ = reply.send(nodes.map(report).collect());
                }
            }
            Effect::LostSight(master) => self.observers.lost_sight(master),
            Effect::ListWarning(warning) => {
                self.observer.counters.set_list_warning(warning.map(|warning| *warning));
            }
            Effect::Said(said) => self.observer.say(*said, now),
            Effect::Traced(trace) => self.observer.trace(&trace),
        }
    }

    /// Hands the lock to its caller, which is woken from here. Returns `false` if the caller was not
    /// there: it gets nothing.
    fn won(
        &mut self,
        caller: RequestId,
        hold: HoldId,
        fence: Fence,
        is_resumed: bool,
        now: Instant,
    ) -> bool {
        let lock = self.client.locks().get(hold.lock);
        let Some((lock, lease)) = lock.and_then(|lock| Some((lock, lock.machine().lease()?)))
        else {
            // The lease has already ended. The caller tries again.
            self.entries.remove(caller);
            return true;
        };
        let (resource, token) = (lock.claim.resource.clone(), lock.claim.token.clone());
        let (clock, names) = (self.clock.clone(), self.nodes.names.clone());
        let cell = HoldCell::new(resource, token, clock, names, lease, fence);
        let entry = self.entries.hold(caller, cell.clone());
        let (Some(Entry::Asks(reply, asked_at)), Some(slot)) = (entry, self.slot.upgrade()) else {
            return true;
        };
        self.observer.won(&cell, hold.hand_overs, now.saturating_since(asked_at));
        match reply.send(Ok(HeldLock::new(cell, hold, slot, is_resumed))) {
            Err(Ok(held)) => {
                held.cancel();
                false
            }
            _ => true,
        }
    }

    /// Answers the caller with why there is no lock.
    fn failed(&mut self, caller: RequestId, failed: Failed, now: Instant) {
        let Some(Entry::Asks(reply, asked_at)) = self.entries.remove(caller) else { return };
        let Failed { resource, defeat, answers, here } = failed;
        self.observer.failed(&resource, defeat, now.saturating_since(asked_at));
        let votes = votes(&self.nodes.names, &answers);
        let is_here =
            here.is_some_and(|token| votes.holder().is_none_or(|holder| holder == token.as_str()));
        let votes = if is_here { votes.of_this_process() } else { votes };
        let error = if defeat == Defeat::TooLate {
            AcquireError::TooLate { resource, votes }
        } else if is_contended(&answers) {
            AcquireError::Held { resource, votes }
        } else {
            AcquireError::NoQuorum { resource, votes: votes.without_ballots() }
        };
        // A caller that has stopped waiting does not need to know.
        let _ = reply.send(Err(error));
    }

    /// Answers with an error that no masters have a part in.
    fn refused(&mut self, caller: RequestId, refused: Refused, now: Instant) {
        let Some(Entry::Asks(reply, asked_at)) = self.entries.remove(caller) else { return };
        self.observer.refused(now.saturating_since(asked_at));
        let _ = reply.send(Err(match refused {
            Refused::Shutdown => AcquireError::Shutdown,
            Refused::Invalid(invalid) => AcquireError::Invalid((*invalid).into()),
        }));
    }

    /// The holder sees what its lease has become, by an answer of this master or for another reason.
    fn show(&self, holder: RequestId, lock: LockId, master: Option<usize>) {
        let lock = self.client.locks().get(lock);
        let lease = lock.and_then(|lock| lock.machine().lease());
        let (Some(cell), Some(lease)) = (self.entries.cell(holder), lease) else { return };
        match master {
            Some(master) => cell.write(lease.ledger(), master),
            None => {
                cell.write_terms(lease);
                cell.write_all(lease.ledger());
            }
        }
        if !cell.is_settled() && lease.ledger().pending().is_empty() {
            cell.settle();
        }
    }

    /// Answers the caller of an extension.
    fn prolonged(
        &mut self,
        reply: RequestId,
        holder: Option<RequestId>,
        outcome: Result<(), NotExtended>,
    ) {
        let Some(Entry::Extends(reply)) = self.entries.remove(reply) else { return };
        let cell = holder.and_then(|holder| self.entries.cell(holder));
        let outcome = outcome.map_err(|why| match (why, cell) {
            (NotExtended::Invalid(invalid), _) => ExtendError::Invalid((*invalid).into()),
            (NotExtended::Gone, _) | (_, None) => ExtendError::Shutdown,
            (NotExtended::Released, Some(cell)) => {
                ExtendError::Lost(cell.lost(LostReason::Released))
            }
            (NotExtended::Lost, Some(cell)) => match cell.check() {
                Err(lost) => lost.into(),
                Ok(()) => ExtendError::Shutdown,
            },
            (why, Some(cell)) => {
                let (resource, votes) = (cell.resource.clone(), cell.votes());
                match why {
                    NotExtended::NotOurs => ExtendError::NotOurs { resource, votes },
                    _ => ExtendError::NoQuorum { resource, votes },
                }
            }
        });
        // A caller that has stopped waiting does not need to know.
        let _ = reply.send(outcome);
    }

    /// Answers the caller of a release.
    fn released(&mut self, reply: RequestId, why: Option<Unreleased>) {
        let Some(Entry::Releases(reply)) = self.entries.remove(reply) else { return };
        let _ = reply.send(why.map_or(Ok(()), |why| {
            let Unreleased { resource, outcome, answers } = why;
            let votes = votes(&self.nodes.names, &answers);
            Err(match outcome {
                Some(Released::NotOurs) => ReleaseError::NotOurs { resource, votes },
                _ => ReleaseError::Unconfirmed { resource, votes },
            })
        }));
    }

    /// Answers the caller of a question.
    fn inspected(&mut self, reply: RequestId, inspected: Inspected) {
        let names = &self.nodes.names;
        match (self.entries.remove(reply), inspected) {
            (Some(Entry::Status(reply)), inspected) => {
                let _ = reply.send(status(names, inspected));
            }
            (Some(Entry::Observes(observing)), inspected) => {
                observing.answer(status(names, inspected));
            }
            (Some(Entry::Waiters(reply)), Inspected { about: About::Waiters(_, most), .. }) => {
                let _ = reply.send(most);
            }
            (
                Some(Entry::Mark(reply)),
                Inspected { about: About::Mark(_, _, marks), answers, .. },
            ) => {
                let _ = reply.send(MarkVotes { votes: votes(names, &answers), answers: marks });
            }
            _ => {}
        }
    }
}

fn status(names: &[Arc<str>], inspected: Inspected) -> Status {
    let Inspected { answers, standing, set, .. } = inspected;
    let mut nodes = votes(names, &answers).into_vec();
    for (node, standing) in nodes.iter_mut().zip(standing) {
        node.tracks = standing.tracks;
        if let Some(Cause::NotAdmitted(why)) = standing.why_not {
            node.not_admitted = Some(*why);
        }
    }
    Status { set, ..Status::new(nodes) }
}
