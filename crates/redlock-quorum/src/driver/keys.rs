//! Passes inputs to `Keys`, and executes the resulting news in order.

use redlock_core::{Instant, QueueTicket};
use redlock_protocol::client::draws::{Draw, Draws};
use redlock_protocol::client::ids::LockId;
use redlock_protocol::client::key::{Context, Keys, News, SILENT, Terms};

use redlock_protocol::master_set::MasterSet;

use super::Driver;
use super::command::AcquireReply;
use super::lock::Lock;
use super::locks::Locks;
use crate::settings::Settings;

/// The settings that concern keys.
pub(super) fn terms(settings: &Settings, draws: Draws) -> Terms {
    Terms {
        prefix: settings.prefix.to_vec(),
        ticket: QueueTicket::new(draws.number(Draw::QueueTicket, Instant::ORIGIN)),
        has_queue: settings.queue,
        seed: draws.number(Draw::Index, Instant::ORIGIN),
    }
}

impl Driver {
    /// Passes an input to `Keys`.
    #[inline]
    pub(super) fn with_keys<T>(
        &mut self,
        now: Instant,
        input: impl FnOnce(&mut Keys, &mut Context<'_, AcquireReply>) -> T,
    ) -> T {
        let (keys, _, mut cx) = self.keys_and_locks(now);
        let output = input(keys, &mut cx);
        self.follow_keys(now);
        output
    }

    /// Passes an input that concerns a lock to `Keys`.
    #[inline]
    pub(super) fn with_claim(
        &mut self,
        id: LockId,
        now: Instant,
        input: impl FnOnce(&mut Keys, &mut Lock, &mut Context<'_, AcquireReply>),
    ) {
        let (keys, locks, mut cx) = self.keys_and_locks(now);
        let Some(lock) = locks.get_mut(id) else { return };
        input(keys, lock, &mut cx);
        self.follow_keys(now);
    }

    #[inline]
    fn keys_and_locks(
        &mut self,
        now: Instant,
    ) -> (&mut Keys, &mut Locks, Context<'_, AcquireReply>) {
        let cx = Context {
            now,
            fan_out: self.fan_out,
            is_traced: self.observer.is_traced(),
            draws: self.draws,
            points: &self.masters,
            callers: &mut self.requests,
            timers: &mut self.timers,
        };
        (&mut self.keys, &mut self.locks, cx)
    }

    #[inline]
    fn follow_keys(&mut self, now: Instant) {
        while let Some(news) = self.keys.next_news() {
            self.follow_key(news, now);
        }
    }

    fn follow_key(&mut self, news: News, now: Instant) {
        let counters = &self.observer.counters;
        match news {
            News::Line(outgoing) => self.line.push(outgoing),
            News::Stands(caller) => self.stand_in_line(caller),
            News::Send(at, op, ticket) => {
                self.send(&op, MasterSet::from_iter([at]), ticket, now);
            }
            News::Explain(callers, waiting, shared) => {
                if let Some(explanation) = self.explain_together(callers, shared) {
                    self.keys.explained(waiting, explanation);
                }
            }
            News::Suspect(master, until) => self.masters.suspect(master, until),
            News::Polled => counters.polls.add(1),
            News::Watched => counters.watches.add(1),
            News::Cancelled => counters.cancelled.add(1),
            News::Silent(master) => counters.vote(master, &SILENT),
            News::Said(caller, what) => self.observer.say_request(&self.requests, caller, what),
            News::SaidAt(waiting, master, what) => self.say_head(waiting, master, what),
        }
    }
}
