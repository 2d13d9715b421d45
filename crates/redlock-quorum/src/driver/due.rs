//! The actions that are done when their time has come.

use redlock_core::Instant;
use redlock_protocol::token::lifecycle::Event;

use super::Driver;
use super::lock::Lock;
use redlock_protocol::client::timers::Due;

impl Driver {
    pub(super) fn fire_timers(&mut self, seen: Instant) {
        let mut read = None;
        while let Some(due) = self.timers.pop(seen) {
            let now = *read.get_or_insert_with(|| self.clock.now());
            match due {
                Due::Attempt(lock, at) => self.attempt_due(lock, at, now),
                Due::Ballots(lock) => self.happens(lock, Event::BallotsEnded, now),
                Due::Grace(lock) => self.happens(lock, Event::GraceEnded, now),
                Due::TakeAgain(lock) => self.happens(lock, Event::TakeAgain, now),
                Due::Wait(caller) => self.with_keys(now, |keys, cx| keys.wait_over(caller, cx)),
                Due::Waiting(id, at) => self.with_keys(now, |keys, cx| keys.head_due(id, at, cx)),
                Due::Watch(id, number) => {
                    self.with_keys(now, |keys, cx| keys.query_due(id, number, cx));
                }
                Due::Unsent(request) => self.unsent_due(request),
                Due::Keep(lock, at) => self.keep_due(lock, at, now),
                Due::Extension(lock, number) => self.extension_due(lock, number, now),
                Due::Release(lock) => self.release_due(lock, now),
                Due::Inspection(id) => {
                    self.with_questions(now, |all, _, _, cx| all.inspection_due(id, cx));
                }
                Due::Unacknowledged(master) => self.unacknowledged_due(master, now),
                Due::Start => self.started(),
                Due::Master(master) => self.with_masters(now, |all, cx| all.tick(master, seen, cx)),
                Due::Init => {
                    self.with_questions(now, |all, masters, _, cx| all.tick(seen, masters, cx));
                }
                Due::Report(number) => {
                    self.with_questions(now, |all, masters, _, cx| {
                        all.report_due(number, masters, cx);
                    });
                }
                Due::Fresh => self.fresh_due(now),
                Due::Wake => {}
                Due::Close => {
                    if let Some(closing) = &mut self.closing {
                        closing.time_passed(now);
                    }
                }
                Due::Warnings => self.observer.report_suppressed(now),
            }
            self.settle();
        }
    }

    /// When the driver has something to do, if nothing comes in before.
    pub(super) fn next_due(&mut self) -> Option<Instant> {
        let Self { locks, requests, questions, keys, timers, .. } = self;
        let awaits = |lock, is_so: fn(&Lock) -> bool| locks.get(lock).is_some_and(is_so);
        timers.prune(|due| match due {
            Due::Attempt(lock, _) | Due::Release(lock) => !awaits(lock, Lock::awaits_votes),
            Due::Grace(lock) | Due::Ballots(lock) | Due::TakeAgain(lock) => {
                !awaits(lock, Lock::is_attempt)
            }
            Due::Keep(lock, _) | Due::Extension(lock, _) => !awaits(lock, Lock::is_lease),
            Due::Wait(request) | Due::Unsent(request) => !requests.contains(request),
            Due::Waiting(waiting, _) | Due::Watch(waiting, _) => !keys.contains(waiting),
            Due::Inspection(inspection) => !questions.contains(inspection),
            // None of these is pruned: its action finds out whether it is stale.
            _ => false,
        });
        timers.next_at()
    }
}
