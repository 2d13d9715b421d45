//! The first connections, the end, and the way from one runtime to the next.

use super::effects::Refused;
use super::locks::Lock;
use super::masters::FRESH_FOR;
use super::starting::Begun;
use super::*;
use crate::LostReason;
use crate::waiting::Refusal;

impl Client {
    /// The links are being opened. Continues the work that the previous runtime left.
    pub(super) fn connect(&mut self, at: &mut At<'_>) {
        self.start = Start::Connecting(at.now);
        let until = at.now.saturating_add(self.common.limits.connect_timeout);
        self.common.timers.enter(until, Due::Start);
        self.common.timers.enter(at.now.saturating_add(FRESH_FOR), Due::Fresh);
        self.masters.connect(until);
        self.each_lock(|_| true, at, Locks::resume_release);
        if let Some(closing) = &self.closing {
            // The runtime before has left the client half closed.
            self.common.timers.enter(closing.until, Due::Close);
        }
        let begun = self.start.consider(&self.masters, || at.moment.now());
        self.begin(begun, at);
    }

    /// Once the first connections are made, or their time is over, what waited for them is sent.
    pub(super) fn begin(&mut self, begun: Begun, at: &mut At<'_>) {
        match begun {
            Begun::Nothing => {}
            Begun::Lingers(until) => self.common.timers.enter(until, Due::Start),
            Begun::Now if self.start == Start::Done => {}
            Begun::Now => {
                self.start = Start::Done;
                at.now = at.moment.now();
                self.each_lock(Lock::is_lease, at, Locks::resume);
                for request in std::mem::take(&mut self.early) {
                    self.early(request, at);
                    self.settle(at);
                }
            }
        }
    }

    /// Starts no new work. Waiting requests fail, leases are lost, and releases continue until all
    /// are acknowledged or the wait of one caller is over.
    pub(super) fn close(&mut self, within: Duration, reply: Option<RequestId>, at: &mut At<'_>) {
        let until = at.now.saturating_add(within);
        let mut closing = self.closing.take();
        let is_first = closing.is_none();
        if is_first {
            self.abort_attempts(at);
            self.with_keys(at, Keys::give_up_places);
            self.keys.clear();
            let refused = |id| Effect::Refused(id, Refused::Shutdown);
            at.effects.list.extend(self.common.callers.ids().map(refused));
            self.common.callers.clear();
            self.with_questions(at, |questions, _, cx| questions.all.dismiss_failures(cx));
            self.each_lock(Lock::is_lease, at, Locks::withdraw_offer);
            // Their keys are left to expire, because a holder might not have noticed yet, and no
            // other client must get the lock before that.
            self.each_lock(Lock::is_lease, at, |locks, id, cx| {
                locks.lose(id, LostReason::Shutdown, cx);
            });
            let steps_until = at.now.saturating_add(self.common.limits.connect_timeout);
            self.common.timers.enter(steps_until, Due::Wake);
            closing = Some(Closing::new(until, steps_until));
        }
        self.closing = closing.map(|closing| closing.more(until, reply));
        self.common.timers.enter(until, Due::Close);
        // No master that answers errors is left alone for longer.
        for master in 0..self.masters.len() {
            self.with_locks(at, |locks, cx| locks.ask_again(master, true, cx));
        }
    }

    /// Gives up all open attempts, but keeps their requests.
    fn abort_attempts(&mut self, at: &mut At<'_>) {
        for id in self.locks.ids(Lock::is_attempt) {
            self.with_locks(at, |locks, cx| locks.leave_attempt(id, cx));
            at.effects.count(Count::Ended(counts::End::Aborted));
            self.with_claim(id, at, |keys, (claim, _), cx| {
                keys.leave_after(claim, Refusal::Silent, cx);
            });
            self.with_locks(at, |locks, cx| locks.happens(id, Event::Cancelled, cx));
        }
    }

    /// Returns `true` if nothing is left to do: the client is closed, no step must be finished, and
    /// either no release is left or no caller waits for it.
    pub fn is_closed(&self, now: Instant) -> bool {
        self.closing.as_ref().is_some_and(|closing| {
            let finishes = self.masters.finishes_steps() && now < closing.steps_until;
            !finishes && (closing.is_over || self.locks.releases() == 0)
        })
    }

    /// Returns the keys that may be left on masters.
    pub fn remains(&mut self, now: Instant) -> Remains {
        let masters = &self.masters;
        self.locks.remains(|master| masters.links().lacks_barrier(master), now)
    }

    /// Records that nothing drives the client from here on. Callers that wait for answers retry on
    /// their own runtime, and releases and leases wait for the next one.
    pub(super) fn dismiss(&mut self, at: &mut At<'_>) {
        self.start = Start::Parked;
        self.abort_attempts(at);
        self.settle(at);
        for _ in 0..self.common.callers.len() {
            at.effects.count(Count::Cancelled);
        }
        self.common.callers.clear();
        self.keys.clear();
        self.early.clear();
        self.locks.dismiss();
        if let Some(closing) = &mut self.closing {
            closing.callers.clear();
        }
    }
}
