//! Executes the news of `Masters`, in order.

use redlock_core::admission::Names;
use redlock_core::{Instant, NodeEvent, Vote};
use redlock_protocol::client::ids::Asker;
use redlock_protocol::client::key::Keys;
use redlock_protocol::client::masters::{Context, Masters, News, Terms};
use redlock_protocol::token::lifecycle::Event;

use super::Driver;
use super::observe::weakness;
use crate::settings::{Quarantine, Settings};
use redlock_protocol::client::draws::Draw;
use redlock_protocol::client::timers::{Due, IDLE_MIN};

/// The settings that concern masters.
pub(super) fn terms(settings: &Settings, names: Names) -> Terms {
    Terms {
        names,
        fencing: settings.fencing,
        has_quarantine: settings.quarantine == Quarantine::On,
        wants_queue: settings.queue,
        max_ttl: settings.max_ttl(),
        is_max_ttl_given: settings.max_ttl.is_some(),
        act_within: settings.act_within(),
        order_timeout: settings.order_timeout(),
        node_timeout: settings.node_timeout(),
        connect_timeout: settings.connect_timeout,
    }
}

impl Driver {
    /// Passes an input to `Masters`, and executes the resulting news.
    pub(super) fn with_masters(
        &mut self,
        now: Instant,
        input: impl FnOnce(&mut Masters, &mut Context<'_>),
    ) {
        let mut news = std::mem::take(&mut self.news);
        // The name of a quarantine must not follow from a seed: two clients may have the same.
        let mut cx = Context { now, news: &mut news, random: rand::random };
        input(&mut self.masters, &mut cx);
        for master in 0..self.masters.len() {
            if let Some(at) = self.masters.alarm(master) {
                self.timers.enter(at, Due::Master(master));
            }
        }
        news.drain(..).for_each(|news| self.follow(news, now));
        self.news = news;
    }

    fn follow(&mut self, news: News, now: Instant) {
        match news {
            News::Ask(master, op, asker) => self.nodes.ask(master, *op, asker, now),
            News::Admitted(master, run) => self.nodes.set_admitted(master, run),
            News::Urgent(master, is_urgent) => self.nodes.set_urgent(master, is_urgent),
            News::ProcessEnded(master) => self.process_ended(master, now),
            News::Disowned(master, why) => {
                self.each_lock(now, || Event::Disowned(master, why.clone()));
            }
            News::Suspected(master, why) => {
                self.each_lock(now, || Event::Suspected(master, why.clone()));
            }
            News::Unproven(master) => self.each_lock(now, || Event::Unproven(master)),
            News::Proven(master) => self.each_taken(now, || Event::Proven(master)),
            News::Voting(master) => self.each_taken(now, || Event::Voting(master)),
            News::PausesOver => self.with_keys(now, Keys::pauses_over),
            News::Reached(master) => {
                self.unacknowledged[master].reached();
                self.send_batch(master, now);
                self.ask_again(master, true);
            }
            News::LostSight(master) => {
                self.observers.lost_sight(master);
                self.with_keys(now, |keys, cx| keys.lost_sight(master, cx));
            }
            News::Up(master) => self.observer.up(master),
            News::Down(master, cause, is_news) => self.observer.down(master, &cause, is_news, now),
            News::NotCounting(master, cause) => self.observer.not_counting(master, &cause, now),
            News::Counting(master) => self.observer.counting(master),
            News::Weak(master, weak) => self.observer.weakness(master, weakness(weak), now),
            News::NoQueue(master, why) => self.observer.no_queue(master, &why, now),
            News::ListDoubt(warning) => self.observer.list_may_be_wrong(&warning, now),
            News::ListWarning(warning) => {
                self.observer.counters.set_list_warning(warning.map(|warning| *warning))
            }
        }
    }

    pub(super) fn event(&mut self, master: usize, event: NodeEvent) {
        let now = self.now();
        if let NodeEvent::KeyChanged(_) | NodeEvent::DataLost = event {
            self.observer.counters.pushes.add(1);
        }
        match event {
            // The only frequent event: it does not concern the state of the master.
            NodeEvent::KeyChanged(key) => {
                self.observers.key_changed(&key);
                self.with_keys(now, |keys, cx| keys.changed(master, &key, cx));
            }
            NodeEvent::Called(call, key) => {
                self.with_keys(now, |keys, cx| keys.called(master, call, &key, cx));
            }
            event => {
                self.with_masters(now, |masters, cx| masters.event(master, event, cx));
                self.consider_start();
                self.with_questions(now, |all, masters, _, cx| all.consider(masters, cx));
            }
        }
    }

    /// The answer of a master to a request about admission.
    pub(super) fn admission_vote(&mut self, asker: Asker, vote: &Vote, now: Instant) {
        let (master, said) = (vote.master, vote.answer.clone().into_admission());
        self.with_masters(now, |masters, cx| masters.told(asker, master, &said, cx));
        match asker {
            Asker::Init(number) => self.init_answered(number, master, said, now),
            Asker::Report(number) => self.with_questions(now, |all, masters, _, cx| {
                all.report_answered(number, master, said, masters, cx);
            }),
            Asker::Step(..) | Asker::Fresh => {}
        }
        self.with_masters(now, Masters::advance);
    }

    /// A caller wants a lock, or more time for one.
    pub(super) fn ask(&mut self, now: Instant) {
        if self.masters.ask() {
            self.with_masters(now, Masters::advance);
        }
    }

    /// A caller wants a lock. Its attempt waits if steps may be under way that no attempt has
    /// waited for.
    pub(super) fn await_steps(&mut self, now: Instant) {
        let was_idle = || self.timers.is_late(now, IDLE_MIN);
        if let Some(until) = self.masters.close_gate(was_idle, now) {
            self.timers.enter(until, Due::Wake);
            self.with_masters(now, Masters::advance);
        }
    }

    pub(super) fn fresh_due(&mut self, now: Instant) {
        let random = self.draws.unit(Draw::Fresh, now);
        let mut next = now;
        self.with_masters(now, |masters, cx| next = masters.refresh(random, cx));
        self.timers.enter(next, Due::Fresh);
    }

    /// Some lease is held from now on, or none is.
    pub(super) fn set_holding(&mut self) {
        for master in self.masters.set_holding(self.locks.leases() > 0).iter() {
            self.nodes.set_urgent(master, self.masters.links().is_urgent(master));
        }
    }

    /// Closes the connections. Every unanswered request becomes *unknown*.
    pub(super) fn disconnect(&mut self) {
        let now = self.now();
        self.nodes.disconnect();
        self.with_masters(now, Masters::disconnect);
    }
}
