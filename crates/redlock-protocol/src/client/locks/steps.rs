//! Carries out what the machine of a token decides.

use super::*;
use crate::client::draws::Draw;
use crate::client::effects::NotExtended;
use crate::token::lifecycle::{Answered, Event, Step};

impl Locks {
    /// Handles an event of a token: its machine decides the next step, which is carried out.
    pub fn happens(&mut self, id: LockId, event: Event<'_>, cx: &mut Context<'_>) {
        if let Some(step) = self.decide(id, event, cx) {
            self.carry_out(id, step, cx);
        }
    }

    /// Handles the answer of a master for a token. Nearly every event is one of these.
    pub fn answered(&mut self, id: LockId, answered: Answered<'_>, cx: &mut Context<'_>) {
        let Some(lock) = self.table.get_mut(id) else { return };
        let step = lock.machine.answered(answered, cx.now);
        lock.time_ballots(id, cx.timers);
        lock.show(id, &step, Some(answered.master), cx);
        if lock.is_answered() {
            lock.leave_window(cx);
        }
        self.carry_out(id, step, cx);
    }

    /// Decides the next step. The holder sees the new state of the machine before the next input.
    pub(super) fn decide(
        &mut self,
        id: LockId,
        event: Event<'_>,
        cx: &mut Context<'_>,
    ) -> Option<Step> {
        let lock = self.table.get_mut(id)?;
        if let Event::Returned { .. } | Event::Untaken = event
            && let Some((lease, holder)) = lock.held()
        {
            holder.copies = lease.ledger().held_at(cx.now);
        }
        let master = event.master();
        let step = lock.machine.on(event, cx.now);
        lock.time_ballots(id, cx.timers);
        lock.show(id, &step, master, cx);
        Some(step)
    }

    /// Most answers have no consequence, which is recognised where they were counted.
    #[inline]
    pub(super) fn carry_out(&mut self, id: LockId, step: Step, cx: &mut Context<'_>) {
        if !matches!(step, Step::Wait) {
            self.follow(id, step, cx);
        }
    }

    fn follow(&mut self, id: LockId, step: Step, cx: &mut Context<'_>) {
        let Some(lock) = self.table.get_mut(id) else { return };
        if !matches!(step, Step::Hold(_)) {
            lock.trace(|| What::Decided(step.clone()), cx.effects);
        }
        match step {
            Step::Wait => {}
            Step::NeedBallot { proposed } => self.draw(id, proposed, cx),
            Step::AskOthers { others, first, ballot } => {
                self.ask_others(id, others, first, ballot, cx);
            }
            Step::SendBallot { number, ballot, masters } => {
                lock.send_ballot(id, number, ballot, masters, cx);
            }
            Step::AwaitCopies(fan_out) => await_copies(id, fan_out, cx),
            Step::Won(won) => self.outcomes.push_back(Outcome::Won(id, won)),
            Step::Lost(loss) => self.outcomes.push_back(Outcome::Lost(id, loss)),
            Step::Hold(step) => self.hold(id, step, cx),
            // The caller that requested the decision carries it out.
            Step::HandedOn(_) => {}
            // Starts the release, or sends it once more.
            Step::Release => match &lock.owner {
                Owner::Returned { .. } => {
                    cx.line.push(crate::client::line::Outgoing::Release(id));
                }
                // Its key decides first what the release leaves to others.
                Owner::Holds(_) => self.outcomes.push_back(Outcome::Ends(id)),
                Owner::Asks { .. } => self.begin_release(id, cx),
            },
            Step::SendRelease(masters) => lock.send_exits(id, masters, cx),
            Step::TakeAgain => {
                // The reservations of the former holder are still on their way: they get about the
                // time of a fan-out.
                let random = cx.draws.unit(Draw::TakeAgain(id), cx.now);
                let pause = cx.fan_out.mul_f64(0.6 + 0.4 * random);
                cx.timers.enter(cx.now.saturating_add(pause), Due::TakeAgain(id));
            }
            // Under the same token and ballot: what they had may be reserved for us by now.
            Step::AskAgain { masters, ballot } => self.send_attempt(id, masters, ballot, cx),
            Step::Released => self.released(id, cx),
            Step::Gone => self.gone(id, cx),
        }
    }

    /// A token that is not released needs nothing more.
    fn gone(&mut self, id: LockId, cx: &mut Context<'_>) {
        if let Some(lock) = self.table.get(id) {
            lock.trace(|| What::Happens("forgotten"), cx.effects);
        }
        if let Some(holder) = self.leave_holder(id) {
            cx.set_holding(self.leases > 0);
            holder.leave(NotExtended::Gone, cx);
        }
        self.outcomes.push_back(Outcome::Left(id));
    }

    /// Removes a token that needs nothing more.
    pub fn remove_gone(&mut self, id: LockId) {
        if self.table.get(id).is_some_and(|lock| *lock.machine.stage() == Stage::Over) {
            self.table.remove(id);
        }
    }
}

/// A quorum is there, and its holder wants more copies: they have as long again as the quorum took,
/// and no longer than the node timeout.
fn await_copies(id: LockId, fan_out: Duration, cx: &mut Context<'_>) {
    /// The least grace: answers that were sent together come together.
    const GRACE_MIN: Duration = Duration::from_millis(10);
    cx.timers.enter(cx.now.saturating_add(fan_out.max(GRACE_MIN)), Due::Grace(id));
}
