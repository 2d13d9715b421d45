//! Extensions of leases, by the keeper or as their holders want.

use super::*;
use crate::client::effects::NotExtended;
use crate::terms::{InvalidTiming, Timing};
use crate::token::lease::extension::Extended;
use crate::token::lease::{Extend, Step};
use crate::token::lifecycle::{self, Answered, Asked, Event};
use crate::votes::answer::Judged;

impl Locks {
    /// Extends the lease now, and uses this TTL for all later extensions.
    pub fn extend(&mut self, hold: HoldId, ttl: Duration, reply: RequestId, cx: &mut Context<'_>) {
        let holder = self.table.get(hold.lock).and_then(Lock::holder);
        let answer = Effect::Prolonged;
        let Some(id) = self.held_by(hold) else {
            let why = if holder.is_some() { NotExtended::Released } else { NotExtended::Gone };
            return cx.effects.push(answer(reply, holder, Err(why)));
        };
        let Some(lock) = self.table.get_mut(id) else { return };
        let timing = match lock.extended_timing(ttl, &self.terms.limits, cx) {
            Ok(timing) => timing,
            Err(invalid) => {
                let why = NotExtended::Invalid(invalid.into());
                return cx.effects.push(answer(reply, holder, Err(why)));
            }
        };
        lock.node_timeout = timing.node_timeout;
        let Some((_, Holder { id: holder, .. })) = lock.held() else {
            return cx.effects.push(answer(reply, None, Err(NotExtended::Gone)));
        };
        let holder = *holder;
        if !cx.moment.is_held(holder) {
            return cx.effects.push(answer(reply, Some(holder), Err(NotExtended::Lost)));
        }
        let step = self.decide(id, Event::Extend(timing), cx);
        let Some(lifecycle::Step::Hold(Step { extend: Some(extend), .. })) = step else { return };
        let Some(lock) = self.table.get_mut(id) else { return };
        if let Some((_, holder)) = lock.held() {
            holder.extending.push((extend.number, reply));
        }
        let due = cx.now.saturating_add(timing.node_timeout);
        cx.timers.enter(due, Due::Extension(id, extend.number));
        lock.send_extension(id, extend, cx);
    }

    /// Handles a master's answer to an extension. If the lease lasts longer, counts the margin once
    /// for each extension.
    pub fn extension_answered(
        &mut self,
        id: LockId,
        number: u32,
        vote: &Vote,
        judged: Judged<'_>,
        cx: &mut Context<'_>,
    ) {
        let before = self.held(id).and_then(|(lease, _)| lease.deadline());
        let event = Event::Answered(Answered::of(Asked::Extension(number), vote, judged));
        let Some(step) = self.decide(id, event, cx) else { return };
        if let Some(before) = before
            && let Some((lease, holder)) = self.held(id)
            && lease.deadline() > Some(before)
            && holder.measured != number
        {
            holder.measured = number;
            let margin = before.saturating_since(cx.now);
            cx.effects.push(Effect::Extended(holder.id, margin));
        }
        self.carry_out(id, step, cx);
    }

    /// Handles the end of the node timeout of an extension that its holder waits for.
    pub fn extension_due(&mut self, id: LockId, number: u32, cx: &mut Context<'_>) {
        let Some((lease, _)) = self.held(id) else { return };
        let silent = lease.unanswered_of(number);
        let Some(step) = self.decide(id, Event::ExtensionTimedOut(number), cx) else { return };
        if let Some(lock) = self.table.get(id) {
            lock.timed_out(silent, cx.effects);
        }
        self.carry_out(id, step, cx);
    }
}

impl Lock {
    /// The durations of an extension, by what the masters allow now.
    fn extended_timing(
        &self,
        ttl: Duration,
        limits: &Limits,
        cx: &Context<'_>,
    ) -> Result<Timing, InvalidTiming> {
        let timing = limits.timing(Some(ttl), cx.voters.max_ttl())?;
        if let Some(lease) = self.machine.lease() {
            timing.check_margin(lease.stop_margin())?;
        }
        Ok(timing)
    }

    pub(super) fn send_extension(&mut self, id: LockId, extend: Extend, cx: &mut Context<'_>) {
        let Some(lease) = self.machine.lease() else { return };
        let op = self.claim.extend_op(lease.timing().px);
        cx.effects.count(Count::Extension);
        self.trace(|| What::Happens("extension"), cx.effects);
        cx.send(op, extend.masters, Ticket::Extension(id, extend.number));
        // An extension is valid only if a score has arrived.
        self.ask_scores(id, cx);
    }
}

impl Holder {
    /// Answers the caller that waits for this extension.
    pub(super) fn answer_extension(
        &mut self,
        number: u32,
        extended: Extended,
        cx: &mut Context<'_>,
    ) {
        let Some(at) = self.extending.iter().position(|(one, _)| *one == number) else { return };
        let (_, reply) = self.extending.swap_remove(at);
        let outcome = match extended {
            _ if !cx.moment.is_held(self.id) => Err(NotExtended::Lost),
            Extended::Confirmed => Ok(()),
            Extended::NotOurs => Err(NotExtended::NotOurs),
            _ => Err(NotExtended::NoQuorum),
        };
        cx.effects.push(Effect::Prolonged(reply, Some(self.id), outcome));
    }

    /// Reports that the holder no longer has the lock, and answers its pending extensions.
    pub(super) fn leave(self, why: NotExtended, cx: &mut Context<'_>) {
        for (_, waiting) in self.extending {
            let outcome = Err(why.clone());
            cx.effects.push(Effect::Prolonged(waiting, Some(self.id), outcome));
        }
        cx.effects.push(Effect::Over(self.id));
    }

    /// Ends the hold, because the holder has returned the lock.
    pub(super) fn end(self, cx: &mut Context<'_>) {
        cx.moment.end(self.id);
        self.leave(NotExtended::Released, cx);
    }
}
