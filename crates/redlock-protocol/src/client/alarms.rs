//! Alarms: the work that is due at a time, and its consequences.

use redlock_core::Cause;

use super::acquiring::Why;
use super::callers::Caller;
use super::*;

impl Client {
    /// Fires the alarms that are due at `seen`.
    pub(super) fn fire(&mut self, seen: Instant, at: &mut At<'_>) {
        let now = at.now;
        while let Some(due) = self.common.timers.pop(seen) {
            at.now = now;
            self.due(due, seen, at);
            self.settle(at);
        }
        at.now = now;
        let (locks, questions, keys) = (&self.locks, &self.questions.all, &self.keys);
        let Common { timers, callers, .. } = &mut self.common;
        // The shell does not wake up for alarms that mean nothing any longer.
        timers.prune(|due| match due {
            Due::Wait(request) | Due::Unsent(request) => !callers.contains(request),
            Due::Waiting(waiting, _) | Due::Watch(waiting, _) => !keys.contains(waiting),
            Due::Inspection(inspection) => !questions.contains(inspection),
            // Others are not pruned: their action finds out whether it is stale.
            due => locks.is_stale(due),
        });
    }

    fn due(&mut self, due: Due, seen: Instant, at: &mut At<'_>) {
        let mut happens = |lock, event| {
            self.with_locks(at, |locks, cx| locks.happens(lock, event, cx));
        };
        match due {
            Due::Ballots(lock) => happens(lock, Event::BallotsEnded),
            Due::Grace(lock) => happens(lock, Event::GraceEnded),
            Due::TakeAgain(lock) => happens(lock, Event::TakeAgain),
            Due::Attempt(lock, due) => {
                if !self.locks.get(lock).is_some_and(|lock| lock.is_attempt_due(due)) {
                    return;
                }
                self.with_claim(lock, at, |keys, (claim, is_lease), cx| {
                    keys.silent((claim, lock), is_lease, cx);
                });
                self.with_locks(at, |locks, cx| locks.attempt_due(lock, cx));
            }
            Due::Keep(lock, due) => {
                self.with_locks(at, |locks, cx| locks.keep_due(lock, due, cx));
            }
            Due::Extension(lock, number) => {
                self.with_locks(at, |locks, cx| locks.extension_due(lock, number, cx));
            }
            Due::Release(lock) => self.with_locks(at, |locks, cx| locks.release_due(lock, cx)),
            Due::Unacknowledged(master) => {
                self.with_locks(at, |locks, cx| locks.repeat_due(master, cx));
            }
            Due::Wait(caller) => self.with_keys(at, |keys, cx| keys.wait_over(caller, cx)),
            Due::Waiting(id, due) => self.with_keys(at, |keys, cx| keys.head_due(id, due, cx)),
            Due::Watch(id, number) => {
                self.with_keys(at, |keys, cx| keys.query_due(id, number, cx));
            }
            Due::Unsent(request) => {
                // Requests with an attempt under way end by themselves.
                let is_so = |caller: &Caller| !caller.is_attempted;
                if self.common.callers.get(request).is_some_and(is_so)
                    && let Some(caller) = self.take_caller(request, at)
                {
                    let cause = Cause::NotConnected("its turn did not come in time".into());
                    self.fail(request, &caller, Why::unsent(cause, self.masters.len()), at);
                }
            }
            Due::Inspection(id) => self.with_questions(at, |questions, _, cx| {
                questions.all.inspection_due(id, cx);
            }),
            Due::Init => self.with_questions(at, |questions, view, cx| {
                questions.all.tick(seen, view, cx);
            }),
            Due::Report(number) => self.with_questions(at, |questions, view, cx| {
                questions.all.report_due(number, view, cx);
            }),
            Due::Master(master) => {
                self.with_masters(at, |masters, cx| masters.tick(master, seen, cx));
            }
            Due::Fresh => {
                let (random, mut next) = (self.common.draw_fresh(at.now), at.now);
                self.with_masters(at, |masters, cx| next = masters.refresh(random, cx));
                self.common.timers.enter(next, Due::Fresh);
            }
            Due::Start => {
                let begun = self.start.due(&self.masters, at.now);
                self.begin(begun, at);
            }
            Due::Wake => {}
            Due::Close => {
                if let Some(closing) = &mut self.closing {
                    closing.time_passed(at.now);
                }
            }
        }
    }

    /// Returns when there is something to do, if no input comes earlier: as of the last
    /// [`Alarms`](Input::Alarms), or earlier.
    pub fn next_due(&self) -> Option<Instant> {
        self.common.timers.next_at()
    }
}
